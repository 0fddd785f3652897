"""Whether a model is as transformers makes it, and how to tell two such models apart.

A proof holds for the next model of the same class and configuration as long as nothing else can decide what a block
computes. Hooks, a `forward` put on a module or on its class, and modules or weights of other packages (adapters,
quantisers, one's own) can decide anything, today otherwise than tomorrow: such a model is proved whenever it is opened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any

from torch import nn
from torch.nn.modules import module as hooks
from transformers import AttentionInterface, PreTrainedConfig

from wherefrom.model.undo import configs

OURS = ("torch", "transformers", "wherefrom")
SINGLE = (bool, int, float, str, type(None))
GLOBAL = ("_global_forward_hooks", "_global_forward_pre_hooks")
OWN = ("_forward_hooks", "_forward_pre_hooks")
PASSING = {"training", "_is_hf_initialized"}  # set back for a pass, or of no effect on it


def stock(model: nn.Module) -> bool:
    """Whether torch and transformers alone decide what the model computes."""
    everywhere = [hook for name in GLOBAL for hook in getattr(hooks, name).values()]
    attending = [AttentionInterface._global_mapping.get(attention_of(each)) for each in configs(model)]
    return all(map(_ours, [*everywhere, *filter(None, attending)])) and all(map(_as_made, model.modules()))


def attention_of(config: PreTrainedConfig) -> Any:
    """The name of the attention that a model computes by ("sdpa"), under which anybody may register one."""
    return config._attn_implementation_internal


def hooked(model: nn.Module) -> bool:
    """Whether somebody registered a hook on one of its modules."""
    return any(not _ours(hook) for part in model.modules() for name in OWN for hook in part.__dict__[name].values())


def shape(model: nn.Module) -> Hashable:
    """What two models that compute alike have in common beside their configuration: classes and settings by module."""
    return tuple((name, type(part), tuple(_settings(part))) for name, part in model.named_modules())


def _as_made(part: nn.Module) -> bool:
    made = part.__dict__
    forward = made.get("forward")
    if forward is not None and _moves(part):  # several devices: accelerate's forward moves tensors and calls the old
        forward = made.get("_old_forward")
    own = forward is None or getattr(forward, "__func__", None) is type(part).forward
    run = (type(part).forward, *(hook for name in OWN for hook in made[name].values()))
    parts = (type(part), *(type(weight) for weight in part._parameters.values() if weight is not None))
    return own and all(each.__module__.partition(".")[0] in OURS for each in parts) and all(map(_ours, run))


def _moves(part: nn.Module) -> bool:
    hook = part.__dict__.get("_hf_hook")
    every = [type(each) for each in getattr(hook, "hooks", (hook,))]  # one may hold several
    return all((each.__module__, each.__name__) == ("accelerate.hooks", "AlignDevicesHook") for each in every)


def _ours(function: Any) -> bool:
    """By where its code stands: wrappers copy names."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    where = getattr(function, "__globals__", {}).get("__name__") or type(function).__module__
    return str(where).partition(".")[0] in OURS


def _settings(part: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in part.__dict__.items():
        if name not in PASSING and isinstance(value, SINGLE):
            yield name, value
