"""The model once more in float64, one block's weights at a time.

A twin shares everything with the model except its parameters and hooks: what lies outside the blocks is float64
from the start, a block's weights are while it runs, and word embeddings are looked up first. So the model's own code
runs in double precision from the embeddings to the head without a second copy of the model, and the model itself is
never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from wherefrom.errors import Unsuited
from wherefrom.model.capture import stream
from wherefrom.model.linear import Linear, device_of, linear_of
from wherefrom.model.model import Model
from wherefrom.model.parts import NORMS, Block, Norm, original
from wherefrom.model.sentences import Batch
from wherefrom.model.trace import LayerTrace, Trace
from wherefrom.model.undo import borrowed

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class Passed(NamedTuple):
    """A linear layer outside the blocks and what entered it."""

    linear: Linear
    x: Tensor  # [B, n, in], or [B, in] where the head has chosen a token before


@dataclass(frozen=True, eq=False)
class DoubleTrace:
    """A pass in float64: the blocks, and the linear layers before and after them, in the order in which they ran."""

    trace: Trace
    hidden: list[Tensor]  # the FFN of each block before its activation: [B, n, d_ff]
    before: list[Passed]  # from the embeddings to the first block
    after: list[Passed]  # from the last block to the output

    @property
    def layers(self) -> list[LayerTrace]:
        return self.trace.layers


@torch.no_grad()
def double_trace(opened: Model, batch: Batch) -> DoubleTrace:
    """Run the batch in float64, whatever the model's dtype. The last layer of a language model's head is left out."""
    made: dict[int, nn.Module] = {}
    twin = borrowed(lambda: _twin(opened, made))  # while no other thread has something on the model
    layers: list[LayerTrace] = []
    hidden: list[Tensor] = []
    pieces: list[Tensor] = []
    before: list[Passed] = []
    after: list[Passed] = []

    def on_layer(layer: LayerTrace) -> None:
        layers.append(layer)
        hidden.append(torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0])  # config.chunk_size_feed_forward
        pieces.clear()

    def passes(linear: nn.Module) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            (after if layers else before).append(Passed(linear_of(linear), args[0]))

        return hook

    hooks: list[RemovableHandle] = []
    for block, own in zip(twin.blocks, opened.blocks, strict=True):
        _know_norms(block, own)
        hooks += _convert_while_running(block)
        up = block.part(block.family.ffn.up)
        hooks.append(up.register_forward_hook(lambda _module, _args, out: pieces.append(out)))
    for linear in _linears_outside_blocks(opened):
        hooks.append(made[id(linear)].register_forward_pre_hook(passes(linear)))
    trace = stream(twin, batch, on_layer, compare=False)  # its model has been compared
    for each in hooks:  # they hold what holds them: all of the pass would wait for Python's collector
        each.remove()
    return DoubleTrace(replace(trace, layers=layers), hidden, before, after)


def _twin(opened: Model, made: dict[int, nn.Module]) -> Model:
    """The model in two dtypes: float64 outside the blocks. `made` takes down which module became which."""
    if any(weight.is_meta for weight in opened.model.parameters()):
        raise Unsuited(
            f"relevance is propagated through a second pass in float64, for which all weights must be in memory; some "
            f"of {opened.name} are offloaded. Load it without offloading, or choose another method: attn-lrp"
        )
    kept = {id(parameter) for module in _modules(opened.blocks) for parameter in module._parameters.values()}
    if opened.images:
        return replace(opened, model=copied(opened.model, kept, made))
    words = opened.model.get_input_embeddings()
    kept.add(id(words.weight))  # looked up, then converted: a vocabulary is large
    if (decoder := opened.model.get_output_embeddings()) is not None:
        made[id(decoder)] = nn.Identity()  # a vocabulary again, of which one or two columns are explained
    model: Any = copied(opened.model, kept, made)
    made[id(words)].register_forward_hook(lambda _module, _args, output: output.double())
    return replace(opened, model=model)


def copied(module: nn.Module, kept: set[int], made: dict[int, nn.Module]) -> nn.Module:
    """The module with parts and hooks of its own, and with the parameters `kept`, by their ids; others in float64."""
    if id(module) in made:
        return made[id(module)]
    twin = made[id(module)] = object.__new__(type(module))
    bound = _bound(module)
    parts = {name: part for name, part in module.__dict__.items() if name not in bound}
    parts["_parameters"] = {
        name: parameter if parameter is None or id(parameter) in kept else _double(parameter)
        for name, parameter in module._parameters.items()
    }
    parts["_buffers"] = dict(module._buffers)
    parts["_modules"] = {
        name: None if child is None else copied(original(child), kept, made) for name, child in module._modules.items()
    }
    parts.update({name: module.__dict__[name].copy() for name in HOOKS})
    twin.__dict__.update(parts)
    if "_hf_hook" in vars(module):
        twin.register_forward_pre_hook(_moving_to(device_of(module)), with_kwargs=True)
    return twin


def _bound(module: nn.Module) -> set[str]:
    """What accelerate and torch.compile keep with a module, which belongs to that very module."""
    own = vars(module)
    if "_hf_hook" in own:
        return {"forward", "_old_forward", "_hf_hook", "_compiled_call_impl"}
    compiled = hasattr(own.get("forward"), "_torchdynamo_orig_callable")
    return {"_compiled_call_impl", *(["forward"] if compiled else [])}


def _moving_to(device: torch.device) -> Callable[..., Any]:
    """What accelerate's hook does for a module whose weights are in memory."""
    from accelerate.utils import send_to_device

    def moved(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        return send_to_device(args, device), send_to_device(kwargs, device)

    return moved


def _double(parameter: nn.Parameter | None) -> nn.Parameter | None:
    return None if parameter is None else nn.Parameter(parameter.detach().double(), requires_grad=False)


def _know_norms(block: Block, own: Block) -> None:
    """What its norms are is known of the model's own block: to find it out, batch by batch, a device is waited for."""
    for name in NORMS:
        norm: Norm | None = getattr(own, name)
        vars(block)[name] = norm and norm._replace(gamma=norm.gamma.double(), beta=norm.beta.double())


def _convert_while_running(block: Block) -> list[RemovableHandle]:
    single = [(module, module._parameters) for module in block.module.modules()]

    def enters(_module: nn.Module, _args: Any) -> None:
        for module, parameters in single:
            module._parameters = {name: _double(parameter) for name, parameter in parameters.items()}

    def leaves(_module: nn.Module, _args: Any, _output: Any) -> None:
        for module, parameters in single:
            module._parameters = parameters

    return [block.first.register_forward_pre_hook(enters), block.last.register_forward_hook(leaves)]


def _modules(blocks: list[Block]) -> Iterator[nn.Module]:
    for block in blocks:
        yield from block.module.modules()


def _linears_outside_blocks(opened: Model) -> list[nn.Module]:
    inside = {id(module) for module in _modules(opened.blocks)}
    found: list[nn.Module] = []
    for module in opened.model.modules():
        adapter = hasattr(module, "base_layer") and not isinstance(module.base_layer, nn.Embedding)
        if (adapter or isinstance(module, nn.Linear)) and id(module) not in inside:
            found.append(module)  # an adapter with all of its parts: they are one linear module
            inside |= {id(part) for part in module.modules()}
    return found
