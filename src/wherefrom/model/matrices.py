r"""LRP's rules for matrices, z_j = Σ_i x_i w_ij + b_j, in a frozen pass.

    ε-rule    R_i = Σ_j x_i w_ij R_j / (z_j + ε sign z_j)                       weak outputs pass less on
    γ-rule    c_ij = x_i w_ij + γ (x_i w_ij)^±, likewise for the bias,          what has the sign of z_j counts for more
              R_i = Σ_j c_ij R_j / (Σ_i c_ij + ε sign z_j)                      ±: the part of z_j's own sign

Where relevance is value times gradient, the gradient g_j = R_j / z_j comes in and R_i / x_i goes out. What divides has
the sign of z_j and is no smaller, so that nothing grows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from wherefrom.errors import Unsuited
from wherefrom.model.parts import Block, Linear, linear_of, promote


class Ruled(torch.autograd.Function):
    """A projection whose way back is the rule's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: Any, linear: Linear, epsilon: float, gamma: float) -> Tensor:
        z: Tensor = own(x)
        ctx.linear, ctx.gamma = linear, gamma
        ctx.save_for_backward(x, z, promote(z) / _divisor(promote(x), promote(z), linear, epsilon, gamma))
        return z

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        (g,), (x, z, share) = given, ctx.saved_tensors
        s = promote(g) * share
        found = s @ ctx.linear.weight.T
        if ctx.gamma:
            up, down = (part.T for part in _signs(ctx.linear.weight))
            above, below = s * (z > 0), s * (z < 0)
            found = found + ctx.gamma * torch.where(x > 0, above @ up + below @ down, above @ down + below @ up)
        return found.to(g.dtype), None, None, None, None


def _divisor(x: Tensor, z: Tensor, linear: Linear, epsilon: float, gamma: float) -> Tensor:
    """What a contribution is divided by; 1 where nothing contributes, and nothing is given either."""
    found = z + epsilon * z.sign()
    if gamma:
        (up, down), (more, less), (over, under) = _signs(linear.weight), _signs(x), _signs(linear.bias)
        found = found + gamma * torch.where(z > 0, more @ up + less @ down + over, more @ down + less @ up + under)
    return torch.where(z == 0, 1, found)


def _signs(t: Tensor) -> tuple[Tensor, Tensor]:
    return t.clamp(min=0), t.clamp(max=0)


def projections(block: Block) -> list[tuple[Any, Linear]]:
    """The modules of a block that multiply by a matrix."""
    if block.opaque:
        raise Unsuited(
            "epsilon= and gamma= are rules for the matrices of a block, and this model's experts keep theirs in one "
            "piece; leave both at 0"
        )
    found = [module for module in block.module.modules() if isinstance(module, torch.nn.Linear | Conv1D)]
    return [(module, linear_of(module)) for module in found]
