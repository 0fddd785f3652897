"""Tiny random models of pictures, one for each row of model/vision.py, and pictures for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

SIDE, PATCH = 12, 4
TINY: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": SIDE,
    "patch_size": PATCH,
    "layer_norm_eps": 1e-3,
}
TEXTS: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 60,
    "max_position_embeddings": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
BOTH: dict[str, Any] = {"vision_config": TINY, "text_config": TEXTS, "projection_dim": 10}
# Layout: the class, and its configuration.
CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", TINY),
    "deit": ("DeiTForImageClassification", TINY),
    "deit-teacher": ("DeiTForImageClassificationWithTeacher", TINY),
    "beit": ("BeitForImageClassification", {**TINY, "use_relative_position_bias": True}),
    "beit-class-token": ("BeitForImageClassification", {**TINY, "use_mean_pooling": False}),
    "dinov2": ("Dinov2ForImageClassification", {**TINY, "mlp_ratio": 2}),
    "dinov2-gated": ("Dinov2ForImageClassification", {**TINY, "mlp_ratio": 2, "use_swiglu_ffn": True}),
    "registers": ("Dinov2WithRegistersForImageClassification", {**TINY, "mlp_ratio": 2, "num_register_tokens": 2}),
    "clip": ("CLIPForImageClassification", BOTH),
    "siglip": ("SiglipForImageClassification", BOTH),
}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit-encoder": ("ViTModel", TINY),
    "clip-both": ("CLIPModel", BOTH),
    "siglip-both": ("SiglipModel", BOTH),
    "clip-vision": ("CLIPVisionModel", TINY),
}
LAYOUTS = {**CLASSIFIERS, **ENCODERS}


def model(layout: str = "vit", dtype: torch.dtype = torch.float64, seed: int = 0) -> Any:
    """All weights far from where they begin, so that a forgotten bias or a swapped norm shows."""
    name, config = LAYOUTS[layout]
    cls = getattr(transformers, name)
    torch.manual_seed(seed)
    made = cls(cls.config_class(**config, **({"num_labels": 3} if layout in CLASSIFIERS else {})))
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return made.to(dtype).eval()


def pixels(seed: int = 0, height: int = SIDE, width: int = SIDE) -> Any:
    """Prepared pixels, as an encoding."""
    drawn = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(3, height, width, generator=drawn, dtype=torch.float64)}


def photo(seed: int = 0, height: int = 20, width: int = 30) -> Any:
    """An image as it comes from a file: [height, width, 3], from 0 to 255."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def processor(side: int = SIDE) -> Any:
    return transformers.ViTImageProcessorPil(
        size={"height": side, "width": side}, image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.25, 0.2]
    )
