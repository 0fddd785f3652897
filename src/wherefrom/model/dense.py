"""BigBird, which attends to all tokens of a short text and to some of them in a long one.

Its own forward pass, given a short text, changes the model to full attention for good (`set_attention_type`). So what
is explained is a twin that attends to all from the start: it shares every weight with the model, which stays as it is,
and a text in which the model would leave tokens out is too long for it.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from wherefrom.model.double_twin import copied
from wherefrom.model.model import pretrained_in

SPARSE, FULL = "block_sparse", "original_full"


def attending_to_all(model: nn.Module) -> tuple[nn.Module, int | None]:
    """The model and None; of one with sparse attention its twin, and up to how many tokens the two say the same."""
    base: Any = pretrained_in(model).base_model
    if getattr(base, "attention_type", None) != SPARSE:
        return model, None
    twin = copied(model, {id(weight) for weight in model.parameters()}, {})
    whole: Any = pretrained_in(twin).base_model
    whole.set_attention_type(FULL)
    return twin, (5 + 2 * base.config.num_random_blocks) * base.config.block_size  # as its forward pass has it
