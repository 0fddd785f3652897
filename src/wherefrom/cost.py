"""How long an explanation will take and how much memory it will need, before it is run.

Every method's work on one layer is counted from the shape of the input and the model: arithmetic, bytes moved,
calls. A short measurement (a quarter of a second, once per process and shape) says how fast this machine does each
kind. A new method adds one line to `METHODS`; one that explains an output and runs the whole model again, to
`TOWARDS`, in passes. Right within a factor of two for the methods below on an idle machine; the flows that need a
solver depend on the attention itself and are counted as usual attention has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import MethodSpec, choose
from wherefrom.method.value_zeroing import ranks
from wherefrom.model import Model, Sentence, open_model
from wherefrom.model.rerun import TOKENS as RERUN
from wherefrom.pipeline.auto import PLACED, candidates, is_default
from wherefrom.pipeline.resolution import AUTO, UNASKED, Job, Question, Wanted, refuse_misspelt, resolve_job
from wherefrom.typecheck import checks_arguments, least


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


MB = 2**20
Options = Mapping[str, Any]


class BatchShape(NamedTuple):
    """One batch in one model."""

    lengths: tuple[int, ...]
    depth: int
    heads: int
    width: int  # d
    units: int  # of the FFN
    bytes: int  # of one number

    @property
    def n(self) -> int:
        return max(self.lengths)

    @property
    def rows(self) -> int:
        """Tokens, padding included."""
        return len(self.lengths) * self.n

    @property
    def pairs(self) -> int:
        return self.rows * self.n

    @property
    def real(self) -> int:
        """Tokens without padding, for methods that leave it out."""
        return sum(self.lengths)

    @property
    def real_pairs(self) -> int:
        return sum(n * n for n in self.lengths)


class Work(NamedTuple):
    """What one layer asks of the machine, by kinds that run at different speeds; and the most it holds at once."""

    thin: float = 0  # multiplications and additions in products of few rows with large weights,
    wide: float = 0  # ... in products of large matrices
    moved: float = 0  # bytes read and written by elementwise steps
    activated: float = 0  # numbers that pass GELU
    ranked: float = 0  # numbers whose ranks are taken
    calls: float = 0  # tensor operations
    solves: float = 0  # maximum flows, ...
    edges: float = 0  # ... and the edges of their graphs
    held: float = 0  # bytes

    def times(self, count: float) -> Work:
        """The same work again and again; what is held is given back in between."""
        return Work(*(count * each for each in self))._replace(held=self.held)


def forward(s: BatchShape) -> Work:
    d, f = s.width, s.units
    return Work(
        thin=s.rows * (8 * d * d + 4 * d * f) + 4 * s.pairs * d,
        moved=s.bytes * (8 * s.pairs * s.heads + 20 * s.rows * d),
        activated=s.rows * f,
        calls=60,
        held=s.bytes * (3 * s.pairs * s.heads + s.rows * (9 * d + 2 * f)),
    )


def _weights(s: BatchShape, _: Options) -> Work:
    return Work(moved=2 * s.bytes * s.pairs * s.heads, calls=6, held=s.bytes * 2 * s.pairs)


def _norms(s: BatchShape, _: Options) -> Work:
    vectors, d = s.rows * s.heads, s.width
    return Work(
        wide=2 * s.rows * d * d + 6 * vectors * s.heads * d + 6 * s.pairs * s.heads**2 + 4 * s.rows * d * d,
        moved=s.bytes * (8 * vectors * d + 10 * s.pairs * s.heads),
        calls=40 * len(s.lengths),
        held=s.bytes * (4 * s.pairs + 3 * s.rows * d) + 2 * min(4 * MB, s.bytes * s.n * s.heads * d),
    )


def _alti(s: BatchShape, _: Options) -> Work:
    return Work(
        wide=4 * s.rows * s.width**2 + 2 * s.pairs * s.heads * s.width,
        moved=s.bytes * (4 * s.pairs * s.width + 4 * s.rows * s.heads * s.width),
        calls=10 * s.rows,
        held=s.bytes * (5 * s.rows * s.width + 3 * s.pairs) + 2 * min(4 * MB, s.bytes * s.n**2 * s.width),
    )


def _value_zeroing(s: BatchShape, options: Options) -> Work:
    d, f = s.width, s.units
    through_w1 = min(2 * s.real * s.heads * d * f, 2 * d * d * f + 2 * s.real * d * f)
    return Work(
        wide=through_w1 + s.real_pairs * (2 * s.heads * (f + d) + 2 * f * d),
        moved=s.bytes * s.real_pairs * (6 * f + 20 * d),
        activated=s.real_pairs * f,
        ranked=s.real_pairs * d * (options["metric"] == "spearman"),  # every changed vector is sorted
        calls=60 * len(s.lengths),
        held=s.bytes * d * f + 2 * min(32 * MB, s.bytes * s.n**2 * 2 * (d + f)),
    )


def _hta(s: BatchShape, _: Options) -> Work:
    d, f = s.width, s.units
    return Work(
        wide=s.real * (2 * d * d * f + 8 * d**3) + s.real_pairs * (2 * s.heads + 4) * d * d,
        moved=s.bytes * (s.real * (2 * d * f + 30 * d * d) + 8 * s.real_pairs * s.heads * d),
        calls=60 * len(s.lengths),
        held=min(512 * MB, s.bytes * 2 * s.n * d * d) + min(128 * MB, s.bytes * s.n * (d * f + 6 * d * d)),
    )


METHODS: dict[str, Callable[[BatchShape, Options], Work]] = {  # in each layer
    "attention": _weights,
    "attention-fixed-residual": _weights,
    "attention-residual": _norms,
    "norm": _norms,
    "norm-fixed-residual": _norms,
    "norm-residual": _norms,
    "norm-residual-ln": _norms,
    "globenc": _norms,
    "alti": _alti,
    "value-zeroing": _value_zeroing,
    "hta": _hta,
    "hta-x-input": _hta,
    "random": lambda s, _: Work(moved=4 * s.bytes * s.pairs, calls=10, held=s.bytes * s.pairs),
}


def _graph(s: BatchShape) -> float:
    """Bytes that a pass keeps for its way back."""
    return s.depth * s.bytes * (6 * s.pairs * s.heads + s.rows * (13 * s.width + 4 * s.units))


def _passes(count: float, graphs: float) -> Callable[[BatchShape, Options], Work]:
    """So many passes, and what `graphs` of them keep. Both were measured (bench/output.py, bench/relevance.py)."""
    return lambda s, _: forward(s).times(count * s.depth)._replace(held=graphs * _graph(s))


TYPICAL_STEPS = 40  # of integrated gradients that choose their number themselves, on the models inside


def _steps(s: BatchShape, options: Options) -> Work:
    steps = options["n_steps"] or TYPICAL_STEPS
    return _passes(1.4 * steps, 0.5 * min(steps, options["at_once"]))(s, options)


def _reruns(s: BatchShape, variants: int) -> Work:
    """A pass for each variant of each sentence, many side by side."""
    together = min(variants, max(1, RERUN // s.n))
    side_by_side = forward(s._replace(lengths=(s.n,) * together))
    return forward(s).times(0.6 * variants * s.depth)._replace(held=side_by_side.held)


GRADIENTS = ("cat", "attcat", "grads", "attention-gradients", "attention-gradcam", "saliency", "gradient-x-input")
TOWARDS: dict[str, Callable[[BatchShape, Options], Work]] = {  # of the whole model
    **dict.fromkeys(GRADIENTS, _passes(1.2, 1)),
    "partial-lrp": _passes(8, 2),
    "full-lrp": _passes(8, 2),
    "transformer-attribution": _passes(9, 2),
    "deeplift": _passes(7, 1.2),
    "integrated-gradients": _steps,
    "ablation": lambda s, _: _reruns(s, s.n),
    "ablation-pairs": lambda s, _: _reruns(s, s.n * (s.n + 1) // 2),
}


def _flows(n: int, depth: int, bytes: int, rows: int) -> Work:
    """Maximum flows of `rows` tokens in every layer, n each."""
    # Closed forms serve the first two layers, and on usual attention bounds serve those from the sixth on.
    solved, bounded = range(2, min(depth, 5)), max(0, depth - 5)
    return Work(
        moved=8 * n**3 * (40 * depth * (rows == n) + 600 * bounded * (rows == 1)),
        calls=40 * depth,
        solves=rows * n * len(solved),
        edges=1.5 * sum(rows * n * (layer + 1) * n * n for layer in solved),  # some are followed more than once
        held=8 * (3 * depth * n * n + 10 * min(n**3, 2**17)) + bytes * depth * rows * n,
    )


AGGREGATIONS: dict[str, Callable[[int, int, int], Work]] = {
    "rollout": lambda n, depth, bytes: Work(wide=4 * depth * n**3, calls=4 * depth, held=bytes * depth * n * n),
    "flow": lambda n, depth, bytes: _flows(n, depth, bytes, rows=n),
    "sum": lambda n, depth, bytes: Work(moved=4 * bytes * depth * n * n, calls=4, held=2 * bytes * depth * n * n),
    "mean": lambda n, depth, bytes: Work(moved=4 * bytes * depth * n * n, calls=5, held=2 * bytes * depth * n * n),
    "last": lambda n, depth, bytes: Work(held=0 * n * depth * bytes),
}


@checks_arguments
def estimate(
    inputs: Any = None,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    method: str | MethodSpec = DEFAULT_METHOD,
    *,
    tokens: Annotated[int, least(1, 1_000_000)] | None = None,
    aggregate: str | None = AUTO,
    head: int | Literal["all"] | None = None,
    layers: tuple[int | None, int | None] | None = None,
    receptive_field: bool = False,
    rows: Literal["all", "readout"] = "all",
    batch_size: Annotated[int, least(1)] = 16,
    truncate: bool = False,
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Estimate:
    """Time and memory that `explain` with the same arguments will take on this machine.

    Instead of `inputs`, `tokens` says how long one input would be.
    """
    refuse_misspelt(estimate, options)
    chosen = None if is_default(method) else choose(method, options)  # a misspelt name is said at once
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, model_kwargs=model_kwargs)
    if (inputs is None) == (tokens is None):
        raise InvalidOption("expected either inputs to estimate for, or tokens, the length of one")
    if tokens is not None:
        inputs = [0] * tokens
    sentences, _ = opened.reader(truncate=truncate, tokenizer_kwargs=tokenizer_kwargs).read(inputs)
    wanted = Wanted(aggregate, layers, receptive_field, rows, head)
    if chosen is None:
        asked = Question(None, None, 0) if opened.task in PLACED else UNASKED  # one place costs as much as another
        chosen = candidates(opened, sentences, [asked] * len(sentences), wanted, options)[0]
    return estimate_job(opened, sentences, resolve_job(opened, chosen, wanted), batch_size)


def estimate_job(opened: Model, sentences: Sequence[Sentence], job: Job, batch_size: int) -> Estimate:
    """The cost of one job on sentences already read, in the batches in which it would run."""
    if job.method.name not in METHODS and job.method.name not in TOWARDS:
        known = ", ".join([*METHODS, *TOWARDS])
        raise NotDefined(f"the cost of '{job.method.name}' is not known; wherefrom can estimate {known}")
    parts: dict[str, float] = {}
    memory = 0.0
    for members in opened.batches(sentences, batch_size):
        shape = _shape(opened, tuple(len(sentences[i]) for i in members))
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


def _shape(opened: Model, lengths: tuple[int, ...]) -> BatchShape:
    opened.need_blocks("an estimate")
    block = opened.blocks[0]
    width, units = block.ffn_in.weight.shape
    return BatchShape(lengths, opened.depth, block.heads, width, units, block.ffn_in.weight.element_size())


def _works(opened: Model, job: Job, s: BatchShape) -> dict[str, Work]:
    """What a batch asks for, part by part."""
    taken = job.reach.end - job.reach.start
    a_pass = forward(s).times(s.depth)
    if opened.task in ("masked-lm", "causal-lm"):
        logits = s.rows * opened.vocabulary_size
        a_pass = a_pass._replace(thin=a_pass.thin + 2 * logits * s.width, held=a_pass.held + 2 * s.bytes * logits)
    options = {**job.method.options, **job.options}
    if job.method.name in TOWARDS:
        work = TOWARDS[job.method.name](s, options)
    else:
        work = METHODS[job.method.name](s, options).times(taken * (1 if job.head is None else 2))
    found = {"forward pass": a_pass, job.method.name: work}
    name = job.reach.aggregate
    if name is not None:
        one_row = name == "flow" and job.reach.readout_only
        each = [_flows(n, taken, s.bytes, 1) if one_row else AGGREGATIONS[name](n, taken, s.bytes) for n in s.lengths]
        each = [work.times(2 if job.reach.receptive_field else 1) for work in each]
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
