"""One Transformer block, taken apart into the matrices of the papers.

Vectors are rows, as in the papers: a linear map is `x @ W + b`, whatever the module stores. For one block

    u_i = x_i + P(Σ_h Σ_j α^h_ij v^h_j W_O^h + b_O)        P: the norm on the branch, in most blocks absent

and then what works token by token, F the FFN with its norms before and after:

    post-norm (BERT)          y = LN1(u),  w = y + F(y),  o = LN2(w)
    pre-norm (GPT-2, Llama)   o = w = u + F(u)
    parallel (GPT-NeoX)       o = w = u + F(x)

A norm is known by what it does, not by its class (`norm_of`). P is linear once its scale is known, so a block's
`w_c` is W_O seen through it: what a head's value adds to the stream is v W_C, divided by the scale of P.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from wherefrom.errors import UnsupportedModel
from wherefrom.model.double_casts import computing_in_double
from wherefrom.model.kept import Matrix, kept
from wherefrom.model.layout import Family
from wherefrom.model.linear import Linear as Linear
from wherefrom.model.linear import device_of, present, sizes, stored
from wherefrom.model.linear import linear_of as linear_of
from wherefrom.model.linear import promote as promote
from wherefrom.model.norm import Norm as Norm
from wherefrom.model.norm import norm_of as norm_of
from wherefrom.model.undo import borrowed, routing_eagerly, without_gradients

T = TypeVar("T")
NORMS = ("before", "after", "post", "ffn_before", "ffn_after", "ffn_post")  # of a `Block`
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
}


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of one block under the names of the papers, float32 or float64."""

    module: nn.Module
    family: Family
    heads: int
    reader: Block | Any = None  # what reads the output: the next block, or the norm after the last

    def part(self, path: str) -> Any:
        path, _, function = path.partition(":")
        found = submodule(self.module, path)
        return attrgetter(function)(sys.modules[type(found).__module__]) if function else found

    @property
    def first(self) -> nn.Module:
        """What runs first in it: the block itself, or of parts that are no module together the first."""
        if self.family.begins:
            found: nn.Module = self.part(self.family.begins)
            return found
        return self.module[0] if isinstance(self.module, nn.ModuleList) else self.module

    @property
    def last(self) -> nn.Module:
        """What gives its output."""
        return self.module[-1] if isinstance(self.module, nn.ModuleList) else self.module

    @property
    def scaling(self) -> float:
        """What q·k is multiplied with in all, of the attention modules that say so."""
        return float(self.part(self.family.attention.query.rpartition(".")[0]).scaling)

    # The shape ----------------------------------------------------------------------------------------------

    @property
    def parallel(self) -> bool:
        """Whether the FFN reads the block's input rather than what attention made of it."""
        return self.family.parallel

    @property
    def gated(self) -> bool:
        return bool(self.family.ffn.gate or self.family.ffn.packed)

    @property
    def opaque(self) -> bool:
        """Whether the FFN is a module and no matrices (experts)."""
        return self.feeds and not self.family.ffn.up

    @property
    def feeds(self) -> bool:
        """Whether it has an FFN: not in the first of the two steps of a decoder's block that reads an encoder."""
        return bool(self.family.ffn.up or self.family.ffn.module)

    @property
    def latent(self) -> bool:
        """Whether values are no linear map of what attention reads."""
        return not self.family.attention.value

    @kept
    def half(self) -> bool:
        """Whether its weights have half precision."""
        return any(weight.dtype in (torch.bfloat16, torch.float16) for weight in self.module.parameters())

    @kept
    def groups(self) -> int:
        """Heads of keys and values, each of which serves as many of the queries' heads; seen from the matrices."""
        attention = self.family.attention
        if self.latent:
            return self.heads
        width = sizes(self.part(attention.output))[0] // self.heads
        count = sizes(self.part(attention.value))[1] // width
        return (count - self.heads) // 2 if attention.packed else count  # packed: H queries, G keys and G values

    @kept
    def multiplier(self) -> float:
        """What multiplies both branches."""
        return float(getattr(self.module, self.family.multiplier)) if self.family.multiplier else 1.0

    @kept
    def factor(self) -> Tensor | float:
        """What multiplies what attention gives: a number, or one for each component (DINOv2)."""
        return self._factor(self.family.attention.scale)

    @kept
    def ffn_factor(self) -> Tensor | float:
        """What multiplies what the FFN gives."""
        return self._factor(self.family.ffn.scale)

    def _factor(self, path: str) -> Tensor | float:
        own = self.part(path) if path else 1.0
        return self.multiplier * (promote(own.detach()) if isinstance(own, Tensor) else float(own))

    @property
    def scaled(self) -> bool:
        """Whether its branches are multiplied by something."""
        return any(isinstance(each, Tensor) or each != 1 for each in (self.factor, self.ffn_factor))

    @kept
    def device(self) -> torch.device:
        """Where the block computes: those of one model may be on several devices."""
        return device_of(self.module)

    # The norms ----------------------------------------------------------------------------------------------

    def _norm(self, path: str, factor: Tensor | float = 1.0) -> Norm | None:
        if not path:
            return None
        found = norm_of(self.part(path), sizes(self.part(self.family.attention.output))[1])
        return None if found is None else found.to(self.device).times(factor)

    @kept
    def before(self) -> Norm | None:
        """What attention reads the stream through."""
        return self._norm(self.family.attention.norm)

    @kept
    def after(self) -> Norm | None:
        """The norm on what attention gives."""
        return self._norm(self.family.attention.after, self.factor)

    @kept
    def post(self) -> Norm | None:
        """The norm on the stream after attention."""
        return self._norm(self.family.attention.post)

    @kept
    def ffn_before(self) -> Norm | None:
        return self._norm(self.family.ffn.norm)

    @kept
    def ffn_after(self) -> Norm | None:
        return self._norm(self.family.ffn.after, self.ffn_factor)

    @kept
    def ffn_post(self) -> Norm | None:
        return self._norm(self.family.ffn.post)

    @property
    def first_norm(self) -> Norm | None:
        """The norm that u meets first: LN1 in BERT, the FFN's own in GPT-2; in a parallel block the next reader's."""
        if self.parallel:
            return self.next_norm
        return self.post or (self.ffn_before if self.feeds else self.next_norm)

    @property
    def next_norm(self) -> Norm | None:
        """The norm that the block's output meets first, on the block's own device."""
        norm: Norm | None = self.reader.before if isinstance(self.reader, Block) else self.reader
        return None if norm is None else norm.to(self.device)

    @property
    def norm_first(self) -> bool:
        return self.post is None

    @property
    def norm1(self) -> Norm:
        """The norm that belongs to attention, where there is one before it or one on the stream after it."""
        return _there(self.before if self.norm_first else self.post)

    @property
    def norm2(self) -> Norm:
        """The norm that belongs to the FFN."""
        return _there(self.ffn_before if self.norm_first else self.ffn_post)

    # Attention ----------------------------------------------------------------------------------------------

    @Matrix
    def w_q(self) -> Tensor:
        """W_Q by head: [H, d, d_h]."""
        return self._by_head(self.projections()[0].weight, self.heads)

    @Matrix
    def w_k(self) -> Tensor:
        """W_K by head, once for each head that it serves."""
        return self._by_head(self.projections()[1].weight, self.groups)

    @Matrix
    def w_v(self) -> Tensor:
        return self._by_head(self.projections()[2].weight, self.groups)

    def _by_head(self, weight: Tensor, count: int) -> Tensor:
        found = weight.reshape(weight.shape[0], count, -1).transpose(0, 1)
        return found.repeat_interleave(self.heads // count, 0)

    def projections(self) -> list[Linear]:
        """W_Q, W_K and W_V with their biases, the heads side by side."""
        paths = self.family.attention
        if not paths.packed:
            return [linear_of(self.part(path)) for path in (paths.query, paths.key, paths.value)]
        weight, bias = linear_of(self.part(paths.query))
        parts = zip(unpacked(weight, self), unpacked(bias, self), strict=True)
        found = [Linear(w.flatten(-2), b.flatten(-2)) for w, b in parts]
        if paths.value_bias:
            found[2] = Linear(found[2].weight, found[2].bias + promote(self.value_bias()))
        return found

    def value_bias(self) -> Tensor:
        """A bias of the values that is no part of their projection."""
        path = self.family.attention.value_bias
        found: Tensor = present(self.part(path.rpartition(".")[0]), lambda: self.part(path).detach())
        return found

    def output(self) -> Linear:
        """W_O and b_O, the heads one below the other; what multiplies the branch is in them, or in the norm on it."""
        found = linear_of(self.part(self.family.attention.output))
        return found.times(self.factor) if self.after is None else found

    @Matrix
    def w_o(self) -> Tensor:
        """W_O by head: [H, d_h, d]."""
        weight = self.output().weight
        return weight.reshape(self.heads, -1, weight.shape[1])

    @kept
    def b_o(self) -> Tensor:
        return self.output().bias

    @Matrix
    def w_c(self) -> Tensor:
        """W_O by head as the stream sees it, through the norm on the branch but for its scale: [H, d_h, d]."""
        return self.w_o if self.after is None else self.after.linear(self.w_o)

    def w_c_in(self, dtype: torch.dtype) -> Tensor:
        """W_C in a dtype: the model's own memory, where it has it so."""
        own = self._stored_w_c
        return self.w_c.to(dtype) if own is None or own.dtype != dtype else own

    @kept
    def seen_w_c(self) -> dict[str, Tensor]:
        """W_C through the norms that what tokens give meets on its way, by the name of the view: method/accelerated.py
        fills it."""
        return {}

    @kept
    def _stored_w_c(self) -> Tensor | None:
        """W_C as the module itself keeps it; None where that is another matrix, or no memory of its own."""
        found = stored(self.part(self.family.attention.output))
        bare = self.after is None and not self.scaled
        return found.view(self.heads, -1, found.shape[1]) if bare and found is not None else None

    # The FFN ------------------------------------------------------------------------------------------------

    @Matrix
    def ffn_in(self) -> Linear:
        """Into the hidden units; in a gated FFN those that the gate is multiplied with."""
        found = linear_of(self.part(self.family.ffn.up))
        return self._halves(found)[1] if self.family.ffn.packed else found

    @Matrix
    def ffn_gate(self) -> Linear | None:
        """Into the gate, on which the activation acts."""
        ffn = self.family.ffn
        if ffn.packed:
            return self._halves(linear_of(self.part(ffn.up)))[0]
        return linear_of(self.part(ffn.gate)) if ffn.gate else None

    def _halves(self, both: Linear) -> list[Linear]:
        """The gate's half first."""
        found = [Linear(*half) for half in zip(both.weight.chunk(2, 1), both.bias.chunk(2), strict=True)]
        return found if self.family.ffn.packed == "gate-up" else found[::-1]

    @Matrix
    def ffn_out(self) -> Linear:
        found = linear_of(self.part(self.family.ffn.down))
        return found.times(self.ffn_factor) if self.ffn_after is None else found

    @property
    def units(self) -> int:
        """How many hidden units the FFN has; of experts, as many as have their weights."""
        if not self.opaque:
            return int(self.ffn_in.weight.shape[1]) if self.feeds else 0
        weights = sum(weight.numel() for module in self.experts for weight in module.parameters())
        return int(weights // (2 * self.w_o.shape[-1]))

    def activation(self, t: Tensor) -> Tensor:
        result: Tensor = self.part(self.family.ffn.activation)(t)
        return result

    @kept
    def activation_name(self) -> str | None:
        """Which of the usual ones it is, by what it does; None if it is none of them."""
        t = torch.linspace(-6, 6, 49, device=self.device)
        given = without_gradients(lambda: promote(self.activation(t)))
        close = (name for name, usual in ACTIVATIONS.items() if bool((usual(t) - given).abs().max() <= 1e-5))
        return next(close, None)

    def ffn(self, h: Tensor) -> Tensor:
        """What the FFN makes of what it is given, without its norms."""
        if self.opaque:
            return self._experts(h)
        hidden = self.ffn_in(h)
        gate = self.ffn_gate
        return self.ffn_out(self.activation(hidden) if gate is None else self.activation(gate(h)) * hidden)

    @property
    def experts(self) -> list[nn.Module]:
        """The modules that an FFN is the sum of, where it is not made of matrices."""
        return [self.part(path) for path in self.family.ffn.module.split(" + ")]

    def _experts(self, h: Tensor) -> Tensor:
        def run(module: nn.Module) -> Tensor:
            routing_eagerly(module)
            own = next(module.parameters()).dtype
            if own == torch.float64:  # routers take their softmax in float32
                computing_in_double(module)
            # Routers flatten what they are given and say how it was shaped: three axes, whatever the caller has.
            found = module(h.to(own).reshape(1, -1, h.shape[-1]))
            given: Tensor = found[0] if isinstance(found, tuple) else found
            return given.reshape(h.shape).to(h.dtype)

        parts = [borrowed(partial(run, module)) for module in self.experts]
        given = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
        return given * self.ffn_factor if self.ffn_after is None else given

    def feed(self, t: Tensor) -> Tensor:
        """F: what the FFN adds to the stream, its norms before and after included."""
        given = self.ffn(t if self.ffn_before is None else self.ffn_before(t))
        return given if self.ffn_after is None else self.ffn_after(given)

    # The whole ----------------------------------------------------------------------------------------------

    def source(self, x: Tensor) -> Tensor:
        """What attention reads."""
        return x if self.before is None else self.before(x)

    def attended(self, attention: Tensor, value: Tensor) -> Tensor:
        """What attention gives, before any norm on its branch: [B, H, n, n] and [B, H, n, d_h] -> [B, n, d]."""
        return (attention @ value).transpose(1, 2).flatten(2) @ self.w_o.flatten(0, 1) + self.b_o

    def carry(self, value: Tensor) -> Tensor:
        """`f^h_j = v^h_j W_C^h`, the value carried through its head's slice of W_C: [B,H,n,d_h] -> [B,H,n,d]."""
        return torch.einsum("bhjk,hkd->bhjd", value, self.w_c)

    def merge(self, z: Tensor) -> Tensor:
        """The heads' outputs through W_C: [B, H, n, d_h] -> [B, n, d]."""
        return z.transpose(1, 2).flatten(2) @ self.w_c.flatten(-3, -2)

    def mix(self, x: Tensor, attention: Tensor, value: Tensor) -> Tensor:
        """`u`: the residual stream after attention."""
        given = self.attended(attention, value)
        return x + (given if self.after is None else self.after(given))

    def joined(self, x: Tensor, added: Tensor) -> Tensor:
        """The same from what attention, and any norm on its branch, did give."""
        return x.to(added.device) + (added * self.factor if self.scaled else added)

    def finish(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        """`o`: what the block makes of `u`, token by token; in a parallel block also of its input x."""
        y = u if self.post is None else self.post(u)
        if self.parallel and x is None:
            raise ValueError("the FFN of a parallel block reads the block's input; give it too")
        if not self.feeds:
            return y
        w = y + self.feed(x if self.parallel and x is not None else y)
        return w if self.ffn_post is None else self.ffn_post(w)


def derivative(function: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    """That of a function which acts on each number alone, an activation."""
    with torch.enable_grad():
        t = t.detach().requires_grad_()
        (found,) = torch.autograd.grad(function(t).sum(), t)
    return found


def _there(norm: Norm | None) -> Norm:
    assert norm is not None  # asked for of blocks like BERT's and GPT-2's alone: method/needs.py
    return norm


def unpacked(t: Tensor, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values out of one projection's last axis: [..., H, d_h] and twice [..., G, d_h]."""
    heads, groups, packed = block.heads, block.groups, block.family.attention.packed
    size = t.shape[-1] // (heads + 2 * groups)
    if packed == "by-head":  # (q, k, v) of head 0, of head 1, …
        each = t.view(*t.shape[:-1], heads, 3, size)
        return each[..., 0, :], each[..., 1, :], each[..., 2, :]
    if packed == "by-group":  # the queries of group 0, its key, its value, …
        each = t.view(*t.shape[:-1], groups, heads // groups + 2, size)
        return each[..., :-2, :].flatten(-3, -2), each[..., -2, :], each[..., -1, :]
    if packed == "by-quarter":
        each = t.view(*t.shape[:-1], 4, 3, heads // 4, size)
        q, v, k = (each[..., i, :, :].flatten(-3, -2) for i in range(3))
        return q, k, v
    each = t.view(*t.shape[:-1], heads + 2 * groups, size)
    return each[..., :heads, :], each[..., heads : heads + groups, :], each[..., heads + groups :, :]


def submodule(root: nn.Module, path: str) -> Any:
    """The part of a module at a dotted path (activations may be plain functions, hence Any)."""
    part: Any = root
    for name in path.split("."):
        try:
            part = original(part[int(name)] if name.isdigit() else getattr(part, name))
        except (AttributeError, IndexError, TypeError):
            raise UnsupportedModel(
                f"{type(root).__name__} has no part '{path}'; its structure is not the one wherefrom knows for "
                f"this architecture"
            ) from None
    return part


def original(part: Any) -> Any:
    """What torch.compile was given; anything else as it is."""
    return getattr(part, "_orig_mod", part)


def submodules(root: nn.Module, path: str) -> list[nn.Module]:
    """All parts that match a path in which `*` stands for every index of a list; of several paths, side by side."""
    paths = path.split()
    if len(paths) > 1:
        return [nn.ModuleList(each) for each in zip(*(submodules(root, path) for path in paths), strict=True)]
    parts: list[nn.Module] = [root]
    for name in path.split("."):
        if name == "*":
            parts = [original(child) for part in parts for child in part.children()]
        else:
            parts = [submodule(part, name) for part in parts]
    return parts
