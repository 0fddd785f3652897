r"""What token j gives to token i in one block: the decomposition under norms, ALTI and Value Zeroing.

    t_ij = Σ_h α^h_ij f^h_j + 1[i=j] x_i ,     f^h_j = v^h_j W_C^h ,     Σ_j t_ij + const = u_i

W_C is W_O, const b_O. Where attention has a norm P on its branch (Gemma 2), P is linear once its scale is known: W_C is
W_O through P, α is divided by the scale that P has at token i, and what P makes of b_O, with
its β, belongs to no token.

A norm on the stream is linear in the same way: g_u(t) = (t − mean t) ⊙ γ / s(u); an RMS norm takes no mean off. A
*view* is such a linear map L with the scale that divides its result, one number per target i:

              view                post-norm (BERT)             pre-norm (GPT-2, Llama)    parallel (GPT-NeoX)
    as attention leaves it   t                                 t                          t
    through the first norm   L1 t / s(u_i)                     L2 t / s(u_i)              L t / s(o_i)
    as the block leaves it   L2 L1 t / (s(u_i) s(w_i))         c t / s(w_i)               c t / s(o_i)

Pre-norm, the first norm that u meets is the one before the FFN. In a parallel block nobody reads u: L is the norm of
the block's next reader, and t_ii has FFN(x_i) in it, which is exact. A block without a closing norm is standardised
(c: the mean off, where its norms take it off) by whoever reads its output first, with a γ that is the reader's own,
so the last view has none. Elsewhere the FFN is not taken apart; it acts through s(w_i) only (GlobEnc, equation 11).

No view needs the n×n×d tensor: ‖L Σ_h α^h_ij f^h_j‖² = a^T G_j a, with the H numbers a = α^·_ij and the H×H Gram
matrix G_j of the vectors L f^h_j. Only the diagonal, where x_i joins, is built as vectors.

Kobayashi et al. (2021), Incorporating Residual and Normalization Layers into Analysis of Masked Language Models.
https://aclanthology.org/2021.emnlp-main.373
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method import accelerated
from wherefrom.method.tiling import CPU_BYTES, budget_for, tiles
from wherefrom.model.parts import promote
from wherefrom.model.undo import outside_inference_mode

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block, Norm

VIEWS = ("plain", "attention", "block")  # as attention leaves it, through the first norm, as the block leaves it


class View(NamedTuple):
    """One linear way of looking at contributions."""

    name: str  # one of VIEWS, or "residual"
    linear: Callable[[Tensor], Tensor]  # [..., d] -> [..., d]
    scale: Tensor  # what divides the result: [B, n, 1]
    bare: bool = False  # nothing: the scale is 1

    def scaled(self, t: Tensor) -> Tensor:
        """[B, n, …] divided by the scale."""
        return t if self.bare else t / self.scale

    def unscaled(self, t: Tensor) -> Tensor:
        return t if self.bare else t * self.scale


def plain(layer: LayerTrace) -> View:
    batch, n = layer.mask.shape
    return View("plain", lambda t: t, _one(layer.device, layer.dtype).expand(batch, n, 1), True)


@cache
def _one(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Made once: to fill a tensor takes an accelerator as long as to begin anything else."""
    return outside_inference_mode(lambda: torch.ones((), device=device, dtype=dtype))


def after_attention(layer: LayerTrace) -> View:
    return layer.once("after attention", _after_attention)


def _after_attention(layer: LayerTrace) -> View:
    norm = layer.block.first_norm
    if norm is None:  # OLMo 2: nothing stands between attention and the FFN
        return plain(layer)._replace(name="attention")
    return View("attention", norm.linear, norm.scale(layer.output if layer.block.parallel else layer.u))


def after_block(layer: LayerTrace) -> View:
    return layer.once("after block", _after_block)


def _after_block(layer: LayerTrace) -> View:
    first, last = layer.block.post, layer.block.ffn_post
    if first is not None and not layer.block.feeds:  # a step that ends in its norm
        return after_attention(layer)
    if first is not None and last is not None:
        return View("block", lambda t: last.linear(first.linear(t)), after_attention(layer).scale * last.scale(layer.w))
    norm = standardiser(layer.block)
    return View("block", norm.centred, norm.scale(layer.w))


_VIEWS = dict(zip(VIEWS, (plain, after_attention, after_block), strict=True))


def standardiser(block: Block) -> Norm:
    """A norm of the kind that the block's output meets first; where it meets none, of the kind that the block has."""
    found = block.ffn_before or block.next_norm or block.ffn_after or block.before or block.post
    assert found is not None  # a block without any norm is no Transformer's
    return found


def own(layer: LayerTrace) -> Tensor:
    """`Σ_h α^h_ii f^h_i`, what attention brings token i from itself: [B, n, d]."""

    def make(_: LayerTrace) -> Tensor:
        return layer.block.merge(layer.weights.diagonal(dim1=2, dim2=3)[..., None] * layer.value)

    return layer.once("own", make)


def itself(layer: LayerTrace, view: View) -> Tensor:
    """`t_ii`, what token i has of itself: from attention, from the residual connection and, where the view is of a
    parallel block's output, from the FFN beside it: [B, n, d].
    """
    return own(layer) + _beside(layer, view)


def itself_seen(layer: LayerTrace, view: View) -> Tensor:
    """`L t_ii`: [B, n, d]."""
    if accelerated.on_accelerator(layer):
        beside = _beside(layer, view)
        return accelerated.own_seen(layer, view, own) + (beside if view.bare else view.linear(promote(beside)))
    return view.linear(itself(layer, view))


def _beside(layer: LayerTrace, view: View) -> Tensor:
    """What token i has of itself without attention: [B, n, d]."""
    x = layer.raw["x"].to(layer.device)  # as it is: a sum in float32 takes half precision in
    return x + layer.fed if layer.block.parallel and view.name != "plain" else x


def kept(layer: LayerTrace, view: View) -> Tensor:
    """`‖L t_ii‖`, before the division by scale: [B, n]."""

    def make(_: LayerTrace) -> Tensor:
        length: Tensor = vector_norm(itself_seen(layer, view), dim=-1)
        return length

    return layer.once(f"kept {view.name}", make)


def row_of(layer: LayerTrace, tokens: Tensor) -> Tensor:
    """`Σ_h α^h_ij f^h_j` of one token i of each sentence, for every j: [B] -> [B, n, d].

    Of one row the vectors are n and no more, as many as a hidden state has.
    """
    weights = layer.attention_row(tokens)
    if layer.block.after is not None:
        weights = weights / rows_at(layer.branch_scale, tokens)[:, None]
    return layer.block.merge(weights.unsqueeze(-1) * layer.value)


def row_with_itself(layer: LayerTrace, view: View, tokens: Tensor) -> Tensor:
    """`t_ij`, as `row_of` and with what token i has beside attention: [B, n, d]."""
    beside = layer.x + layer.fed if layer.block.parallel and view.name != "plain" else layer.x
    found = row_of(layer, tokens)
    found[torch.arange(len(tokens)), tokens] += rows_at(beside, tokens)
    return found


def rows_at(t: Tensor, tokens: Tensor) -> Tensor:
    """[B, n, …] -> [B, …]."""
    return t[torch.arange(len(tokens), device=t.device), tokens]


def others(layer: LayerTrace) -> Tensor:
    """`Σ_{j≠i} t_ij`: [B, n, d]."""

    def make(_: LayerTrace) -> Tensor:
        alone = (layer.attention.diagonal(dim1=2, dim2=3) == 1).all(1)  # has no others, also after rounding
        return (layer.mixed - own(layer)).masked_fill(alone.unsqueeze(-1), 0)

    return layer.once("others", make)


def carried(layer: LayerTrace, sentence: int, tokens: slice, out: Tensor | None = None) -> Tensor:
    """`f^h_j` of some tokens of one sentence, token first: [J, H, d]. A given `out`, [H, J, d], may be too long."""
    value, w_c = layer.value[sentence, :, tokens], layer.once("w_c", lambda _: layer.block.w_c)  # [H, J, d_h]
    heads, _, d = w_c.shape
    out = value.new_empty(heads, value.shape[1], d) if out is None else out[:, : value.shape[1]]
    # In memory the head comes first: written token first, the product takes three times as long.
    return torch.bmm(value, w_c, out=out).transpose(0, 1)


def lengths(layer: LayerTrace, view: str) -> Tensor:
    """`‖L Σ_h α^h_ij f^h_j‖` in the view of that name, before the division by scale: [B, n, n]."""
    if accelerated.on_accelerator(layer):
        return layer.once(f"lengths {view}", lambda _: accelerated.lengths(layer, _VIEWS[view](layer)))
    return layer.once("lengths", _lengths)[view]  # all three: f is in the cache


def _lengths(layer: LayerTrace) -> dict[str, Tensor]:
    attention = layer.weights
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
            for names in _becoming_each_view(layer.block, f):
                gram = f @ f.transpose(1, 2)  # [J, H, H]
                found = (gram @ a).mul_(a).sum(1).clamp_(min=0).sqrt_().T
                for name in names:
                    maps[name][sentence, :, sources] = found
    layer.once("own", lambda _: own)  # with f in hand it costs next to nothing
    return maps


def _becoming_each_view(block: Block, f: Tensor) -> Iterator[tuple[str, ...]]:
    """Turn f, in place, into what each view sees of it; after each step the names of the views that see this."""
    if block.post is not None and block.ffn_post is not None:
        yield ("plain",)
        _through(block.post, f)
        yield ("attention",)
        _through(block.ffn_post, f)
        yield ("block",)
        return
    first, centres = block.first_norm, standardiser(block).centres
    same = () if first is not None else ("attention",)
    if centres:
        yield ("plain", *same)
        f.sub_(f.mean(-1, keepdim=True))
        yield ("block",)
    else:
        yield ("plain", "block", *same)
    if first is not None:
        f.mul_(first.gamma)
        yield ("attention",)


def _through(norm: Norm, f: Tensor) -> None:
    """`norm.linear`, in place."""
    if norm.centres:
        f.sub_(f.mean(-1, keepdim=True))
    f.mul_(norm.gamma)
