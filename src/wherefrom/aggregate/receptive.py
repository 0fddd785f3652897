r"""The correction for the receptive field of causal models.

In a causal model token j is seen by itself and all later tokens, so early tokens gather more of any flow than
late ones, whatever the attention says. Abnar & Zuidema (2020, section 5): "to apply these methods on a
Transformer decoder, we should first normalize based on the receptive field of attention". Here:

    E^l_ii = M^l_ii,    E^l_ij = Σ_{k<i} M^l_ik / |{k < i}|   for j < i,   0 for j > i
    S'_ij  = (S_ij / U_ij) / Σ_k (S_ik / U_ik),               S = aggregate(M),  U = aggregate(E)

E is the even reader: every token keeps as much of itself as in M and reads the rest evenly from all tokens
that it can see. S/U says how much more of token j arrived than an even reader would have got. Uniform causal
attention, with or without residual, is its own even reader: S' is then uniform over the visible tokens. Where a layer
sees no further than a window (Mistral, Gemma 2), neither does its even reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.aggregate.types import Maps
from wherefrom.errors import InvalidOption

Mask = NDArray[np.bool_]


def corrected(
    aggregate: Callable[..., Maps], maps: Maps, below: Maps | None, visible: Mask | None = None, **how: Any
) -> Maps:
    """`aggregate(maps, below)` relative to an even reader of the same receptive field, rows summing to one.

    `visible` names the tokens that attention may see, if not all: [n], or [L, n, n] from each token in each layer.
    `how` goes to `aggregate`.
    """
    even = None if below is None else even_reader(below, visible)
    found = aggregate(maps, below, **how)
    expected = aggregate(even_reader(maps, visible), even, **how)
    # Where the even reader gets nothing, nobody does: it reads from every token that can be read.
    ratio = np.divide(found, expected, out=np.zeros_like(found), where=expected > 0)
    rows = ratio.sum(-1, keepdims=True)
    shares: Maps = np.divide(ratio, rows, out=np.zeros_like(ratio), where=rows > 0)
    return shares


def field_of(visible: Sequence[int] | None, windows: Sequence[int | None], n: int) -> Mask | None:
    """What each of n tokens may see in each layer, [L, n, n]: those of its window that are visible at all.

    None where that is all. A window of w is the token itself and the w − 1 before it.
    """
    if visible is None and not any(windows):
        return None
    tokens = np.ones(n, dtype=bool) if visible is None else np.asarray(visible, dtype=bool)
    back = np.arange(n)[:, None] - np.arange(n)
    return np.stack([(back < (window or n)) & tokens for window in windows])


def even_reader(maps: Maps, visible: Mask | None = None) -> Maps:
    """E: what each row gets from others, spread evenly over the earlier tokens that can be seen."""
    n = maps.shape[-1]
    if (maps[:, ~np.tri(n, dtype=bool)] != 0).any():
        raise InvalidOption(
            "the receptive field can only be corrected in a causal model, and these maps look ahead; "
            "leave receptive_field out"
        )
    field = np.tri(n, k=-1, dtype=maps.dtype)
    if visible is not None:
        field = field * visible
    diagonal = np.einsum("lii->li", maps)
    count = np.maximum(field.sum(-1), 1)
    result: Maps = ((maps.sum(-1) - diagonal) / count)[..., None] * field
    result[:, np.arange(n), np.arange(n)] = diagonal
    return result
