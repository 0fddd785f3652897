r"""The gradient averaged over the straight way from one state to another, with as many points as that takes.

    ∫₀¹ ∂y/∂s (s' + t (s − s')) dt

The way is cut into pieces with a few points of Gauss–Legendre each. What the gradient of a piece should add up to is
known, the change of y from one end of the piece to the other; a piece that misses it is halved and done again, its
neighbours stay as they are. So points gather where y bends. With a given number of points there is one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.model.parts import promote

PIECES, POINTS = 4, 4  # at first, and in each piece
MOST = 1000  # points for one sentence
NARROW = 1 / 32  # the share of the tolerance that even the smallest piece is granted
ROUNDING = 4  # times the dtype's ε, of a sentence's largest y: what halving a piece cannot mend

Run = Callable[[Tensor, Tensor], Tensor]  # states [R, n, ·] and their sentences [R] -> y [R]


class Averaged(NamedTuple):
    """What the way gave for each sentence of a batch."""

    gradient: Tensor  # [B, n, ·]
    change: Tensor  # y at the end minus y at the start: [B]
    missed: Tensor  # by how much gradient · (end − start) misses the change: [B]
    travelled: Tensor  # how far y went up and down on the way, at least |change|: [B]
    largest: Tensor  # the largest |y| on the way: [B]
    hidden: Tensor  # by how much all those pieces are off that are as good as rounding lets them be: [B]
    points: list[int]  # how many it took


class Interval(NamedTuple):
    row: int
    start: float
    end: float

    @property
    def halves(self) -> list[Interval]:
        middle = (self.start + self.end) / 2
        return [Interval(self.row, self.start, middle), Interval(self.row, middle, self.end)]


def averaged(
    run: Run,
    start: Tensor,
    end: Tensor,
    last: Tensor,
    *,
    together: int,
    points: int | None = None,
    tolerance: float = 0.005,
) -> Averaged:
    """Over the way from `start` to `end` [B, n, ·], at whose end y is `last` [B], known from before.

    By `points` points; None takes as many as are needed until no piece misses its change by more than its share of
    `tolerance`, a part of how far y travels. `together` states are run at once.
    """
    way = promote(end) - promote(start)
    total = torch.zeros_like(way)
    missed, hidden, largest = (torch.zeros(len(way), dtype=torch.float64) for _ in range(3))
    values = {(row, 1.0): float(y) for row, y in enumerate(last)}
    cuts = np.linspace(0, 1, 2 if points else PIECES + 1).tolist()
    todo = [Interval(row, a, b) for row in range(len(way)) for a, b in pairwise(cuts)]
    used, travelled = [points or PIECES * POINTS] * len(way), None
    while todo:
        gradients = _gradients(run, start, way, todo, values, points or POINTS, together)
        travelled = _travelled(values, len(way)) if travelled is None else travelled
        largest = _largest(values, len(way))
        rounding = (ROUNDING * torch.finfo(start.dtype).eps * largest).tolist()
        again = []
        for piece, gradient in zip(todo, gradients, strict=True):
            row = piece.row
            change = values[row, piece.end] - values[row, piece.start]
            off = float((gradient * way[row]).sum(dtype=torch.float64)) - change
            share = max(piece.end - piece.start, NARROW)
            fine = abs(off) <= share * tolerance * float(travelled[row])
            mendable = abs(off) > rounding[row]
            if not fine and mendable and not points and used[row] + 2 * POINTS <= MOST:
                again += piece.halves
                used[row] += 2 * POINTS
                continue
            total[row] += gradient
            missed[row] += off
            hidden[row] += 0.0 if fine or mendable else abs(off)
        todo = again
    first = torch.tensor([values[row, 0.0] for row in range(len(way))], dtype=torch.float64)
    assert travelled is not None  # there is at least one piece
    return Averaged(total, last.double().cpu() - first, missed, travelled, largest, hidden, used)


def _gradients(
    run: Run,
    start: Tensor,
    way: Tensor,
    pieces: Sequence[Interval],
    values: dict[tuple[int, float], float],
    points: int,
    together: int,
) -> Tensor:
    """Each piece's share of the averaged gradient [P, n, ·]; y at every point and end joins `values`."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    asked: list[tuple[int, int, float, float]] = []  # (piece, row, t, weight)
    for number, (row, a, b) in enumerate(pieces):
        asked += [(number, row, t, 0.0) for t in (a, b) if (row, t) not in values]
        values.update({(row, t): np.nan for t in (a, b) if (row, t) not in values})  # on its way: a neighbour's too
        asked += [
            (number, row, a + (b - a) * (x + 1) / 2, (b - a) * w / 2) for x, w in zip(nodes, weights, strict=True)
        ]
    found = way.new_zeros(len(pieces), *way.shape[1:])
    for first in range(0, len(asked), together):
        numbers, rows, at, weight = (list(column) for column in zip(*asked[first : first + together], strict=True))
        t, w = (torch.tensor(each, dtype=way.dtype, device=way.device)[:, None, None] for each in (at, weight))
        with torch.enable_grad():
            states = (promote(start[rows]) + t * way[rows]).to(start.dtype).detach().requires_grad_()
            y = run(states, torch.tensor(rows))
            (gradient,) = torch.autograd.grad(y.sum(), states)
        values.update(zip(zip(rows, at, strict=True), y.detach().double().tolist(), strict=True))
        found.index_add_(0, torch.tensor(numbers, device=found.device), w * promote(gradient))
    return found


def _travelled(values: dict[tuple[int, float], float], rows: int) -> Tensor:
    def along(row: int) -> Iterable[float]:
        return (y for (_, y) in sorted((t, y) for (which, t), y in values.items() if which == row))

    return torch.tensor([sum(abs(b - a) for a, b in pairwise(along(row))) for row in range(rows)], dtype=torch.float64)


def _largest(values: dict[tuple[int, float], float], rows: int) -> Tensor:
    found = [0.0] * rows
    for (row, _), y in values.items():
        found[row] = max(found[row], abs(y))
    return torch.tensor(found, dtype=torch.float64)
