"""`explain` and `compare`: text in, explanations out, one captured pass for all methods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from whence.aggregate import AGGREGATIONS, check_aggregation
from whence.comparison import Comparison
from whence.errors import WhenceError
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
    tokenizer_kwargs go to the tokenizer's call, model_kwargs to `from_pretrained`.
    """
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = _reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = _questions(len(sentences), single, target, foil, position)
    job = _job(method, aggregate, head, options)
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
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    sentences, single = _reader(opened, truncate, tokenizer_kwargs).read(inputs)
    questions = _questions(len(sentences), single, target, foil, position)
    jobs = [_job(name, aggregate, head, {}) for name in methods]
    rows = _run(opened, sentences, questions, jobs, batch_size)
    results = [Comparison(dict(zip(methods, row, strict=True))) for row in rows]
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
class Job:
    """One method to run, its name settled into an algorithm, an aggregation and options."""

    asked: str
    method: Method
    aggregate: str | None
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


def _job(name: str, aggregate: str | None, head: int | str | None, options: dict[str, Any]) -> Job:
    method, preset = lookup(name)
    if aggregate == AUTO:
        aggregate = preset.aggregate if preset is not None else "rollout"
    if unknown := set(options) - set(method.options):
        known = ", ".join(method.options) or "none"
        raise WhenceError(
            f"'{method.name}' has no option {', '.join(map(repr, sorted(unknown)))}; its options: {known}"
        )
    if head is not None and method.heads is None:
        raise WhenceError(f"'{method.name}' does not take single heads; leave head out")
    if head is not None and head != "all" and (not isinstance(head, int) or isinstance(head, bool)):
        raise WhenceError(f"unknown head {head!r}; expected a number from 0 or 'all'")
    return Job(name, method, check_aggregation(aggregate), head, options)


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
    aggregated = AGGREGATIONS[job.aggregate](maps, one(shelf.below)) if job.aggregate else None
    last = (maps if aggregated is None else aggregated)[-1]
    position = found.reading.position
    return Explanation(
        tokens=sentence.tokens,
        scores=last.mean(0) if position is None else last[position],
        method=job.asked,
        maps=maps,
        aggregated=aggregated,
        head_maps=one(shelf.heads),
        texts=sentence.texts,
        spans=sentence.spans,
        special=sentence.special,
        aggregate=job.aggregate,
        options={**job.method.options, **job.options, **({} if job.head is None else {"head": job.head})},
        signed=job.method.signed,
        target=found.target,
        reading=found.reading,
        prediction=found.prediction,
        probabilities=found.probabilities,
        model=opened.name,
        seconds=shared + shelf.seconds / size + time.perf_counter() - begin,
    )
