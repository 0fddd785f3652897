r"""Value Zeroing: how far token i's output moves when token j's value is set to zero.

    o_i^{¬j}: the block's output with v^h_j := 0 for every head h, α and the residual connection untouched
    C_ij = dist(o_i^{¬j}, o_i) / Σ_k dist(o_i^{¬k}, o_i)                                (equation 10)

`metric` is the cosine distance unless told otherwise, or "euclidean" or "spearman" (appendix A.1).

Nothing before u is computed again: zeroing takes Δ_ij = Σ_h α^h_ij f^h_j away from u_i. And everything is followed
as a *difference* to the real pass, so that in float32 small distances do not drown in rounding:

    s'² = s² − (2⟨c u_i, c Δ_ij⟩ − ‖c Δ_ij‖²) / d            c: centring; both terms by Gram products
    κ_ij = 1/s' − 1/s = (s² − s'²) / (s s' (s + s'))
    δy  = κ_ij L u_i − L Δ_ij / s'                           L t = c t ⊙ γ, of the norm before the FFN
    δp  = κ_ij L u_i W_1 − Σ_h α^h_ij (L f^h_j W_1) / s'     only n (H + 1) vectors pass W_1, not n²
    δw  = δy + (φ(p_i + δp) − φ(p_i)) W_2                    φ and W_2 remain for n²: the floor
    δo  = the change that δw makes in LN2                    pre-norm: δo = −Δ + (φ(p_i + δp) − φ(p_i)) W_2

A gated FFN has two such p, of the gate and of what it is multiplied with, and φ(gate) ⊙ up in the place of φ(p). In a
parallel block the FFN reads x and nothing of it changes: δo = −Δ. What has no closed form (a norm on a branch, experts)
is run again for every pair of tokens, which is exact and slower.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from wherefrom.method.base import method
from wherefrom.method.citations import MOHEBBI_2023
from wherefrom.method.normalise import nonzero, to_one_or_self
from wherefrom.method.tiling import Budget, free_memory, tiles
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block, Linear, Norm

CPU_BYTES = 32 * 2**20  # large enough for W_2 to run at full speed


def _cost(s: BatchShape, options: Options) -> Work:
    d, f = s.width, s.units
    through_w1 = min(2 * s.real * s.heads * d * f, 2 * d * d * f + 2 * s.real * d * f)
    return Work(
        wide=through_w1 + s.real_pairs * (2 * s.heads * (f + d) + 2 * f * d),
        moved=s.bytes * s.real_pairs * (6 * f + 20 * d),
        activated=s.real_pairs * f,
        ranked=s.real_pairs * d * (options["metric"] == "spearman"),  # every changed vector is sorted
        calls=60 * len(s.lengths),
        held=s.bytes * d * f + 2 * min(CPU_BYTES, s.bytes * s.n**2 * 2 * (d + f)),
    )


@method(
    "value-zeroing",
    symbols=("VZ",),
    idea="taking a token's value away",
    paper=MOHEBBI_2023,
    needs={"attention", "values", "output-projection", "block-input", "both-norms"},
    prefers={"ffn-matrices", "bare-branches"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=_cost,
)
@torch.no_grad()
def value_zeroing(
    layer: LayerTrace,
    *,
    metric: Literal["cosine", "euclidean", "spearman"] = "cosine",
    standardise: bool = False,
    budget: Budget = None,
) -> Tensor:
    """How far each output moves when another token's value is zeroed; rows sum to one.

    metric: "cosine", "euclidean" or "spearman". standardise: every dimension is first brought to mean 0 and
    variance 1 over the tokens of the sentence (appendix A.1, after Timkey & van Schijndel 2021). budget: bytes
    for one tile (by default 32 MiB on a CPU). A row of zeros falls back to the token itself, with a warning.
    """
    budget = budget or (free_memory(layer.u) // 8 if layer.u.is_cuda else CPU_BYTES)
    moved = torch.zeros_like(layer.attention[:, 0])
    changes = _closed if closed_form(layer.block) else _rerun
    shared = _values_through(layer) if changes is _closed else []
    for row, n in enumerate(layer.mask.sum(1).tolist()):  # each sentence as long as it is: padding costs nothing
        o = layer.output[row, :n]
        goal, spread = _standardised(o) if standardise else (o, None)
        for sources, targets, touched, change in changes(layer, row, n, shared, budget):
            distance = DISTANCES[metric](goal[targets], change if spread is None else change.div_(spread))
            moved[row, targets, sources] = (distance * touched).T  # exactly zero where nothing was taken away
    return to_one_or_self(moved, layer, "value-zeroing")


def closed_form(block: Block) -> bool:
    """Whether the change of the output is known without running the FFN on every pair from its start."""
    if block.parallel:
        return False  # nothing of the FFN changes at all: see `_rerun`
    return not block.opaque and block.after is None and block.ffn_after is None and block.first_norm is not None


def _standardised(o: Tensor) -> tuple[Tensor, Tensor]:
    """o with mean 0 and variance 1 in every dimension, and what it was divided by."""
    spread = nonzero(o.std(0, unbiased=False))
    return (o - o.mean(0)) / spread, spread


Changes = Iterator[tuple[slice, slice, Tensor, Tensor]]


def _inputs(block: Block) -> list[Linear]:
    """Into the FFN's hidden units, and before it into its gate."""
    return [block.ffn_in] if block.ffn_gate is None else [block.ffn_gate, block.ffn_in]


def _hidden(block: Block, into: list[Tensor]) -> Tensor:
    """The hidden units from what enters them and, where there is one, their gate; written over."""
    first = block.activation(into[0])
    return first if len(into) == 1 else first.mul_(into[1])


def _values_through(layer: LayerTrace) -> list[Tensor]:
    """What takes a head's value to the FFN's hidden units, W_O^h L W_1: [H, d_h, F]. Empty where it does not pay."""
    if layer.mask.sum() * (layer.heads - 1) < layer.u.shape[-1]:
        return []  # fewer vectors L f^h_j than rows in W_O
    norm = layer.block.first_norm
    assert norm is not None
    through = norm.linear(layer.block.w_c)
    return [through @ each.weight for each in _inputs(layer.block)]


def _closed(layer: LayerTrace, row: int, n: int, through: list[Tensor], budget: int) -> Changes:
    """Tile by tile: some sources and the targets that may see them; then, source first, whether a target loses
    anything to a source [J, I], and `δo` [J, I, d].
    """
    block, norm = layer.block, layer.block.first_norm
    assert norm is not None
    inputs = _inputs(block)
    u, w, attention, value = layer.u[row, :n], layer.w[row, :n], layer.weights[row], layer.value[row]
    lu, y = norm.linear(u), norm(u)
    lu_w1, hidden = [lu @ each.weight for each in inputs], [each(y) for each in inputs]  # hidden: p_i
    active = _hidden(block, [each.clone() for each in hidden])
    size, d, units = u.element_size(), u.shape[-1], active.shape[-1]
    space = [u.new_empty(0) for _ in inputs]  # for all tiles: fetching memory takes longer than filling it
    for outer in tiles(n, layer.heads * (len(inputs) * units + 2 * d) * size, budget):
        f = torch.bmm(value[:, outer], block.w_c).transpose(0, 1).contiguous()  # [J, H, d]
        lf = norm.linear(f)
        lf_w1 = [
            lf @ each.weight if not through else (value[:, outer] @ through[k]).transpose(0, 1)
            for k, each in enumerate(inputs)
        ]
        for inner in tiles(len(f), n * 2 * (len(inputs) * units + d) * size, budget):
            sources = slice(outer.start + inner.start, outer.start + inner.stop)
            alpha, targets = _weights(attention, f[inner], sources, n, layer.causal)
            kappa, new_scale = _rescaled(norm, u[targets], f[inner], alpha)  # [J, I, 1]
            taken = -alpha / new_scale
            moved = [
                torch.addcmul(hidden[k][targets], kappa, lu_w1[k][targets], out=room.resize_(*taken.shape[:2], units))
                for k, room in enumerate(space)
            ]
            for k, each in enumerate(moved):
                each.baddbmm_(taken, lf_w1[k][inner])  # p + δp: [J, I, F]
            change = _hidden(block, moved).sub_(active[targets]) @ block.ffn_out.weight  # [J, I, d]
            if block.post is None:
                change.baddbmm_(alpha, f[inner], alpha=-1)
            else:
                change.addcmul_(kappa, lu[targets]).baddbmm_(taken, lf[inner])
            if block.ffn_post is not None:
                change = _through_norm(block.ffn_post, w[targets], change)
            yield sources, targets, (alpha != 0).any(-1), change


def _rerun(layer: LayerTrace, row: int, n: int, _: list[Tensor], budget: int) -> Changes:
    """The same where there is no closed form: the rest of the block once more for every pair of tokens."""
    block, attention, value = layer.block, layer.attention[row], layer.value[row]
    x, u = layer.x[row, :n], layer.u[row, :n]
    o = block.finish(u, x)  # not the model's own, which may be rounded otherwise: what is subtracted must cancel
    given = block.attended(layer.attention[row : row + 1], layer.value[row : row + 1])[0, :n]
    size, d = u.element_size(), u.shape[-1]
    for outer in tiles(n, layer.heads * d * size, budget):
        f = torch.bmm(value[:, outer], block.w_o).transpose(0, 1).contiguous()  # [J, H, d]
        for inner in tiles(len(f), n * 8 * d * size, budget):
            sources = slice(outer.start + inner.start, outer.start + inner.stop)
            alpha, targets = _weights(attention, f[inner], sources, n, layer.causal)
            if block.after is None:
                change = -(alpha @ f[inner])
            else:
                left = torch.baddbmm(given[targets], alpha, f[inner], alpha=-1)
                change = block.after(left) - block.after(given[targets])
            if not block.parallel:
                change = block.finish(u[targets] + change, x[targets]) - o[targets]
            yield sources, targets, (alpha != 0).any(-1), change


def _weights(attention: Tensor, f: Tensor, sources: slice, n: int, causal: bool) -> tuple[Tensor, slice]:
    """α of some sources, source first and 0 where nothing is given [J, I, H], and the targets that may see them: in a
    causal model those from the first of the sources on, half of all.
    """
    targets = slice(sources.start if causal else 0, n)
    alpha = attention[:, targets, sources].permute(2, 1, 0) * (f != 0).any(-1).unsqueeze(1)
    return alpha.contiguous(), targets


def _rescaled(norm: Norm, u: Tensor, f: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """`κ_ij` and `s'_ij`, source first: [J, n, 1] each."""
    cu, cf = norm.centred(u), norm.centred(f)
    cross = (cu @ cf.flatten(0, 1).T).view(len(u), *f.shape[:2]).transpose(0, 1)  # ⟨c u_i, c f^h_j⟩: [J, n, H]
    square = (alpha @ (cf @ cf.transpose(1, 2))).mul_(alpha).sum(-1)
    less = (2 * (alpha * cross).sum(-1) - square) / u.shape[-1]  # s² − s'²: [J, n]
    scale = norm.scale(u).squeeze(-1)
    new_scale = (scale.square() - less).clamp(min=norm.eps).sqrt()
    kappa = less / (scale * new_scale * (scale + new_scale))
    return kappa.unsqueeze(-1), new_scale.unsqueeze(-1)


def _through_norm(norm: Norm, w: Tensor, change: Tensor) -> Tensor:
    """`LN(w + δ) − LN(w)`, from δ [J, n, d] and w [n, d] without forming the difference."""
    cw, moved = norm.centred(w), norm.centred(change)
    more = _gained(cw, moved) / w.shape[-1]  # s'² − s²
    scale = norm.scale(w)
    new_scale = (scale.square() + more).clamp(min=norm.eps).sqrt()
    kappa = -more / (scale * new_scale * (scale + new_scale))
    return moved.div_(new_scale).addcmul_(kappa, cw).mul_(norm.gamma)


def _gained(o: Tensor, change: Tensor) -> Tensor:
    """`‖o + δ‖² − ‖o‖²` as 2⟨o, δ⟩ + ‖δ‖²: [J, n, 1]."""
    cross = torch.einsum("id,jid->ji", o, change)
    length: Tensor = torch.linalg.vector_norm(change, dim=-1)
    return length.square().add(cross, alpha=2).unsqueeze(-1)


def _cosine(o: Tensor, change: Tensor) -> Tensor:
    """`1 − cos(o, o + δ)` as ½ ‖o'/‖o'‖ − o/‖o‖‖², the difference again without forming it: [J, n]."""
    length = nonzero(torch.linalg.vector_norm(o, dim=-1, keepdim=True))
    more = _gained(o, change)
    new_length = nonzero((length.square() + more).clamp(min=0).sqrt())
    kappa = -more / (length * new_length * (length + new_length))
    apart: Tensor = torch.linalg.vector_norm((change / new_length).addcmul_(kappa, o), dim=-1)
    return apart.square() / 2


def _euclidean(o: Tensor, change: Tensor) -> Tensor:
    del o
    distance: Tensor = torch.linalg.vector_norm(change, dim=-1)
    return distance


def _spearman(o: Tensor, change: Tensor) -> Tensor:
    """One minus the rank correlation over dimensions, ties at their mean rank."""
    before, after = ranks(o), ranks(o + change)
    return _cosine(before, after - before)


def ranks(t: Tensor) -> Tensor:
    """Ranks along the last axis, centred."""
    ordered = t.sort(-1).values
    below, upto = (torch.searchsorted(ordered, t, side=side) for side in ("left", "right"))
    return (below + upto - t.shape[-1]).to(t.dtype) / 2


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": _cosine,
    "euclidean": _euclidean,
    "spearman": _spearman,
}
