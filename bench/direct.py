"""The formulas as the papers' code computes them, in our own words: what `mixing.py` compares with.

The norm family and ALTI build every vector t_ij; Value Zeroing runs every layer again for every token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wherefrom import LayerTrace


def norm_maps(layer: LayerTrace) -> list[Tensor]:
    """N, N_FixedRes, N_Res, N_ResLN, N_Enc and four mixing ratios, from all n×n×d vectors (post-norm)."""
    weighted = torch.einsum("bhij,bhjd->bhijd", layer.attention, layer.f)  # the vectors of every head
    mixed = weighted.sum(1)  # [B, n, n, d]
    del weighted
    identity = torch.eye(mixed.shape[1])
    plain = mixed.norm(dim=-1)
    fixed = 0.5 * plain / plain.sum(-1, keepdim=True) + 0.5 * identity
    residual = mixed + torch.einsum("ij,bid->bijd", identity, layer.x)
    first = _through(layer.block.norm1, layer.u, residual)
    second = _through(layer.block.norm2, layer.w, first)
    maps = [plain, fixed, *(vectors.norm(dim=-1) for vectors in (residual, first, second))]
    return maps + [_ratio(vectors) for vectors in (mixed, residual, first, second)]


def _through(norm: Any, whole: Tensor, parts: Tensor) -> Tensor:
    scale = (whole.var(-1, unbiased=False) + norm.eps).sqrt()[:, :, None, None]
    return (parts - parts.mean(-1, keepdim=True)) / scale * norm.gamma


def _ratio(vectors: Tensor) -> Tensor:
    own = torch.diagonal(vectors, dim1=1, dim2=2).transpose(1, 2)
    others, kept = (vectors.sum(2) - own).norm(dim=-1), own.norm(dim=-1)
    return others / (others + kept)


def alti(layer: LayerTrace) -> Tensor:
    """Equations 6, 9 and 10 with T as a tensor (post-norm)."""
    mixed = torch.einsum("bhij,bhjd->bhijd", layer.attention, layer.f).sum(1)
    mixed = mixed + torch.einsum("ij,bid->bijd", torch.eye(mixed.shape[1]), layer.x)
    transformed = _through(layer.block.norm1, layer.u, mixed)
    y = layer.block.norm1(layer.u)
    distance = torch.nn.functional.pairwise_distance(transformed, y[:, :, None], p=1)
    near = (y.abs().sum(-1, keepdim=True) - distance).clamp(min=0)
    return near / near.sum(-1, keepdim=True)


def value_zeroing(block: Any, hidden: Tensor, output: Tensor, tokens: range) -> Tensor:
    """Columns of one BERT layer's map: the layer once more for every token, its value hidden by a hook."""
    columns = []
    for token in tokens:
        handle = block.attention.self.value.register_forward_hook(_hiding(token))
        changed = block(hidden)
        handle.remove()
        columns.append(1 - torch.cosine_similarity(changed, output, dim=-1))
    return torch.stack(columns, -1)


def _hiding(token: int) -> Callable[..., Tensor]:
    def hide(_module: Any, _args: Any, value: Tensor) -> Tensor:
        value = value.clone()
        value[:, token] = 0
        return value

    return hide
