"""What a computation asks of a machine, counted before it is run: the vocabulary in which methods state their cost.

A method gives `cost=`, a function of the batch's shape and of its own options (all of them, defaults included):

    def weights(s: BatchShape, options: Options) -> Work:
        return Work(moved=2 * s.bytes * s.pairs * s.heads, calls=6, held=s.bytes * 2 * s.pairs)

The work is that of one layer for a method that takes layer by layer, of the whole model for one that explains an
output. How long it takes on this machine is `wherefrom.cost`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
    """What is done, by kinds that run at different speeds; and the most that is held at once."""

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


Cost = Callable[[BatchShape, Options], Work]


def forward(s: BatchShape) -> Work:
    """One block of a forward pass."""
    d, f = s.width, s.units
    return Work(
        thin=s.rows * (8 * d * d + 4 * d * f) + 4 * s.pairs * d,
        moved=s.bytes * (8 * s.pairs * s.heads + 20 * s.rows * d),
        activated=s.rows * f,
        calls=200,  # with the modules around them and the capture
        held=s.bytes * (3 * s.pairs * s.heads + s.rows * (9 * d + 2 * f)),
    )


def passes(count: float, graphs: float) -> Cost:
    """So many passes, and what `graphs` of them keep. Both were measured (bench/output.py, bench/relevance.py)."""
    return lambda s, _: forward(s).times(count * s.depth)._replace(held=graphs * graph(s))


def graph(s: BatchShape) -> float:
    """Bytes that a pass keeps for its way back."""
    return s.depth * s.bytes * (6 * s.pairs * s.heads + s.rows * (13 * s.width + 4 * s.units))


one_backward_pass = passes(1.2, 1)
