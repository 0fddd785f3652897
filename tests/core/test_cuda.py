"""The same answers on a GPU, where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
import wherefrom

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
TEXTS = ["the film is deep and meaningful", "a cat"]


@pytest.mark.parametrize("variant", ["bert", "albert", "gpt2", "gpt2-encoder"])
def test_the_gpu_gives_what_the_cpu_gives(variant: str) -> None:
    model, tokenizer = tiny.model(variant, dtype=torch.float64), tiny.tokenizer()
    for method in (
        "attention-rollout",
        "globenc",
        "alti",
        "value-zeroing",
        "hta-x-input",
        "attcat",
        "ablation",
        "TransAtt",
    ):
        here = wherefrom.explain(TEXTS, model.cpu(), tokenizer, method=method)
        there = wherefrom.explain(TEXTS, model.cuda(), tokenizer, method=method)
        for a, b in zip(here, there, strict=True):
            assert np.abs(a.scores - b.scores).max() <= 1e-8 * max(1.0, np.abs(a.scores).max())
