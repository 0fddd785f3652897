"""The run: jobs settled from names, one captured pass a batch, and what each job makes of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from whence.aggregate import aggregate as aggregate_maps
from whence.aggregate import aggregate_row, check_aggregation
from whence.answer import Reading, Target
from whence.errors import WhenceError, WhenceWarning
from whence.explanation import Explanation
from whence.method import Method, Scores, lookup, methods
from whence.model import (
    Batch,
    LayerTrace,
    Opened,
    OutputTrace,
    Sentence,
    answers,
    collate,
    stream,
)

Advance = Callable[[int], None]  # told how many more sentences are done

AUTO = "auto"  # aggregate as the method and its name say
LARGE_FLOW = 100_000  # entries of the maps beyond which all flows take more than a few seconds


@dataclass(frozen=True)
class Reach:
    """From where to where layer maps are joined, and how."""

    aggregate: str | None
    start: int  # the first block taken
    end: int  # the first one no longer taken
    depth: int
    receptive_field: bool
    reading_only: bool

    @property
    def asks_maps(self) -> bool:
        """Whether more was asked than scores can answer."""
        return self.aggregate != AUTO or bool(self.options)

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for beyond the ordinary, for the record."""
        part = {} if (self.start, self.end) == (0, self.depth) else {"layers": [self.start, self.end]}
        return {**part, **({"receptive_field": True} if self.receptive_field else {})}


@dataclass(frozen=True)
class Job:
    """One method to run, its name settled into an algorithm, an aggregation and options."""

    asked: str
    method: Method
    reach: Reach
    head: int | str | None
    drop_self: bool
    options: dict[str, Any]
    keep: str = "maps"  # or "scores": of a map only the rows that answer

    @property
    def layerwise(self) -> bool:
        """Whether it works on one layer at a time, as the pass goes by."""
        return self.method.kind == "map" and not self.method.class_specific


@dataclass(frozen=True)
class Question:
    """What is asked of one input."""

    target: Any
    foil: Any
    position: Any


UNASKED = Question(None, None, None)


@dataclass
class _Shelf:
    """One job's results on one batch."""

    maps: list[torch.Tensor] = field(default_factory=list)  # [B, n, n] each
    below: list[torch.Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    heads: list[torch.Tensor] = field(default_factory=list)  # [B, H, n, n] each
    scores: Scores | None = None
    seconds: float = 0.0


# Settling what was asked ----------------------------------------------------------------------------------


def settle_reach(
    opened: Opened,
    aggregate: str | None,
    layers: tuple[int | None, int | None] | None,
    receptive_field: bool,
    rows: str,
) -> Reach:
    depth = opened.depth
    start, end = _layers(layers, depth)
    if receptive_field and not opened.causal:
        raise WhenceError(
            f"receptive_field corrects for tokens that see only those before them, and every token of "
            f"{opened.name} sees all; leave it out"
        )
    if rows not in ("all", "reading"):
        raise WhenceError(f"unknown rows {rows!r}; expected 'all', or 'reading' for the row that answers alone")
    return Reach(aggregate, start, end, depth, receptive_field, rows == "reading")


def _layers(layers: Any, depth: int) -> tuple[int, int]:
    if layers is None:
        return 0, depth
    if not isinstance(layers, tuple | list) or len(layers) != 2:
        raise WhenceError(f"layers is {layers!r}; expected (start, end), e.g. (0, {depth}) for all blocks")
    start, end = (0 if layers[0] is None else layers[0]), (depth if layers[1] is None else layers[1])
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (start, end))
    if not whole or not 0 <= start < end <= depth:
        raise WhenceError(
            f"layers is {layers!r}; expected whole numbers (start, end) with 0 <= start < end <= {depth}, "
            f"the model's number of blocks (end is not included)"
        )
    return start, end


def settle_job(
    name: str,
    reach: Reach,
    head: int | str | None,
    options: dict[str, Any],
    drop_self: bool = False,
    keep: str | None = "maps",
) -> Job:
    method, preset = lookup(name)
    aggregate = reach.aggregate
    if aggregate == AUTO:
        aggregate = method.aggregate if preset is None else preset.aggregate
    elif method.kind == "scores" and aggregate not in (None, "none"):
        raise WhenceError(f"'{method.name}' gives scores and no maps: there is nothing to aggregate by {aggregate!r}")
    reach = replace(reach, aggregate=check_aggregation(aggregate, reach.receptive_field))
    if method.kind == "scores" and (reach.start, reach.end) != (0, reach.depth):
        raise WhenceError(f"'{method.name}' has no layer maps to choose from; leave layers out")
    if unknown := set(options) - set(method.options):
        known = ", ".join(method.options) or "none"
        raise WhenceError(
            f"'{method.name}' has no option {', '.join(map(repr, sorted(unknown)))}; its options: {known}"
        )
    if head is not None and method.heads is None:
        raise WhenceError(f"'{method.name}' does not take single heads; leave head out")
    if head is not None and head != "all" and (not isinstance(head, int) or isinstance(head, bool)):
        raise WhenceError(f"unknown head {head!r}; expected a number from 0 or 'all'")
    if preset is not None and reach.aggregate != preset.aggregate:
        name = method.name  # "attention-rollout" joined in another way is no rollout
    return Job(name, method, reach, head, drop_self, options, _keep(keep, reach, head))


def _keep(keep: str | None, reach: Reach, head: int | str | None) -> str:
    """What stays of the maps; where nothing is said, as much as `rows` and `head` ask for."""
    if keep not in (None, "maps", "scores"):
        raise WhenceError(
            f"unknown keep {keep!r}; expected 'maps', or 'scores' to let maps go as soon as they are read"
        )
    if keep == "scores" and head == "all":
        raise WhenceError("head='all' asks for every head's maps and keep='scores' for none; leave one of them out")
    return keep or ("scores" if reach.reading_only and head != "all" else "maps")


def settle_questions(count: int, single: bool, target: Any, foil: Any, position: Any) -> list[Question]:
    columns = []
    for name, value in (("target", target), ("foil", foil), ("position", position)):
        if isinstance(value, list | tuple) and not single:
            if len(value) != count:
                raise WhenceError(f"{len(value)} entries in {name} for {count} inputs; expected one each")
            columns.append([_plain(each) for each in value])
        else:
            columns.append([_plain(value)] * count)
    return [Question(*each) for each in zip(*columns, strict=True)]


def refuse_unseen_targets(opened: Opened, questions: Sequence[Question], named: Mapping[str, Method]) -> None:
    """Refuse a target or a foil that none of the methods looks at.

    In an answer, start and end choose the row that is read; a bare encoder has its own words about targets.
    """
    asked = any(each.target is not None or each.foil is not None for each in questions)
    answered = any(each.class_specific for each in named.values())
    if not asked or answered or opened.task in ("question-answering", "encoder"):
        return
    names = ", ".join(named)
    answering = ", ".join(each.name for each in methods() if each.class_specific and each.kind == "scores")
    raise WhenceError(
        f"{names} say{'s' * (len(named) == 1)} what a representation is made of, the same for every target; leave "
        f"target and foil out, or choose a method that looks at them: {answering}"
    )


def _plain(value: Any) -> Any:
    """A number of numpy's or torch's as Python's own."""
    return value.item() if isinstance(value, np.generic | torch.Tensor) and value.ndim == 0 else value


# Running it -----------------------------------------------------------------------------------------------


def run(
    opened: Opened,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[list[list[Explanation]]]:
    """For every sentence, in their order: for every job: an explanation per target (one, unless all are asked)."""
    check_batch_size(batch_size)
    check_blocks(opened, jobs)
    given = any(question.position is not None for question in questions)
    if (
        given
        and opened.task == "classification"
        and (fixed := [job.asked for job in jobs if job.method.class_specific])
    ):
        raise WhenceError(
            f"{', '.join(fixed)} follow the logit to the token that the classifier reads; position= chooses the row "
            f"of a map, leave it out here"
        )
    results: dict[int, list[list[Explanation]]] = {}
    # A caller in inference mode may ask for gradients all the same.
    with torch.inference_mode(False):
        for members in batches(opened, sentences, batch_size):
            batch = collate([sentences[i] for i in members], opened.pad_id)
            with _memory(batch, jobs), _weights(opened):
                found = _run_batch(opened, batch, [questions[i] for i in members], jobs)
            results.update(zip(members, found, strict=True))
            advance(len(members))
    return [results[i] for i in range(len(sentences))]


def check_blocks(opened: Opened, jobs: Sequence[Job]) -> None:
    """Refuse methods that look inside a model of which only embeddings and output are known."""
    if inside := [repr(job.asked) for job in jobs if job.method.blocks]:
        others = ", ".join(each.name for each in methods() if not each.blocks)
        opened.need_blocks(", ".join(inside), f" Methods that look at embeddings and output alone: {others}")


def check_batch_size(size: Any) -> None:
    """Refuse what is no number of sentences."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise WhenceError(f"batch_size is {size!r}; expected a whole number, at least 1")


@contextmanager
def _memory(batch: Batch, jobs: Sequence[Job]) -> Iterator[None]:
    """Too little memory, as numpy and torch report it, becomes a sentence that says what was asked for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        count, names = len(batch.sentences), ", ".join(job.asked for job in jobs)
        less = [f"batch_size={max(1, count // 4)}"] if count > 1 else ["a shorter text, or long='windows'"]
        less += ["keep='scores'"] if any(job.keep == "maps" and job.method.kind == "map" for job in jobs) else []
        why = (str(error) or "out of memory").splitlines()[0]
        raise WhenceError(
            f"not enough memory for {names} of {count} input{'s' * (count > 1)} of up to {max(batch.lengths)} tokens "
            f"at once ({why}); ask for less: {' or '.join(less)}"
        ) from error


@contextmanager
def _weights(opened: Opened) -> Iterator[None]:
    """Weights that were made in inference mode take part in no gradient, which torch says in the middle of a pass."""
    try:
        yield
    except RuntimeError as error:
        if not any(weight.is_inference() for weight in opened.model.parameters()):
            raise
        raise WhenceError(
            f"{opened.name} was loaded under torch.inference_mode, so that no gradient can go through its weights; "
            f"load it outside of inference mode, or use a method without gradients"
        ) from error


def batches(opened: Opened, sentences: Sequence[Sentence], size: int) -> Iterator[list[int]]:
    """Sentences of similar length together, so that little is padded."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    size = size if opened.pads else 1
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _run_batch(
    opened: Opened, batch: Batch, questions: Sequence[Question], jobs: Sequence[Job]
) -> list[list[list[Explanation]]]:
    shelves = [_Shelf() for _ in jobs]
    kept: list[LayerTrace] = []
    gradient = any(job.method.gradient for job in jobs)

    def on_layer(layer: LayerTrace) -> None:
        if gradient and opened.family.mapped:
            kept.append(layer)
        for job, shelf in zip(jobs, shelves, strict=True):
            if job.layerwise:
                begin = time.perf_counter()
                with torch.no_grad():
                    _work(job, shelf, layer)
                shelf.seconds += time.perf_counter() - begin

    begin = time.perf_counter()
    trace = replace(stream(opened, batch, on_layer, grad=gradient), layers=kept)
    shared = time.perf_counter() - begin - sum(shelf.seconds for shelf in shelves)
    found = [
        answers(opened, sentence, trace.output, row, question.target, question.foil, question.position)
        for row, (sentence, question) in enumerate(zip(batch.sentences, questions, strict=True))
    ]
    if len({len(each) for each in found}) > 1:
        raise WhenceError("target='all' must be asked of every input or of none")
    results: list[list[list[Explanation]]] = [[[] for _ in jobs] for _ in batch.sentences]
    output = OutputTrace(trace, [each[0] for each in found])
    targets = len(found[0])
    for job, shelf in zip(jobs, shelves, strict=True):
        shelf.seconds /= targets if job.layerwise else 1  # one map for all targets: each has its share of the time
    for which in range(targets):
        output = output.towards([each[which] for each in found])
        for number, (job, shelf) in enumerate(zip(jobs, shelves, strict=True)):
            if not job.layerwise:
                _work_towards(job, shelf, output)
            for row in range(len(batch.sentences)):
                results[row][number].append(_explanation(output, row, job, shelf, shared / len(questions) / targets))
    return results


def _work(job: Job, shelf: _Shelf, layer: LayerTrace) -> None:
    """One job's share of one layer. Results move to the CPU, where they wait for the other layers."""
    if not job.reach.start <= layer.index < job.reach.end:
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
        raise WhenceError(f"head {job.head} is outside the model's {layer.heads} heads (0 to {layer.heads - 1})")
    shelf.maps.append(heads[:, int(job.head)].cpu())
    shelf.below.append(whole)


def _work_towards(job: Job, shelf: _Shelf, output: OutputTrace) -> None:
    """A class-specific job, for one target."""
    begin = time.perf_counter()
    found = job.method.run(output, **job.options)
    if isinstance(found, Scores):
        shelf.scores = found.cpu()
    else:
        shelf.maps = [layer.detach().cpu() for layer in found[job.reach.start : job.reach.end]]
    shelf.seconds = time.perf_counter() - begin


def _explanation(output: OutputTrace, row: int, job: Job, shelf: _Shelf, shared: float) -> Explanation:
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
        parts = _rows_alone(parts, found.reading.position)
    if job.drop_self and found.reading.position is not None:
        parts["scores"] = parts["scores"].copy()
        parts["scores"][found.reading.position] = 0
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
        target=found.target if job.method.class_specific else _represented(sentence, found.reading),
        measured=found.target,
        reading=found.reading,
        prediction=found.prediction,
        probabilities=found.probabilities,
        model=output.trace.opened.name,
        seconds=shared + shelf.seconds / len(batch.sentences) + time.perf_counter() - begin,
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


def _represented(sentence: Sentence, reading: Reading) -> Target:
    """What a method explains that does not look at the output."""
    where = reading.position
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
    position = output.answers[row].reading.position
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
    if reach.reading_only and position is not None:
        return None, aggregate_row(reach.aggregate, maps, position, below, **how)
    if reach.aggregate == "flow" and maps.size > LARGE_FLOW:
        warnings.warn(
            f"the flows of all {len(sentence)} tokens in {len(maps)} layers may take minutes; rows='reading' "
            f"computes those of the answering token alone",
            WhenceWarning,
            stacklevel=2,
        )
    return aggregate_maps(reach.aggregate, maps, below, **how), None
