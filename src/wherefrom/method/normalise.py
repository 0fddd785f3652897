"""Rows that sum to one, and their mean; layers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.errors import warn

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace


def identity_like(t: Tensor) -> Tensor:
    return torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)


def halfway(maps: Tensor) -> Tensor:
    """½ maps + ½ I: [..., n, n]."""
    found = 0.5 * maps
    found.diagonal(dim1=-2, dim2=-1).add_(0.5)
    return found


def nonzero(t: Tensor) -> Tensor:
    """t with ones in the place of zeros: a divisor that leaves 0 / 0 at 0."""
    return torch.where(t == 0, torch.ones_like(t), t)


def part_of(scores: Tensor, number: Tensor) -> Tensor:
    """What part of a number scores add up to, [B, n] and [B] -> [B]; nothing of nothing is nothing."""
    return torch.where(number == 0, 0.0, scores.sum(-1) / nonzero(number))


def to_one(scores: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays one."""
    return scores / nonzero(scores.sum(-1, keepdim=True))


def standardised(o: Tensor) -> tuple[Tensor, Tensor]:
    """o with mean 0 and variance 1 in every dimension, and what it was divided by: [n, d]."""
    spread = nonzero(o.std(0, unbiased=False))
    return (o - o.mean(0)) / spread, spread


def mean_row(maps: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real rows: [B, n, n] -> [B, n]."""
    rows = mask.to(maps)
    return torch.einsum("bij,bi->bj", maps, rows) / rows.sum(-1, keepdim=True)


def stacked(layers: Sequence[Tensor]) -> Tensor:
    """[L, …] on the first one's device: the layers of one model may be on several."""
    return torch.stack([each.to(layers[0].device) for each in layers])


def to_one_or_self(scores: Tensor, layer: LayerTrace, name: str) -> Tensor:
    """Each row divided by its sum; a row of zeros becomes the token's contribution to itself, with a warning.

    Rows of padding are left at zero and warned of by nobody.
    """
    return _or_self(scores * layer.mask.unsqueeze(-1), layer.mask, identity_like(scores), layer, name)


def row_to_one_or_self(row: Tensor, tokens: Tensor, layer: LayerTrace, name: str) -> Tensor:
    """The same of one token's row of each sentence: [B, n]."""
    return _or_self(row, torch.ones_like(tokens, dtype=torch.bool), one_hot(tokens, row), layer, name)


def one_hot(tokens: Tensor, like: Tensor) -> Tensor:
    """[B] -> [B, n]."""
    return (torch.arange(like.shape[-1], device=like.device) == tokens.unsqueeze(-1)).to(like.dtype)


def _or_self(scores: Tensor, real: Tensor, itself: Tensor, layer: LayerTrace, name: str) -> Tensor:
    total = scores.sum(-1, keepdim=True)
    empty = (total == 0) & real.unsqueeze(-1)
    warn_of_empty(empty, real, layer, name)
    return torch.where(empty, itself, scores / nonzero(total))


def warn_of_empty(empty: Tensor, real: Tensor, layer: LayerTrace, name: str) -> None:
    """Say which rows were empty: at the end of the pass, holding until then these two and not the layer."""
    layer.afterwards(empty, partial(_warn_of_empty, empty, real, f"{name}: {{}} of {{}} rows of layer {layer.index}"))


def _warn_of_empty(empty: Tensor, real: Tensor, where: str) -> None:
    said = where.format(int(empty.sum()), int(real.sum()))
    warn(f"{said} hold no contribution above zero; such a token is taken to come from itself alone")
