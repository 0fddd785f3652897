"""A twin of a model whose windows, chunks and top-k are shorter than the proof's probe.

A window of 4,096 tokens hides nothing of a short probe, so that an error in how it is followed would not show. The twin
shares every weight with the model, which stays as it is: other threads may be running it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from wherefrom.model.stock import stock
from wherefrom.model.undo import configs, parts_of

if TYPE_CHECKING:
    from wherefrom.model.model import Model

# What limits how many tokens attention reads, in configurations and in the modules that copy it from there.
TOKENS = ("sliding_window", "attention_chunk_size", "local_attention", "index_topk")
LIMITS = (*TOKENS, "index_topk_blocks")
COPIED = ("sliding_window", "index_topk", "topk_blocks", "block_size")
NARROW = 2  # tokens, or blocks of tokens


def with_narrow_windows(opened: Model, length: int) -> Model | None:
    """The model with its limits set to `NARROW`; None where none is as long as the probe or the model is not stock."""
    from wherefrom.model.double_twin import copied

    own = configs(opened.model)
    limits = [(vars(config).get(name), length if name in TOKENS else NARROW + 1) for config in own for name in LIMITS]
    offloaded = any(weight.is_meta for weight in opened.model.parameters())
    short = not any(isinstance(limit, int) and limit >= least for limit, least in limits)
    if short or offloaded or opened.two_streams or opened.images or not stock(opened.model):
        return None
    twin = copied(opened.model, {id(weight) for weight in opened.model.parameters()}, {})
    copies = {id(config): copy(config) for config in own}
    for config in copies.values():
        for name in config.sub_configs:
            if id(each := getattr(config, name, None)) in copies:
                setattr(config, name, copies[id(each)])
        _narrow(config, LIMITS)
    for part in parts_of(twin):
        if id(config := vars(part).get("config")) in copies:
            vars(part)["config"] = copies[id(config)]
        _narrow(part, COPIED)
    return replace(opened, model=twin)


def _narrow(holder: object, names: tuple[str, ...]) -> None:
    for name in names:
        if isinstance(limit := vars(holder).get(name), int) and limit > NARROW:
            vars(holder)[name] = NARROW
