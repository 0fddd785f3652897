"""One Transformer block, taken apart into the matrices of the papers.

Vectors are rows, as in the papers: a linear map is `x @ W + b`, whatever the module stores. For one block

    u_i = x_i + Σ_h Σ_j α^h_ij v^h_j W_O^h + b_O

and then, post-norm (BERT):   y = LN1(u),  w = y + FFN(y),  o = LN2(w)
      or, pre-norm (GPT-2):   o = w = u + FFN(LN2(u)),  with v and α computed from LN1(x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from wherefrom.errors import UnsupportedModel
from wherefrom.model.families import Family
from wherefrom.model.undo import outside_inference_mode

T = TypeVar("T")


def promote(t: Tensor) -> Tensor:
    """Half-precision tensors as float32: every formula is evaluated in float32 or float64."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


class Linear(NamedTuple):
    """`x @ weight + bias`."""

    weight: Tensor  # [in, out]
    bias: Tensor  # [out]

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Norm(NamedTuple):
    """LayerNorm, `LN(t) = (t − mean t) / s(t) ⊙ γ + β`, in the pieces that the decompositions need."""

    gamma: Tensor
    beta: Tensor
    eps: float

    def centred(self, t: Tensor) -> Tensor:
        return t - t.mean(-1, keepdim=True)

    def scale(self, t: Tensor) -> Tensor:
        """`s(t) = sqrt(var(t) + ε)` with the biased variance: [..., d] -> [..., 1]."""
        # Twenty times as fast as torch.var, which takes its sums one by one.
        return (self.centred(t).square().mean(-1, keepdim=True) + self.eps).sqrt()

    def linear(self, t: Tensor) -> Tensor:
        """`(t − mean t) ⊙ γ`: what LN does to a part of its input, before the division by s of the whole."""
        return self.centred(t) * self.gamma

    def __call__(self, t: Tensor) -> Tensor:
        return self.linear(t) / self.scale(t) + self.beta


def _kept(read: Callable[[Any], T]) -> cached_property[T]:
    """Read once and kept with the model: never as an inference tensor, of no use to any gradient later."""
    return cached_property(lambda block: outside_inference_mode(partial(read, block)))


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of one block under the names of the papers, float32 or float64."""

    module: nn.Module
    family: Family
    heads: int

    def part(self, path: str) -> Any:
        return submodule(self.module, path)

    @property
    def norm_first(self) -> bool:
        return self.family.norm_first

    @_kept
    def norm1(self) -> Norm:
        return _norm(self.part(self.family.norm1))

    @_kept
    def norm2(self) -> Norm:
        return _norm(self.part(self.family.norm2))

    @_kept
    def w_q(self) -> Tensor:
        """W_Q by head: [H, d, d_h]."""
        return self._projection(self.family.query, 0)

    @_kept
    def w_k(self) -> Tensor:
        return self._projection(self.family.key, 1)

    @_kept
    def w_v(self) -> Tensor:
        return self._projection(self.family.value, 2)

    def _projection(self, path: str, third: int) -> Tensor:
        weight = linear_of(self.part(path)).weight
        if self.family.fused_qkv:
            weight = weight.chunk(3, dim=1)[third]
        return weight.reshape(weight.shape[0], self.heads, -1).transpose(0, 1)

    def projections(self) -> list[Linear]:
        """W_Q, W_K and W_V with their biases, the heads side by side."""
        if self.family.fused_qkv:
            weight, bias = linear_of(self.part(self.family.query))
            return [Linear(*third) for third in zip(weight.chunk(3, dim=1), bias.chunk(3), strict=True)]
        return [linear_of(self.part(path)) for path in (self.family.query, self.family.key, self.family.value)]

    def output(self) -> Linear:
        """W_O and b_O, the heads one below the other."""
        return linear_of(self.part(self.family.output))

    @_kept
    def w_o(self) -> Tensor:
        """W_O by head: [H, d_h, d]."""
        weight = linear_of(self.part(self.family.output)).weight
        return weight.reshape(self.heads, -1, weight.shape[1])

    @_kept
    def b_o(self) -> Tensor:
        return linear_of(self.part(self.family.output)).bias

    @_kept
    def ffn_in(self) -> Linear:
        return linear_of(self.part(self.family.ffn_in))

    @_kept
    def ffn_out(self) -> Linear:
        return linear_of(self.part(self.family.ffn_out))

    def activation(self, t: Tensor) -> Tensor:
        result: Tensor = self.part(self.family.activation)(t)
        return result

    def ffn(self, t: Tensor) -> Tensor:
        return self.ffn_out(self.activation(self.ffn_in(t)))

    def carry(self, value: Tensor) -> Tensor:
        """`f^h_j = v^h_j W_O^h`, the value carried through its head's slice of W_O: [B,H,n,d_h] -> [B,H,n,d]."""
        return torch.einsum("bhjk,hkd->bhjd", value, self.w_o)

    def merge(self, z: Tensor) -> Tensor:
        """The heads' outputs through W_O: [B, H, n, d_h] -> [B, n, d]."""
        return z.transpose(1, 2).flatten(2) @ self.w_o.flatten(0, 1)

    def mix(self, x: Tensor, attention: Tensor, value: Tensor) -> Tensor:
        """`u`: the residual stream after attention."""
        return x + self.merge(attention @ value) + self.b_o

    def finish(self, u: Tensor) -> Tensor:
        """`o`: what the block makes of `u`, token by token."""
        if self.norm_first:
            return u + self.ffn(self.norm2(u))
        y = self.norm1(u)
        return self.norm2(y + self.ffn(y))


def submodule(root: nn.Module, path: str) -> Any:
    """The part of a module at a dotted path (activations may be plain functions, hence Any)."""
    part: Any = root
    for name in path.split("."):
        try:
            part = part[int(name)] if name.isdigit() else getattr(part, name)
        except (AttributeError, IndexError, TypeError):
            raise UnsupportedModel(
                f"{type(root).__name__} has no part '{path}'; its structure is not the one wherefrom knows for "
                f"this architecture. Use an unmodified transformers model, or add a family (CONTRIBUTING.md)"
            ) from None
    return part


def submodules(root: nn.Module, path: str) -> list[nn.Module]:
    """All parts that match a path in which `*` stands for every index of a list."""
    parts: list[nn.Module] = [root]
    for name in path.split("."):
        if name == "*":
            parts = [child for part in parts for child in part.children()]
        else:
            parts = [submodule(part, name) for part in parts]
    return parts


def linear_of(module: nn.Module) -> Linear:
    """nn.Linear keeps W as [out, in], GPT-2's Conv1D as [in, out]."""
    weight = promote(module.weight.detach())  # type: ignore[operator]
    if isinstance(module, nn.Linear):
        weight = weight.T
    bias = module.bias
    zeros = weight.new_zeros(weight.shape[1])
    return Linear(weight, zeros if bias is None else promote(bias.detach()))  # type: ignore[operator]


def _norm(module: nn.Module) -> Norm:
    if not isinstance(module, nn.LayerNorm):
        raise UnsupportedModel(
            f"{type(module).__name__} is not a LayerNorm; blocks with other norms are not supported yet"
        )
    gamma = promote(module.weight.detach())
    beta = torch.zeros_like(gamma) if module.bias is None else promote(module.bias.detach())
    return Norm(gamma, beta, module.eps)
