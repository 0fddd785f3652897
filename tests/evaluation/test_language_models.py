"""Metrics of a language model's next word and of its answer, against their definitions."""

from __future__ import annotations

import numpy as np
import torch

import tiny
import wherefrom
from wherefrom.data import Example

MODEL, TOKENIZER = tiny.model("gpt2", "causal-lm", dtype=torch.float64), tiny.tokenizer()
PROMPT = Example("1", "the keys to the cabinets", target="are", foil="is", cues=((4, 8),))


def test_cues_are_ranked_with_signs_among_the_words_of_the_text() -> None:
    names = ["cue-mrr(signs=kept, tokens=text)@scores", "cue-dot(signs=kept, tokens=text)@scores", "cue-mrr@scores"]
    run = wherefrom.evaluate([PROMPT], MODEL, TOKENIZER, ["gradient-x-input"], names, threads=1)
    found = wherefrom.explain(PROMPT.text, MODEL, TOKENIZER, method="gradient-x-input", target="are", foil="is")
    own = found.scores[1:-1]  # without [CLS] and [SEP]
    assert found.special == [True, *[False] * 5, True]
    expected = [
        1 / (1 + (np.delete(own, 1) >= own[1]).sum()),
        own[1] / np.abs(own).sum(),
        1 / (1 + (np.abs(np.delete(found.scores, 2)) >= abs(found.scores[2])).sum()),
    ]
    assert np.allclose([run.mean("gradient-x-input", name) for name in names], expected, atol=1e-6)
