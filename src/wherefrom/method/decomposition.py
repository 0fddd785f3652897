r"""The parts of every token's state that come from every token, taken forward through the frozen blocks.

    x_{i⇐k} ∈ R^d,      Σ_k x_{i⇐k} = x_i,      x_{i⇐k} = 1[i=k] x_i at the start

A block is linear in them once it is frozen (`frozen_block.py`), but for its biases, and each bias b is shared out among
the parts that it is added to, X_ik ← X_ik + ω_ik b, Σ_k ω_ik = 1:

    ω_ik ∝   absdot |b · X_ik|    abssim |cos(b, X_ik)|    norm ‖X_ik‖    equal 1[X_ik ≠ 0]    dot b · X_ik
    ω_ik = 1[k=0]   cls                                    none: b is dropped

In this order: attention's bias b_O + Σ_j α b_V after the residual connection has joined, β of the norm, b_1, what a
tangent leaves over ("linear"), b_2, β. Where the decomposition starts, values are each one token's own and keep their
bias b_V, as in the authors' code; `value_bias="spread"` is the paper's equation 16.

The shares couple the sources, so all x_{i⇐k} of a sentence exist together: n²d numbers, and as many for the values that
they give. Beyond that, everything after the mixing is local to a row i and done in tiles of rows, each written over the
old ones. Where nothing is decomposed yet, and where few rows are read, neither tensor is needed in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method.frozen_block import Freeze, Frozen, frozen
from wherefrom.method.normalise import nonzero
from wherefrom.method.tiling import budget_for, tiles
from wherefrom.model.frozen_pass import Experts
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block, Linear, Norm

Bias = Literal["absdot", "abssim", "norm", "equal", "dot", "cls", "none"]
TILE = 12 * 2**20  # bytes of hidden units at a time, on a CPU


class DecompositionRules(NamedTuple):
    """What is done with everything that is not linear."""

    bias: Bias = "absdot"
    freeze: Freeze = Freeze()
    value_bias: Literal["kept", "spread", "whole"] = "kept"  # whole: values as they are, whatever stands before them


def share(parts: Tensor, bias: Tensor, rule: Bias) -> Tensor:
    """`X_ik += ω_ik b`, in place: parts [..., n, d], and one b for all rows [d] or one for each [..., d]."""
    if rule == "none" or not bool(bias.any()):
        return parts
    weights = _weights(parts, bias, rule)
    weights = weights / nonzero(weights.sum(-1, keepdim=True))
    if bias.ndim == 1:
        flat = parts.view(-1, parts.shape[-1])
        flat.addr_(weights.reshape(-1), bias)
        return parts
    return parts.addcmul_(weights.unsqueeze(-1), bias.unsqueeze(-2))


def _weights(parts: Tensor, bias: Tensor, rule: Bias) -> Tensor:
    if rule == "cls":
        found = torch.zeros_like(parts[..., 0])
        found[..., 0] = 1
        return found
    if rule == "norm":
        lengths: Tensor = vector_norm(parts, dim=-1)
        return lengths
    if rule == "equal":
        return (parts != 0).any(-1).to(parts)
    products = (parts @ bias.unsqueeze(-1)).squeeze(-1)
    if rule == "abssim":
        return products.abs() / nonzero(vector_norm(parts, dim=-1))
    return products if rule == "dot" else products.abs()


# One sentence in one block --------------------------------------------------------------------------------


class Place(NamedTuple):
    """One sentence of a layer, without its padding."""

    layer: LayerTrace
    sentence: int
    n: int
    rules: DecompositionRules
    starts: bool  # whether nothing is decomposed yet
    causal: bool  # whether no row draws on a later token

    def rows(self, t: Tensor, rows: Any = slice(None)) -> Tensor:
        return t[self.sentence, : self.n][rows]

    def attention(self, rows: Any = slice(None)) -> Tensor:
        """[H, rows, n]."""
        return self.layer.attention[self.sentence, :, : self.n, : self.n][:, rows]


def through_norm(parts: Tensor, norm: Norm | None, scale: Tensor | None, rule: Bias) -> Tensor:
    """Parts [t, n, d] through a norm whose scale [t, 1] is known, in place; its β is shared out."""
    if norm is None or scale is None:
        return parts
    if norm.centres:
        parts.sub_(parts.mean(-1, keepdim=True))
    parts.mul_((norm.gamma / scale).unsqueeze(1))
    return share(parts, norm.beta, rule)


def finished(place: Place, given: Tensor, stream: Tensor, rows: Any) -> Tensor:
    """What the block makes of some rows: from what attention gives and the stream before it, [t, n, d] both."""
    layer, rule = place.layer, place.rules.bias
    block = layer.block
    at = frozen(layer, place.rules.freeze, lambda t: place.rows(t, rows))
    bias = _attention_bias(place, rows)
    if block.after is None:
        u = share(given.add_(stream), bias, rule)
    else:
        u = through_norm(share(given, bias, rule), block.after, at.after, rule).add_(stream)
    y = through_norm(u, block.post, at.post, rule)
    if at.hidden is not None:
        y = _fed(place, at, stream if block.parallel else y).add_(y)
    return through_norm(y, block.ffn_post, at.last, rule)


def _fed(place: Place, at: Frozen, t: Tensor) -> Tensor:
    """The FFN's parts."""
    block, rule = place.layer.block, place.rules.bias
    assert at.hidden is not None
    if block.ffn_before is not None:
        t = through_norm(t.clone(), block.ffn_before, at.read, rule)
    if isinstance(at.hidden, Experts):
        return through_norm(_through_experts(at.hidden, t, rule), block.ffn_after, at.fed, rule)
    up, gate, rest = at.hidden
    units = share(_linear(t, block.ffn_in), block.ffn_in.bias, rule).mul_(up.unsqueeze(1))
    bent = units  # what the activation acts on, to which belongs what a tangent leaves over
    if gate is not None and block.ffn_gate is not None:
        bent = share(_linear(t, block.ffn_gate), block.ffn_gate.bias, rule).mul_(gate.unsqueeze(1))
    if rest is not None:
        share(bent, rest, rule)
    if bent is not units:
        units.add_(bent)
    fed = share(_linear(units, block.ffn_out), block.ffn_out.bias, rule)
    return through_norm(fed, block.ffn_after, at.fed, rule)


def _through_experts(experts: Experts, parts: Tensor, rule: Bias) -> Tensor:
    """Parts through an FFN of experts; its biases and constants are shared out as one, behind it."""
    found = experts._replace(read=experts.read.unsqueeze(-2)).along(parts)
    return share(found, experts.block.ffn(experts.read) - experts.along(experts.read), rule)


def has_biases(block: Block) -> bool:
    """Whether experts have weights that are biases."""
    weights = (each for module in block.experts for each in module.named_parameters())
    return any("bias" in name and bool(weight.any()) for name, weight in weights)


def _linear(parts: Tensor, linear: Linear) -> Tensor:
    """Without the bias."""
    return (parts.reshape(-1, parts.shape[-1]) @ linear.weight).view(*parts.shape[:-1], -1)


def _attention_bias(place: Place, rows: Any) -> Tensor:
    """`b_O + Σ_h Σ_j α^h_ij b_V^h W_O^h`, at the start without what values keep: [t, d], or [d] for all rows."""
    block = place.layer.block
    if place.starts and place.rules.value_bias != "spread":
        return block.b_o
    value_bias = by_head(place.layer, block.projections()[2].bias)  # [H, d_h]
    if not bool(value_bias.any()):
        return block.b_o
    each = torch.einsum("htj,hk->thk", place.attention(rows), value_bias).flatten(1)
    return each @ block.w_o.flatten(0, 1) + block.b_o


def by_head(layer: LayerTrace, t: Tensor) -> Tensor:
    """[..., G·d_h] -> [..., H, d_h]."""
    groups = layer.block.groups
    return t.unflatten(-1, (groups, -1)).repeat_interleave(layer.heads // groups, -2)  # type: ignore[no-untyped-call,no-any-return]


def tiles_of(place: Place) -> list[slice]:
    """Rows whose hidden units fit the cache."""
    block, x = place.layer.block, place.layer.x
    units = max(x.shape[-1], 0 if block.opaque else block.units * (2 if block.gated else 1))
    return list(tiles(place.n, place.n * units * x.element_size(), budget_for(x, None, cpu=TILE)))


def reached(place: Place, rows: Any) -> int:
    """How many tokens these rows can draw on."""
    return rows.stop if place.causal and isinstance(rows, slice) and rows.stop is not None else place.n


# Where it starts ------------------------------------------------------------------------------------------


def own_values(layer: LayerTrace, rules: DecompositionRules) -> Tensor:
    """What each token gives at the start, with the biases that stay with it: [B, H, n, d_h].

    A β before attention is added to the token's own part alone, so that every rule but cls leaves it there.
    """
    value, block = layer.value, layer.block
    projection = block.projections()[2]
    if rules.value_bias == "spread":
        value = value - by_head(layer, projection.bias).unsqueeze(1)
    if rules.value_bias != "whole" and rules.bias in ("none", "cls") and block.before is not None:
        value = value - by_head(layer, block.before.beta.to(projection.weight) @ projection.weight).unsqueeze(1)
    return value


def started(place: Place, carried: Tensor, rows: Any) -> Tensor:
    """The parts of some rows after the block in which the decomposition starts: [t, n, d].

    `carried` are the values through W_O, [n, H, d].
    """
    x, to = place.rows(place.layer.x), reached(place, rows)
    weights = place.attention(rows)[..., :to].permute(2, 1, 0)  # [n, t, H]
    given = (weights @ carried[:to]).transpose(0, 1).contiguous()
    stream = torch.zeros_like(given)
    which = torch.arange(place.n, device=x.device)[rows]
    stream[torch.arange(len(which), device=x.device), which] = x[rows]
    return finished(place, given, stream, rows)


def carried(place: Place) -> Tensor:
    values = own_values(place.layer, place.rules)[place.sentence, :, : place.n]
    return torch.bmm(values, place.layer.block.w_o).transpose(0, 1).contiguous()


def local(layer: LayerTrace, sentence: int, n: int, rules: DecompositionRules) -> Iterator[tuple[slice, Tensor]]:
    """The parts of one block's output that come from its inputs, some rows at a time: [t, n or fewer, d]."""
    causal = not bool(layer.attention[sentence].triu(1).any())
    place = Place(layer, sentence, n, rules, True, causal)
    given = carried(place)
    for rows in tiles_of(place):
        yield rows, started(place, given, rows)


def local_norms(layer: LayerTrace, rules: DecompositionRules) -> Tensor:
    """The lengths of the parts of one block's output: [B, n, n]."""
    found = layer.x.new_zeros(layer.attention.shape[0], *layer.attention.shape[2:])
    for sentence, n in enumerate(layer.mask.sum(-1).tolist()):
        for rows, parts in local(layer, sentence, n, rules):
            found[sentence, rows, : parts.shape[1]] = vector_norm(parts, dim=-1)
    return found


def local_cost(s: BatchShape, options: Options) -> Work:
    """One block with all n² vectors."""
    d, f = s.width, s.units if options.get("ffn", True) else 0
    return Work(
        wide=sum(n * n * (4 * d * d + 4 * d * f + 2 * n * d) for n in s.lengths),
        moved=s.bytes * s.real_pairs * (12 * d + 4 * f),
        calls=150 * len(s.lengths),
        held=s.bytes * (2 * s.n * s.n * d) + 4 * TILE,
    )


# Further on -----------------------------------------------------------------------------------------------


def decomposed(
    layers: Sequence[LayerTrace],
    sentence: int,
    n: int,
    rules: DecompositionRules,
    *,
    causal: bool,
    last: list[int] | None = None,
) -> Iterator[Tensor]:
    """x_{i⇐k} after each block: [n, n, d], the same memory every time. With `last`, after the last these rows alone."""
    state = layers[0].x.new_zeros(n, n, layers[0].x.shape[-1])
    for layer in layers:
        state = state.to(layer.device)
        place = Place(layer, sentence, n, rules, layer is layers[0], causal)
        few = last if layer is layers[-1] else None
        if place.starts and (rules.bias != "cls" or layer.block.before is None):
            given = carried(place)
            if few is not None:
                yield started(place, given, few)
                return
            for rows in tiles_of(place):
                state[rows, : reached(place, rows)] = started(place, given, rows)
        else:
            if place.starts:
                state.diagonal(dim1=0, dim2=1).copy_(place.rows(layer.x).T)
            if few is not None:
                yield _few(place, state, few)
                return
            _all(place, state)
        yield state


def _read(place: Place, state: Tensor, rows: Any) -> Tensor:
    """What attention reads of some tokens' parts: a copy, where a norm stands before it."""
    norm, parts = place.layer.block.before, state[rows]
    if norm is None:
        return parts
    return through_norm(parts.clone(), norm, norm.scale(place.rows(place.layer.x, rows)), place.rules.bias)


def _all(place: Place, state: Tensor) -> None:
    """All rows through one block, in place."""
    layer, n = place.layer, place.n
    groups, shared = layer.block.groups, layer.heads // layer.block.groups
    weight, bias = layer.block.projections()[2]
    values = state.new_empty(groups, n, n, weight.shape[1] // groups)
    for sources in tiles_of(place):
        parts = _read(place, state, sources).view(-1, state.shape[-1])
        for group, columns in enumerate(weight.chunk(groups, 1)):
            torch.mm(parts, columns, out=values[group, sources].view(len(parts), -1))
    if place.starts and place.rules.value_bias != "spread":
        values.diagonal(dim1=1, dim2=2).add_(bias.view(groups, -1, 1))
    flat = values.view(groups, n, -1)
    for rows in tiles_of(place):
        to = reached(place, rows)
        attention = place.attention(rows)[..., :to].reshape(groups, -1, to)  # of the heads that share their values
        mixed = attention @ flat[:, :to, : to * values.shape[-1]]
        mixed = mixed.view(groups * shared, -1, to, values.shape[-1]).permute(1, 2, 0, 3).flatten(2)
        given = (mixed.flatten(0, 1) @ layer.block.w_o.flatten(0, 1)).view(*mixed.shape[:2], -1)
        state[rows, :to] = finished(place, given, state[rows, :to], rows)


def _few(place: Place, state: Tensor, rows: list[int]) -> Tensor:
    """A few rows through the last block: mixed first and projected then; `state` is spent."""
    layer, n = place.layer, place.n
    stream = state[rows]
    for sources in tiles_of(place):
        state[sources] = _read(place, state, sources)
    mixed = place.attention(rows) @ state.view(n, -1)  # [H, m, n·d]
    weight, bias = layer.block.projections()[2]
    by = by_head(layer, weight).transpose(0, 1)  # [H, d, d_h]
    values = mixed.view(layer.heads, -1, state.shape[-1]) @ by  # [H, m·n, d_h]
    if place.starts and place.rules.value_bias != "spread":
        kept = place.attention(rows)[..., None] * by_head(layer, bias)[:, None, None]
        values = values + kept.view_as(values)
    given = values.transpose(0, 1).flatten(1) @ layer.block.w_o.flatten(0, 1)
    return finished(place, given.view(len(rows), n, -1), stream, rows)
