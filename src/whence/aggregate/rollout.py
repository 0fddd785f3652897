r"""Rollout: the maps of all layers multiplied, so that the last one reaches down to the input.

    R^0 = M^0,      R^l = M^l R^{l-1}                       (Abnar & Zuidema 2020, equation 1)

Residual connections are the layer map's business, never rollout's; nothing is renormalised (GlobEnc). For a
single head k at layer l the layers below stay averaged over their heads (appendix A.1): R^{l,k} = M^{l,k} R^{l-1}.
"""

from __future__ import annotations

import numpy as np

from whence.aggregate.types import Maps


def rollout(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: row i of entry l says what token i of layer l is made of, in input tokens.

    `below` are the maps of the layers under the one asked about, where they differ from `maps` (one head).
    """
    below = maps if below is None else below
    result = np.empty_like(maps)
    joint = np.eye(maps.shape[-1], dtype=maps.dtype)
    for layer in range(len(maps)):
        result[layer] = maps[layer] @ joint
        joint = below[layer] @ joint
    return result


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
