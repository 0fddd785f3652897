r"""Evenness: how equally scores are spread over the tokens.

    evenness  =  −Σ_i p_i log p_i / log k,    p_i = |s_i| / Σ_j |s_j|    over the k = ⌈top · n⌉ largest scores

1 where all k tokens get equal shares, 0 where one gets everything; not defined for k = 1. Abnar & Zuidema (2020) call
attention above the third layer "almost uniform" (top = 1), and attention flow "amortized among the set of most
attended tokens" (top = 0.5), without a measure of either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.errors import InvalidInput


def evenness(scores: ArrayLike, top: float = 1.0) -> float:
    """Normalized entropy of the largest scores' shares; NaN with fewer than two, or where all are zero.

    >>> round(evenness([1, 1, 2]), 3)
    0.946
    """
    sizes = np.abs(np.asarray(scores, dtype=np.float64))
    if sizes.ndim != 1 or not np.isfinite(sizes).all():
        raise InvalidInput(f"scores have shape {sizes.shape}; expected a list of finite numbers")
    largest = np.sort(sizes)[::-1][: int(np.ceil(top * len(sizes) - 1e-9))]
    if len(largest) < 2 or not largest.any():
        return float("nan")
    shares = largest[largest > 0] / largest.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(len(largest)))
