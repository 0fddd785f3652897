r"""Layer maps joined without following paths: their sum, their mean, or simply the last.

    sum:   S^l = Σ_{m≤l} M^m          (AttCAT adds up its layers)
    mean:  S^l / (l + 1)
    last:  M^l                        (raw attention)

For a single head at layer l the layers below stay averaged over their heads, as in rollout and flow.
"""

from __future__ import annotations

import numpy as np

from wherefrom.aggregate.types import Maps
from wherefrom.work import Work


def total(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is the sum of the layers up to l."""
    below = maps if below is None else below
    result: Maps = below.cumsum(0) - below + maps
    return result


def total_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    del rows
    return Work(moved=4 * bytes * depth * n * n, calls=4, held=2 * bytes * depth * n * n)


def mean(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is the mean of the layers up to l."""
    count = np.arange(1, len(maps) + 1, dtype=maps.dtype)
    result: Maps = total(maps, below) / count[:, None, None]
    return result


def mean_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    return total_cost(n, depth, bytes, rows)._replace(calls=5)


def last(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: entry l is layer l itself, whatever lies below."""
    del below
    return maps


def last_cost(*_: int) -> Work:
    return Work()
