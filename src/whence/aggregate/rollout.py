r"""Rollout: the maps of all layers multiplied, so that the last one reaches down to the input.

    R^0 = M^0,      R^l = M^l R^{l-1}                       (Abnar & Zuidema 2020, equation 1)

Residual connections are the layer map's business, never rollout's; nothing is renormalised (GlobEnc). For a
single head k at layer l the layers below stay averaged over their heads (appendix A.1): R^{l,k} = M^{l,k} R^{l-1}.

Products of many maps that are not normalised may leave the range of their numbers (1e38 in float32). Such a layer is
given up to a factor, a power of two that brings it back into that range; its shares are what they were.
"""

from __future__ import annotations

import numpy as np

from whence.aggregate.types import Maps
from whence.errors import warn


def rollout(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: row i of entry l says what token i of layer l is made of, in input tokens.

    `below` are the maps of the layers under the one asked about, where they differ from `maps` (one head).
    """
    below = maps if below is None else below
    result = np.empty_like(maps)
    joint, power = np.eye(maps.shape[-1], dtype=maps.dtype), 0  # joint · 2^power is the product of all layers so far
    cut = []
    for layer in range(len(maps)):
        found = maps[layer] @ joint
        least, most = _limits(found)
        fitting = min(max(power, least), most)
        result[layer] = np.ldexp(found, fitting)
        cut += [layer] if fitting != power else []
        joint = below[layer] @ joint
        size = _size(joint)
        joint, power = np.ldexp(joint, -size), power + size
    if cut:
        warn(
            f"the rollout leaves the range of {maps.dtype} in {len(cut)} of {len(maps)} layers, which are given up to "
            f"a factor: read them as shares"
        )
    return result


def _size(array: Maps) -> int:
    """The power of two of the largest entry, 0 where all are 0."""
    return int(np.frexp(np.abs(array).max(initial=0))[1])


def _limits(array: Maps) -> tuple[int, int]:
    """The least and the largest power of two by which it can be multiplied without losing its larger entries."""
    info = np.finfo(array.dtype)
    size = _size(array)
    return info.minexp + info.nmant - size, info.maxexp - 1 - size


def through(maps: Maps, row: int | None) -> Maps:
    """[L, n, n] -> [L, n, n]: how much of row `row` of rollout (None: of the mean row) takes each edge (l, i, j).

    It reaches token i of layer l with weight r_i and goes on to j with r_i M_ij, so that the columns of the first
    layer sum to rollout's row.
    """
    n = maps.shape[-1]
    reached = np.full(n, 1 / n, dtype=maps.dtype) if row is None else np.eye(n, dtype=maps.dtype)[row]
    result = np.empty_like(maps)
    for layer in range(len(maps) - 1, -1, -1):
        result[layer] = reached[:, None] * maps[layer]
        reached = result[layer].sum(0)
    return result
