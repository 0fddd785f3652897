"""What stands between the last block and the output, as a chain of norms, linear layers and activations.

Which linear layers and norms run after the last block, and on what, is noted in the captured pass. What lies between
two of them is known by what it does, not by its class: the function that turns the one's output into the other's input.
A head that is no such chain at one token (one that takes the mean of all, say) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from wherefrom.errors import Unsuited
from wherefrom.model.linear import device_of
from wherefrom.model.parts import Block, Linear, Norm, linear_of, norm_of, promote

if TYPE_CHECKING:
    from wherefrom.model.trace import Trace

Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, Function] = {
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "gelu_new": lambda t: functional.gelu(t, approximate="tanh"),
    "relu": torch.relu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
}
SAME = {torch.float64: 1e-9, torch.float32: 1e-5}  # how far apart two numbers may lie that are one; in half 2e-2


class Step(NamedTuple):
    """One part of the head, and what it was given at the tokens that are read."""

    part: Linear | Norm | Function | Tensor  # a tensor: numbers by which the output is multiplied (a soft-cap's ratio)
    x: Tensor  # [B, m, ·]


def place_of(trace: Trace) -> torch.device:
    """Where the last layer of the head computes, a vocabulary perhaps; what comes before it is brought there."""
    linears = [module for module, _, _ in trace.after if _linear(module)]
    return device_of(linears[-1]) if linears else trace.layers[-1].device


def head(trace: Trace, rows: Tensor) -> list[Step]:
    """The steps from the last block's output at `rows` [B, m] to the output there, all on one device (`place_of`)."""
    place = place_of(trace)
    start = value = at_rows(promote(trace.layers[-1].raw["output"].detach()), rows).to(place)
    steps: list[Step] = []
    for module, given, made in trace.after:
        part = linear_of(module) if _linear(module) else norm_of(module, given.shape[-1])
        if part is None:
            continue
        if isinstance(part, Norm):
            part = part._replace(gamma=part.gamma.to(place), beta=part.beta.to(place))
        else:
            part = Linear(part.weight.to(place), part.bias.to(place))
        x = _entered(trace, given, rows).to(place)
        if steps and _same(x, start, given.dtype):
            steps.clear()  # what came before leads nowhere: BigBird's classifier leaves the pooler's output unread
        elif not _same(x, value, given.dtype):
            steps.append(Step(_between(trace, value, x, given.dtype), value))
        steps.append(Step(part, x))
        value = _entered(trace, made, rows).to(place)
    logits = trace.output.get("logits")
    if logits is not None and not _same(final := _entered(trace, logits, rows).to(place), value, logits.dtype):
        steps.append(Step(_ratio(trace, value, final), value))
    return steps


def _ratio(trace: Trace, value: Tensor, final: Tensor) -> Tensor:
    """By what the output is multiplied last: one number for all (Granite, Cohere), or less the larger it is (Gemma)."""
    if value.shape != final.shape:
        raise _refused(trace)
    ratio = final / torch.where(value == 0, 1, value)
    if not bool((ratio >= 0).all()) or (float(ratio.max()) > 1.01 and float(ratio.max() / ratio.min()) > 1.01):
        raise _refused(trace)
    return ratio


def at_rows(t: Tensor, rows: Tensor) -> Tensor:
    """[B, n, …] at rows [B, m] -> [B, m, …]."""
    return t[torch.arange(len(t), device=t.device)[:, None], rows.to(t.device)]


def _entered(trace: Trace, t: Tensor, rows: Tensor) -> Tensor:
    t = promote(t.detach())
    if t.ndim == 3 and t.shape[1] == trace.batch.ids.shape[1]:
        return at_rows(t, rows)
    if t.ndim == 2 and len(t) == len(rows):  # the head has chosen its token
        return t[:, None].expand(-1, rows.shape[1], -1)
    raise _refused(trace)


def _between(trace: Trace, value: Tensor, x: Tensor, dtype: torch.dtype) -> Function:
    """The nearest of them: in half precision, several may be near enough."""
    if value.shape == x.shape:
        nearest = min(FUNCTIONS.values(), key=lambda function: float((function(value) - x).abs().max()))
        if _same(nearest(value), x, dtype):
            return nearest
    raise _refused(trace)


def _same(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= SAME.get(dtype, 2e-2) * b.abs().max())


def _refused(trace: Trace) -> Unsuited:
    return Unsuited(
        f"the head of {trace.opened.name} is no chain of linear layers, activations ({', '.join(FUNCTIONS)}) and norms "
        f"at one token, which is all that a decomposition can follow; choose a method that differentiates the head as "
        f"it is: attcat, gradient-x-input, integrated-gradients"
    )


def parts_after_blocks(model: nn.Module, blocks: Sequence[Block], closing: nn.Module | None) -> list[nn.Module]:
    """Linear layers and norms outside the blocks; an adapter (LoRA) and its base are one."""
    found, todo = list[nn.Module](), [model]
    whole = [block.module for block in blocks]  # or parts that are no module together
    inside = {id(part) for each in whole for part in (each if isinstance(each, nn.ModuleList) else [each])}
    while todo:
        module = todo.pop()
        if id(module) in inside:
            continue
        if module is closing or _linear(module) or _norm(module):
            found.append(module)
        else:
            todo += reversed([*module.children()])
    return found


def _linear(module: nn.Module) -> bool:
    return isinstance(module, Conv1D) or isinstance(getattr(module, "in_features", None), int)


def _norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 1
