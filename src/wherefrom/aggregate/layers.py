r"""Layer maps joined without following paths: their sum, their mean, or simply the last.

    sum:   S^l = S^{l-1} + M^l                            (AttCAT adds up its layers)
    mean:  S^l = S^{l-1} + (M^l - S^{l-1}) / (l + 1)
    last:  S^l = M^l                                      (raw attention)

For a single head at layer l the layers below stay averaged over their heads, as in rollout and flow.
"""

from __future__ import annotations

from torch import Tensor

from wherefrom.aggregate.types import Maps, folded, wide
from wherefrom.work import Work


def plus(so_far: Tensor | None, maps: Tensor, count: int) -> Tensor:
    del count
    return wide(maps) if so_far is None else so_far.to(maps.device) + wide(maps)


def averaged(so_far: Tensor | None, maps: Tensor, count: int) -> Tensor:
    return wide(maps) if so_far is None else so_far.to(maps.device).lerp(wide(maps), 1 / count)


def total(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is the sum of the layers up to l."""
    return folded(plus, maps, below)


def total_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    del rows
    return Work(moved=4 * bytes * depth * n * n, calls=4, held=2 * bytes * depth * n * n)


def mean(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is the mean of the layers up to l."""
    return folded(averaged, maps, below)


def mean_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    return total_cost(n, depth, bytes, rows)._replace(calls=5)


def last(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is layer l itself, whatever lies below."""
    del below
    return maps


def last_cost(*_: int) -> Work:
    return Work()
