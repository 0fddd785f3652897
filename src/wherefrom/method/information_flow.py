r"""Information flow routes: how near each head's share of each token comes to the stream after attention.

    u_i = Σ_j Σ_h α^h_ij f^h_j + x_i + const                 parts: every (j, h), and the residual connection
    e(part) = max(‖u_i‖_1 − ‖u_i − part‖_1, 1e-5)            divided by the sum over all parts of u_i
    E_ij = Σ_h e(α^h_ij f^h_j) + 1[i=j] e(x_i)               the edge from token j to token i; rows sum to one

It is ALTI's nearness (alti.py) with every head a part of its own: heads that cancel each other count both. With
`threshold=` τ the parts of at most τ are dropped and the rest shares out what they had, as the authors' graph of routes
does (their tool begins with 0.04). The sum that the FFN makes, o_i = u_i + FFN, has two parts in the same way, both of
token i (`ffn_shares`); `wherefrom.routes` puts the two together.

The authors' tool gives the 1e-5 to tokens that cannot be seen, too; here they have nothing. It counts biases of values
twice; here they count once. In a block with a norm on attention's branch (Gemma 2) the parts go through it.

Ferrando & Voita (2024), Information Flow Routes: Automatically Interpreting Language Models at Scale.
https://arxiv.org/abs/2403.00824
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from wherefrom.method.alti import gained
from wherefrom.method.base import method
from wherefrom.method.citations import FERRANDO_2024
from wherefrom.method.contributions import carried
from wherefrom.method.normalise import nonzero
from wherefrom.method.tiling import Budget, budget_for, tiles
from wherefrom.typecheck import least
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

FLOOR = 1e-5


def _cost(s: BatchShape, _: Options) -> Work:
    each = s.pairs * s.heads * s.width
    return Work(wide=4 * s.rows * s.width**2, moved=6 * s.bytes * each, calls=10 * s.rows, held=s.bytes * 4 * s.pairs)


def _heads(layer: LayerTrace, *, threshold: Annotated[float, least(0)] = 0.0, budget: Budget = None) -> Tensor:
    return shares(layer, threshold, budget)[0]


@method(
    "information-flow",
    idea="nearness of what tokens give",
    paper=FERRANDO_2024,
    needs={"attention", "values", "output-projection", "block-input"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=_cost,
    heads=_heads,
)
@torch.no_grad()
def information_flow(
    layer: LayerTrace, *, threshold: Annotated[float, least(0)] = 0.0, budget: Budget = None
) -> Tensor:
    """How near the share of each token, head by head, comes to the stream after attention; rows sum to one.

    threshold: parts of at most this much are dropped, and the rest of the row shares out what they had.
    budget: bytes for one tile.
    """
    by_head, residual = shares(layer, threshold, budget)
    edges = by_head.sum(1)
    edges.diagonal(dim1=1, dim2=2).add_(residual)
    return edges


def shares(layer: LayerTrace, threshold: float, budget: int | None) -> tuple[Tensor, Tensor]:
    """What each head brings of each token, and what the residual connection keeps: [B, H, n, n] and [B, n]."""
    found = _gains(layer, budget_for(layer.x, budget)).clamp(min=FLOOR) * (layer.attention != 0)
    residual = gained(layer.u, layer.x).clamp(min=FLOOR)
    found, residual = _shared_out(found, residual)
    return _shared_out(found * (found > threshold), residual * (residual > threshold))


@torch.no_grad()
def ffn_shares(layer: LayerTrace, threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """What the FFN brings to the stream after the block, and what the residual connection beside it keeps: [B, n]."""
    before = layer.u if layer.block.post is None else layer.block.post(layer.u)
    ffn, residual = (gained(layer.w, part).clamp(min=FLOOR) for part in (layer.w - before, before))
    total = ffn + residual
    ffn, residual = (torch.where(part > threshold * total, part, 0) for part in (ffn, residual))
    return ffn / nonzero(ffn + residual), residual / nonzero(ffn + residual)


def _shared_out(found: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of each u_i divided by their sum."""
    total = nonzero(found.sum((1, 3)) + residual)
    return found / total[:, None, :, None], residual / total


def _gains(layer: LayerTrace, budget: int) -> Tensor:
    """`‖u_i‖_1 − ‖u_i − α^h_ij f^h_j‖_1`: [B, H, n, n]."""
    batch, heads, n, _ = layer.weights.shape
    d = layer.u.shape[-1]
    found = layer.weights.new_empty(batch, heads, n, n)
    for sentence in range(batch):
        u = layer.u[sentence, :, None]  # [n, 1, d]
        for sources in tiles(n, (heads + 4 * n) * d * layer.u.element_size(), budget):
            parts = carried(layer, sentence, sources).transpose(0, 1)  # [H, J, d]
            for head in range(heads):
                weights = layer.weights[sentence, head, :, sources, None]  # [n, J, 1]
                found[sentence, head, :, sources] = gained(u, weights * parts[head])
    return found
