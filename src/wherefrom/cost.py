"""How long an explanation will take and how much memory it will need, before it is run.

Every method states the work it asks for (`cost=`, wherefrom/work.py), counted from the shape of the input and the
model: arithmetic, bytes moved, calls. A short measurement (a quarter of a second, once per process and shape) says how
fast this machine does each kind. Right within a factor of two for the methods inside on an idle machine, short texts
included; the flows that need a solver depend on the attention itself and are counted as usual attention has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from wherefrom.aggregate import AGGREGATIONS
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import MethodLike, choose, methods
from wherefrom.method.value_zeroing import ranks
from wherefrom.model import Inputs, Model, ModelLike, Sentence, TokenizerLike, open_model
from wherefrom.options import (
    BatchSize,
    DeviceLike,
    DtypeLike,
    HeadLike,
    Kept,
    Keywords,
    LayerRange,
    LongText,
    Overlap,
    RowsKept,
    Sink,
    TargetLike,
)
from wherefrom.pipeline.auto import PLACED, candidates, is_default
from wherefrom.pipeline.bulk import Given, followed
from wherefrom.pipeline.resolution import (
    AUTO,
    UNASKED,
    Job,
    Question,
    Wanted,
    refuse_misspelt,
    resolve_job,
    resolve_questions,
)
from wherefrom.pipeline.windows import as_read
from wherefrom.typecheck import checks_arguments, least
from wherefrom.work import BatchShape, Work, forward

# What a batch takes beside its tensors (its texts read, its results made), in calls of small tensors: measured.
ALWAYS, PER_INPUT = 1000, 40


@dataclass(frozen=True)
class Estimate:
    """What a run will cost. `memory` is the peak beyond the model itself, in bytes."""

    seconds: float
    memory: int
    model_memory: int
    parts: dict[str, float]  # seconds of the pass, the method, the aggregation
    method: str
    inputs: int
    longest: int  # tokens in the longest input

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_time(seconds)}" for name, seconds in self.parts.items())
        return (
            f"{self.method} of {self.inputs} input{'s' * (self.inputs > 1)} of up to {self.longest} tokens: about "
            f"{_time(self.seconds)} ({parts}) and {_size(self.memory)} beyond the model's {_size(self.model_memory)}"
        )


@checks_arguments
def estimate(
    inputs: Inputs | None = None,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    method: MethodLike = DEFAULT_METHOD,
    *,
    tokens: Annotated[int, least(1, 1_000_000)] | None = None,
    target: TargetLike = None,
    foil: TargetLike = None,
    position: TargetLike = None,
    aggregate: str | None = AUTO,
    layers: LayerRange = None,
    receptive_field: bool = False,
    rows: RowsKept = "all",
    head: HeadLike = None,
    drop_self: bool = False,
    sink: Sink = "keep",
    keep: Kept = None,
    batch_size: BatchSize = 16,
    long: LongText = "error",
    overlap: Overlap = None,
    truncate: bool = False,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
    **options: object,
) -> Estimate:
    """Time and memory that `explain` with the same arguments will take on this machine.

    Instead of `inputs`, `tokens` says how long one input would be. `chat`, `on_error` and `progress` are taken by
    `explain(…, estimate=True)`, which says the same.

    >>> found = wherefrom.estimate(tokens=100, method="alti")
    >>> found.longest, found.seconds > 0
    (100, True)
    """
    refuse_misspelt(estimate, options)
    chosen = None if is_default(method) else choose(method, options)  # a misspelt name is said at once
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    if (inputs is None) == (tokens is None):
        raise InvalidOption("expected either inputs to estimate for, or tokens, the length of one")
    if tokens is not None and opened.max_length is not None and tokens > opened.max_length:
        raise InvalidOption(
            f"tokens={tokens} is more than the model reads, which is {opened.max_length}; say as many at most, or "
            f"estimate for the text itself, with long='windows' or truncate=True"
        )
    reader = opened.reader(truncate=truncate, tokenizer_kwargs=tokenizer_kwargs, long=long)
    read, single = reader.read(inputs if tokens is None else [0] * tokens)
    given = Given(dict(enumerate(read)), len(read), single)
    wanted = Wanted(aggregate, layers, receptive_field, rows, head, drop_self, sink, keep)
    questions = resolve_questions(len(read), single, target, foil, position)
    if target is not None or foil is not None:
        given = followed(opened, given, questions)
    sentences = list(given.sentences.values())
    if chosen is None:
        asked = [_somewhere(opened, question) for question in questions]
        chosen = candidates(opened, sentences, asked, wanted, options)[0]
    every = as_read(opened, [*sentences, *given.foils.values()], overlap)
    return estimate_job(opened, every, resolve_job(opened, chosen, wanted), batch_size)


def _somewhere(opened: Model, question: Question) -> Question:
    """The question; where none is asked of a model that predicts at one place, any: one costs as much as another."""
    return Question(None, None, 0) if question == UNASKED and opened.task in PLACED else question


def estimate_job(opened: Model, sentences: Sequence[Sentence], job: Job, batch_size: int) -> Estimate:
    """The cost of one job on sentences already read, in the batches in which it would run."""
    if job.method.cost is None:
        known = ", ".join(each.name for each in methods() if each.cost is not None)
        raise NotDefined(
            f"the cost of '{job.method.name}' is not known: it states none (cost= in its decorator); "
            f"wherefrom can estimate {known}"
        )
    parts: dict[str, float] = {}
    memory = 0.0
    for members in opened.batches(sentences, batch_size):
        opened.need_blocks("an estimate")
        shape = opened.shape(tuple(len(sentences[i]) for i in members))
        rates = _rates(str(opened.device), shape)
        works = _works(opened, job, shape)
        for name, work in works.items():
            parts[name] = parts.get(name, 0.0) + rates.seconds(work)
        kept = shape.bytes * shape.pairs * (job.reach.end - job.reach.start)
        memory = max(memory, kept + sum(work.held for work in works.values()))
    return Estimate(
        seconds=sum(parts.values()),
        memory=int(memory),
        model_memory=sum(p.numel() * p.element_size() for p in opened.model.parameters()),
        parts=parts,
        method=job.asked,
        inputs=len(sentences),
        longest=max(len(sentence) for sentence in sentences),
    )


def _works(opened: Model, job: Job, s: BatchShape) -> dict[str, Work]:
    """What a batch asks for, part by part."""
    taken = job.reach.end - job.reach.start
    a_pass = forward(s).times(s.depth)
    if opened.task in ("masked-lm", "causal-lm"):
        logits = s.rows * opened.vocabulary_size
        a_pass = a_pass._replace(thin=a_pass.thin + 2 * logits * s.width, held=a_pass.held + 2 * s.bytes * logits)
    found = {"reading and results": Work(calls=ALWAYS + PER_INPUT * len(s.lengths)), "forward pass": a_pass}
    if job.method.cost is not None:
        work = job.method.cost(s, {**job.method.options, **job.options})
        by_head = 1 if job.head is None else 2
        found[job.method.name] = work.times(taken * by_head) if job.method.by_layer else work
    name = job.reach.aggregate
    if name is not None:
        cost, twice = AGGREGATIONS[name].cost, 2 if job.reach.receptive_field else 1
        each = [cost(n, taken, s.bytes, 1 if job.reach.readout_only else n).times(twice) for n in s.lengths]
        found[name] = Work(*(sum(kind) for kind in zip(*each, strict=True)))._replace(held=max(w.held for w in each))
    return found


# How fast this machine is -----------------------------------------------------------------------------------


class Rates(NamedTuple):
    """Units of each kind of work per second."""

    thin: float
    wide: float
    moved: float
    activated: float
    ranked: float
    calls: float
    solves: float
    edges: float

    def seconds(self, work: Work) -> float:
        return sum(amount / rate for amount, rate in zip(work[:-1], self, strict=True))


def _rates(device: str, s: BatchShape) -> Rates:
    # Products of few rows speed up with their number; beyond a few hundred it no longer matters.
    nearest = int(2 ** round(np.log2(max(1, min(s.rows, 512)))))
    dtype = torch.float64 if s.bytes == 8 else torch.float32
    return Rates(_thin(device, dtype, nearest, s.width, s.units), *_machine(device, dtype))


@lru_cache(maxsize=64)
def _thin(device: str, dtype: torch.dtype, rows: int, width: int, units: int) -> float:
    # As in a pass: each product with other weights than the one before, which the cache has lost again.
    weights = [torch.randn(width, units, device=device, dtype=dtype) for _ in range(2)]
    x = torch.randn(rows, width, device=device, dtype=dtype)
    seconds = _timed(lambda: [x @ weight for weight in weights], device)
    return 2 * rows * width * units * len(weights) / seconds


@lru_cache(maxsize=4)
def _machine(device: str, dtype: torch.dtype) -> tuple[float, ...]:
    square = torch.randn(512, 512, device=device, dtype=dtype)  # small, so that a busy machine leaves one run in peace
    wide = 2 * 512**3 / _timed(lambda: square @ square, device)
    tile = torch.randn(2**19, device=device, dtype=dtype)
    moved = 2 * tile.nbytes / _timed(lambda: tile.add(1.0), device)
    activated = len(tile) / _timed(lambda: torch.nn.functional.gelu(tile), device)
    rows = tile[: 2**16].view(-1, 256)
    ranked = rows.numel() / _timed(lambda: ranks(rows), device)
    one = torch.ones(8, 8, device=device)
    calls = 100 / _timed(lambda: [one.add_(0) for _ in range(100)], device)
    small, large = _solver_seconds(3, 4), _solver_seconds(6, 48)
    per_edge = max(large - small, 1e-6) / (6 * 48 * 48)
    return wide, moved, activated, ranked, calls, 1 / small, 1 / per_edge


def _solver_seconds(depth: int, n: int) -> float:
    maps = np.random.default_rng(0).integers(1, 2**24, size=(depth, n, n))
    starts = np.concatenate([np.zeros(n + 1, dtype=np.int64), np.arange(1, depth * n + 1) * n])
    targets = np.concatenate([np.tile(np.arange(n), n) + layer * n for layer in range(depth)])
    nodes = (depth + 1) * n
    graph = csr_array(
        (maps.ravel().astype(np.int32), targets.astype(np.int32), starts.astype(np.int32)), shape=(nodes, nodes)
    )
    return _timed(lambda: maximum_flow(graph, nodes - 1, 0), "cpu")


def _timed(run: Callable[[], Any], device: str) -> float:
    """Seconds of the fastest of a few runs, after one to warm up."""

    def once() -> float:
        begin = time.perf_counter()
        run()
        if not device.startswith("cpu"):
            torch.accelerator.synchronize()
        return time.perf_counter() - begin

    once()
    return max(min(once() for _ in range(8)), 1e-9)


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _size(count: float) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
