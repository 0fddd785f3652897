"""The run: one captured pass a batch, and what each job makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch

from wherefrom.aggregate import aggregate as aggregate_maps
from wherefrom.aggregate import aggregate_row
from wherefrom.aggregate.receptive import field_of
from wherefrom.errors import InvalidOption, InvalidTarget, OutOfMemory, UnsupportedModel, WherefromError, warn
from wherefrom.method import Method, Scores
from wherefrom.model import Answer, LayerTrace, Model, OutputTrace, Sentence, answers, collate, stream
from wherefrom.model.frozen_pass import Freezing
from wherefrom.model.target import is_each
from wherefrom.model.undo import own_modes
from wherefrom.pipeline.fetching import Fetching, on_host
from wherefrom.pipeline.joint_maps import JointMaps, joining
from wherefrom.pipeline.outcome import Outcome, Outcomes
from wherefrom.pipeline.readout_rows import ReadoutRows, rows_alone
from wherefrom.pipeline.resolution import Job, Question, Reach
from wherefrom.pipeline.sinks import note as sink_note
from wherefrom.pipeline.sinks import without_sink
from wherefrom.result.answer import Readout, Target
from wherefrom.result.explanation import Explanation
from wherefrom.result.words import as_written
from wherefrom.typecheck import checked, least

Advance = Callable[[int], None]  # told how many more sentences are done
LARGE_FLOW = 100_000  # entries of the maps beyond which all flows take more than a few seconds


@dataclass
class _Shelf:
    """One job's results on one batch."""

    job: Job
    questions: Sequence[Question]  # of its sentences
    maps: list[torch.Tensor] = field(default_factory=list)  # [B, n, n] each
    below: list[torch.Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    heads: list[torch.Tensor] = field(default_factory=list)  # [B, H, n, n] each
    rows: ReadoutRows | None = None  # what is kept instead of maps
    joint: JointMaps | None = None  # what they make together, where it is computed on their way
    fetching: Fetching = field(default_factory=Fetching)
    joined: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # by sentence, what became of them
    scores: Scores | None = None
    seconds: float = 0.0
    shared: float = 0.0  # one sentence's part of the seconds of the pass
    error: WherefromError | None = None  # why there are none
    explanations: list[list[Explanation]] = field(default_factory=list)  # by target, then by sentence

    def outcomes(self, name: str, members: Sequence[int]) -> Iterator[Outcome]:
        """A record for each sentence of the batch, by their places among the inputs."""
        for row, place in enumerate(members):
            done = () if self.error else tuple(of_target[row] for of_target in self.explanations)
            yield Outcome(place, name, self.job, done, self.error)


def run(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[Outcomes]:
    """For every sentence, in their order, what each job has; the first error is raised."""
    results = run_all(opened, sentences, questions, jobs, batch_size, advance)
    for outcomes in results:
        for each in outcomes.values():
            if each.error is not None:
                raise each.error
    return results


def run_all(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[Outcomes]:
    """As `run`, but a job that fails for a sentence leaves its error there, unless all of them fail."""
    found: list[Outcomes] = [{} for _ in sentences]
    for outcome in attempt(opened, sentences, questions, jobs, batch_size, advance=advance):
        found[outcome.input][outcome.name] = outcome
    for outcomes in found:
        errors = [each.error for each in outcomes.values() if each.error is not None]
        if len(errors) == len(jobs):
            raise errors[0]
    return [{name: outcomes[name] for name in jobs} for outcomes in found]


def attempt(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    *,
    advance: Advance = lambda _count: None,
    on_layer: Callable[[int], None] | None = None,
) -> Iterator[Outcome]:
    """What each job has for each sentence, as it is done.

    `on_layer` hears of each layer of the pass that all jobs share. Between two results the model is as it was. An error
    of the pass itself, or of what is asked, is raised.
    """
    checked("batch_size", batch_size, Annotated[int, least(1)])
    for members in opened.batches(sentences, batch_size):
        again: dict[str, Job] = {}
        with _memory([len(sentences[i]) for i in members], list(jobs.values())), _weights(opened):
            for outcome in _run_batch(opened, sentences, questions, members, jobs, on_layer):
                if outcome.error is not None and len(members) > 1:
                    again[outcome.name] = outcome.job  # a sentence is to blame, which is known when each is alone
                else:
                    yield outcome
        for i in members if again else []:
            yield from _run_batch(opened, sentences, questions, [i], again, None)
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


def _run_batch(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    members: Sequence[int],
    jobs: Mapping[str, Job],
    on_layer: Callable[[int], None] | None,
) -> Iterator[Outcome]:
    """Job by job what the members have, from one pass."""
    read, asked = [sentences[i] for i in members], [questions[i] for i in members]
    shelves = {name: _Shelf(job, asked, error=_refused(opened, job, asked)) for name, job in jobs.items()}
    if all(shelf.error for shelf in shelves.values()):
        yield from (outcome for name, shelf in shelves.items() for outcome in shelf.outcomes(name, members))
        return
    for shelf in shelves.values():
        shelf.rows = None if shelf.error else rows_alone(opened, shelf.job, read, asked)
        shelf.joint = joining(shelf.job, [len(each) for each in read], shelf.fetching, opened.device)
    output, found = _passed(opened, read, asked, list(shelves.values()), on_layer)
    for which in range(len(found[0])):
        output = output.among(found, which)
        for name, shelf in shelves.items():
            _explained(output, shelf)
            if which == len(found[0]) - 1:
                yield from shelf.outcomes(name, members)


def _refused(opened: Model, job: Job, questions: Sequence[Question]) -> WherefromError | None:
    """Why this method cannot be asked this of this model; None if it can."""
    given = any(question.position is not None for question in questions)
    if not given or opened.task != "classification" or not job.method.class_specific:
        return None
    return InvalidTarget(
        f"{job.asked} follows the logit to the token that the classifier reads; position= chooses the row of a map, "
        f"leave it out here"
    )


@own_modes
def _passed(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    shelves: Sequence[_Shelf],
    on_layer: Callable[[int], None] | None,
) -> tuple[OutputTrace, list[list[Answer]]]:
    """One pass, in which every layerwise job does its work; and for each sentence what is explained."""
    batch = collate(sentences, opened.pad_id)
    kept: list[LayerTrace] = []
    running = [shelf.job.method for shelf in shelves if not shelf.error]
    gradient = any(method.gradient for method in running)
    # The numbers of a frozen pass are those of any other, its gradients are not: it serves all but gradient methods.
    frozen = Freezing() if not gradient and any(method.frozen for method in running) else None
    keep = any(method.all_layers for method in running)

    def each(layer: LayerTrace) -> None:
        if keep and opened.family.mapped:
            kept.append(layer)
        for shelf in shelves:
            if shelf.job.method.by_layer:
                with torch.no_grad(), _charged(shelf):
                    _work(shelf, layer, batch.sentences)
        if on_layer is not None:
            on_layer(layer.index)

    begin = time.perf_counter()
    trace = replace(stream(opened, batch, each, grad=gradient, frozen=frozen), layers=kept)
    shared = time.perf_counter() - begin - sum(shelf.seconds for shelf in shelves)
    seen = on_host(trace.output)
    found = [
        answers(opened, sentence, seen, row, question.target, question.foil, question.position)
        for row, (sentence, question) in enumerate(zip(batch.sentences, questions, strict=True))
    ]
    if len({len(each) for each in found}) > 1:
        raise InvalidTarget("target='all' must be asked of every input or of none")
    targets = len(found[0])
    for shelf in shelves:  # one pass, and one map, for all targets: each has its share
        shelf.shared = shared / len(sentences) / targets
        shelf.seconds /= targets if shelf.job.method.by_layer else 1
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
def _explained(output: OutputTrace, shelf: _Shelf) -> None:
    """Towards one target, an explanation more for each sentence."""
    lengths = output.trace.batch.lengths
    if not shelf.job.method.by_layer:
        shelf.seconds = 0.0
        with _charged(shelf), _memory(lengths, [shelf.job]):
            _work_towards(shelf, output)
    if shelf.error:
        return
    shelf.fetching.wait()
    try:
        with _memory(lengths, [shelf.job]):
            shelf.explanations.append([_explanation(output, row, shelf) for row in range(len(lengths))])
    except WherefromError as error:
        shelf.error = error


def _work(shelf: _Shelf, layer: LayerTrace, sentences: Sequence[Sentence]) -> None:
    """One job's share of one layer. Maps that are kept move to the CPU, where they wait for the other layers."""
    job, rows, fetched = shelf.job, shelf.rows, shelf.fetching.take
    if shelf.error or not job.reach.start <= layer.index < job.reach.end:
        return

    def sunk(maps: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        return without_sink(maps, sentences, targets) if job.reach.drop_sink else maps

    one_stream = layer.step is None
    if rows is not None and one_stream and rows.alone(layer.index) and job.head is None and job.method.row is not None:
        at = rows.targets(layer.mask)
        rows.add(sunk(job.method.row(layer, at, **job.options).unsqueeze(1), at[:, None]))
        return
    whole = sunk(layer.on_axis(job.method.run(layer, **job.options)))
    if job.head is None:
        rows.add(whole) if rows is not None else shelf.maps.append(fetched(whole))
        if shelf.joint is not None:
            shelf.joint.add(whole)
        return
    assert job.method.heads is not None
    heads = sunk(layer.on_axis(job.method.heads(layer, **job.options)))
    if job.head == "all":
        shelf.maps.append(fetched(whole))
        shelf.heads.append(fetched(heads))
        return
    if not 0 <= int(job.head) < layer.heads:
        raise InvalidOption(f"head {job.head} is outside the model's {layer.heads} heads (0 to {layer.heads - 1})")
    if rows is not None:
        rows.add(heads[:, int(job.head)], whole)
        return
    shelf.maps.append(fetched(heads[:, int(job.head)]))
    shelf.below.append(fetched(whole))


def _work_towards(shelf: _Shelf, output: OutputTrace) -> None:
    """A class-specific job, for one target."""
    job = shelf.job
    if shelf.error:
        return
    found = job.method.run(output, **job.options)
    if isinstance(found, Scores):
        shelf.scores = found.cpu()
    else:
        maps = [layer.detach() for layer in found[job.reach.start : job.reach.end]]
        if job.reach.drop_sink:
            maps = [without_sink(each, output.trace.batch.sentences) for each in maps]
        shelf.maps = [shelf.fetching.take(each) for each in maps]


def _explanation(output: OutputTrace, row: int, shelf: _Shelf) -> Explanation:
    begin, job = time.perf_counter(), shelf.job
    batch, found = output.trace.batch, output.answers[row]
    sentence = batch.sentences[row]
    n = len(sentence)
    parts = (
        _from_scores(job.method, shelf.scores, row, n)
        if shelf.scores is not None
        else _from_maps(shelf, row, n, output)
    )
    if job.keep != "maps":
        parts = _without_maps(parts, found.readout, job.keep == "row")
    looks_back = output.trace.opened.causal and job.method.kind == "map" and not job.method.signed
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
        segments=sentence.segments,
        given=sentence.given,
        picture=sentence.picture,
        aggregate=job.reach.aggregate,
        options={**job.chosen, **_asked(output, row, shelf), **sentence.read_by},
        defaults={name: value for name, value in job.method.options.items() if name not in job.options},
        target=found.target if job.method.class_specific else _represented(job.method, sentence, found.readout),
        measured=found.target if job.judged == "target" else found.predicted or found.target,
        readout=found.readout,
        prediction=found.prediction,
        probabilities=found.probabilities,
        candidates=found.candidates,
        model=output.trace.opened.name,
        seconds=shelf.shared + shelf.seconds / len(batch.sentences) + time.perf_counter() - begin,
        notes=_notes(job.method, found) + (sink_note(sentence, found.readout, parts["scores"]) if looks_back else []),
    )


def _notes(method: Method, found: Answer) -> list[str]:
    """What a phrase of several tokens means to a method that does not take its log-probability."""
    rows = len(found.readout.rows) if found.target.kind == "phrase" else 0
    if not rows or (method.kind == "scores" and "of" in method.options):
        return []
    logits = f"the sum of the logits of {rows} tokens"
    return [
        logits if method.kind == "scores" else f"the mean of {rows} rows of the map, one for each token of the phrase"
    ]


def _asked(output: OutputTrace, row: int, shelf: _Shelf) -> dict[str, Any]:
    """What the caller asked of this sentence, as far as the method looks at it: for the record, to ask it again."""
    question, target = shelf.questions[row], output.answers[row].target
    wanted: Any = question.target
    if is_each(wanted) or (isinstance(wanted, str) and wanted == "all"):  # of which this is one
        wanted = target.index if target.kind in ("class", "token") else target.kind
    looks = shelf.job.method.class_specific or output.trace.opened.task in ("question-answering", "seq2seq")
    asked = {"target": wanted, "foil": question.foil} if looks else {}
    return {name: value for name, value in {**asked, "position": question.position}.items() if value is not None}


def _without_maps(parts: dict[str, Any], readout: Readout, layers: bool) -> dict[str, Any]:
    """The scores and, if `layers`, the readout row of every layer, as copies, lest a row keep its whole map alive."""
    maps = parts.get("maps") if parts.get("aggregated") is None else parts["aggregated"]
    rows = parts["layer_scores"]
    if rows is None and maps is not None:
        rows = readout.row(maps)
    return {
        **{name: value for name, value in parts.items() if name not in ("maps", "aggregated", "head_maps")},
        "scores": parts["scores"].copy(),
        "layer_scores": None if rows is None or not layers else rows.copy(),
    }


def _represented(method: Method, sentence: Sentence, readout: Readout) -> Target:
    """What a method explains that does not look at the output."""
    if method.random:
        return Target("random")
    if (where := readout.position) is None:
        of_phrase = "the mean of the tokens before each of the phrase's"
        several = readout.why if sentence.picture is not None else "the mean of all tokens"
        return Target("none", label=of_phrase if sentence.said else several)
    token = as_written(sentence.tokens[where], sentence.texts, sentence.spans[where])
    return Target("none", label=token)


def _from_scores(method: Method, scores: Scores, row: int, n: int) -> dict[str, Any]:
    return {
        "scores": scores.scores[row, :n].numpy(),
        "layer_scores": None if scores.layers is None else scores.layers[:, row, :n].numpy(),
        "delta": None if scores.delta is None else float(scores.delta[row]),
        "arrived": None if scores.arrived is None else float(scores.arrived[row]),
        "surrogate": None if scores.surrogates is None else scores.surrogates[row],
        "signed": method.signed if scores.signed is None else scores.signed,
        "additive": method.additive and scores.signed is not False,  # norms and absolute values do not add up
    }


def _from_maps(shelf: _Shelf, row: int, n: int, output: OutputTrace) -> dict[str, Any]:
    job = shelf.job

    def one(maps: list[torch.Tensor]) -> Any:
        return np.stack([layer[row, ..., :n, :n].numpy() for layer in maps]) if maps else None

    if shelf.rows is not None:
        rows = shelf.rows.of(row)
        return {
            "scores": rows[-1],
            "layer_scores": rows,
            "signed": job.method.signed,
            "additive": job.method.additive,
        }
    readout, sentence = output.answers[row].readout, output.trace.batch.sentences[row]
    found = shelf.joined.get(row)
    if found is None:
        maps, joint = one(shelf.maps), None if shelf.joint is None else shelf.joint.of(row)
        if joint is not None:
            reached = joint, None
        else:
            reached = _aggregated(job.reach, maps, one(shelf.below), readout.position, sentence)
        found = maps, *reached, one(shelf.heads)
    if job.method.by_layer and not job.reach.readout_only:
        shelf.joined[row] = found  # one for all targets, each of which has another row of it
    maps, aggregated, layer_scores, heads = found
    if layer_scores is not None:
        scores = layer_scores[-1]
    else:
        scores = readout.row((maps if aggregated is None else aggregated)[-1])
    return {
        "scores": scores,
        "maps": maps,
        "aggregated": aggregated,
        "head_maps": heads,
        "layer_scores": layer_scores,
        "signed": job.method.signed,
        "additive": job.method.additive,
    }


def _aggregated(reach: Reach, maps: Any, below: Any, position: int | None, sentence: Sentence) -> tuple[Any, Any]:
    """The maps that reach the input [L, n, n]; or, where only the readout row is wanted, that row [L, n]."""
    if reach.aggregate is None:
        return None, None
    seen = field_of(sentence.visible, reach.windows, maps.shape[-1]) if reach.receptive_field else None
    how: dict[str, Any] = {"receptive_field": reach.receptive_field, "visible": seen}
    if reach.readout_only and position is not None:
        return None, aggregate_row(reach.aggregate, maps, position, below, **how)
    if reach.aggregate == "flow" and maps.size > LARGE_FLOW:
        warn(
            f"the flows of all {len(sentence)} tokens in {len(maps)} layers may take minutes; rows='readout' "
            f"computes those of the readout token alone"
        )
    return aggregate_maps(reach.aggregate, maps, below, **how), None
