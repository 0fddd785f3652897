"""Tokens of an answer's text taken away one by one: read from where the texts part, as from their beginning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.model import open_model, rerun

PROMPT = [2, 5, 8, 15, 3, 30, 7, 7, 12]


def speaking(family: str, **changes: Any) -> Any:
    made = tiny.model(family, "causal-lm", dtype=torch.float64, eos_token_id=None, **changes)
    return open_model(made, prove=False)


def lost(model: Any, method: str) -> Any:
    return wherefrom.generate(PROMPT, model, method=method, max_new_tokens=4, do_sample=False).scores


def read(monkeypatch: pytest.MonkeyPatch, model: Any) -> list[int]:
    """How many tokens are embedded and how many rows the head computes, from now on."""
    counts = [0, 0]
    for which, module in enumerate((model.words, model.pretrained.get_output_embeddings())):

        def counted(args: torch.Tensor, *, own: Any = module.forward, which: int = which) -> Any:
            counts[which] += args.numel() if which == 0 else args.shape[:-1].numel()
            return own(args)

        monkeypatch.setattr(module, "forward", counted)
    return counts


@pytest.mark.parametrize(
    ("family", "of"),
    [("llama", "logit"), ("gpt2", "probability"), ("opt", "logit"), ("bloom", "logit"), ("mistral", "log-probability")],
)
def test_the_same_as_from_the_beginning(family: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BLOOM and OPT count positions along the mask; Mistral keeps a window of its text, and is read as ever."""
    model = speaking(family)
    found = lost(model, f"ablation(by=7, of={of})")
    monkeypatch.setattr(rerun, "numbers_alike", lambda *_: None)
    expected = lost(model, f"ablation(by=7, of={of})")
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
    for step, scores in enumerate(found):
        assert not scores[len(PROMPT) + step :].any()  # what comes later


def test_half_of_the_tokens_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = speaking("llama")
    sentence = len(PROMPT) + 3
    generated = read(monkeypatch, model)
    lost(model, "random")
    alone = list(generated)
    generated[:] = [0, 0]
    monkeypatch.setattr(rerun, "TOKENS", 1)  # each text by itself
    lost(model, "ablation(by=7)")
    changed = sum(sentence - place for place in range(sentence) if place not in (6, 7))  # which are 7 already
    assert generated[0] - alone[0] == changed + sentence + sentence - sentence // 2
    assert generated[1] - alone[1] == 4 * (sentence - 5) + 3 + 2 + 1 + 4 + 4


def test_keys_that_do_not_say_the_same_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from wherefrom.model import alike

    model = speaking("llama")
    expected = lost(model, "ablation(by=7)")
    own = alike._copied
    monkeypatch.setattr(alike, "_copied", lambda kept, *args: own([(key, 2 * value) for key, value in kept], *args))
    assert np.allclose(lost(model, "ablation(by=7)"), expected, atol=1e-12)
