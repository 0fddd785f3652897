"""LXT as a peer: what it takes to run it beside a transformers that it was not written for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import transformers


class Table(dict[str, Any]):
    """LXT puts a plain dictionary where transformers looks attention up by `get_interface`."""

    get_interface = dict.get


def attn_lrp(model: Any, inputs: Any) -> Callable[[], Any]:
    """AttnLRP of the last token's first logit, as LXT's README computes it."""
    from transformers.models.llama import modeling_llama

    # LXT 2.1 imports its files for BERT and for torchvision too, which want what is not here; they are not called.
    transformers.pytorch_utils.find_pruneable_heads_and_indices = None
    vision: Any = ModuleType("torchvision.models")
    vision.vision_transformer = ModuleType("vision_transformer")
    vision.vision_transformer.nn = torch.nn
    for name in ("torchvision", "torchvision.models"):
        sys.modules.setdefault(name, vision)
    from lxt.efficient import monkey_patch

    monkey_patch(modeling_llama)
    for weight in model.parameters():
        weight.requires_grad_(False)
    modeling_llama.ALL_ATTENTION_FUNCTIONS = Table(modeling_llama.ALL_ATTENTION_FUNCTIONS)

    def run() -> None:
        words = model.get_input_embeddings()(inputs).requires_grad_()
        model(inputs_embeds=words, use_cache=False).logits[:, -1, 0].sum().backward()
        (words * words.grad).sum(-1)

    return run
