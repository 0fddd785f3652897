r"""ALTI: contributions by how near a token's share lies to the result.

    T_ij = g_{u_i}(Σ_h α^h_ij f^h_j + 1[i=j] x_i)             y_i = LN1(u_i) = Σ_j T_ij + L1 b_O / s(u_i) + β
    d_ij = ‖y_i − T_ij‖_1                                     (equation 9)
    C_ij = max(0, ‖y_i‖_1 − d_ij) / Σ_k max(0, ‖y_i‖_1 − d_ik)   (equation 10)

with g_u(t) = (t − mean t) ⊙ γ / s(u), s with the model's own ε (the authors' code loses it). What is rolled out is
`alti`. `metric="l2"` puts the Euclidean norm in both places; `metric="cosine"` has no lengths to compare and takes
C_ij ∝ max(0, cos(y_i, T_ij)). `at="output"` is the authors' LN2 variant: T through both norms against the block's
output, FFN and β included.

In a pre-norm block what attention makes of token i is u_i itself, which meets no norm of its own: there T_ij = t_ij
and y_i = u_i, as the authors' code for decoders has it (Ferrando et al. 2023; `at="residual"`), in a parallel block
y_i = o_i with FFN(x_i) in t_ii. `at="norm"` sends both through the next norm (contributions.py).

L1 has no shortcut: all n² vectors are built, in tiles of a few sources that stay in the cache. Where all shares of
a row are small beside ‖y_i‖_1, the difference cancels; such a row is computed again by components, as
|y| − |y − T| = min(sT, 2|y| − sT) with s the sign of y. The other two metrics need only products:
‖y‖ − ‖y − T‖ = (2⟨y,T⟩ − ‖T‖²) / (‖y‖ + ‖y − T‖), where nothing cancels, and ‖T‖² is a Gram product.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from wherefrom.method.accelerated import nearness, on_accelerator, shared_out
from wherefrom.method.base import method
from wherefrom.method.citations import FERRANDO_2022
from wherefrom.method.contributions import (
    View,
    after_attention,
    after_block,
    carried,
    itself_seen,
    plain,
    row_with_itself,
    rows_at,
)
from wherefrom.method.normalise import nonzero, row_to_one_or_self, to_one_or_self
from wherefrom.method.tiling import Budget, budget_for, tiles
from wherefrom.work import MB, BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

FAINT = 0.05  # of ‖y‖_1: rows that share out less are computed again


def cost(s: BatchShape, _: Options) -> Work:
    return Work(
        wide=4 * s.rows * s.width**2 + 2 * s.pairs * s.heads * s.width,
        moved=s.bytes * (4 * s.pairs * s.width + 4 * s.rows * s.heads * s.width),
        calls=10 * s.rows,
        held=s.bytes * (5 * s.rows * s.width + 3 * s.pairs) + 2 * min(4 * MB, s.bytes * s.n**2 * s.width),
    )


@torch.no_grad()
def _row(
    layer: LayerTrace, tokens: Tensor, *, metric: str = "l1", at: str | None = None, budget: Budget = None
) -> Tensor:
    """One token's row of each sentence, from its n vectors T_ij: [B] -> [B, n]."""
    del budget
    every, view = _result(layer, at)
    result = rows_at(every, tokens).unsqueeze(1)  # y_i: [B, 1, d]
    shares = view.linear(row_with_itself(layer, view, tokens)) / rows_at(view.scale, tokens).unsqueeze(1)
    if metric == "l1":
        near = gained(result, shares)
    else:
        compared = _euclidean if metric == "l2" else _cosine
        length = torch.linalg.vector_norm(result, dim=-1)
        near = compared(length, (result * shares).sum(-1), shares.square().sum(-1))
    return row_to_one_or_self(near.clamp(min=0), tokens, layer, "alti")


@method(
    "alti",
    idea="nearness of what tokens give",
    paper=FERRANDO_2022,
    needs={"attention", "values", "output-projection", "block-input", "first-norm"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=cost,
    row=_row,
)
@torch.no_grad()
def alti(
    layer: LayerTrace,
    *,
    metric: Literal["l1", "l2", "cosine"] = "l1",
    at: Literal["residual", "mid", "norm", "output", "attention"] | None = None,
    budget: Budget = None,
) -> Tensor:
    """How near each token's share comes to what attention makes of token i; rows sum to one.

    metric: "l1", "l2" or "cosine". at: "norm" for what attention and its norm make of token i, the default of
    post-norm blocks; "residual" for the stream without a norm, that of the others; "mid" for the stream after attention
    also where the FFN of a parallel block joins it; "output" for the block's output (the LN2 variant); "attention"
    is another word for "norm".
    budget: bytes for one tile (by default 2.5 MiB on a CPU, about its cache). A row without any contribution
    falls back to the token itself, with a warning.
    """
    result, view = _result(layer, at)
    if metric == "l1" and on_accelerator(layer):
        near = nearness(layer, view, result)
        if near is not None:
            return shared_out(near, result, view.scaled(itself_seen(layer, view)), layer, view)
    self = view.scaled(itself_seen(layer, view))  # T_ii
    budget = budget_for(result, budget)
    if metric == "l1":
        near = result.abs().sum(-1, keepdim=True) - _manhattan(layer, view, result, budget)
        of_self = gained(result, self)
    else:
        compared = _euclidean if metric == "l2" else _cosine
        length = torch.linalg.vector_norm(result, dim=-1, keepdim=True)
        near = compared(length, *_products(layer, view, result, metric == "cosine", budget))
        of_self = compared(length, (result * self).sum(-1, keepdim=True), self.square().sum(-1, keepdim=True))[..., 0]
    near = near * (layer.attention != 0).any(1)  # a token that is not seen gives nothing, whatever the rounding
    near.diagonal(dim1=1, dim2=2).copy_(of_self)
    if metric == "l1":
        _sharpen(near, layer, view, result, budget)
    return to_one_or_self(near.clamp(min=0), layer, "alti")


def _result(layer: LayerTrace, at: str | None) -> tuple[Tensor, View]:
    """What the contributions are compared with, and the view in which they are."""
    block = layer.block
    at = at or ("residual" if block.post is None else "norm")
    reached = layer.output if block.parallel else layer.u
    if at == "mid":
        return layer.u, plain(layer)
    if at == "residual":
        return reached, plain(layer)._replace(name="residual")
    if at in ("norm", "attention"):
        return reached if block.first_norm is None else block.first_norm(reached), after_attention(layer)
    view = after_block(layer)
    return (layer.output if block.ffn_post is not None else view.linear(layer.w) / view.scale), view


def _manhattan(layer: LayerTrace, view: View, result: Tensor, budget: int) -> Tensor:
    """`‖y_i − T_ij‖_1` for all i and j, as if x_i did not join on the diagonal: [B, n, n].

    In a causal model that of the tokens that may see one of a tile's sources; the others' is never read.
    """
    batch, n, d = result.shape
    distances = result.new_zeros(batch, n, n)
    goal = -result * view.scale  # T is scaled by 1/s_i, so y_i is scaled by s_i instead, n times less often
    size = result.element_size()
    step = next(tiles(n, n * d * size, budget)).stop
    space = result.new_empty(step, n, d)  # one piece of memory for all tiles
    for sentence in range(batch):
        for sources in tiles(n, layer.heads * d * size, budget):
            parts = view.linear(carried(layer, sentence, sources))  # [J, H, d]
            weights = layer.weights[sentence, :, :, sources].permute(2, 1, 0).contiguous()  # [J, n, H]
            for first in range(0, len(parts), step):
                some, start = slice(first, first + step), sources.start + first
                seeing = slice(start if layer.causal else 0, n)
                gaps = torch.baddbmm(goal[sentence, seeing], weights[some, seeing], parts[some], out=space.resize_(0))
                distances[sentence, seeing, start : start + len(gaps)] = gaps.abs_().sum(-1).T
    return distances / view.scale


def _sharpen(near: Tensor, layer: LayerTrace, view: View, result: Tensor, budget: int) -> None:
    """Compute the faint rows of `near` again, in place and off the diagonal, as the sum over components."""
    faint = (near.clamp(min=0).sum(-1) < FAINT * result.abs().sum(-1)) & layer.mask
    for sentence in faint.any(1).nonzero().flatten().tolist():
        rows = faint[sentence].nonzero().flatten()  # R of them
        goal, scale = result[sentence, rows], view.scale[sentence, rows]
        kept = near[sentence, rows, rows]
        each = (layer.heads + 3 * len(rows)) * goal.shape[-1] * goal.element_size()
        for sources in tiles(near.shape[-1], each, budget):
            weights = layer.weights[sentence][:, rows, sources].permute(2, 1, 0) / scale  # [J, R, H]
            shares = weights @ view.linear(carried(layer, sentence, sources))  # T_ij: [J, R, d]
            near[sentence, rows, sources] = gained(goal, shares).T
        near[sentence, rows, rows] = kept


def gained(y: Tensor, t: Tensor) -> Tensor:
    """`‖y‖_1 − ‖y − t‖_1`: [..., d] -> [...]."""
    along = torch.where(y < 0, -t, t)
    return torch.minimum(along, 2 * y.abs() - along).sum(-1)


def _products(layer: LayerTrace, view: View, result: Tensor, directions: bool, budget: int) -> tuple[Tensor, Tensor]:
    """`⟨y_i, T_ij⟩` and `‖T_ij‖²` for all i and j, without x_i: [B, n, n] each.

    Where only `directions` matter, each T_ij is scaled to a largest α of 1: attention of 1e-25 has a direction too,
    but a square that float32 cannot hold.
    """
    batch, n, d = result.shape
    dots, squares = result.new_empty(batch, n, n), result.new_empty(batch, n, n)
    each = layer.heads * (d + 3 * n) * result.element_size()
    for sentence in range(batch):
        for sources in tiles(n, each, budget):
            weights = layer.weights[sentence, :, :, sources].permute(2, 1, 0) / view.scale[sentence]  # [J, n, H]
            if directions:
                weights = weights / nonzero(weights.amax(-1, keepdim=True))
            parts = view.linear(carried(layer, sentence, sources))  # [J, H, d]
            seen = (result[sentence] @ parts.flatten(0, 1).T).view(n, *parts.shape[:2]).transpose(0, 1)  # [J, n, H]
            dots[sentence, :, sources] = (seen * weights).sum(-1).T
            gram = parts @ parts.transpose(1, 2)  # [J, H, H]
            squares[sentence, :, sources] = (weights @ gram).mul_(weights).sum(-1).clamp_(min=0).T
    return dots, squares


def _euclidean(length: Tensor, dots: Tensor, squares: Tensor) -> Tensor:
    """`‖y‖ − ‖y − T‖` from ‖y‖, ⟨y, T⟩ and ‖T‖²."""
    gain = 2 * dots - squares
    return gain / (length + (length.square() - gain).clamp(min=0).sqrt())


def _cosine(length: Tensor, dots: Tensor, squares: Tensor) -> Tensor:
    return dots / nonzero(length * squares.sqrt())
