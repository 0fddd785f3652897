"""What is read off attention as it passes: weights and values out of a module's own, and rows that see nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from wherefrom.errors import UnsupportedModel
from wherefrom.model.parts import Block, unpacked

MARK = "_wherefrom_blind"
FLOOR = -1e4  # what hides a token is far below; a bias by position, which some models put into the mask, above


def blind_rows(mask: Tensor | None) -> Tensor | None:
    """Which rows of a mask see nothing, [B, 1, n, 1]; None where all see something.

    To know it one waits for the device; so it is noted on the mask, which the layers of a pass have in common.
    """
    if mask is None:
        return None
    if not hasattr(mask, MARK):
        blind = (mask < FLOOR).all(-1, keepdim=True)
        setattr(mask, MARK, blind if bool(blind.any()) else None)
    found: Tensor | None = getattr(mask, MARK)
    return found


def by_head(t: Tensor, heads: int) -> Tensor:
    """Keys or values once for each head that they serve: [B, G, n, d_h] -> [B, H, n, d_h]."""
    return t if t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1)


def weights_among(output: Any) -> Tensor:
    """The attention weights among what a module returns: of four axes, the last two as long as each other."""
    for each in output if isinstance(output, tuple | list) else ():
        if isinstance(each, Tensor) and each.ndim == 4 and each.shape[-1] == each.shape[-2]:
            return each
    raise UnsupportedModel(
        "the attention of this model does not return its weights; use a method that needs no layer maps"
    )


def without_blind_rows(attention: Tensor) -> Tensor:
    """Rows that see nothing may be NaN; nobody reads them."""
    return attention if bool(attention.isfinite().all()) else attention.nan_to_num(0.0)


def values_of(block: Block, projected: Tensor) -> Tensor:
    """v by head out of what the value projection gave: [B, n, …] -> [B, H, n, d_h]."""
    if block.family.attention.packed:
        value = unpacked(projected, block)[2]
        if block.family.attention.value_bias:
            value = value + block.value_bias().view(value.shape[-2:])
    else:
        value = projected.unflatten(-1, (block.groups, -1))  # type: ignore[no-untyped-call]
    return value.transpose(1, 2).repeat_interleave(block.heads // block.groups, 1)
