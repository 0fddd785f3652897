r"""Value Zeroing as an accelerator likes it: all sentences together, W₂ in few large products, kernels around it.

What value_zeroing.py does source by source is here done for as many sources of all sentences as memory bears; the names
are its own. Beside the kernels (value_zeroing_kernel.py, rescaling_kernel.py) only what is small stands in steps of
torch's: the vectors of single tokens, and ⟨c u_i, c f^h_j⟩ = ⟨c u_i (c W_O^h)ᵀ, v^h_j⟩.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wherefrom.method.products import Precision, of_halves, product, products_by_head
from wherefrom.method.tiling import tiles
from wherefrom.method.value_zeroing import _inputs, _values_through
from wherefrom.model.later import sent

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Norm

METRICS = ("cosine", "euclidean")


def suits(layer: LayerTrace, metric: str, standardise: bool) -> bool:
    """Whether the kernels know this block and this distance."""
    block = layer.block
    usual = layer.step is None and not block.parallel and not block.opaque
    known = usual and block.after is None and block.ffn_after is None and block.first_norm is not None
    return (
        known and metric in METRICS and not standardise and layer.dtype == torch.float32 and bool(block.activation_name)
    )


class PairRows(NamedTuple):
    """The pairs of tokens of a tile of sources, sentence by sentence and source by source."""

    starts: Tensor  # [B]: of each sentence its first row
    lengths: Tensor  # [B]
    first: int  # source
    total: int  # of rows


def _rows(lengths: Sequence[int], on_device: Tensor, sources: slice, causal: bool) -> PairRows:
    starts, total = [], 0
    for n in lengths:
        starts.append(total)
        seen = range(sources.start, min(sources.stop, n))
        total += sum(n - j for j in seen) if causal else n * len(seen)
    return PairRows(sent(torch.tensor(starts), on_device.device), on_device, sources.start, total)


class SourceTile(NamedTuple):
    """What belongs to a tile of sources, of all sentences."""

    kappa: Tensor  # [B, J, n]
    taken: Tensor  # −α / s', 0 where nothing is given: [B, J, n, H]
    weights: Tensor  # of what is carried: the same where the stream goes through the norm, else −α
    carried: Tensor  # f, or L f where the stream goes through the norm, as the last norm sees it: [B J, H, d]
    units: list[Tensor]  # L f through W_1: [B J, H, F] each


def moved(layer: LayerTrace, metric: str, precision: Precision, budget: int, kernels: Any) -> Tensor:
    """How far every output moves, [B, n, n]; the rows not yet divided by their sums."""
    block, norm = layer.block, layer.block.first_norm
    assert norm is not None
    host = layer.lengths
    through, lengths = _values_through(layer, _beside_w_2(precision)), sent(torch.tensor(host), layer.u.device)
    last = None if block.ffn_post is None else (block.ffn_post, block.ffn_post.centred(layer.w).contiguous())
    centred = (lambda t: t) if block.ffn_post is None else block.ffn_post.centred  # what only it reads
    to, w_o = kernels.aim(layer.output.contiguous(), last, precision), norm.centred(block.w_o)
    own = _of_tokens(layer, norm, w_o, precision, kernels)
    found = torch.zeros_like(layer.attention[:, 0])
    how = {
        "activation": kernels.ACTIVATIONS.index(block.activation_name),
        "causal": layer.causal,
        "metric": metric,
        "precision": precision,
    }
    out = _out_of(centred(block.ffn_out.weight), precision)
    carrier = centred(block.w_o if block.post is None else w_o * norm.gamma)
    for sources in tiles(len(layer.mask[0]), _bytes(layer, precision), budget):
        rows = _rows(host, lengths, sources, layer.causal)
        if rows.total == 0:
            continue
        tile = _sources(layer, norm, sources, through, own, (w_o, carrier), precision, kernels)
        wide = (2 if precision == "split" else 1) * own.read[0][0].shape[-1]
        hidden = found.new_empty(rows.total, wide, dtype=found.dtype if precision == "exact" else torch.bfloat16)
        each = [(units, *pair) for units, pair in zip(tile.units, own.read, strict=True)]
        kernels.entering((tile.taken, tile.kappa, own.scale), each, rows, hidden, how)
        kernels.leaving(out(hidden), (tile.weights, tile.kappa), tile.carried, own.moves, to, found, rows, how)
    return found


def _beside_w_2(precision: Precision) -> Precision:
    """Of `fast`, what W₂ does not multiply has more digits: a p that is rounded stands at another place of φ."""
    return "split" if precision == "fast" else precision


class TokenParts(NamedTuple):
    """What belongs to each token, whatever is taken away."""

    scale: Tensor  # s: [B, n]
    read: list[tuple[Tensor, Tensor]]  # q, L u through W_1, and what makes p of q / s: [B, n, F] and [F] each
    crossing: Tensor  # c u_i (c W_O^h)ᵀ: [B, H, n, d_h]
    moves: Tensor | None  # L u as the last norm sees it, where the stream goes through the norm: [B, n, d]


def _of_tokens(layer: LayerTrace, norm: Norm, w_o: Tensor, precision: Precision, kernels: Any) -> TokenParts:
    u, block, post = layer.u.contiguous(), layer.block, layer.block.post is not None
    batch, n, _ = u.shape
    times: Callable[[Tensor, Tensor], Tensor] = torch.matmul if precision == "exact" else of_halves
    if precision == "exact":
        core, scale = norm.centred(u), norm.scale(u).squeeze(-1).contiguous()
        around = core * norm.gamma
        moves = None if not post else around if block.ffn_post is None else block.ffn_post.centred(around)
    else:
        again = block.ffn_post is not None and block.ffn_post.centres
        scale, core, around, moves = kernels.of_tokens(u, norm, post, again)
    read = [(times(around, each.weight).view(batch, n, -1), each(norm.beta)) for each in _inputs(block)]
    crossing = times(core, w_o.flatten(0, 1).T).view(batch, n, layer.heads, -1).transpose(1, 2)
    return TokenParts(scale, read, crossing, moves)


def _out_of(weight: Tensor, precision: Precision) -> Callable[[Tensor], Tensor]:
    """W₂, for hidden units that are rounded or split already."""
    if precision == "split":
        return lambda hidden: of_halves(hidden, weight)
    kind = weight.bfloat16() if precision == "fast" else weight  # what it gives of rounded ones is rounded, too
    return lambda hidden: hidden @ kind


def _bytes(layer: LayerTrace, precision: Precision) -> int:
    """What one source of each sentence takes."""
    batch, n, d = layer.u.shape
    block, size = layer.block, layer.u.element_size()
    hidden = block.units * (size // 2 if precision == "fast" else size) + 2 * d * size
    vectors = layer.heads * (block.units * (1 + block.gated) + 2 * d + 6 * n) * size
    return int(batch * (n * hidden + vectors))


def _sources(
    layer: LayerTrace,
    norm: Norm,
    sources: slice,
    through: list[Tensor],
    own: TokenParts,
    carriers: tuple[Tensor, Tensor],
    precision: Precision,
    kernels: Any,
) -> SourceTile:
    """`carriers` take v to f, centred, and to what is carried: [H, d_h, d] each."""
    value, u = layer.value[:, :, sources], layer.u
    by_head = value.transpose(0, 1).flatten(1, 2)  # [H, B J, d_h]
    f, carried = products_by_head(by_head, carriers, _beside_w_2(precision))
    if through:  # of `fast` as many digits as W_2 is given
        kind = torch.bfloat16 if precision == "fast" else u.dtype
        units = products_by_head(by_head, through, precision, kind)
    else:
        units = [product(f.mul(norm.gamma), each.weight, precision) for each in _inputs(layer.block)]
    cross, lost = own.crossing @ value.mT, layer.block.post is None
    kappa, taken, weights = kernels.rescaled(layer.attention, cross, f, own.scale, norm.eps, sources.start, lost)
    return SourceTile(kappa, taken, weights, carried, units)
