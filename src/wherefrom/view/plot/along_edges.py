r"""How much of an answer takes each edge of the attention graph on its way to the input (ALTI's figure 2).

    r^L = the answer's token,      E^l_ij = r^l_i M^l_ij,      r^{l-1}_j = Σ_i E^l_ij

All paths together are rollout: the columns of the first layer's edges sum to its row. These are maps that a result
holds, hence numpy: a picture does without torch. Products of many maps that are not normalised leave the range of their
numbers, so that a power of two goes beside them from layer to layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import warn
from wherefrom.result.explanation import Array

SPARE = 24  # powers of two between the largest edge that was brought into range and the largest number there is


def through(maps: Array, row: int | None) -> Array:
    """[L, n, n] -> [L, n, n]: how much of row `row` of rollout (None: of the mean row) takes each edge (l, i, j)."""
    depth, n, _ = maps.shape
    reached = np.full(n, 1 / n) if row is None else np.eye(n)[row]
    edges, powers, power = np.empty(maps.shape), np.zeros(depth, dtype=np.int64), 0
    for layer in range(depth - 1, -1, -1):
        edges[layer], powers[layer] = reached[:, None] * maps[layer], power
        reached = edges[layer].sum(0)
        size = int(np.frexp(np.abs(reached).max())[1])
        reached, power = np.ldexp(reached, -size), power + size
    return _fitting(edges, powers, maps.dtype)


def _fitting(edges: Array, powers: NDArray[np.int64], dtype: np.dtype[np.floating[Any]]) -> Array:
    """edges[l] · 2^powers[l], if they fit; else all have a common factor, and a tiny layer one of its own."""
    info, most = np.finfo(dtype), np.abs(edges).max((1, 2))
    low, high = info.minexp + info.nmant, info.maxexp - 1
    there = most > 0
    sizes = np.frexp(most)[1] + powers
    if there.any() and (sizes[there].min() < low or sizes[there].max() > high):
        warn(f"what goes along the edges leaves the range of {dtype}, and is given only up to a factor")
        powers = powers + np.maximum(high - SPARE - sizes[there].max(), low - sizes)
    found: Array = np.ldexp(edges, powers[:, None, None]).astype(dtype)
    return found
