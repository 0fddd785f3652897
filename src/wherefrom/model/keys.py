"""How queries and keys come of what attention reads: projected, normed by some, turned by position in most decoders.

    k_j = T_j N(a_j W_K + b_K)        s_ij = cap(τ q_i · k_j) + what positions alone decide        α = softmax(s)

N is absent, one norm for each head (Qwen 3, Gemma 3) or one for all of them (OLMo 2), before T or after it (Hunyuan). T
is the rotary embedding: it turns pairs of components by an angle that depends on the position alone. No row names
either: the norms are found beside the projections, and T is measured, as the one rotation of every pair that takes all
heads' queries and keys to those that enter the product. Where attention does not show these, T is the published formula
and the scores must give the attention weights. What does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from wherefrom.errors import Unsuited, UnsupportedModel
from wherefrom.model.parts import Block, Linear, Norm, norm_of

if TYPE_CHECKING:
    from wherefrom.model.trace import LayerTrace

# How far rebuilt queries, keys and scores may lie from the model's own, as a share; and how near is near enough.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}  # RoFormer keeps its sines in float32
ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-5}
HALF_PRECISION = (0.15, 0.05)  # both, of float16 and bfloat16
BASE = 10_000.0  # of the published rotary formula
Layout = Literal["halves", "neighbours"]  # which two components are a pair
LAYOUTS: tuple[Layout, ...] = ("halves", "neighbours")


class Turn(NamedTuple):
    """T_j: the first `size` components, two at a time, times a complex number of each position."""

    factors: Tensor  # [B, 1, n, size / 2], complex
    layout: Layout

    def __call__(self, t: Tensor) -> Tensor:
        """[B, H, n, d_h], turned."""
        return _joined(_pairs(t, self.layout, 2 * self.factors.shape[-1]) * self.factors, t, self.layout)

    def back(self, row: int, tokens: slice) -> Turn:
        """The transpose, for what has an axis of some tokens of one sentence and two more: [T, P, H, d_h]."""
        return self._replace(factors=self.factors[row, 0, tokens, None, None].conj())


@dataclass(frozen=True)
class Side:
    """The queries or the keys of a batch, each head with its own copy of what heads share."""

    weight: Tensor  # W_Q or W_K: [H, d, d_h]
    projected: Tensor  # before the norm and the turning: [B, H, n, d_h]
    norm: Norm | None
    whole: bool  # one norm for all heads
    late: bool  # the norm comes after the turning
    turn: Turn | None

    @property
    def plain(self) -> bool:
        """Whether it is a linear map of what attention reads, the same at every position."""
        return self.norm is None and self.turn is None

    @property
    def entering(self) -> Tensor:
        """What the norm reads, in its own shape: [B, n, H, d_h], or [B, n, 1, H·d_h] where it takes all heads."""
        return self.as_read(self.turned(self.projected) if self.late else self.projected)

    def turned(self, t: Tensor) -> Tensor:
        return t if self.turn is None else self.turn(t)

    def as_read(self, t: Tensor) -> Tensor:
        """[B, H, n, d_h] as the norm reads it."""
        t = t.transpose(1, 2)
        return t.flatten(2).unsqueeze(2) if self.whole else t

    def by_head(self, t: Tensor) -> Tensor:
        """The inverse."""
        return t.reshape(*t.shape[:2], len(self.weight), -1).transpose(1, 2)

    @property
    def given(self) -> Tensor:
        """As it enters the product: [B, H, n, d_h]."""
        if self.norm is None:
            return self.turned(self.projected)
        normed = self.by_head(self.norm(self.entering))
        return normed if self.late else self.turned(normed)

    def pulled(self, g: Tensor, row: int, tokens: slice) -> Tensor:
        """Gradients with respect to what attention reads, from those with respect to queries or keys.

        Of some tokens of one sentence, P numbers for each head: [T, P, H, d_h] -> [T, P, H, d]. A norm of all heads
        makes a number of one head depend on the others: what it forgets, p, is theirs too.
        """
        back = self.turn.back(row, tokens) if self.turn is not None else lambda t: t

        def read(t: Tensor) -> Tensor:
            return torch.einsum("tphk,hdk->tphd", back(t) if self.late else t, self.weight)

        g = g if self.late else back(g)
        if self.norm is None:
            return read(g)
        entering = self.entering[row, tokens]
        factor = (self.norm.gamma / self.norm.scale(entering)).reshape(len(g), 1, len(self.weight), -1)
        p = self.norm.forgets(entering).transpose(1, 2).reshape(len(g), -1, len(self.weight), g.shape[-1])
        g = factor * g
        felt, through = torch.einsum("tphk,trhk->tprh", g, p), read(p)
        if self.whole:
            through = through.sum(2, keepdim=True).expand_as(through)
        return read(g) - torch.einsum("tprh,trhd->tphd", felt, through)


class Product(NamedTuple):
    """What the scores of one layer are made of."""

    query: Side
    key: Side
    scaling: float  # τ


def product_of(layer: LayerTrace) -> Product:
    """Queries and keys as functions of what attention reads, or why there are none that wherefrom knows."""
    return layer.once("product", _product)


def product_beside(layer: LayerTrace, other: LayerTrace) -> Product:
    """That of the same block in another pass with the same positions, by the rule that was found in the first.

    Of a text whose tokens are all alike, such as a baseline, several rules give the same scores.
    """
    found = product_of(layer)
    change = other.block.source(other.x) - layer.block.source(layer.x)

    def moved(side: Side) -> Side:
        return replace(side, projected=side.projected + torch.einsum("bnd,hdk->bhnk", change, side.weight))

    return found._replace(query=moved(found.query), key=moved(found.key))


def known_scores(layer: LayerTrace) -> bool:
    """Whether they are known, and are all that attention weights depend on beside positions."""
    if layer.block.latent:
        return False
    try:
        query, key, scaling = product_of(layer)
    except (Unsuited, UnsupportedModel):  # no such rule, or no such norm
        return False
    scores = scaling * query.given @ key.given.mT
    if layer.softcap is not None:
        scores = layer.softcap * (scores / layer.softcap).tanh()
    gap = min(_unexplained(layer, scores, biased) for biased in (False, True))
    return gap <= TOLERANCE.get(_computed_in(layer), HALF_PRECISION[0])


def _computed_in(layer: LayerTrace) -> torch.dtype:
    """The model's own precision: queries and keys may be shown in a finer one (GPT-2's `reorder_and_upcast_attn`)."""
    return layer.raw["value"].dtype


def linear_keys(layer: LayerTrace) -> bool:
    """Whether queries and keys are linear maps of what attention reads, and no more."""
    if layer.block.latent or "key" not in layer.raw:
        return False
    source = layer.block.source(layer.x)[:1, :2]
    sides = zip(layer.block.projections()[:2], (layer.query, layer.key), strict=True)
    return all(_projected(source, side, own[:1, :, :2]) for side, own in sides)


def _projected(source: Tensor, side: Linear, own: Tensor) -> bool:
    """Whether these are what is read, through their projection; each head with its own copy of what heads share."""
    made = (source @ side.weight.to(source.dtype) + side.bias.to(source.dtype)).detach()
    if made.shape[-1] % own.shape[-1]:
        return False  # more components than were projected: rotary positions wider than a head
    made = made.reshape(*made.shape[:2], -1, own.shape[-1]).transpose(1, 2)
    made = made.repeat_interleave(own.shape[1] // made.shape[1], 1)
    return bool((made - own.detach()).abs().max() <= 0.02 * own.abs().max())


def plain_softmax(layer: LayerTrace) -> bool:
    """Whether attention weights are the softmax of q·k over what is seen, and no more."""
    if "key" not in layer.raw:
        return False
    scores = layer.query @ layer.key.mT * layer.scaling
    plain = scores.masked_fill(layer.attention == 0, -torch.inf).softmax(-1)
    return bool((plain - layer.attention).abs().max() <= 0.02)


def _product(layer: LayerTrace) -> Product:
    source = layer.block.source(layer.x)
    sides = [
        _side(layer.block, linear, side, source)
        for linear, side in zip(layer.block.projections()[:2], ("q", "k"), strict=True)
    ]
    found = _measured(layer, *sides) if "key" in layer.raw else _by_formula(layer, *sides)
    if found is None:
        raise _unknown_rule()
    return found


def _unknown_rule() -> Unsuited:
    return Unsuited(
        "the queries and keys of this model's attention are made by a rule that wherefrom does not know (relative "
        "positions, or a norm of its own), and this method must follow it; choose alti, value-zeroing, attcat or "
        "integrated-gradients"
    )


def _side(block: Block, linear: Linear, side: str, source: Tensor) -> Side:
    weight, bias = (part.to(source.dtype) for part in linear)
    count = block.heads if side == "q" else block.groups
    shared = block.heads // count
    by_head = weight.unflatten(1, (count, -1)).transpose(0, 1).repeat_interleave(shared, 0)  # type: ignore[no-untyped-call]
    biases = bias.view(count, -1).repeat_interleave(shared, 0)
    projected = torch.einsum("bnd,hdk->bhnk", source, by_head) + biases[:, None]
    norm = _norm_beside(block, side, biases.shape[1])
    whole = norm is not None and len(norm.gamma) == len(bias) != biases.shape[1]
    if norm is not None and whole:  # a mean over heads is the same with each as often as it is read
        gamma, beta = (part.view(count, -1).repeat_interleave(shared, 0).flatten() for part in (norm.gamma, norm.beta))
        norm = norm._replace(gamma=gamma, beta=beta)
    return Side(by_head, projected, norm, whole, late=False, turn=None)


def _norm_beside(block: Block, side: str, width: int) -> Norm | None:
    """The norm of queries or keys: the part of the attention module whose name says so."""
    attention: nn.Module = block.part(block.family.attention.output.rpartition(".")[0] or block.family.attention.module)
    for name, part in attention.named_children():
        if name.startswith(side) and "norm" in name:
            if [*part.children()] or getattr(getattr(part, "weight", None), "ndim", 1) > 1:
                raise _unknown_rule()  # one norm for each head (StableLM 2, Command R+)
            found = norm_of(part, width)
            return None if found is None else found.to(block.device)
    return None


# Where the model shows its queries and keys ------------------------------------------------------------------


def _measured(layer: LayerTrace, query: Side, key: Side) -> Product | None:
    own = (layer.query.detach(), layer.key.detach())
    if own[0].shape != query.projected.shape or own[1].shape != key.projected.shape:
        return None

    def tried() -> Iterator[tuple[float, Product]]:
        for sides in _orders(query, key):
            before = [_before_turning(side, given) for side, given in zip(sides, own, strict=True)]
            for turn in _turns(before, layer.mask):
                made = [replace(side, turn=turn) for side in sides]
                gaps = (_gap(side.given, given, layer.mask) for side, given in zip(made, own, strict=True))
                yield max(gaps), Product(made[0], made[1], layer.scaling)

    dtype = _computed_in(layer)
    return _nearest(tried(), dtype, ROUNDING.get(dtype, HALF_PRECISION[1]))


def _nearest(tried: Iterator[tuple[float, Product]], dtype: torch.dtype, enough: float) -> Product | None:
    """The first that fits well enough, or else the best, if it fits at all."""
    best: tuple[float, Product | None] = (TOLERANCE.get(dtype, HALF_PRECISION[0]), None)
    for found in tried:
        best = found if found[0] <= best[0] else best
        if best[0] <= enough:
            break
    return best[1]


def _orders(query: Side, key: Side) -> Iterator[tuple[Side, Side]]:
    """As they are, with the norm after the turning, or with queries that are scaled beforehand (OPT)."""
    yield query, key
    if query.norm is not None or key.norm is not None:
        yield replace(query, late=True), replace(key, late=True)
    scale = query.projected.shape[-1] ** -0.5
    yield replace(query, weight=scale * query.weight, projected=scale * query.projected), key


def _before_turning(side: Side, given: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors that T took from the first to the second."""
    if side.norm is None:
        return side.projected, given
    if not side.late:
        return side.by_head(side.norm(side.as_read(side.projected))), given
    entering = side.as_read(side.projected)  # turning leaves the length as it is, and so an RMS norm's scale
    undone = (side.as_read(given) - side.norm.beta) / side.norm.gamma * side.norm.scale(entering)
    return side.projected, side.by_head(undone)


def _turns(vectors: list[tuple[Tensor, Tensor]], mask: Tensor) -> Iterator[Turn | None]:
    """None, and then every way to pair the components, with the rotation that fits it best."""
    yield None
    few = [(a[:1, :, :8], b[:1, :, :8]) for a, b in vectors]  # enough to see whether it is worth a try
    for size, layout in _ways(few[0][0].shape[-1]):
        turn = _fitted(few, layout, size)
        if max(_gap(turn(a), b, mask[:1, :8]) for a, b in few) <= HALF_PRECISION[0]:
            yield _fitted(vectors, layout, size)


def _ways(width: int) -> list[tuple[int, Layout]]:
    """How many components may be turned, all of them first, and in which pairs."""
    return [(size, layout) for size in range(width - width % 2, 0, -2) for layout in LAYOUTS]


def _fitted(pairs: list[tuple[Tensor, Tensor]], layout: Layout, size: int) -> Turn:
    """By least squares over heads, queries and keys."""
    before, after = (torch.cat([_pairs(pair[k], layout, size) for pair in pairs], 1) for k in (0, 1))
    length = before.abs().square().sum(1)
    cross = (before.conj() * after).sum(1)
    factors = torch.where(length > 0, cross / length.clamp(min=1e-30), torch.ones_like(cross))
    return Turn(factors.unsqueeze(1), layout)


def _gap(ours: Tensor, theirs: Tensor, mask: Tensor) -> float:
    """How far vectors lie apart at real tokens, as a share of the component that fits worst: a large one hides none."""
    apart, whole = (((t * mask[:, None, :, None]) ** 2).sum((0, 1, 2)).sqrt() for t in (ours - theirs, theirs))
    return float((apart / whole.clamp(min=1e-6 * float(whole.amax()) + 1e-30)).amax())


# Where it does not: the published formula, held against the attention weights ----------------------------------


def _by_formula(layer: LayerTrace, query: Side, key: Side) -> Product | None:
    width, dtype = query.projected.shape[-1], _computed_in(layer)

    def tried() -> Iterator[tuple[float, Product]]:
        for turn in (None, *(_published(layer.x, layout, size) for size, layout in _ways(width))):
            made = [replace(side, turn=turn) for side in (query, key)]
            products = made[0].given @ made[1].given.mT
            for scaling in (width**-0.5, 1.0):
                gap = _unexplained(layer, scaling * products, layer.block.family.attention.biased)
                yield gap, Product(made[0], made[1], scaling)

    return _nearest(tried(), dtype, ROUNDING.get(dtype, 0.0))


def _published(x: Tensor, layout: Layout, size: int) -> Turn:
    frequency = BASE ** (-torch.arange(0, size, 2, dtype=torch.float64, device=x.device) / size)
    angles = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)[:, None] * frequency
    factors = torch.polar(torch.ones_like(angles), angles).to(x.dtype.to_complex())
    return Turn(factors.expand(len(x), 1, *factors.shape), layout)


def _unexplained(layer: LayerTrace, scores: Tensor, biased: bool) -> float:
    """How far the logarithms of attention weights lie from these scores and, if `biased`, from what positions add."""
    attention = layer.attention.detach()
    normal = torch.finfo(layer.raw["attention"].dtype).tiny  # below, numbers lose their digits
    seen = (attention >= normal) & layer.mask[:, None, :, None]
    rest = torch.where(seen, attention, 1.0).log() - scores
    step = (rest[..., 1:] - rest[..., :-1]).masked_fill(~(seen[..., 1:] & seen[..., :-1]), torch.nan)
    if biased:  # from one row to the next it moves along
        step = step[..., 1:, 1:] - step[..., :-1, :-1]
    largest = scores[seen].abs().amax().clamp(min=1)
    return float(step.nan_to_num(0).abs().amax() / largest) if step.numel() else 0.0


# Pairs of components as complex numbers ----------------------------------------------------------------------


def _pairs(t: Tensor, layout: str, size: int) -> Tensor:
    if layout == "halves":
        return torch.complex(t[..., : size // 2], t[..., size // 2 : size])
    return torch.complex(t[..., 0:size:2], t[..., 1:size:2])


def _joined(turned: Tensor, t: Tensor, layout: str) -> Tensor:
    """The pairs in their places again, and what was not turned behind them."""
    parts = [turned.real, turned.imag]
    together = torch.cat(parts, -1) if layout == "halves" else torch.stack(parts, -1).flatten(-2)
    return torch.cat([together, t[..., together.shape[-1] :]], -1)
