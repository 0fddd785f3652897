"""`explain` and `compare`: text in, explanations out, one captured pass for all methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from whence.aggregate import aggregate as aggregate_maps
from whence.aggregate import aggregate_row, check_aggregation
from whence.comparison import Comparison
from whence.errors import WhenceError, WhenceWarning
from whence.explanation import Explanation
from whence.method import Method, lookup
from whence.model import (
    Answer,
    Batch,
    LayerTrace,
    Opened,
    Reader,
    Sentence,
    Trace,
    answer,
    collate,
    open_model,
    stream,
)
from whence.model import capture as capture_batch

DEFAULT_MODEL = "whence/sentiment"
DEFAULT_METHOD = "attention-rollout"
DEFAULT_METHODS = ("raw-attention", "attention-rollout")
LARGE_FLOW = 100_000  # entries of the maps beyond which all flows take more than a few seconds
AUTO = "auto"  # aggregate as the method's name says, by rollout where it says nothing


def explain(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    method: str = DEFAULT_METHOD,
    *,
    aggregate: str | None = AUTO,
    target: Any = None,
    foil: Any = None,
    position: Any = None,
    head: int | str | None = None,
    layers: tuple[int | None, int | None] | None = None,
    receptive_field: bool = False,
    rows: str = "all",
    batch_size: int = 16,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Explanation | list[Explanation]:
    """Say which input tokens an output is made of. One input gives one `Explanation`, a list gives a list.

    inputs: a text, a pair of texts (a tuple), token ids, an encoding with `input_ids`, or a list of these.
    model: a shipped model ("whence/sentiment"), a hub id, a folder, or a loaded model with its `tokenizer`
        (token ids need none).
    method: a name or symbol listed by `whence.methods()`; further keyword arguments are its options.
    aggregate: how layer maps become one; "rollout" unless the method's name says otherwise, None leaves them.
    target, foil: which number is explained: a class id or label, a word at a mask, "start" or "end" of an
        answer, the next token; the predicted one if none is given. With a foil, the difference to it.
    position: the row that answers: a token index, "first", "last", "mean" or "mask"; what the head reads if
        none is given. target, foil and position may be lists, one entry per input.
    head: one head, counted from 0, instead of the mean over all (the layers below stay averaged, Abnar &
        Zuidema A.1); "all" adds every head's layer maps as `head_maps`.
    layers: (start, end), as in a slice: the blocks from `start` up to but not including `end`, so that the
        answer reaches from block end - 1 down to the input of block `start` (their equation 1 with j = start).
    receptive_field: for causal models, rollout and flow relative to an even reader (whence/aggregate/receptive.py).
    rows: "all", or "reading" for the row that answers alone, as `layer_scores`: what makes flow fast.
    tokenizer_kwargs go to the tokenizer's call, model_kwargs to `from_pretrained`.
    """
    lookup(method)  # a misspelt name is said before a model is loaded
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = _reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = _questions(len(sentences), single, target, foil, position)
    reach = _reach(opened, aggregate, layers, receptive_field, rows)
    job = _job(method, reach, head, options)
    results = [row[0] for row in _run(opened, sentences, questions, [job], batch_size)]
    return results[0] if single else results


def compare(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    aggregate: str | None = AUTO,
    target: Any = None,
    foil: Any = None,
    position: Any = None,
    head: int | str | None = None,
    layers: tuple[int | None, int | None] | None = None,
    receptive_field: bool = False,
    rows: str = "all",
    batch_size: int = 16,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
) -> Comparison | list[Comparison]:
    """Explain by several methods on one captured pass. Arguments as in `explain`."""
    if isinstance(methods, str):
        methods = [methods]
    if not methods:
        raise WhenceError("no methods to compare; expected at least one name from whence.methods()")
    if len(set(methods)) < len(methods):
        raise WhenceError(f"a method is named twice in {', '.join(methods)}; expected each once")
    for name in methods:
        lookup(name)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = _reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = _questions(len(sentences), single, target, foil, position)
    reach = _reach(opened, aggregate, layers, receptive_field, rows)
    jobs = [_job(name, reach, head, {}) for name in methods]
    found = _run(opened, sentences, questions, jobs, batch_size)
    results = [Comparison(dict(zip(methods, row, strict=True))) for row in found]
    return results[0] if single else results


def capture(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    *,
    grad: bool = False,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
) -> Trace:
    """One forward pass with everything it did: the material for a method of your own (CONTRIBUTING.md)."""
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, _ = _reader(opened, truncate, tokenizer_kwargs).read(inputs)
    return capture_batch(opened, collate(sentences, opened.pad_id), grad=grad)


# From here on: the run ------------------------------------------------------------------------------------


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
    options: dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked of one input."""

    target: Any
    foil: Any
    position: Any


@dataclass
class _Shelf:
    """One job's layer maps of one batch, collected as the pass goes by."""

    maps: list[torch.Tensor] = field(default_factory=list)  # [B, n, n] each
    below: list[torch.Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    heads: list[torch.Tensor] = field(default_factory=list)  # [B, H, n, n] each
    seconds: float = 0.0


def _reader(opened: Opened, truncate: bool, tokenizer_kwargs: Mapping[str, Any] | None) -> Reader:
    return Reader(
        opened.tokenizer,
        opened.vocabulary_size,
        opened.pad_id,
        opened.max_length,
        truncate=truncate,
        tokenizer_kwargs=tokenizer_kwargs,
    )


def _reach(
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


def _job(name: str, reach: Reach, head: int | str | None, options: dict[str, Any]) -> Job:
    method, preset = lookup(name)
    aggregate = reach.aggregate
    if aggregate == AUTO:
        aggregate = preset.aggregate if preset is not None else "rollout"
    reach = replace(reach, aggregate=check_aggregation(aggregate, reach.receptive_field))
    if unknown := set(options) - set(method.options):
        known = ", ".join(method.options) or "none"
        raise WhenceError(
            f"'{method.name}' has no option {', '.join(map(repr, sorted(unknown)))}; its options: {known}"
        )
    if head is not None and method.heads is None:
        raise WhenceError(f"'{method.name}' does not take single heads; leave head out")
    if head is not None and head != "all" and (not isinstance(head, int) or isinstance(head, bool)):
        raise WhenceError(f"unknown head {head!r}; expected a number from 0 or 'all'")
    return Job(name, method, reach, head, options)


def _questions(count: int, single: bool, target: Any, foil: Any, position: Any) -> list[Question]:
    columns = []
    for name, value in (("target", target), ("foil", foil), ("position", position)):
        if isinstance(value, list | tuple) and not single:
            if len(value) != count:
                raise WhenceError(f"{len(value)} entries in {name} for {count} inputs; expected one each")
            columns.append(list(value))
        else:
            columns.append([value] * count)
    return [Question(*each) for each in zip(*columns, strict=True)]


def _run(
    opened: Opened,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Sequence[Job],
    batch_size: int,
) -> list[list[Explanation]]:
    """Every job on every sentence, batch by batch; results in the order of the sentences."""
    if batch_size < 1:
        raise WhenceError(f"batch_size is {batch_size}; expected at least 1")
    results: dict[int, list[Explanation]] = {}
    for members in _batches(opened, sentences, batch_size):
        batch = collate([sentences[i] for i in members], opened.pad_id)
        results.update(zip(members, _run_batch(opened, batch, [questions[i] for i in members], jobs), strict=True))
    return [results[i] for i in range(len(sentences))]


def _batches(opened: Opened, sentences: Sequence[Sentence], size: int) -> Iterator[list[int]]:
    """Sentences of similar length together, so that little is padded."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    size = size if opened.pads else 1
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _run_batch(
    opened: Opened, batch: Batch, questions: Sequence[Question], jobs: Sequence[Job]
) -> list[list[Explanation]]:
    shelves = [_Shelf() for _ in jobs]

    def on_layer(layer: LayerTrace) -> None:
        for job, shelf in zip(jobs, shelves, strict=True):
            begin = time.perf_counter()
            _work(job, shelf, layer)
            shelf.seconds += time.perf_counter() - begin

    begin = time.perf_counter()
    output, _ = stream(opened, batch, on_layer)
    shared = time.perf_counter() - begin - sum(shelf.seconds for shelf in shelves)
    rows = []
    for row, (sentence, question) in enumerate(zip(batch.sentences, questions, strict=True)):
        found = answer(opened, sentence, output, row, question.target, question.foil, question.position)
        rows.append(
            [
                _explanation(opened, sentence, row, job, shelf, found, shared / len(questions), len(questions))
                for job, shelf in zip(jobs, shelves, strict=True)
            ]
        )
    return rows


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


def _explanation(
    opened: Opened,
    sentence: Sentence,
    row: int,
    job: Job,
    shelf: _Shelf,
    found: Answer,
    shared: float,
    size: int,
) -> Explanation:
    begin = time.perf_counter()
    n = len(sentence)

    def one(maps: list[torch.Tensor]) -> Any:
        return np.stack([layer[row, ..., :n, :n].numpy() for layer in maps]) if maps else None

    maps = one(shelf.maps)
    position = found.reading.position
    aggregated, layer_scores = _aggregated(job.reach, maps, one(shelf.below), position, sentence)
    if layer_scores is not None:
        scores = layer_scores[-1]
    else:
        last = (maps if aggregated is None else aggregated)[-1]
        scores = last.mean(0) if position is None else last[position]
    return Explanation(
        tokens=sentence.tokens,
        scores=scores,
        method=job.asked,
        maps=maps,
        aggregated=aggregated,
        head_maps=one(shelf.heads),
        layer_scores=layer_scores,
        texts=sentence.texts,
        spans=sentence.spans,
        special=sentence.special,
        aggregate=job.reach.aggregate,
        options={
            **job.method.options,
            **job.options,
            **({} if job.head is None else {"head": job.head}),
            **job.reach.options,
        },
        signed=job.method.signed,
        target=found.target,
        reading=found.reading,
        prediction=found.prediction,
        probabilities=found.probabilities,
        model=opened.name,
        seconds=shared + shelf.seconds / size + time.perf_counter() - begin,
    )


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
