"""Refuse scores that miss the sum that their method promises to be exact.

A sum misses where |Σ_i s_i − y| > tolerance · max(|y|, max_i |s_i|, largest), with the largest number that y is a
difference of. The tolerance is 1e-3, and 2e-2 of a model in half precision, whose numbers are rounded that coarsely.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wherefrom.errors import Unsuited
from wherefrom.model.linear import HALF

SUM_TOLERANCE = 1e-3
HALF_SUM_TOLERANCE = 2e-2


def misses_sum(scores: Tensor, number: Tensor, largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Which rows of scores [B, n] miss their number [B] by more than the tolerance of the model's dtype; NaN does."""
    tolerance = HALF_SUM_TOLERANCE if dtype in HALF else SUM_TOLERANCE
    allowed = tolerance * torch.stack([number.abs(), scores.abs().amax(-1), largest]).amax(0)
    return ~((scores.sum(-1) - number).abs() <= allowed)


def refuse_missed_sum(
    name: str, scores: Tensor, number: Tensor, largest: Tensor, dtype: torch.dtype, instead: str
) -> None:
    """Raise where a row misses its number; `instead` says what to do about it."""
    missed = misses_sum(scores, number, largest, dtype)
    if not bool(missed.any()):
        return
    row = int(missed.int().argmax())
    raise Unsuited(
        f"the scores of {name} sum to {float(scores[row].sum()):.4g} where they must make {float(number[row]):.4g} "
        f"(allowed: {HALF_SUM_TOLERANCE if dtype in HALF else SUM_TOLERANCE:g} of the number), so they cannot be "
        f"trusted here; {instead}"
    )
