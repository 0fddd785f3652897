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

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method.tiling import CPU_BYTES, budget_for, tiles

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Norm

VIEWS = ("plain", "attention", "block")  # as attention leaves it, through the first norm, as the block leaves it


class View(NamedTuple):
    """One linear way of looking at contributions."""

    name: str  # one of VIEWS
    linear: Callable[[Tensor], Tensor]  # [..., d] -> [..., d]
    scale: Tensor  # what divides the result: [B, n, 1]


def first_norm(layer: LayerTrace) -> Norm:
    """The norm that u meets first."""
    return layer.block.norm2 if layer.block.norm_first else layer.block.norm1


def plain(layer: LayerTrace) -> View:
    return View("plain", lambda t: t, torch.ones_like(layer.u[..., :1]))


def after_attention(layer: LayerTrace) -> View:
    norm = first_norm(layer)
    return layer.once("after attention", lambda _: View("attention", norm.linear, norm.scale(layer.u)))


def after_block(layer: LayerTrace) -> View:
    return layer.once("after block", _after_block)


def _after_block(layer: LayerTrace) -> View:
    norm1, norm2 = layer.block.norm1, layer.block.norm2
    scale = norm2.scale(layer.w)
    if layer.block.norm_first:
        return View("block", norm2.centred, scale)
    return View("block", lambda t: norm2.linear(norm1.linear(t)), after_attention(layer).scale * scale)


def own(layer: LayerTrace) -> Tensor:
    """`Σ_h α^h_ii f^h_i`, what attention brings token i from itself: [B, n, d]."""
    diagonal = layer.attention.diagonal(dim1=2, dim2=3)[..., None]
    return layer.once("own", lambda _: layer.block.merge(diagonal * layer.value))


def kept(layer: LayerTrace, view: View) -> Tensor:
    """`‖L t_ii‖`, before the division by scale: [B, n]."""

    def make(_: LayerTrace) -> Tensor:
        length: Tensor = vector_norm(view.linear(own(layer) + layer.x), dim=-1)
        return length

    return layer.once(f"kept {view.name}", make)


def others(layer: LayerTrace) -> Tensor:
    """`Σ_{j≠i} t_ij`: [B, n, d]."""

    def make(_: LayerTrace) -> Tensor:
        alone = (layer.attention.diagonal(dim1=2, dim2=3) == 1).all(1)  # has no others, also after rounding
        return (layer.mixed - own(layer)).masked_fill(alone.unsqueeze(-1), 0)

    return layer.once("others", make)


def carried(layer: LayerTrace, sentence: int, tokens: slice, out: Tensor | None = None) -> Tensor:
    """`f^h_j` of some tokens of one sentence, token first: [J, H, d]. A given `out`, [H, J, d], may be too long."""
    value = layer.value[sentence, :, tokens]  # [H, J, d_h]
    heads, _, d = layer.block.w_o.shape
    out = value.new_empty(heads, value.shape[1], d) if out is None else out[:, : value.shape[1]]
    # In memory the head comes first: written token first, the product takes three times as long.
    return torch.bmm(value, layer.block.w_o, out=out).transpose(0, 1)


def squared_norms(layer: LayerTrace) -> dict[str, Tensor]:
    """`‖L Σ_h α^h_ij f^h_j‖²` in the three views, before the division by scale: [B, n, n] each."""
    return layer.once("squared norms", _squared_norms)


def _squared_norms(layer: LayerTrace) -> dict[str, Tensor]:
    attention = layer.attention
    batch, heads, n, _ = attention.shape
    maps = {name: torch.empty_like(attention[:, 0]) for name in VIEWS}
    own = torch.empty_like(layer.x)
    budget = budget_for(attention, None, cpu=2 * CPU_BYTES)
    cuts = list(tiles(n, heads * layer.x.shape[-1] * attention.element_size(), budget))
    # One piece of memory for all tiles: fetching a new one from the system takes longer than filling it.
    space = layer.x.new_empty(heads, cuts[0].stop, layer.x.shape[-1])
    for sentence in range(batch):
        for sources in cuts:
            f = carried(layer, sentence, sources, space)
            a = attention[sentence, :, :, sources].permute(2, 0, 1).contiguous()  # [J, H, n]
            to_itself = a[:, :, sources].diagonal(dim1=0, dim2=2).T.contiguous()  # [J, H]
            own[sentence, sources] = (to_itself.unsqueeze(1) @ f).squeeze(1)
            for name in _becoming_each_view(layer, f):
                gram = f @ f.transpose(1, 2)  # [J, H, H]
                maps[name][sentence, :, sources] = (gram @ a).mul_(a).sum(1).clamp_(min=0).T
    layer.once("own", lambda _: own)  # with f in hand it costs next to nothing
    return maps


def _becoming_each_view(layer: LayerTrace, f: Tensor) -> Iterator[str]:
    """Turn f, in place, into what each view sees of it; after each step the name of the view."""
    block = layer.block
    yield "plain"
    f.sub_(f.mean(-1, keepdim=True))
    if block.norm_first:
        yield "block"
        f.mul_(block.norm2.gamma)
        yield "attention"
    else:
        f.mul_(block.norm1.gamma)
        yield "attention"
        f.sub_(f.mean(-1, keepdim=True)).mul_(block.norm2.gamma)
        yield "block"
