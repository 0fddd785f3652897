"""Copies of a model that differ from it in their weights alone: randomised part by part, or in another dtype.

The parts are, from the top: the head (everything that runs after the blocks), the blocks from the last to the first,
and the embeddings (everything that runs before). What runs when is seen on a pass, so that no family has to say it; a
parameter that two parts share (a decoder tied to the word embeddings) belongs to the lower one. The model that was
handed in is only ever read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from wherefrom.model.capture import rerunning
from wherefrom.model.model import Model
from wherefrom.model.sentences import Batch
from wherefrom.model.undo import hook
from wherefrom.typecheck import checked

Randomising = Literal["initial", "shuffled"]  # as an untrained model has it; or the trained values in other places
Part = list[tuple[nn.Module, str]]  # parameters, each as the module that owns it and its name there


def randomised(
    opened: Model, batch: Batch, *, independent: bool = False, way: str = "initial", seed: int = 0
) -> Iterator[tuple[str, Model]]:
    """The names of the parts from the top, each with a model in which it and all above it are random.

    independent: the part alone is random, all others are as they were. way: "initial" draws what an untrained model
    would have (normal weights of the config's `initializer_range`, no biases, plain norms); "shuffled" keeps the values
    of every tensor and mixes their places. The yielded models share one copy, which the next step changes.
    """
    checked("way", way, Randomising)
    twin = replace(opened, model=copy.deepcopy(opened.model))
    deviation = float(getattr(opened.config, "initializer_range", 0.02))
    for number, (name, part) in enumerate(parts(twin, batch).items()):
        generator = torch.Generator().manual_seed((1000 * seed + number) % 2**63)
        before = [module._parameters[key].detach().clone() for module, key in part if independent]  # type: ignore[union-attr]
        with torch.no_grad():
            for module, key in part:
                weight = module._parameters[key]
                assert weight is not None
                weight.copy_(_drawn(module, key, weight, way, deviation, generator))
        yield name, replace(twin)  # opened anew: blocks keep what they have read
        with torch.no_grad():
            for (module, key), was in zip(part, before, strict=independent):
                module._parameters[key].copy_(was)  # type: ignore[union-attr]


def parts(opened: Model, batch: Batch) -> dict[str, Part]:
    """The parameters of every part, by its name, from the top; parameters that a pass does not use are in none."""
    inside = {id(module) for block in opened.blocks for module in block.module.modules()}
    outside: dict[bool, list[nn.Module]] = {False: [], True: []}  # by whether a block has run already
    entered = False

    def enters(_module: nn.Module, _args: Any, _kwargs: Any) -> None:
        nonlocal entered
        entered = True

    def runs(module: nn.Module, _args: Any, _kwargs: Any) -> None:
        if module not in outside[entered]:
            outside[entered].append(module)

    @torch.no_grad()
    def run() -> None:
        for block in opened.blocks:
            hook(block.first, enters, before=True)
        for module in opened.model.modules():
            if module._parameters and id(module) not in inside:
                hook(module, runs, before=True)
        opened.forward(batch)

    rerunning(opened, run)
    taken: set[int] = set()
    upwards = {
        "embeddings": _parameters(outside[False], taken),
        **{f"block {i}": _parameters(list(b.module.modules()), taken) for i, b in enumerate(opened.blocks)},
        "head": _parameters(outside[True], taken),
    }
    return {name: part for name, part in reversed(upwards.items()) if part}


def in_dtype(opened: Model, dtype: torch.dtype) -> Model:
    """A copy of the model in another dtype."""
    return replace(opened, model=copy.deepcopy(opened.model).to(dtype))


def _parameters(modules: list[nn.Module], taken: set[int]) -> Part:
    part: Part = []
    for module in modules:
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in taken:
                taken.add(id(parameter))
                part.append((module, name))
    return part


def _drawn(
    module: nn.Module, name: str, weight: Tensor, way: str, deviation: float, generator: torch.Generator
) -> Tensor:
    if way == "shuffled":
        order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
        return weight.detach().flatten()[order].view_as(weight)
    if name == "bias":
        return torch.zeros_like(weight)
    if isinstance(module, nn.LayerNorm):
        return torch.ones_like(weight)
    return torch.randn(weight.shape, generator=generator) * deviation
