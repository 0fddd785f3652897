"""Grad-CAM's scale from 0 to 1 is that of a sentence's own map: padding is neither its lowest nor its highest entry."""

from __future__ import annotations

import numpy as np
import torch

import tiny
import wherefrom

TEXTS = ["a cat", "the film is deep and meaningful"]


def test_padding_is_no_part_of_the_scale() -> None:
    """Shown where no entry of the short sentence is 0, which takes a model all of whose heads speak for the class."""
    tokenizer, lifted = tiny.tokenizer(), 0
    for seed in range(8):
        model = tiny.model("distilbert", seed=seed, dtype=torch.float64)
        with torch.no_grad():  # one head left, whose map is its attention: above 0 everywhere
            model.distilbert.transformer.layer[-1].attention.out_lin.weight[:, 6:] = 0
        for target in range(3):
            asked = {"method": "attention-gradcam", "target": target}
            short, long = wherefrom.explain(TEXTS, model, tokenizer, **asked)
            for text, found in zip(TEXTS, (short, long), strict=True):
                alone = wherefrom.explain(text, model, tokenizer, **asked)
                assert np.allclose(found.scores, alone.scores, atol=1e-9)
            lifted += bool(short.scores.any())
    assert lifted >= 4
