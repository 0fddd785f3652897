r"""Shapes of an attention map, for Abnar & Zuidema's description of figure 1. Rows are normalized to sum to one first.

self weight           mean_i A_ii                          what is left of the residual connection
received variation    std_j(c_j) / mean_j(c_j),  c_j = mean_i A_ij      how far some tokens stand out for all others
row distance          mean_i ½ Σ_j |A_ij − c_j|            how different the patterns of different positions are
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def self_weight(map_: ArrayLike) -> float:
    """Mean weight of a token on itself: [n, n] -> a share between 0 and 1."""
    return float(np.diagonal(_normalize_rows(map_)).mean())


def received_variation(map_: ArrayLike) -> float:
    """Coefficient of variation of what the tokens receive: 0 where all receive the same."""
    received = _normalize_rows(map_).mean(0)
    return float(received.std() / received.mean())


def row_distance(map_: ArrayLike) -> float:
    """Mean total variation distance of a row from the mean row: 0 where all positions have one pattern."""
    rows = _normalize_rows(map_)
    return float(np.abs(rows - rows.mean(0)).sum(1).mean() / 2)


def _normalize_rows(map_: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(map_, dtype=np.float64)
    normalized: NDArray[np.float64] = values / values.sum(1, keepdims=True)
    return normalized
