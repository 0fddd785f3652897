"""The run: one captured pass a batch, and what each job makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch

from wherefrom.aggregate import aggregate as aggregate_maps
from wherefrom.aggregate import aggregate_row
from wherefrom.errors import InvalidOption, InvalidTarget, OutOfMemory, UnsupportedModel, WherefromError, warn
from wherefrom.method import Method, Scores, methods
from wherefrom.model import Answer, LayerTrace, Model, OutputTrace, Sentence, answers, collate, stream
from wherefrom.model.undo import own_modes
from wherefrom.pipeline.resolution import Job, Question, Reach
from wherefrom.result.answer import Readout, Target
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checked, least

Advance = Callable[[int], None]  # told how many more sentences are done
Outcome = (
    list[Explanation] | WherefromError
)  # of one job on one sentence: an explanation per target, or why there is none

LARGE_FLOW = 100_000  # entries of the maps beyond which all flows take more than a few seconds


@dataclass
class _Shelf:
    """One job's results on one batch."""

    maps: list[torch.Tensor] = field(default_factory=list)  # [B, n, n] each
    below: list[torch.Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    heads: list[torch.Tensor] = field(default_factory=list)  # [B, H, n, n] each
    scores: Scores | None = None
    seconds: float = 0.0
    shared: float = 0.0  # one sentence's part of the seconds of the pass
    error: WherefromError | None = None  # why there are none


def run(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[list[list[Explanation]]]:
    """For every sentence, in their order: for every job: an explanation per target (one, unless all are asked)."""
    results: list[list[list[Explanation]]] = []
    for row in run_all(opened, sentences, questions, jobs, batch_size, advance):
        results.append([])
        for found in row:
            if isinstance(found, WherefromError):
                raise found
            results[-1].append(found)
    return results


def run_all(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[list[Outcome]]:
    """As `run`, but a job that fails for a sentence leaves its error there, unless all of them fail."""
    results: list[list[Outcome]] = [[[] for _ in jobs] for _ in sentences]
    for sentence, job, found in attempt(opened, sentences, questions, jobs, batch_size, advance=advance):
        results[sentence][job] = found
    for row in results:
        if all(isinstance(found, WherefromError) for found in row):
            raise next(found for found in row if isinstance(found, WherefromError))
    return results


def attempt(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    batch_size: int,
    *,
    advance: Advance = lambda _count: None,
    on_layer: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, int, Outcome]]:
    """Each sentence's and job's explanations as they are done, or why this job has none for this sentence.

    `on_layer` hears of each layer of the pass that all jobs share. Between two results the model is as it was. An error
    of the pass itself, or of what is asked, is raised.
    """
    checked("batch_size", batch_size, Annotated[int, least(1)])
    for members in batches(opened, sentences, batch_size):
        again: list[int] = []
        with _memory([len(sentences[i]) for i in members], jobs), _weights(opened):
            for number, row, found in _run_batch(opened, sentences, questions, members, jobs, on_layer):
                if isinstance(found, WherefromError) and len(members) > 1:
                    again.append(number)  # one of the sentences is to blame, which is known when each is alone
                else:
                    yield members[row], number, found
        left = list(dict.fromkeys(again))
        for i in members if left else []:
            for number, _, found in _run_batch(opened, sentences, questions, [i], [jobs[j] for j in left], None):
                yield i, left[number], found
        advance(len(members))


@contextmanager
def _memory(lengths: Sequence[int], jobs: Sequence[Job]) -> Iterator[None]:
    """Too little memory, as numpy and torch report it, becomes a sentence that says what was asked for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        count, names = len(lengths), ", ".join(job.asked for job in jobs)
        less = [f"batch_size={max(1, count // 4)}"] if count > 1 else ["a shorter text, or long='windows'"]
        less += ["keep='scores'"] if any(job.keep == "maps" and job.method.kind == "map" for job in jobs) else []
        why = (str(error) or "out of memory").splitlines()[0]
        raise OutOfMemory(
            f"not enough memory for {names} of {count} input{'s' * (count > 1)} of up to {max(lengths)} tokens "
            f"at once ({why}); ask for less: {' or '.join(less)}"
        ) from error


@contextmanager
def _weights(opened: Model) -> Iterator[None]:
    """Weights that were made in inference mode take part in no gradient, which torch says in the middle of a pass."""
    try:
        yield
    except RuntimeError as error:
        if not any(weight.is_inference() for weight in opened.model.parameters()):
            raise
        raise UnsupportedModel(
            f"{opened.name} was loaded under torch.inference_mode, so that no gradient can go through its weights; "
            f"load it outside of inference mode, or use a method without gradients"
        ) from error


def batches(opened: Model, sentences: Sequence[Sentence], size: int) -> Iterator[list[int]]:
    """Sentences of similar length together, so that little is padded."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    size = size if opened.pads else 1
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _run_batch(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    members: Sequence[int],
    jobs: Sequence[Job],
    on_layer: Callable[[int], None] | None,
) -> Iterator[tuple[int, int, Outcome]]:
    """Job by job what the members have, each with its row, from one pass."""
    read, asked = [sentences[i] for i in members], [questions[i] for i in members]
    shelves = [_Shelf(error=_refused(opened, job, asked)) for job in jobs]
    if all(shelf.error for shelf in shelves):
        yield from (
            (number, row, _outcome(shelf, [])) for number, shelf in enumerate(shelves) for row in range(len(members))
        )
        return
    output, found = _passed(opened, read, asked, jobs, shelves, on_layer)
    results: list[list[list[Explanation]]] = [[[] for _ in members] for _ in jobs]
    for which in range(len(found[0])):
        output = output.towards([each[which] for each in found])
        for number, (job, shelf) in enumerate(zip(jobs, shelves, strict=True)):
            _explained(output, job, shelf, results[number])
            if which == len(found[0]) - 1:
                yield from ((number, row, _outcome(shelf, each)) for row, each in enumerate(results[number]))


def _outcome(shelf: _Shelf, found: list[Explanation]) -> Outcome:
    return found if shelf.error is None else shelf.error


def _refused(opened: Model, job: Job, questions: Sequence[Question]) -> WherefromError | None:
    """Why this method cannot be asked this of this model; None if it can."""
    try:
        _check_blocks(opened, job)
    except WherefromError as error:
        return error
    given = any(question.position is not None for question in questions)
    if not given or opened.task != "classification" or not job.method.class_specific:
        return None
    return InvalidTarget(
        f"{job.asked} follows the logit to the token that the classifier reads; position= chooses the row of a map, "
        f"leave it out here"
    )


def _check_blocks(opened: Model, job: Job) -> None:
    """Refuse a method that looks inside a model of which only embeddings and output are known."""
    if job.method.blocks:
        others = ", ".join(each.name for each in methods() if not each.blocks)
        opened.need_blocks(repr(job.asked), f" Methods that look at embeddings and output alone: {others}")


@own_modes
def _passed(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    shelves: Sequence[_Shelf],
    on_layer: Callable[[int], None] | None,
) -> tuple[OutputTrace, list[list[Answer]]]:
    """One pass, in which every layerwise job does its work; and for each sentence what is explained."""
    batch = collate(sentences, opened.pad_id)
    kept: list[LayerTrace] = []
    gradient = any(job.method.gradient and not shelf.error for job, shelf in zip(jobs, shelves, strict=True))

    def each(layer: LayerTrace) -> None:
        if gradient and opened.family.mapped:
            kept.append(layer)
        for job, shelf in zip(jobs, shelves, strict=True):
            if job.layerwise:
                with torch.no_grad(), _charged(shelf):
                    _work(job, shelf, layer)
        if on_layer is not None:
            on_layer(layer.index)

    begin = time.perf_counter()
    trace = replace(stream(opened, batch, each, grad=gradient), layers=kept)
    shared = time.perf_counter() - begin - sum(shelf.seconds for shelf in shelves)
    found = [
        answers(opened, sentence, trace.output, row, question.target, question.foil, question.position)
        for row, (sentence, question) in enumerate(zip(batch.sentences, questions, strict=True))
    ]
    if len({len(each) for each in found}) > 1:
        raise InvalidTarget("target='all' must be asked of every input or of none")
    targets = len(found[0])
    for job, shelf in zip(jobs, shelves, strict=True):  # one pass, and one map, for all targets: each has its share
        shelf.shared = shared / len(sentences) / targets
        shelf.seconds /= targets if job.layerwise else 1
    return OutputTrace(trace, [each[0] for each in found]), found


@contextmanager
def _charged(shelf: _Shelf) -> Iterator[None]:
    """One job's own work: its time, and its failure, after which nothing more is tried."""
    begin = time.perf_counter()
    try:
        yield
    except WherefromError as error:
        shelf.error = error
    shelf.seconds += time.perf_counter() - begin


@own_modes
def _explained(output: OutputTrace, job: Job, shelf: _Shelf, rows: list[list[Explanation]]) -> None:
    """Towards one target, an explanation more for each row."""
    if not job.layerwise:
        shelf.seconds = 0.0
        with _charged(shelf), _memory(output.trace.batch.lengths, [job]):
            _work_towards(job, shelf, output)
    if shelf.error:
        return
    try:
        with _memory(output.trace.batch.lengths, [job]):
            for row, explanations in enumerate(rows):
                explanations.append(_explanation(output, row, job, shelf))
    except WherefromError as error:
        shelf.error = error


def _work(job: Job, shelf: _Shelf, layer: LayerTrace) -> None:
    """One job's share of one layer. Results move to the CPU, where they wait for the other layers."""
    if shelf.error or not job.reach.start <= layer.index < job.reach.end:
        return
    whole = job.method.run(layer, **job.options).cpu()
    if job.head is None:
        shelf.maps.append(whole)
        return
    assert job.method.heads is not None
    heads = job.method.heads(layer, **job.options)
    if job.head == "all":
        shelf.maps.append(whole)
        shelf.heads.append(heads.cpu())
        return
    if not 0 <= int(job.head) < layer.heads:
        raise InvalidOption(f"head {job.head} is outside the model's {layer.heads} heads (0 to {layer.heads - 1})")
    shelf.maps.append(heads[:, int(job.head)].cpu())
    shelf.below.append(whole)


def _work_towards(job: Job, shelf: _Shelf, output: OutputTrace) -> None:
    """A class-specific job, for one target."""
    if shelf.error:
        return
    found = job.method.run(output, **job.options)
    if isinstance(found, Scores):
        shelf.scores = found.cpu()
    else:
        shelf.maps = [layer.detach().cpu() for layer in found[job.reach.start : job.reach.end]]


def _explanation(output: OutputTrace, row: int, job: Job, shelf: _Shelf) -> Explanation:
    begin = time.perf_counter()
    batch, found = output.trace.batch, output.answers[row]
    sentence = batch.sentences[row]
    n = len(sentence)
    parts = (
        _from_scores(job.method, shelf.scores, row, n)
        if shelf.scores is not None
        else _from_maps(job, shelf, row, n, output)
    )
    if job.keep == "scores":
        parts = _rows_alone(parts, found.readout.position)
    if job.drop_self and found.readout.position is not None:
        parts["scores"] = parts["scores"].copy()
        parts["scores"][found.readout.position] = 0
    return Explanation(
        tokens=sentence.tokens,
        method=job.asked,
        **parts,
        texts=sentence.texts,
        spans=sentence.spans,
        special=sentence.special,
        unknown=sentence.unknown,
        word_ids=sentence.word_ids,
        aggregate=job.reach.aggregate,
        options={
            **job.options,
            **({} if job.head is None else {"head": job.head}),
            **job.reach.options,
            **({"drop_self": True} if job.drop_self else {}),
        },
        defaults={name: value for name, value in job.method.options.items() if name not in job.options},
        target=found.target if job.method.class_specific else _represented(job.method, sentence, found.readout),
        measured=found.target if job.judged == "target" else found.predicted or found.target,
        readout=found.readout,
        prediction=found.prediction,
        probabilities=found.probabilities,
        model=output.trace.opened.name,
        seconds=shelf.shared + shelf.seconds / len(batch.sentences) + time.perf_counter() - begin,
    )


def _rows_alone(parts: dict[str, Any], position: int | None) -> dict[str, Any]:
    """Without maps: the row that answers of every layer stays, as copies, lest a row keep its whole map alive."""
    maps = parts.get("maps") if parts.get("aggregated") is None else parts["aggregated"]
    rows = parts["layer_scores"]
    if rows is None and maps is not None:
        rows = maps.mean(1) if position is None else maps[:, position]
    return {
        **{name: value for name, value in parts.items() if name not in ("maps", "aggregated", "head_maps")},
        "scores": parts["scores"].copy(),
        "layer_scores": None if rows is None else rows.copy(),
    }


def _represented(method: Method, sentence: Sentence, readout: Readout) -> Target:
    """What a method explains that does not look at the output."""
    if method.random:
        return Target("random")
    where = readout.position
    return Target("none", label="the mean of all tokens" if where is None else sentence.tokens[where])


def _from_scores(method: Method, scores: Scores, row: int, n: int) -> dict[str, Any]:
    return {
        "scores": scores.scores[row, :n].numpy(),
        "layer_scores": None if scores.layers is None else scores.layers[:, row, :n].numpy(),
        "delta": None if scores.delta is None else float(scores.delta[row]),
        "signed": method.signed if scores.signed is None else scores.signed,
        "additive": method.additive and scores.signed is not False,  # norms and absolute values do not add up
    }


def _from_maps(job: Job, shelf: _Shelf, row: int, n: int, output: OutputTrace) -> dict[str, Any]:
    def one(maps: list[torch.Tensor]) -> Any:
        return np.stack([layer[row, ..., :n, :n].numpy() for layer in maps]) if maps else None

    maps = one(shelf.maps)
    position = output.answers[row].readout.position
    sentence = output.trace.batch.sentences[row]
    aggregated, layer_scores = _aggregated(job.reach, maps, one(shelf.below), position, sentence)
    if layer_scores is not None:
        scores = layer_scores[-1]
    else:
        last = (maps if aggregated is None else aggregated)[-1]
        scores = last.mean(0) if position is None else last[position]
    return {
        "scores": scores,
        "maps": maps,
        "aggregated": aggregated,
        "head_maps": one(shelf.heads),
        "layer_scores": layer_scores,
        "signed": job.method.signed,
        "additive": job.method.additive,
    }


def _aggregated(reach: Reach, maps: Any, below: Any, position: int | None, sentence: Sentence) -> tuple[Any, Any]:
    """The maps that reach the input [L, n, n]; or, where only the reading row is wanted, that row [L, n]."""
    if reach.aggregate is None:
        return None, None
    visible = None if sentence.visible is None else np.array(sentence.visible, dtype=bool)
    how: dict[str, Any] = {"receptive_field": reach.receptive_field, "visible": visible}
    if reach.readout_only and position is not None:
        return None, aggregate_row(reach.aggregate, maps, position, below, **how)
    if reach.aggregate == "flow" and maps.size > LARGE_FLOW:
        warn(
            f"the flows of all {len(sentence)} tokens in {len(maps)} layers may take minutes; rows='readout' "
            f"computes those of the answering token alone"
        )
    return aggregate_maps(reach.aggregate, maps, below, **how), None
