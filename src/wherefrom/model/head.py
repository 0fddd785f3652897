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
    """The steps from the last block's output at `rows` [B, m] to the output there, all on one device (`place_of`).

    Gone back from the last of them: what leads nowhere is passed over, as BigBird's pooler is, whose output neither its
    classifier nor a word at a mask reads.
    """
    place = place_of(trace)
    start = at_rows(promote(trace.layers[-1].raw["output"].detach()), rows).to(place)
    ran = [each for each in (_ran(trace, *part, rows, place) for part in trace.after) if each is not None]
    steps, value, dtype = list[Step](), ran[-1].made if ran else start, start.dtype
    for each in reversed(ran):
        between = _between(each.made, steps[0].x, dtype) if steps else []
        if between is not None:
            steps, dtype = [each.step, *between, *steps], each.dtype
    if steps:
        between = _between(start, steps[0].x, dtype)
        if between is None:
            raise _refused(trace)
        steps = [*between, *steps]
    logits = trace.output.get("logits")
    if logits is not None:
        final = _entered(trace, logits, rows)
        if final is None:
            raise _refused(trace)
        final = final.to(place)
        if (bias := _added(trace, value, final, logits.dtype)) is not None and isinstance(steps[-1].part, Linear):
            steps[-1] = Step(steps[-1].part._replace(bias=steps[-1].part.bias + bias), steps[-1].x)
        elif not _same(final, value, logits.dtype):
            steps.append(Step(_ratio(trace, value, final), value))
    return steps


class _Ran(NamedTuple):
    """A part of the head, and what it made at the tokens that are read."""

    step: Step
    made: Tensor
    dtype: torch.dtype  # in which it ran


def _ran(
    trace: Trace, module: nn.Module, given: Tensor, made: Tensor, rows: Tensor, place: torch.device
) -> _Ran | None:
    """None of what is no linear layer or norm, or does not run token by token."""
    part = linear_of(module) if _linear(module) else norm_of(module, given.shape[-1])
    x, out = _entered(trace, given, rows), _entered(trace, made, rows)
    if part is None or x is None or out is None:
        return None
    if isinstance(part, Norm):
        part = part._replace(gamma=part.gamma.to(place), beta=part.beta.to(place))
    else:
        part = Linear(part.weight.to(place), part.bias.to(place))
    return _Ran(Step(part, x.to(place)), out.to(place), given.dtype)


def _added(trace: Trace, value: Tensor, final: Tensor, dtype: torch.dtype) -> Tensor | None:
    """A bias that the model adds beside its last linear layer (ESM's), if that is what stands between the two."""
    if value.shape != final.shape or _same(final, value, dtype):
        return None
    biases = [each for each in trace.opened.pretrained.parameters() if each.shape == final.shape[-1:]]
    moved = (promote(each.detach()).to(final.device) for each in biases)
    return next((each for each in moved if _same(final, value + each, dtype)), None)


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


def _entered(trace: Trace, t: Tensor, rows: Tensor) -> Tensor | None:
    """What a part was given, or made, at the tokens that are read; None where it has not one for each."""
    t = promote(t.detach())
    if t.ndim == 3 and t.shape[1] == trace.batch.ids.shape[1]:
        return at_rows(t, rows)
    if t.ndim == 2 and len(t) == len(rows):  # the head has chosen its token
        return t[:, None].expand(-1, rows.shape[1], -1)
    return None


def _between(value: Tensor, x: Tensor, dtype: torch.dtype) -> list[Step] | None:
    """What turns the one into the other: nothing, or the nearest function (in half precision, several may be near
    enough); None where none does.
    """
    if value.shape != x.shape:
        return None
    if _same(x, value, dtype):
        return []
    nearest = min(FUNCTIONS.values(), key=lambda function: float((function(value) - x).abs().max()))
    return [Step(nearest, value)] if _same(nearest(value), x, dtype) else None


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
    sized = isinstance(getattr(module, "in_features", None), int)  # as an adapter of a table of tokens is, too
    return isinstance(module, Conv1D) or (
        sized and not any(isinstance(each, nn.Embedding) for each in module.modules())
    )


def _norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 1
