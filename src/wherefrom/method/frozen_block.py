r"""A block with everything that is not linear frozen at its value in the real pass, and the way back through it.

    attention    α is a constant                       Σ_h Σ_j α^h_ij W_O^h W_V^h x_j
    norm         its scale is a constant               γ ⊙ (t − mean t) / s
    activation   φ(ζ) = θ ⊙ ζ, θ = φ(ζ) / ζ            "zero-origin", with φ'(0) at ζ = 0
                 φ(ζ) = m ⊙ ζ + c, m = φ'(ζ)           "linear": the tangent; its intercept c belongs to no input
                 θ = [ζ > 0]                           "relu", whatever the activation is: it does not add up
    gate         φ(a) ⊙ b = A ⊙ a + B ⊙ b
                 A = ½ θ b, B = ½ φ(a)                 "half"
                 A = 0, B = φ(a)                       "gate": the gate is a constant
                 A = (φ(a) − Φ) b / a, B = Φ           "integrated", Φ = ∫₀¹ φ(t a) dt: gradients on the way from 0

    experts      router and chosen experts are constants, each expert's gate as above

What is left is linear in the block's input but for its biases. So one vector can be taken back through it (here), or
the parts of its input forward (`decomposition.py`). Nothing grows by a division: θ, m and Φ are as tame as φ'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wherefrom.errors import Unsuited
from wherefrom.model.frozen_pass import Experts, Shares

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace
    from wherefrom.model.parts import Block, Norm

Approximation = Literal["zero-origin", "linear", "relu"]
Gate = Literal["half", "gate", "integrated"]
Norms = Literal["both", "first", "second", "none"]  # which of the norms on the stream (BERT's) are taken part in
NODES = 16  # of Gauss–Legendre, for Φ


def ratio(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """φ(z) / z; a quotient of two small numbers keeps all its digits, only 0 / 0 has none."""
    zero = z == 0
    if not bool(zero.any()):
        return function(z) / z
    return torch.where(zero, slope(function, torch.zeros_like(z)), function(z) / torch.where(zero, 1, z))


def slope(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """φ'(z)."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        (found,) = torch.autograd.grad(function(z).sum(), z)
    return found


def linearised(function: Callable[[Tensor], Tensor], z: Tensor, way: Approximation) -> tuple[Tensor, Tensor | None]:
    """The factor on ζ, and what is left over."""
    if way == "relu":
        return (z > 0).to(z), None
    if way == "zero-origin":
        return ratio(function, z), None
    factor = slope(function, z)
    return factor, function(z) - factor * z


def mean_activation(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """Φ(z) = ∫₀¹ φ(t z) dt."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    total = torch.zeros_like(z)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        total += 0.5 * weight * function(z * (0.5 + 0.5 * node))
    return total


# One block ------------------------------------------------------------------------------------------------


class Hidden(NamedTuple):
    """The FFN's hidden units as h = up ⊙ W_up t + gate ⊙ W_gate t + rest, t being what the FFN reads."""

    up: Tensor  # [..., f]
    gate: Tensor | None
    rest: Tensor | None


def hidden(block: Block, t: Tensor, way: Approximation, gate: Gate) -> Hidden:
    act, up = block.activation, block.ffn_in(t)
    if block.ffn_gate is None:
        factor, rest = linearised(act, up, way)
        return Hidden(factor, None, rest)
    a = block.ffn_gate(t)
    if gate == "gate":
        return Hidden(act(a), None, None)
    if gate == "integrated":
        mean = mean_activation(act, a)
        zero = a == 0
        left = torch.where(zero, slope(act, torch.zeros_like(a)) / 2, (act(a) - mean) / torch.where(zero, 1, a))
        return Hidden(mean, up * left, None)
    factor, rest = linearised(act, a, way)
    return Hidden(act(a) / 2, factor * up / 2, None if rest is None else rest * up / 2)


def experts(block: Block, t: Tensor, how: Freeze) -> Experts:
    """The same of an FFN of experts: no hidden units, since which there are is for the router to say."""
    if how.activation != "zero-origin":
        raise Unsuited(
            f"activation='{how.activation}' is a rule for hidden units, which experts keep to themselves; leave it out"
        )
    up = 0.5 if how.gate == "half" else 1.0
    shares = Shares(query=0, key=0, value=1, gate=1 - up, gated=up, router=0, routed=1)
    return Experts(block, t, shares, mean_activation if how.gate == "integrated" else None)


class Freeze(NamedTuple):
    """How a block is made linear."""

    ffn: bool = True
    activation: Approximation = "zero-origin"
    gate: Gate = "half"
    norms: Norms = "both"


class Frozen(NamedTuple):
    """The constants of one block at some of its tokens, [..., 1] each but the last."""

    post: Tensor | None  # the scale of the norm on the stream after attention
    after: Tensor | None  # of the norm on attention's branch
    read: Tensor | None  # of the norm before the FFN
    fed: Tensor | None  # of the norm on the FFN's branch
    last: Tensor | None  # of the norm on the stream after the FFN
    hidden: Hidden | Experts | None


def frozen(layer: LayerTrace, how: Freeze, pick: Callable[[Tensor], Tensor]) -> Frozen:
    """The constants at the tokens that `pick` takes of [B, n, …]."""
    block = layer.block
    u = pick(layer.u)
    y = u if block.post is None else block.post(u)
    t = pick(layer.x) if block.parallel else y
    read = t if block.ffn_before is None else block.ffn_before(t)
    units: Hidden | Experts | None = None
    if how.ffn:
        units = experts(block, read, how) if block.opaque else hidden(block, read, how.activation, how.gate)
    return Frozen(
        None if block.post is None or how.norms in ("second", "none") else block.post.scale(u),
        None if block.after is None else pick(layer.branch_scale),
        None if block.ffn_before is None else block.ffn_before.scale(t),
        None if block.ffn_after is None or not how.ffn else block.ffn_after.scale(block.ffn(read)),
        None if block.ffn_post is None or how.norms in ("first", "none") else block.ffn_post.scale(pick(layer.w)),
        units,
    )


# Back through it ------------------------------------------------------------------------------------------


class Arrived(NamedTuple):
    """What of an output's gradient arrives at a block's input, past attention and through its values."""

    stream: Tensor  # at the tokens picked: [..., B, m, d]
    value: Tensor  # [..., B, H, n, d_h]


def norm_back(norm: Norm | None, scale: Tensor | None, g: Tensor) -> Tensor:
    """The transpose of γ ⊙ (t − mean t) / s."""
    return g if norm is None or scale is None else norm.centred(g * norm.gamma / scale)


def back(layer: LayerTrace, g: Tensor, how: Freeze, rows: Tensor | None = None) -> Arrived:
    """From the block's output, where `g` stands at `rows` [B, m] (None: at all tokens), to its input.

    At all tokens `g` may be a stack of several, [K, B, n, d].
    """

    def pick(t: Tensor) -> Tensor:
        return t if rows is None else t[torch.arange(len(t), device=t.device)[:, None], rows]

    block, at = layer.block, frozen(layer, how, pick)
    g = norm_back(block.ffn_post, at.last, g)
    fed = norm_back(block.ffn_before, at.read, _ffn_back(block, at, g)) if at.hidden is not None else None
    if fed is not None and not block.parallel:
        g = g + fed
    g = norm_back(block.post, at.post, g)
    through = norm_back(block.after, at.after, g) @ block.w_o.flatten(0, 1).T
    through = through.unflatten(-1, (layer.heads, -1)).transpose(-3, -2)  # type: ignore[no-untyped-call]
    attention = layer.attention if rows is None else pick(layer.attention.transpose(1, 2)).transpose(1, 2)
    return Arrived(g + fed if fed is not None and block.parallel else g, attention.mT @ through)


def _ffn_back(block: Block, at: Frozen, g: Tensor) -> Tensor:
    assert at.hidden is not None
    g = norm_back(block.ffn_after, at.fed, g)
    if isinstance(at.hidden, Experts):
        return at.hidden.back(g)
    up, gate, _ = at.hidden
    units = g @ block.ffn_out.weight.T
    through_gate = None
    if gate is not None and block.ffn_gate is not None:
        through_gate = (units * gate) @ block.ffn_gate.weight.T
    found: Tensor = units.mul_(up) @ block.ffn_in.weight.T
    return found if through_gate is None else found.add_(through_gate)


def at_input(layer: LayerTrace, arrived: Arrived, rows: Tensor | None = None) -> Tensor:
    """The gradient at the block's input: [..., B, n, d]."""
    block, heads = layer.block, layer.heads // layer.block.groups
    value = arrived.value
    if heads > 1:  # heads that share their values
        value = value.unflatten(-3, (-1, heads)).sum(-3)  # type: ignore[no-untyped-call]
    weight = block.projections()[2].weight
    g = value.transpose(-3, -2).flatten(-2) @ weight.T
    if block.before is not None:
        g = norm_back(block.before, block.before.scale(layer.x), g)
    return g + whole(arrived.stream, rows, layer.x.shape[1])


def whole(t: Tensor, rows: Tensor | None, n: int) -> Tensor:
    """What stands at some rows [B, m, …] among n rows of zeros; what meets in one row adds up."""
    if rows is None:
        return t
    found = t.new_zeros(len(t), n, *t.shape[2:])
    index: Any = (torch.arange(len(t), device=t.device)[:, None].expand_as(rows), rows)
    return found.index_put_(index, t, accumulate=True)
