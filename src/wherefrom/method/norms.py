r"""Context mixing from the norms of what tokens give to one another.

    N          =  ‖Σ_h α^h_ij f^h_j‖                                        norm
    N_FixedRes =  ½ N / Σ_j N + ½ I                                         norm-fixed-residual
    N_Res      =  ‖t_ij‖,   t_ij = Σ_h α^h_ij f^h_j + 1[i=j] x_i            norm-residual
    N_ResLN    =  ‖g_{u_i}(t_ij)‖                                           norm-residual-ln
    N_Enc      =  ‖g_{w_i}(g_{u_i}(t_ij))‖                                  globenc (rolled out)
    W_Res      =  r_i A' + (1 − r_i) I                                      attention-residual

with g_u(t) = (t − mean t) ⊙ γ / s(u), A' the attention without its diagonal, rows renormalised, and the mixing
ratio r_i = ‖Σ_{j≠i} t_ij‖ / (‖Σ_{j≠i} t_ij‖ + ‖t_ii‖), in W_Res that of N_Enc. The bias of V is part of f, that
of O and β are left out. How the maps are computed without an n×n×d tensor, and what they mean in a pre-norm
block, stands in `contributions.py`.

Kobayashi et al. (2020), Attention is Not Only a Weight. https://aclanthology.org/2020.emnlp-main.574
Kobayashi et al. (2021), Incorporating Residual and Normalization Layers. https://aclanthology.org/2021.emnlp-main.373
Modarressi et al. (2022), GlobEnc, equations 3 to 16. https://aclanthology.org/2022.naacl-main.19
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method.base import method
from wherefrom.method.citations import KOBAYASHI_2020, KOBAYASHI_2021, MODARRESSI_2022
from wherefrom.method.contributions import (
    View,
    after_attention,
    after_block,
    kept,
    lengths,
    others,
    own,
    plain,
    row_of,
    row_with_itself,
    rows_at,
)
from wherefrom.method.normalise import halfway, identity_like, nonzero, one_hot, to_one
from wherefrom.work import MB, BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

IDEA = "norms of what tokens give"


@torch.no_grad()
def head_norms(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """`‖α^h_ij f^h_j‖` of every head: [B, H, n, n]."""
    # ‖f‖ head by head, because all heads' f together are H times as large as a hidden state.
    norms = [vector_norm(layer.value[:, h] @ w, dim=-1) for h, w in enumerate(layer.block.w_c)]
    return _finished(layer.weights * torch.stack(norms, 1).unsqueeze(2), normalize)


@torch.no_grad()
def head_norms_fixed_residual(layer: LayerTrace) -> Tensor:
    return halfway(to_one(head_norms(layer)))


@torch.no_grad()
def row_norm(layer: LayerTrace, tokens: Tensor, *, normalize: bool = False) -> Tensor:
    return _finished(vector_norm(row_of(layer, tokens), dim=-1), normalize)


@torch.no_grad()
def row_fixed_residual(layer: LayerTrace, tokens: Tensor) -> Tensor:
    found = row_norm(layer, tokens, normalize=True)
    return 0.5 * found + 0.5 * one_hot(tokens, found)


def row_in(view: Callable[[LayerTrace], View]) -> Callable[..., Tensor]:
    """One row of the norms in a view."""

    @torch.no_grad()
    def row(layer: LayerTrace, tokens: Tensor, *, normalize: bool = False) -> Tensor:
        seen = view(layer)
        norms: Tensor = vector_norm(seen.linear(row_with_itself(layer, seen, tokens)), dim=-1)
        return _finished(norms / rows_at(seen.scale, tokens), normalize)

    return row


def cost(s: BatchShape, _: Options) -> Work:
    vectors, d = s.rows * s.heads, s.width
    return Work(
        wide=2 * s.rows * d * d + 6 * vectors * s.heads * d + 6 * s.pairs * s.heads**2 + 4 * s.rows * d * d,
        moved=s.bytes * (8 * vectors * d + 10 * s.pairs * s.heads),
        calls=40 * len(s.lengths),
        held=s.bytes * (4 * s.pairs + 3 * s.rows * d) + 2 * min(4 * MB, s.bytes * s.n * s.heads * d),
    )


@method(
    "norm",
    symbols=("N", "Attn-norm"),
    idea=IDEA,
    paper=KOBAYASHI_2020,
    needs={"attention", "values", "output-projection"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=cost,
    heads=head_norms,
    row=row_norm,
    side_by_side=True,
)
@torch.no_grad()
def norm(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """Norm of what attention carries from token to token: ‖Σ_h α f‖. `normalize` makes rows sum to one."""
    return _finished(lengths(layer, "plain"), normalize)


@method(
    "norm-fixed-residual",
    symbols=("N_FixedRes",),
    idea=IDEA,
    paper=MODARRESSI_2022,
    needs={"attention", "values", "output-projection"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=cost,
    heads=head_norms_fixed_residual,
    row=row_fixed_residual,
    side_by_side=True,
)
@torch.no_grad()
def norm_fixed_residual(layer: LayerTrace) -> Tensor:
    """Half attention norms (rows summing to one), half residual connection: ½ N + ½ I."""
    return halfway(to_one(norm(layer)))


@method(
    "norm-residual",
    symbols=("N_Res", "Attn-norm + RES"),
    idea=IDEA,
    paper=KOBAYASHI_2021,
    needs={"attention", "values", "output-projection", "block-input"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=cost,
    row=row_in(plain),
    side_by_side=True,
)
@torch.no_grad()
def norm_residual(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """Norm of attention and residual connection together: ‖Σ_h α f + 1[i=j] x‖."""
    return _finished(_norms(layer, plain(layer)), normalize)


@method(
    "norm-residual-ln",
    symbols=("N_ResLN", "Attn-norm + RES + LN"),
    idea=IDEA,
    paper=KOBAYASHI_2021,
    needs={"attention", "values", "output-projection", "block-input", "first-norm"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=cost,
    row=row_in(after_attention),
    side_by_side=True,
)
@torch.no_grad()
def norm_residual_ln(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """Norm of attention and residual connection together, after the first norm that reads them.

    Post-norm: attention's own; pre-norm: that of the FFN.
    """
    return _finished(_norms(layer, after_attention(layer)), normalize)


@method(
    "globenc",
    symbols=("N_Enc",),
    idea=IDEA,
    paper=MODARRESSI_2022,
    needs={"attention", "values", "output-projection", "block-input", "both-norms"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=cost,
    row=row_in(after_block),
    side_by_side=True,
)
@torch.no_grad()
def globenc(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """Norm of what tokens give after the whole block, the FFN entering through the scale of the last norm alone.

    A pre-norm block has no closing norm: its output is standardised, without γ, as its next reader will do.
    """
    return _finished(_norms(layer, after_block(layer)), normalize)


@method(
    "attention-residual",
    symbols=("W_Res",),
    idea=IDEA,
    paper=MODARRESSI_2022,
    needs={"attention", "values", "output-projection", "block-input", "both-norms"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=cost,
    side_by_side=True,
)
@torch.no_grad()
def attention_residual(layer: LayerTrace) -> Tensor:
    """Attention without its diagonal, and the residual connection, in globenc's mixing ratio."""
    attention = layer.attention.mean(1)
    identity = identity_like(attention)
    other = to_one(attention * (1 - identity))
    ratio = mixing_ratios(layer)["N_Enc"].unsqueeze(-1)
    # A token that sees itself alone has no other attention to renormalise; its ratio is 0.
    return ratio * other + (1 - ratio) * identity


@torch.no_grad()
def mixing_ratios(layer: LayerTrace) -> dict[str, Tensor]:
    """`r_i = ‖Σ_{j≠i} t_ij‖ / (‖Σ_{j≠i} t_ij‖ + ‖t_ii‖)` for each map, by the paper's symbol: [B, n] each."""
    views = {"N_Res": plain(layer), "N_ResLN": after_attention(layer), "N_Enc": after_block(layer)}
    ratios = {"N": _ratio(others(layer), vector_norm(own(layer), dim=-1))}
    return ratios | {symbol: _ratio(view.linear(others(layer)), kept(layer, view)) for symbol, view in views.items()}


def _ratio(others: Tensor, kept: Tensor) -> Tensor:
    mixed: Tensor = vector_norm(others, dim=-1)
    return mixed / nonzero(mixed + kept)


def _norms(layer: LayerTrace, view: View) -> Tensor:
    """Norms of all t_ij in a view: Gram products off the diagonal, vectors on it, where x_i joins."""
    norms = lengths(layer, view.name) / view.scale
    norms.diagonal(dim1=1, dim2=2).copy_(view.scaled(kept(layer, view).unsqueeze(-1)).squeeze(-1))
    return norms


def _finished(norms: Tensor, normalize: bool) -> Tensor:
    return to_one(norms) if normalize else norms
