"""Layers to try methods on: tiny models, and one with the outliers that trained models have."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

import tiny
import wherefrom
from wherefrom.method import lookup

LENGTHS = (7, 4)  # a padded batch; float64 so that a difference is a mistake


def layers(
    variant: str = "bert",
    dtype: torch.dtype = torch.float64,
    lengths: tuple[int, ...] = LENGTHS,
    seed: int = 0,
    model: Any = None,
    **changes: Any,
) -> list[wherefrom.LayerTrace]:
    """The layers of one batch of random sentences."""
    model = tiny.model(variant, "encoder", dtype=dtype, seed=seed, **changes) if model is None else model
    return wherefrom.capture([tiny.ids(n, seed + k) for k, n in enumerate(lengths)], model).layers


def maps(layer: wherefrom.LayerTrace, name: str, **options: Any) -> list[Tensor]:
    """One method's map of each sentence in a layer, in float64 and without padding."""
    found = lookup(name)[0].run(layer, **options)
    return [found[row, :n, :n].double() for row, n in enumerate(layer.mask.sum(1).tolist())]


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


def with_outliers(dtype: torch.dtype, seed: int = 0) -> transformers.BertModel:
    """A BERT with what trained ones have and random ones lack.

    A few entries of γ above 20 (GlobEnc, section 4.5.3), small ones opposite to them in the other norm, biases
    away from zero, attention far from uniform, and blocks that change the residual stream by little.
    """
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=384,
        max_position_embeddings=64,
    )
    torch.manual_seed(seed)
    model = transformers.BertModel(config, add_pooling_layer=False).double()
    random = torch.Generator().manual_seed(seed)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=random, dtype=torch.float64)

    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("LayerNorm.weight"):
                weight.copy_(0.9 + 0.1 * noise(weight))
            elif name.endswith("bias"):
                weight.copy_(0.1 * noise(weight))
            else:
                weight.copy_((0.03 if "query" in name or "key" in name else 0.05) * noise(weight))
        for layer in model.encoder.layer:
            layer.attention.output.LayerNorm.weight[[3, 17, 40]] = torch.tensor([25.0, 21.0, -22.0]).double()
            layer.output.LayerNorm.weight[[3, 17]] = 0.05
            layer.output.LayerNorm.weight[[8, 60]] = torch.tensor([24.0, 20.0]).double()
    return model.to(dtype).eval()
