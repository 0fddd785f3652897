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

A gated FFN has two such p, of the gate and of what it is multiplied with, and φ(gate) ⊙ up in the place of φ(p). A norm
on a branch (Gemma 2, OLMo 2) is one more step of the same kind: with P on attention's branch and A_i what it is given,

    δu  = κ¹_ij L¹ A_i − Σ_h α^h_ij (L¹ f^h_j) / s¹'         κ¹ and s¹' as above, from A in the place of u

in the place of −Δ, and what W_2 gives goes through the norm on the FFN's branch as δw goes through LN2. In a parallel
block the FFN reads x and nothing of it changes: δo = δu. Experts have no closed form: they are run again for every pair
of tokens, which is exact and slower. An encoder with a decoder: value_zeroing_streams.py.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from wherefrom.method.base import method
from wherefrom.method.citations import MOHEBBI_2023
from wherefrom.method.normalise import nonzero, standardised, to_one_or_self
from wherefrom.method.products import Precision, product
from wherefrom.method.tiling import Budget, free_memory, tiles
from wherefrom.method.value_zeroing_streams import closing, through_both_steps
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block, Linear, Norm

CPU_BYTES = 32 * 2**20  # large enough for W_2 to run at full speed
DEVICE_BYTES = 16 * 2**30  # on a GPU, whose products are large enough then
# In a causal model a tile of J sources is a rectangle, in whose corner stand J² / 2 pairs of which none sees the other.
FEWEST, WASTE = 256, 32  # pairs of a tile on a GPU: n² / 32 at most, where that is more than 256
BESIDE = 80 * 10**6  # on a CPU: what a tile costs beside its pairs, in multiplications


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
    prefers={"ffn-matrices"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=_cost,
    joins_streams=False,
)
@torch.no_grad()
def value_zeroing(
    layer: LayerTrace,
    *,
    metric: Literal["cosine", "euclidean", "spearman"] = "cosine",
    standardise: bool = False,
    precision: Precision = "exact",
    budget: Budget = None,
) -> Tensor:
    """How far each output moves when another token's value is zeroed; rows sum to one.

    metric: "cosine", "euclidean" or "spearman". standardise: every dimension is first brought to mean 0 and
    variance 1 over the tokens of the sentence (appendix A.1, after Timkey & van Schijndel 2021). precision: of
    products with W_2, most of the work: "exact"; "split", which keeps five digits of a score; or "fast", which
    keeps three (products.py). The last two are for GPUs, of matrices alone: experts are run as they
    are. budget: bytes for one tile (by default 32 MiB on a CPU). A row of zeros falls back to the token itself, with a
    warning.
    """
    kernels = _kernels(layer, metric, standardise)
    if kernels is None:
        moved = by_sentence(layer, metric, standardise, precision, budget)
    else:
        from wherefrom.method.value_zeroing_device import moved as at_once

        moved = at_once(
            layer, metric, precision, budget or min(free_memory(layer.u.device) // 4, DEVICE_BYTES), kernels
        )
    return to_one_or_self(moved, layer, "value-zeroing")


def by_sentence(
    layer: LayerTrace,
    metric: str,
    standardise: bool = False,
    precision: Precision = "exact",
    budget: int | None = None,
) -> Tensor:
    """How far every output moves, in steps of torch's: [B, n, n]."""
    budget = budget or (free_memory(layer.u.device) // 8 if layer.u.is_cuda else CPU_BYTES)
    if layer.step is not None and not layer.block.feeds:  # whose output the second step of its block gives
        return through_both_steps(layer, DISTANCES[metric], standardise, budget)
    moved = torch.zeros_like(layer.attention[:, 0])
    through, last = _values_through(layer), closing(layer)
    for row, n in enumerate(layer.lengths):  # each sentence as long as it is: padding costs nothing
        o = layer.output[row, :n]
        left = o if last is None else last(o)
        goal, spread = standardised(left) if standardise else (left, None)
        for sources, targets, touched, change in _changes(layer, row, n, through, precision, budget):
            if last is not None:
                change = _through_norm(last, o[targets], change)
            distance = DISTANCES[metric](goal[targets], change if spread is None else change.div_(spread))
            moved[row, targets, sources] = (distance * touched).T  # exactly zero where nothing was taken away
    if layer.step is not None:
        moved.diagonal(dim1=1, dim2=2).masked_fill_(layer.step.stays(moved.shape[-1]), 1.0)
    return moved


def _kernels(layer: LayerTrace, metric: str, standardise: bool) -> Any:
    """The kernels in Triton; None on a CPU, without Triton, and for what they do not know or is not worth it."""
    if layer.mask.device.type != "cuda" or not layer.kernels:
        return None
    from wherefrom.method.value_zeroing_device import suits

    try:
        from wherefrom.method import value_zeroing_kernel
    except ImportError:
        return None
    return value_zeroing_kernel if suits(layer, metric, standardise) else None


class Shift(NamedTuple):
    """`δ_ij = Σ_h taken^h_ij f^h_j + Σ_m factors^m_ij own^m_i`, in numbers per pair of tokens: the vectors f^h_j of the
    sources [J, H, d] and own^m_i of the targets [I, d] stand elsewhere.
    """

    taken: Tensor  # source first: [J, I, H]
    factors: list[Tensor]  # [J, I, 1] each

    def at(self, sources: slice, targets: slice) -> Shift:
        """Of some of the sources and targets."""
        return Shift(self.taken[sources, targets], [each[sources, targets] for each in self.factors])

    def through(self, norm: Norm, at: Tensor, f: Tensor, own: list[Tensor]) -> Shift:
        """What becomes of it in a norm that reads `at` [I, d], whose vectors are then L f, L at and L own."""
        more = self._gained(norm.centred(at), norm.centred(f), [norm.centred(t) for t in own]) / at.shape[-1]
        kappa, scale = _rescaled(norm, at, more)
        return Shift(self.taken / scale, [kappa, *(each / scale for each in self.factors)])

    def _gained(self, at: Tensor, f: Tensor, own: list[Tensor]) -> Tensor:
        """`‖at + δ‖² − ‖at‖²` = 2⟨at, δ⟩ + ‖δ‖², by Gram products: [J, I, 1]."""
        carried = self.taken @ (f @ f.transpose(1, 2)) + 2 * _inner(at, f)
        more = self.taken.new_zeros(())
        for factor, vector in zip(self.factors, own, strict=True):
            carried += 2 * factor * _inner(vector, f)
            more = more + 2 * factor * (at * vector).sum(-1, keepdim=True)
            for other, beside in zip(self.factors, own, strict=True):
                more = more + factor * other * (vector * beside).sum(-1, keepdim=True)
        return carried.mul_(self.taken).sum(-1, keepdim=True) + more

    def added(self, start: Tensor, f: Tensor, own: list[Tensor], room: Tensor) -> Tensor:
        """`start + δ`, in `room`."""
        room.resize_(*self.taken.shape[:2], f.shape[-1])
        pairs = list(zip(self.factors, own, strict=True))
        found = torch.addcmul(start, *pairs[0], out=room) if pairs else room.copy_(start)
        return self._onto(found, f, pairs[1:])

    def onto(self, changed: Tensor, f: Tensor, own: list[Tensor]) -> Tensor:
        """`changed + δ`, in the place of `changed` [J, I, d]."""
        return self._onto(changed, f, list(zip(self.factors, own, strict=True)))

    def _onto(self, changed: Tensor, f: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
        for factor, vector in pairs:
            changed.addcmul_(factor, vector)
        return changed.baddbmm_(self.taken, f)


def _inner(t: Tensor, f: Tensor) -> Tensor:
    """⟨t_i, f^h_j⟩: [J, I, H]."""
    return (t @ f.flatten(0, 1).T).view(len(t), *f.shape[:2]).transpose(0, 1)


def _rescaled(norm: Norm, at: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    """`κ_ij` and `s'_ij`, from `s'² − s²`: [J, I, 1] each."""
    scale = norm.scale(at)
    new_scale = (scale.square() + more).clamp(min=norm.eps).sqrt()
    return -more / (scale * new_scale * (scale + new_scale)), new_scale


Rest = Callable[[slice, slice], Tensor]  # of some sources in a tile and some targets: δo [J, I, d]
Beyond = Callable[[Tensor, Tensor, Shift], Rest]
Changes = Iterator[tuple[slice, slice, Tensor, Tensor]]


def _changes(layer: LayerTrace, row: int, n: int, through: list[Tensor], precision: Precision, budget: int) -> Changes:
    """Tile by tile: some sources and the targets that may see them; then, source first, whether a target loses
    anything to a source [J, I], and `δo` [J, I, d].
    """
    block, after, w_o = layer.block, layer.block.after, layer.block.w_o
    attention, value = layer.attention[row], layer.value[row, :, :n]
    given = None if after is None else block.attended(layer.attention[row : row + 1], layer.value[row : row + 1])[0, :n]
    own = [] if after is None or given is None else [after.linear(given)]
    beyond = _beyond(layer, row, n, own, through, precision)
    size, d, units = layer.u.element_size(), layer.u.shape[-1], _built(block)
    rows = max(1, budget // (2 * (units + d) * size))
    for outer in tiles(n, layer.heads * (units + 2 * d + 6 * n) * size, budget):
        raw = torch.bmm(value[:, outer], w_o).transpose(0, 1).contiguous()  # [J, H, d]
        f = raw if after is None else after.linear(raw)
        alpha = _weights(attention, raw, outer, n)
        change = Shift(-alpha, [])
        if after is not None and given is not None:
            change = change.through(after, given, raw, [])
        touched, rest = (alpha != 0).any(-1), beyond(value[:, outer], f, change)
        for sources in _steps(outer, n, rows, layer):
            inner = slice(sources.start - outer.start, sources.stop - outer.start)
            targets = slice(sources.start if layer.causal else 0, n)  # those that may see one of them
            yield sources, targets, touched[inner, targets], rest(inner, targets)


def _built(block: Block) -> int:
    """Numbers that are built for a pair of tokens, beside its change."""
    return 3 * block.w_o.shape[-1] if block.parallel or block.opaque else (1 + block.gated) * block.units


def _steps(outer: slice, n: int, rows: int, layer: LayerTrace) -> Iterator[slice]:
    """The sources of an outer tile in pieces whose pairs with the targets that may see them are `rows` at most."""
    if not layer.causal:
        for inner in tiles(outer.stop - outer.start, n, rows):
            yield slice(outer.start + inner.start, outer.start + inner.stop)
        return
    most, start = n, outer.start
    if layer.u.is_cuda:
        rows = min(rows, max(FEWEST, n * n // WASTE))
    else:
        most = isqrt(BESIDE // (_built(layer.block) * layer.u.shape[-1]))
    while start < outer.stop:
        stop = min(outer.stop, start + max(1, min(most, rows // (n - start))))
        yield slice(start, stop)
        start = stop


def _weights(attention: Tensor, f: Tensor, sources: slice, n: int) -> Tensor:
    """α of some sources, source first and 0 where nothing is given: [J, n, H]."""
    alpha = attention[:, :n, sources].permute(2, 1, 0) * (f != 0).any(-1).unsqueeze(1)
    return alpha.contiguous()


def _beyond(
    layer: LayerTrace, row: int, n: int, own: list[Tensor], through: list[Tensor], precision: Precision
) -> Beyond:
    """What the block makes of `δu`: of the values [H, J, d_h] and f of some sources, the function that follows it."""
    block, x, u = layer.block, layer.x[row, :n], layer.u[row, :n]
    if not block.parallel and not block.opaque:
        return _closed(layer, row, n, own, through, precision)
    # Not the model's own output, which may be rounded otherwise: what is subtracted must cancel.
    o = None if block.parallel else block.finish(u)

    def beyond(_value: Tensor, f: Tensor, change: Shift) -> Rest:
        def rest(inner: slice, targets: slice) -> Tensor:
            some = change.at(inner, targets)
            moved = some.onto(x.new_zeros(*some.taken.shape[:2], x.shape[-1]), f[inner], _at(targets, own))
            return moved if o is None else block.finish(u[targets] + moved) - o[targets]

        return rest

    return beyond


def _inputs(block: Block) -> list[Linear]:
    """Into the FFN's hidden units, and before it into its gate."""
    return [block.ffn_in] if block.ffn_gate is None else [block.ffn_gate, block.ffn_in]


def _hidden(block: Block, into: list[Tensor], more: Tensor) -> Tensor:
    """`more` and the hidden units, from what enters them and, where there is one, their gate; written over."""
    first = block.activation(into[0])
    return first.add_(more) if len(into) == 1 else torch.addcmul(more, first, into[1], out=into[1])


def _values_through(layer: LayerTrace, precision: Precision = "exact") -> list[Tensor]:
    """What takes a head's value to the FFN's hidden units, W_C^h L W_1: [H, d_h, F]. Empty where it does not pay."""
    block, norm = layer.block, layer.block.first_norm
    if block.parallel or block.opaque or sum(layer.lengths) * (layer.heads - 1) < layer.u.shape[-1]:
        return []  # fewer vectors L f^h_j than rows in W_O
    through = block.w_c if norm is None else norm.linear(block.w_c)
    return [product(through, each.weight, precision) for each in _inputs(block)]


def _closed(
    layer: LayerTrace, row: int, n: int, own: list[Tensor], through: list[Tensor], precision: Precision
) -> Beyond:
    """The same of an FFN that is made of matrices."""
    block, norm, inputs, out = layer.block, layer.block.first_norm, _inputs(layer.block), layer.block.ffn_out
    u, w = layer.u[row, :n], layer.w[row, :n]
    read = own if norm is None else [norm.linear(t) for t in (u, *own)]
    owned = [[t @ each.weight for t in read] for each in inputs]
    entering = [  # p_i, of y = L u / s + β
        each(u) if norm is None else (of[0] / norm.scale(u)).add_(each(norm.beta.to(u)))
        for each, of in zip(inputs, owned, strict=True)
    ]
    inactive = _hidden(block, [each.clone() for each in entering], u.new_zeros(())).neg_()
    fed = None if block.ffn_after is None else out(-inactive)
    space = [u.new_empty(0) for _ in inputs]  # for all tiles: fetching memory takes longer than filling it

    def beyond(value: Tensor, f: Tensor, change: Shift) -> Rest:
        lf = f if norm is None else norm.linear(f)
        units = [
            lf @ each.weight if not through else (value @ through[k]).transpose(0, 1) for k, each in enumerate(inputs)
        ]
        seen = change if norm is None else change.through(norm, u, f, own)  # δy

        def rest(inner: slice, targets: slice) -> Tensor:
            of, some = partial(_at, targets), seen.at(inner, targets)
            moved = [
                some.added(entering[k][targets], units[k][inner], of(owned[k]), room)  # p + δp: [J, I, F]
                for k, room in enumerate(space)
            ]
            found = product(_hidden(block, moved, inactive[targets]), out.weight, precision)  # [J, I, d]
            if block.ffn_after is not None and fed is not None:
                found = _through_norm(block.ffn_after, fed[targets], found)
            if block.post is None:
                found = change.at(inner, targets).onto(found, f[inner], of(own))
            else:
                found = some.onto(found, lf[inner], of(read))
            return found if block.ffn_post is None else _through_norm(block.ffn_post, w[targets], found)

        return rest

    return beyond


def _at(targets: slice, vectors: list[Tensor]) -> list[Tensor]:
    return [each[targets] for each in vectors]


def _through_norm(norm: Norm, w: Tensor, change: Tensor) -> Tensor:
    """`LN(w + δ) − LN(w)`, from δ [J, n, d] and w [n, d] without forming the difference; δ may be written over."""
    cw, moved = norm.centred(w), norm.centred(change)
    kappa, new_scale = _rescaled(norm, w, _gained(cw, moved) / w.shape[-1])
    return moved.div_(new_scale).addcmul_(kappa, cw).mul_(norm.gamma)


def _gained(o: Tensor, change: Tensor) -> Tensor:
    """`‖o + δ‖² − ‖o‖²` as 2⟨o, δ⟩ + ‖δ‖²: [J, n, 1]."""
    cross = torch.einsum("id,jid->ji", o, change)
    length: Tensor = torch.linalg.vector_norm(change, dim=-1)
    return length.square().add(cross, alpha=2).unsqueeze(-1)


def _cosine(o: Tensor, change: Tensor) -> Tensor:
    """`1 − cos(o, o + δ)` as ½ ‖o'/‖o'‖ − o/‖o‖‖², the difference again without forming it: [J, n]. Writes over δ."""
    length = nonzero(torch.linalg.vector_norm(o, dim=-1, keepdim=True))
    more = _gained(o, change)
    new_length = nonzero((length.square() + more).clamp(min=0).sqrt())
    shorter = -more / (length * (length + new_length))  # (‖o‖ − ‖o'‖) / ‖o‖
    apart: Tensor = torch.linalg.vector_norm(change.addcmul_(shorter, o), dim=-1, keepdim=True) / new_length
    return apart.square().squeeze(-1) / 2


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
