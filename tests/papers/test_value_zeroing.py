"""Value Zeroing's quantities, recomputed from the paper's formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
from wherefrom import explain

TEXT, TARGET, FOIL = "the keys to the cabinets [MASK] good", "is", "not"


def states_and_gradients(words: dict[str, int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The input of every block, and the gradient of Σ sign · logit of these words at the mask with respect to it."""
    model, tokenizer = tiny.model("bert", "masked-lm").double(), tiny.tokenizer()
    batch = tokenizer(TEXT, return_tensors="pt")
    at = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    output = model(**batch, output_hidden_states=True)
    number = sum(sign * output.logits[0, at, tokenizer.convert_tokens_to_ids(word)] for word, sign in words.items())
    states = output.hidden_states[:-1]
    return [
        (x[0].detach().numpy(), g[0].numpy()) for x, g in zip(states, torch.autograd.grad(number, states), strict=True)
    ]


@pytest.mark.parametrize(("of", "words"), [("target-logit", {TARGET: 1}), ("auto", {TARGET: 1, FOIL: -1})])
def test_gradients_are_of_the_true_label_or_of_target_minus_foil(of: str, words: dict[str, int]) -> None:
    """Gradient × input at every layer; IG and DeepLift add up to the change of that number."""
    model, tokenizer = tiny.model("bert", "masked-lm").double(), tiny.tokenizer()
    expected = [np.abs((x * g).sum(-1)) for x, g in states_and_gradients(words)]
    found = explain(TEXT, model, tokenizer, method="gradient-x-input", norm="abs", of=of, target=TARGET, foil=FOIL)
    assert np.allclose(found.layer_scores, expected, rtol=1e-9, atol=1e-12)
    ids = tokenizer(TEXT)["input_ids"]
    blank = [token if token in tokenizer.all_special_ids else tokenizer.mask_token_id for token in ids]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids, blank])).logits[:, ids.index(tokenizer.mask_token_id)]
    change = sum(sign * float(np.diff(logits[:, tokenizer.convert_tokens_to_ids(w)])[0]) for w, sign in words.items())
    for method, options in (("integrated-gradients", {"n_steps": 40}), ("deeplift", {})):
        parts = explain(TEXT, model, tokenizer, method=method, of=of, target=TARGET, foil=FOIL, **options)
        assert parts.scores.sum() == pytest.approx(-change, rel=1e-3)
