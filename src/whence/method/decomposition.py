r"""What token j gives to token i in one block: the decomposition under norms, ALTI and Value Zeroing.

    t_ij = Σ_h α^h_ij f^h_j + 1[i=j] x_i ,     f^h_j = v^h_j W_O^h ,     Σ_j t_ij + b_O = u_i

A LayerNorm is linear once its scale is known: g_u(t) = (t − mean t) ⊙ γ / s(u). A *view* is such a linear map
L with the scale that divides its result, one number per target i:

              view                post-norm (BERT)                       pre-norm (GPT-2)
    as attention leaves it   t                                    t
    through the first norm   L1 t / s(u_i)                        L2 t / s(u_i)
    as the block leaves it   L2 L1 t / (s(u_i) s(w_i))            (t − mean t) / s(w_i)

Pre-norm, the first norm that u meets is the one before the FFN. The block has no closing norm: whoever reads its
output first standardises it, with a γ that is the reader's own, so the last view standardises and has no γ.
The FFN is not taken apart; it acts through s(w_i) only (GlobEnc, equation 11).

No view needs the n×n×d tensor: ‖L Σ_h α^h_ij f^h_j‖² = a^T G_j a, with the H numbers a = α^·_ij and the H×H Gram
matrix G_j of the vectors L f^h_j. Only the diagonal, where x_i joins, is built as vectors.

Kobayashi et al. (2021), Incorporating Residual and Normalization Layers into Analysis of Masked Language Models.
https://aclanthology.org/2021.emnlp-main.373
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from whence.method.tiles import budget_for, tiles

if TYPE_CHECKING:
    from whence.model import LayerTrace
    from whence.model.block import Norm


class View(NamedTuple):
    """One linear way of looking at contributions."""

    linear: Callable[[Tensor], Tensor]  # [..., d] -> [..., d]
    scale: Tensor  # what divides the result: [B, n, 1]


def first_norm(layer: LayerTrace) -> Norm:
    """The norm that u meets first."""
    return layer.block.norm2 if layer.block.norm_first else layer.block.norm1


def plain(layer: LayerTrace) -> View:
    return View(lambda t: t, torch.ones_like(layer.u[..., :1]))


def after_attention(layer: LayerTrace) -> View:
    norm = first_norm(layer)
    return View(norm.linear, norm.scale(layer.u))


def after_block(layer: LayerTrace) -> View:
    norm1, norm2 = layer.block.norm1, layer.block.norm2
    if layer.block.norm_first:
        return View(norm2.centred, norm2.scale(layer.w))
    return View(lambda t: norm2.linear(norm1.linear(t)), norm1.scale(layer.u) * norm2.scale(layer.w))


def own(layer: LayerTrace) -> Tensor:
    """`Σ_h α^h_ii f^h_i`, what attention brings token i from itself: [B, n, d]."""
    return layer.once("own", lambda _: _merge(layer, layer.attention.diagonal(dim1=2, dim2=3)[..., None] * layer.value))


def others(layer: LayerTrace) -> Tensor:
    """`Σ_{j≠i} t_ij`: [B, n, d]. The diagonal is taken out before the sum, so that nothing cancels."""

    def make(_: LayerTrace) -> Tensor:
        rest = layer.attention.clone()
        rest.diagonal(dim1=2, dim2=3).zero_()
        return _merge(layer, rest @ layer.value)

    return layer.once("others", make)


def _merge(layer: LayerTrace, z: Tensor) -> Tensor:
    """The heads' outputs through W_O: [B, H, n, d_h] -> [B, n, d]."""
    return z.transpose(1, 2).flatten(2) @ layer.block.w_o.flatten(0, 1)


def carried(layer: LayerTrace, sentence: int, tokens: slice) -> Tensor:
    """`f^h_j` of some tokens of one sentence, token first: [J, H, d]."""
    value = layer.value[sentence, :, tokens]  # [H, J, d_h]
    f = value.new_empty(value.shape[1], *layer.block.w_o.shape[::2])
    torch.bmm(value, layer.block.w_o, out=f.transpose(0, 1))
    return f


def squared_norms(layer: LayerTrace) -> list[Tensor]:
    """`‖L Σ_h α^h_ij f^h_j‖²` in the three views, before the division by scale: three maps [B, n, n]."""
    return layer.once("squared norms", _squared_norms)


def _squared_norms(layer: LayerTrace) -> list[Tensor]:
    attention = layer.attention
    batch, heads, n, _ = attention.shape
    maps = [torch.empty_like(attention[:, 0]) for _ in range(3)]
    each = heads * layer.x.shape[-1] * attention.element_size()
    for sentence in range(batch):
        for sources in tiles(n, each, budget_for(attention, None)):
            f = carried(layer, sentence, sources)
            a = attention[sentence, :, :, sources].permute(2, 0, 1).contiguous()  # [J, H, n]
            for found, seen in zip(maps, _views(layer, f), strict=True):
                gram = seen @ seen.transpose(1, 2)  # [J, H, H]
                found[sentence, :, sources] = (gram @ a).mul_(a).sum(1).clamp_(min=0).T
    return maps


def _views(layer: LayerTrace, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f as the three views see it; the second serves the third."""
    first = first_norm(layer).linear(f)
    return f, first, layer.block.norm2.centred(f) if layer.block.norm_first else layer.block.norm2.linear(first)
