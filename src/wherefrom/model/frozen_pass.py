r"""A pass whose way back is that of a linear map: what is not linear is frozen at its value in this very pass.

    norm          (t − mean t) ⊙ γ / s + β          s is a constant
    activation    z · r,   r = g(z) / z             r is a constant; at z = 0 its limit g'(0)
    product       a · b                             each side takes its share of what comes back

Three products of two signals stand in a block: q·k, α·v and gate · hidden units; with experts also router · expert.
Which share a side takes is what the methods differ in, and it is chosen on the way back (`Switch`): one pass serves
them all. The shares of q·k and of α·v come together in q, k and v, because the softmax between them is differentiated
as it is; hence they are taken where the projections give q, k and v, and so is the gate's, whatever a block's code
does afterwards (rotary positions, norms on q and k, groups of heads).

On the way forward the model computes what it always computes, bit by bit: instances are given other functions for the
length of the pass (wherefrom/model/undo.py), and no class is touched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from wherefrom.errors import Unsuited, UnsupportedModel
from wherefrom.model.matrices import Ruled, projections
from wherefrom.model.parts import Block, Linear, Norm, promote, unpacked
from wherefrom.model.undo import borrowed, computing_under, hook, hook_everywhere, stand_in

if TYPE_CHECKING:
    from wherefrom.model.model import Model

Elementwise = Callable[[Tensor], Tensor]
Average = Callable[[Elementwise, Tensor], Tensor]  # ∫₀¹ φ(t z) dt
Part = str | Callable[[int], Tensor]  # the side of a product that a projection gives; of packed ones, by the width
NOUGHT = 1e-5  # an activation that is further from 0 at 0 has no ratio
NEAR = 100  # how many times what it is at 0 an input must be for the ratio to be taken and not its limit
# Activations that heads and soft-caps call as functions. Those of modules are found among the modules.
ACTIVATIONS = {torch.tanh, Tensor.tanh, F.tanh, torch.relu, Tensor.relu, F.relu, F.gelu, F.silu, F.mish, F.elu}
SIGMOIDS = {torch.sigmoid, Tensor.sigmoid, F.sigmoid}
PRODUCTS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}
_LIMITS: dict[tuple[Hashable, torch.dtype], tuple[float, float]] = {}  # by kind of activation


class Shares(NamedTuple):
    """What each side of a product takes of what comes back to it."""

    query: float
    key: float
    value: float
    gate: float
    gated: float
    router: float
    routed: float  # of an expert


class Freezing(NamedTuple):
    """What must be known before the pass: how matrices share out what comes back (model/matrices.py)."""

    epsilon: float = 0.0
    gamma: float = 0.0


@dataclass
class Switch:
    """Says, while one goes back, which shares hold."""

    shares: Shares | None = None


# The way back ---------------------------------------------------------------------------------------------


class _Shared(torch.autograd.Function):
    """The same numbers; on the way back each column times its part's share."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, switch: Switch, part: Part) -> Tensor:
        ctx.switch, ctx.part = switch, part
        ctx.set_materialize_grads(False)
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        (g,), shares = given, ctx.switch.shares
        assert shares is not None
        if g is None:
            return None, None, None
        if isinstance(ctx.part, str):
            share = getattr(shares, ctx.part)
            return (g * share if share else None), None, None
        by_column = torch.tensor(shares, dtype=g.dtype)[ctx.part(g.shape[-1])]
        return g * by_column.to(g.device), None, None


class _Normed(torch.autograd.Function):
    """A norm with its scale frozen."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, own: Elementwise, norm: Norm) -> Tensor:
        ctx.norm, ctx.place = norm, t.device  # an offloaded or spread model's norm may move what it is given
        ctx.save_for_backward(norm.scale(promote(t)))
        return own(t)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        (g,), (scale,) = given, ctx.saved_tensors
        found = ctx.norm.centred(promote(g) * ctx.norm.to(g.device).gamma) / scale.to(g.device)
        return found.to(ctx.place, g.dtype), None, None


class _Activated(torch.autograd.Function):
    """An activation as a factor."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, own: Elementwise, limit: float, near: float) -> Tensor:
        found = own(z)
        ctx.save_for_backward((found / z).masked_fill_(z.abs() <= near, limit))
        return found

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        return given[0] * ctx.saved_tensors[0], None, None, None


class _Averaged(torch.autograd.Function):
    """φ(z) b by integrated gradients on the way from 0: Φ to b, (φ(z) − Φ) b / z to z, with Φ = ∫₀¹ φ(t z) dt."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, b: Tensor, activated: Tensor, mean: Tensor, found: Tensor) -> Tensor:
        ctx.save_for_backward(torch.where(z == 0, 0.0, (activated - mean) * b / z), mean)
        return found

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        to_z, to_b = ctx.saved_tensors
        return given[0] * to_z, given[0] * to_b, None, None, None


class _Frozen(TorchFunctionMode):
    """What is no module: activations that are called as functions, and the products inside of experts."""

    def __init__(self, switch: Switch, average: Average | None = None) -> None:
        super().__init__()
        self.switch = switch
        self.average = average
        self.among_experts = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        more = kwargs or {}
        # In the order of what is soonest said: every function of a pass comes by here.
        followed = func in ACTIVATIONS or (self.among_experts and (func in SIGMOIDS or func in PRODUCTS))
        if not followed or not torch.is_grad_enabled() or not _moving(args[:1]):
            return func(*args, **more)
        if func in ACTIVATIONS:
            return activated(partial(func, **more), args[0])
        if func in SIGMOIDS:
            return _marked(func(*args, **more), "sigmoid", args[0])
        return self._product(func, *args) if _moving(args) else func(*args, **more)

    def _product(self, func: Callable[..., Any], a: Tensor, b: Tensor) -> Tensor:
        """The gate is what an activation or a router gave; z · σ(cz) is itself an activation, σ its ratio."""
        first = _mark(a) is not None or a.shape[-1] < b.shape[-1]
        gate, gated = (a, b) if first else (b, a)
        if _mark(gate) == "sigmoid" and gate.shape == gated.shape:
            own = partial(_scaled, gate._wherefrom_of, gated)  # type: ignore[attr-defined]
            return _marked(func(gate.detach(), gated), "activation", (own, gated))
        parts = ("gate", "gated") if _mark(gate) == "activation" else ("router", "routed")
        if self.average is not None and parts[0] == "gate":
            return self._averaged(gate, gated, func(gate.detach(), gated.detach()))
        gate, gated = (_Shared.apply(t, self.switch, part) for t, part in zip((gate, gated), parts, strict=True))  # type: ignore[no-untyped-call]
        return func(gate, gated)  # type: ignore[no-any-return]

    def _averaged(self, gate: Tensor, gated: Tensor, found: Tensor) -> Tensor:
        assert self.average is not None
        own, z = gate._wherefrom_of  # type: ignore[attr-defined]
        averaged: Tensor = _Averaged.apply(z, gated, gate.detach(), self.average(own, z.detach()), found)  # type: ignore[no-untyped-call]
        return averaged


def _moving(args: tuple[Any, ...]) -> bool:
    """Whether all are tensors that depend on the input (or on weights that are being trained)."""
    return bool(args) and all(isinstance(each, Tensor) and each.requires_grad for each in args)


def _marked(t: Tensor, what: str, of: Any) -> Tensor:
    """With what it is, and of what: of a sigmoid its argument, of an activation the function and its argument."""
    t._wherefrom, t._wherefrom_of = what, of  # type: ignore[attr-defined]
    return t


def _scaled(argument: Tensor, z: Tensor, t: Tensor) -> Tensor:
    """`t σ(c t)` from the argument cz of the σ at z."""
    return t * torch.sigmoid(argument.detach() * (t / torch.where(z == 0, 1, z).detach()))


def _mark(t: Tensor) -> str | None:
    return getattr(t, "_wherefrom", None)


# Experts by themselves -----------------------------------------------------------------------------------


class Experts(NamedTuple):
    """An FFN of experts at what it reads, to be taken as the linear map that it is there, once frozen."""

    block: Block
    read: Tensor  # [..., d]
    shares: Shares
    average: Average | None = None  # for gates by integrated gradients; without it by their shares

    def back(self, g: Tensor) -> Tensor:
        """From a gradient at its output, or a stack of several, to one at what it reads: [..., d]."""

        def taken(leaf: Tensor, given: Tensor) -> Tensor:
            each = g.reshape(-1, *given.shape)
            found = [torch.autograd.grad(given, leaf, one, retain_graph=True)[0] for one in each]
            return torch.stack(found).reshape(g.shape)

        return self._within(self.read, taken)

    def along(self, parts: Tensor) -> Tensor:
        """What it makes of parts of what it reads, biases left out: [..., d] -> [..., d]."""

        def taken(leaf: Tensor, given: Tensor) -> Tensor:
            start = torch.zeros_like(given, requires_grad=True)
            (back,) = torch.autograd.grad(given, leaf, start, create_graph=True)  # linear in `start`
            return torch.autograd.grad(back, start, parts)[0]

        return self._within(self.read.expand_as(parts), taken)

    def _within(self, read: Tensor, body: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        def run() -> Tensor:
            mode = _Frozen(Switch(self.shares), self.average)
            mode.among_experts = True
            for each in self.block.experts:
                for module in filter(_is_activation, each.modules()):
                    _replace(module, lambda t: _moving((t,)), activated)
            computing_under(mode)
            with torch.enable_grad():
                leaf = read.detach().requires_grad_()
                return body(leaf, self.block.ffn(leaf))

        return borrowed(run)


# What stands where ----------------------------------------------------------------------------------------


def freeze(opened: Model, switch: Switch, how: Freezing) -> None:
    """Inside of `borrowed`: until its end, passes of this model in this thread leave a frozen graph."""
    thread = threading.get_ident()  # stand-ins sit on the module, for all threads
    mode = _Frozen(switch)

    def mine(t: Any) -> bool:
        return threading.get_ident() == thread and torch.is_grad_enabled() and _moving((t,))

    for module, norm in opened.norms:
        _replace(module, mine, partial(_normed, norm))
    known = list(_activations(opened))
    for module in known:
        _replace(module, mine, activated)
    hook_everywhere(partial(_made_on_the_way, mine, {*map(id, known)}))
    for block in opened.blocks:
        for module, linear in projections(block) if any(how) else []:
            _replace(module, mine, partial(_ruled, linear, how))
        for path, part in _products(block):
            hook(block.part(path), partial(_share, mine, switch, part))
        for module in block.experts if block.opaque else ():
            _watch(module, mode)
    computing_under(mode)


def _replace(module: nn.Module, mine: Callable[[Any], bool], instead: Callable[[Elementwise, Tensor], Tensor]) -> None:
    own = module.forward
    stand_in(module, lambda t, *more: instead(own, t) if mine(t) else own(t, *more))


def _made_on_the_way(
    mine: Callable[[Any], bool], known: set[int], module: nn.Module, args: tuple[Any, ...], _output: Any
) -> Tensor | None:
    """The heads of BigBird and RoFormer make their activation anew in every pass."""
    if not _is_activation(module) or id(module) in known or not args or not mine(args[0]):
        return None
    return activated(module.forward, args[0])


def _share(mine: Callable[[Any], bool], switch: Switch, part: Part, _module: Any, _args: Any, output: Any) -> Any:
    return _Shared.apply(output, switch, part) if mine(output) else None  # type: ignore[no-untyped-call]


def _watch(experts: nn.Module, mode: _Frozen) -> None:
    own = experts.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        mode.among_experts = True
        try:
            return own(*args, **kwargs)
        finally:
            mode.among_experts = False

    stand_in(experts, forward)


def _normed(norm: Norm | UnsupportedModel, own: Elementwise, t: Tensor) -> Tensor:
    if isinstance(norm, UnsupportedModel):  # which matters only now that it runs
        raise UnsupportedModel(str(norm))
    found: Tensor = _Normed.apply(t, own, norm)  # type: ignore[no-untyped-call]
    return found


def _ruled(linear: Linear, how: Freezing, own: Elementwise, t: Tensor) -> Tensor:
    found: Tensor = Ruled.apply(t, own, linear, *how)  # type: ignore[no-untyped-call]
    return found


def activated(own: Elementwise, z: Tensor) -> Tensor:
    """`own(z)`, frozen."""
    found: Tensor = _Activated.apply(z, own, *_limit(own, z))  # type: ignore[no-untyped-call]
    return _marked(found, "activation", (own, z))


def _activations(opened: Model) -> Iterator[nn.Module]:
    """Those of the FFNs, and every other module that is known for one."""
    found = {id(module): module for module in opened.model.modules() if _is_activation(module)}
    for block in opened.blocks:
        if block.family.ffn.activation and isinstance(part := block.part(block.family.ffn.activation), nn.Module):
            found[id(part)] = part
    yield from found.values()


def freezable(block: Block) -> bool:
    """Whether the activation of its FFN is a module or one of torch's own, which can be followed where it is called."""
    path = block.family.ffn.activation
    return not path or isinstance(part := block.part(path), nn.Module) or part in ACTIVATIONS


def _is_activation(module: nn.Module) -> bool:
    known = type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation")
    return known and not isinstance(module, nn.MultiheadAttention | nn.Sigmoid | nn.Softmax | nn.LogSoftmax)


def _limit(own: Elementwise, z: Tensor) -> tuple[float, float]:
    """The limit of g(z) / z at 0, which is g'(0), and how near to 0 it stands for the ratio.

    Tried once for all activations that are alike: to look at it means to wait for the device.
    """
    kind = _kind(own)
    if kind is None:
        return _tried(own, z)
    if (kind, z.dtype) not in _LIMITS:
        _LIMITS[kind, z.dtype] = _tried(own, z)
    return _LIMITS[kind, z.dtype]


def _kind(own: Elementwise) -> Hashable | None:
    """What makes two activations the same function: class and settings; None where one learns, or cannot be told."""
    module = getattr(own, "__self__", None)
    if isinstance(own, partial):
        found: tuple[Any, ...] = (own.func, own.args, *sorted(own.keywords.items()))
    elif isinstance(module, nn.Module) and not [*module.parameters(), *module.buffers()]:
        settings = [
            (k, v) for k, v in vars(module).items() if not k.startswith("_") and k not in ("training", "forward")
        ]
        found = (type(module), own.__name__, *settings)
    else:
        return None
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _tried(own: Elementwise, z: Tensor) -> tuple[float, float]:
    with torch.enable_grad():
        zero = z.new_zeros(1, requires_grad=True)
        found = own(zero)
        (slope,) = torch.autograd.grad(found, zero)
    if abs(there := found.item()) > NOUGHT:
        raise Unsuited(f"{_named(own)} is {there:.3g} at 0, so that it is no factor times its input near 0")
    return slope.item(), max(torch.finfo(z.dtype).eps, NEAR * abs(there))  # xIELU is 1e-6 at 0


def _named(own: Any) -> str:
    return type(getattr(own, "__self__", own)).__name__


def _products(block: Block) -> Iterator[tuple[str, Part]]:
    """The projections that give the sides of a block's products, and which sides these are."""
    attention, ffn = block.family.attention, block.family.ffn
    if attention.packed:
        yield attention.query, partial(_packed, block)
    else:
        yield from ((attention.query, "query"), (attention.key, "key"), (attention.value, "value"))
    if ffn.gate:
        yield from ((ffn.gate, "gate"), (ffn.up, "gated"))
    elif ffn.packed:
        yield ffn.up, partial(_halves, ("gate", "gated") if ffn.packed == "gate-up" else ("gated", "gate"))


def _packed(block: Block, width: int) -> Tensor:
    """Which of query, key and value each column of one projection is."""
    found = torch.empty(width, dtype=torch.long)
    for columns, number in zip(unpacked(torch.arange(width), block), _numbers(("query", "key", "value")), strict=True):
        found[columns.flatten()] = number
    return found


def _halves(parts: tuple[str, str], width: int) -> Tensor:
    return _numbers(parts).repeat_interleave(width // 2)


def _numbers(parts: tuple[str, ...]) -> Tensor:
    return torch.tensor([Shares._fields.index(part) for part in parts])
