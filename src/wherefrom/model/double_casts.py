"""A float64 model computed in float64 throughout.

transformers takes RMS norms, the softmax of most decoders and rotary angles in float32, whatever the model's dtype: a
float64 Llama agrees with its own formulas to six digits. Whoever asks for float64 wants the formulas. For the length of
a pass every cast to float32 is one to float64, and constants that were rounded to float32 when the model was made
(rotary frequencies, Gemma's factor on its embeddings) are computed again. Other dtypes are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wherefrom.model.undo import computing_under, on_leaving

NEAR = 1e-5  # how far a constant may lie from what is computed again, as a share; one further off was set by somebody


class _Lifted(TorchFunctionMode):
    """Casts to float32 are casts to float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        named = {key: _wide(value) for key, value in (kwargs or {}).items()}
        if func is torch.full and isinstance(args[-1], float):
            named.setdefault("dtype", torch.float64)  # XGLM's lowest score of all is beyond float32
        return func(*map(_wide, args), **named)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def computing_in_double(model: nn.Module) -> None:
    """Inside of `borrowed`: until its end, this thread computes in float64 what it would in float32."""
    computing_under(_Lifted())
    for module, name, exact in list(_rounded(model)):
        _put(module, name, exact)


def _put(module: nn.Module, name: str, exact: Tensor) -> None:
    own = module._buffers[name]

    def undo() -> None:
        module._buffers[name] = own

    on_leaving(undo)
    module._buffers[name] = exact


def _rounded(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """The constants that can be computed again, and what they are in float64."""
    for module in model.modules():
        for name, again in _again(module).items():
            own = module._buffers.get(name)
            if own is None or own.shape != again.shape or not own.is_floating_point():
                continue
            again = again.to(device=own.device, dtype=torch.float64)
            if bool(((own - again).abs() <= NEAR * again.abs()).all()):
                yield module, name, again


def _again(module: nn.Module) -> dict[str, Tensor]:
    if isinstance(scale := getattr(module, "scalar_embed_scale", None), float):
        return {"embed_scale": torch.tensor(scale, dtype=torch.float64)}
    if any("inv_freq" in name for name in module._buffers) and hasattr(module, "config"):
        made: Any = type(module)
        with suppress(Exception):  # a module that is made otherwise keeps its own
            return {name: t for name, t in made(module.config)._buffers.items() if t is not None}
    return {}
