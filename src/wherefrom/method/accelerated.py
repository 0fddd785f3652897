r"""The sums of contributions.py and alti.py as an accelerator likes them: few large steps, and none waits for another.

On a CPU a tile of sources stays in the cache, and one sentence is enough to fill it. Here all sentences go together, in
a causal model only the targets that can see a tile's sources are taken (half of all pairs), and f has the model's own
dtype: its n H d numbers are most of what is moved. Hence also a view's linear map is taken of W_C, once, and not of f:
f = v (W_C L). Where that is half precision, each component of f is rounded once,
to 2^-9 of itself and independently of the others, so that a norm over d of them is off by about 2^-9 / √d: less than by
the rounding of α, which the model has done already (and W_C L is rounded as W_C is). Sums are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wherefrom.method.normalise import warn_of_empty
from wherefrom.method.tiling import DEVICE_BYTES, tiles
from wherefrom.model.attended import by_head
from wherefrom.model.parts import promote
from wherefrom.model.undo import outside_inference_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wherefrom.method.contributions import View
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block

Sources = tuple[slice, int, Tensor, Tensor]


class Kernels(NamedTuple):
    """The modules with kernels in Triton."""

    lengths: Any
    nearness: Any


def on_accelerator(layer: LayerTrace) -> bool:
    return layer.mask.device.type == "cuda"


def lengths(layer: LayerTrace, view: View) -> Tensor:
    """`‖L Σ_h α^h_ij f^h_j‖` in a view, before the division by scale: [B, n, n]."""
    batch, n = layer.mask.shape
    kernels = _kernels(layer)
    cuts = _cuts(layer, 0 if kernels else 3 * layer.dtype.itemsize)
    found, own = (torch.empty(size, dtype=layer.dtype, device=layer.device) for size in ((batch, n, n), _stream(layer)))
    if layer.causal and len(cuts) > 1:
        found.zero_()  # nothing else is written above the tiles
    for sources, first, weights, f in _by_sources(layer, cuts, view):
        _own_into(own, sources, weights, f, first, kernels)
        if kernels is None:
            found[:, first:, sources] = _by_products(f, weights, layer.dtype)
        else:
            kernels.lengths.lengths_into(found, weights, _gram(f), sources.start, first)
    layer.once(f"own {view.name}", lambda _: own)  # with f in hand it costs next to nothing
    return found


def own_seen(layer: LayerTrace, view: View, own: Callable[[LayerTrace], Tensor]) -> Tensor:
    """`L Σ_h α^h_ii f^h_i`, which `lengths` and `nearness` have found on their way, else from `own`: [B, n, d]."""
    return layer.once(f"own {view.name}", lambda _: view.linear(own(layer)))


def _by_products(f: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """The lengths of a tile in steps of torch's: [B, I, J]."""
    a = torch.empty_like(weights.permute(0, 3, 1, 2), dtype=dtype, memory_format=torch.contiguous_format)
    a = a.copy_(weights.permute(0, 3, 1, 2)).flatten(0, 1)  # [B J, H, I]
    squares = (_gram(f) @ a).mul_(a).sum(1).clamp_(min=0)  # [B J, I]
    return squares.sqrt_().view(len(weights), -1, weights.shape[2]).transpose(1, 2)


def nearness(layer: LayerTrace, view: View, result: Tensor) -> Tensor | None:
    """`s_i (‖y_i‖_1 − ‖y_i − T_ij‖_1)` for all i and j, s the view's scale, as if x_i did not join: [B, n, n].

    All n² vectors of d numbers would have to be written and read twice: a kernel adds their components up as it makes
    them. None where there is none, for want of Triton or in float64.
    """
    kernels = _kernels(layer)
    if kernels is None:
        return None
    batch, n, _ = result.shape
    found, own = result.new_empty(batch, n, n), result.new_empty(result.shape)  # `shared_out` reads what is seen alone
    goal = view.unscaled(result).contiguous()  # T is divided by s_i; y is multiplied by it instead, n times less often
    for sources, first, weights, f in _by_sources(layer, _cuts(layer, layer.raw["value"].element_size()), view):
        _own_into(own, sources, weights, f, first, kernels)
        kernels.nearness.add_up(weights, f, goal, found, sources.start, first, layer.causal)
    layer.once(f"own {view.name}", lambda _: own)
    return found


def shared_out(near: Tensor, result: Tensor, share: Tensor, layer: LayerTrace, view: View) -> Tensor:
    """What `nearness` gave, in place, as rows that sum to one, with that of T_ii, `share`, on the diagonal."""
    from wherefrom.method.nearness_kernel import share_out

    parts = (result.contiguous(), share.contiguous(), view.scale, layer.mask.contiguous())
    empty = share_out(near, *parts, layer.causal)
    warn_of_empty(empty, layer.mask, layer, "alti")
    return near


def _stream(layer: LayerTrace) -> torch.Size:
    """[B, n, d]."""
    return layer.raw["x"].shape


def _cuts(layer: LayerTrace, beside: int) -> list[slice]:
    """Tiles of sources; `beside` f, `beside` bytes are wanted for each number of α."""
    batch, n, d = _stream(layer)
    each = batch * layer.heads * (d * layer.raw["value"].element_size() + n * beside)
    return list(tiles(n, each, DEVICE_BYTES))


def _by_sources(layer: LayerTrace, cuts: list[slice], view: View) -> Iterator[Sources]:
    """Tile by tile: some sources j, the first target that may see one of them, and of all sentences α, [B, H, I, J],
    and f as the view sees it, [B J, H, d].
    """
    half = layer.raw["value"].dtype in (torch.bfloat16, torch.float16)
    value = by_head(layer.raw["value"], layer.heads) if half else layer.value
    carrier = _carrier(layer.block, view, value.dtype)
    alpha = layer.raw["attention"] if half and layer.block.after is None else layer.weights
    for sources in cuts:
        first = sources.start if layer.causal else 0
        f = _carried(value[:, :, sources], carrier)
        yield sources, first, alpha[:, :, first:, sources], f


def _carried(value: Tensor, carrier: Tensor) -> Tensor:
    """f of all sentences, [B J, H, d], from v, [B, H, J, d_h]; or of all layers, each of which has a W_C of its own."""
    if carrier.ndim == 4:
        return (value @ carrier).transpose(1, 2).flatten(0, 1)
    return torch.bmm(value.transpose(0, 1).flatten(1, 2), carrier).transpose(0, 1)


def _carrier(block: Block, view: View, dtype: torch.dtype) -> Tensor:
    """W_C L: [H, d_h, d]. Kept with the block, unless that is in half precision and large as a rule."""
    known = {} if block.half else block.seen_w_c
    if view.name not in known:
        own = block.w_c_in(dtype)
        if view.bare or view.linear(nothing := own[..., :0, 0, :]) is nothing:
            return own
        rows = promote(own).flatten(-3, -2)
        known[view.name] = outside_inference_mode(lambda: view.linear(rows).to(dtype).view_as(own))
    return known[view.name]


def _own_into(own: Tensor, sources: slice, weights: Tensor, f: Tensor, first: int, kernels: Kernels | None) -> None:
    """`Σ_h α^h_jj f^h_j` of a tile's sources into their places: [B, n, d]."""
    if kernels is not None:
        kernels.lengths.own_into(own, weights, f, sources.start, first)
        return
    itself = weights.diagonal(first - sources.start, dim1=2, dim2=3).transpose(1, 2)  # [B, J, H]
    given = torch.bmm(itself.flatten(0, 1).unsqueeze(1).to(f.dtype), f)
    own[:, sources] = given.view(*itself.shape[:2], -1)


def _gram(f: Tensor) -> Tensor:
    if f.is_cuda and f.dtype in (torch.bfloat16, torch.float16):
        return torch.bmm(f, f.transpose(1, 2), out_dtype=torch.float32)
    return promote(f) @ promote(f).transpose(1, 2)


def _kernels(layer: LayerTrace) -> Kernels | None:
    """None without Triton, on a CPU, in float64, and for what is not worth compiling them."""
    if layer.mask.device.type != "cuda" or layer.raw["value"].dtype == torch.float64 or not layer.kernels:
        return None
    try:
        from wherefrom.method import length_kernel, nearness_kernel
    except ImportError:
        return None
    return Kernels(length_kernel, nearness_kernel)
