"""Linear modules as `x @ W + b`, whatever they are made of.

A plain module is read. An adapter (LoRA) is its base plus what its active adapters add; quantised weights are taken
back to floats; both are tried on a few vectors. Where that does not fit, or where a module shows no weights, it is
asked: what it makes of the unit vectors are the rows of W. A module that is not linear, because it rounds what it is
given, is refused. Weights that accelerate keeps elsewhere between passes are read while they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from wherefrom.errors import UnsupportedModel
from wherefrom.model.undo import evaluating, without_gradients

T = TypeVar("T")
ASKED = 512  # unit vectors that are put through a module at once
PLAIN = {nn.Linear.forward, Conv1D.forward}
HALF = (torch.bfloat16, torch.float16)
NEAR = {torch.float64: 1e-6, torch.float32: 1e-4}  # how far x W + b may lie from the module's own, as a share; half:
NEAR_IN_HALF = 2e-2


def promote(t: Tensor) -> Tensor:
    """Half-precision tensors as float32: every formula is evaluated in float32 or float64."""
    return t.float() if t.dtype in HALF else t


class Linear(NamedTuple):
    """`x @ weight + bias`."""

    weight: Tensor  # [in, out]
    bias: Tensor  # [out]

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias

    def times(self, factor: Tensor | float) -> Linear:
        """The map with its output multiplied, by one number or by one for each component."""
        return self if isinstance(factor, float) and factor == 1 else Linear(self.weight * factor, self.bias * factor)


def linear_of(module: Any) -> Linear:
    """The module's W and b, float32 or float64."""
    if type(module).forward in PLAIN and _is_plain(module.weight):
        return present(module, lambda: _stored(module, module.weight))
    return without_gradients(lambda: _tried(module))


def sizes(module: nn.Module) -> tuple[int, int]:
    """How many numbers a linear module takes and gives; its weights are not touched."""
    if isinstance(module, Conv1D):
        return module.nx, module.nf
    found = [getattr(module, name, None) for name in ("in_features", "out_features")]
    if isinstance(found[0], int) and isinstance(found[1], int):
        return found[0], found[1]
    if isinstance(weight := getattr(module, "weight", None), Tensor) and weight.ndim == 2:
        return int(weight.shape[0]), int(weight.shape[1])
    raise UnsupportedModel(f"{type(module).__name__} is no linear module that wherefrom knows: it has no sizes")


def present(module: nn.Module, read: Callable[[], T]) -> T:
    """What `read` gives while the module's own weights are there: accelerate keeps those it has offloaded elsewhere."""
    if not any(weight.is_meta for weight in module.parameters(recurse=False)):
        return read()
    if not hasattr(module, "_hf_hook"):
        raise UnsupportedModel(
            f"{type(module).__name__} is on the device 'meta', which holds no weights; load the model with its weights"
        )
    from accelerate.utils import align_module_device

    with align_module_device(module):
        return read()


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes: where its weights are, or where accelerate takes them for a pass."""
    for part in module.modules():
        hook = getattr(part, "_hf_hook", None)
        for each in getattr(hook, "hooks", (hook,)):  # one may hold several
            if isinstance(where := getattr(each, "execution_device", None), str | int | torch.device):
                return torch.device(where)
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if here := next((t.device for t in own if not t.is_meta), None):
            return here
    return torch.device("cpu")


def _is_plain(weight: Any) -> bool:
    return type(weight) in (Tensor, nn.Parameter) and weight.is_floating_point()


def _stored(module: Any, weight: Tensor) -> Linear:
    """nn.Linear keeps W as [out, in], GPT-2's Conv1D as [in, out]."""
    weight = promote(weight.detach())
    return _biased(module, weight.T if isinstance(module, nn.Linear) else weight)


def stored(module: Any) -> Tensor | None:
    """W, [in, out], as a plain module keeps it; None where there is none to be had without a copy."""
    if type(module).forward not in PLAIN or not _is_plain(weight := module.weight) or weight.is_meta:
        return None
    found: Tensor = weight.detach()
    return found.T if isinstance(module, nn.Linear) else found


def _biased(module: Any, weight: Tensor) -> Linear:
    bias = module.bias
    return Linear(weight, weight.new_zeros(weight.shape[1]) if bias is None else promote(bias.detach()))


def _tried(module: nn.Module) -> Linear:
    """What the module shows of itself, if it is what it does; else what it answers."""
    evaluating(module)
    probe = torch.randn(4, sizes(module)[0], generator=torch.Generator().manual_seed(0))
    given = _answered(module, probe)
    for found in chain(_shown(module), _answers(module)):
        if _fits(found, probe.to(given.device, found.weight.dtype), given):
            return found
    raise UnsupportedModel(
        f"{type(module).__name__} computes something else than x W + b: it rounds what it is given (quantised "
        f"activations), so that no part of its output can be told apart. Quantise the weights alone, or dequantise the "
        f"model (model.dequantize(), or load it without its quantization_config)"
    )


def _fits(found: Linear, probe: Tensor, given: Tensor) -> bool:
    allowed = NEAR.get(given.dtype, NEAR_IN_HALF) * promote(given).abs().amax()
    return bool(((found(probe) - promote(given)).abs() <= allowed).all())


def _shown(module: Any) -> Iterator[Linear]:
    """From the weights that a module has: what it may compute."""
    if any(weight.is_meta for weight in module.parameters()):
        return
    if (base := getattr(module, "base_layer", None)) is not None:
        yield _adapted(module, base)
        return
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and weight.is_floating_point() and weight.ndim == 2:
        weight = promote((weight if _is_plain(weight) else weight.dequantize()).detach())
        yield from (_biased(module, each) for each in (weight.T, weight) if tuple(each.shape) == sizes(module))


def _adapted(module: Any, base: nn.Module) -> Linear:
    """An adapter of peft's: what it is wrapped around, and what each active LoRA adds to that."""
    found = linear_of(base)
    if module.disable_adapters or module.merged:
        return found
    weight = found.weight
    for name in module.active_adapters:
        if name in getattr(module, "lora_A", ()) and hasattr(module, "get_delta_weight"):
            delta = promote(module.get_delta_weight(name))
            weight = weight + (delta.T if isinstance(base, nn.Linear) else delta).to(weight)
    return Linear(weight, found.bias)


def _answers(module: nn.Module) -> Iterator[Linear]:
    """From what the module makes of the unit vectors."""
    size = sizes(module)[0]
    bias = promote(_answered(module, torch.zeros(1, size))[0])
    rows = [
        promote(_answered(module, torch.eye(size)[first : first + ASKED])) - bias for first in range(0, size, ASKED)
    ]
    yield Linear(torch.cat(rows), bias)


def _answered(module: nn.Module, x: Tensor) -> Tensor:
    """Of vectors, given where and as the module takes them."""
    floating = [t.dtype for t in [*module.parameters(), *module.buffers()] if t.is_floating_point()]
    dtype = getattr(module, "compute_dtype", None) or next(iter(floating), torch.float32)
    found: Tensor = module(x.to(device_of(module), dtype))
    return found
