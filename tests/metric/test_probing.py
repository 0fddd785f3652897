"""Online coding against scikit-learn's probe, step by step; and what must hold of any such code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import tiny
from wherefrom.errors import WherefromError
from wherefrom.metric.probing import (
    TIMESTEPS,
    compression_against_alignment,
    layer_codes,
    online_code,
    representations,
)


@pytest.mark.parametrize(("classes", "strength"), [(2, 2.0), (3, 1.0)])
def test_the_code_step_by_step(classes: int, strength: float) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 120)
    x = rng.normal(size=(120, 5)) * [1, 2, 3, 4, 5] + np.eye(classes, 5)[y] * 2
    found = online_code(x, y, timesteps=(0.2, 0.5, 1), penalty=1.0, seed=7)
    order = np.random.default_rng(7).permutation(120)
    z = np.hstack([(x - x.mean(0)) / x.std(0), np.ones((120, 1))])[order]
    labels = y[order]
    bits = [24 * np.log2(classes)]
    for start, end in ((24, 60), (60, 120)):
        # Of two classes scikit-learn fits the difference of the two rows, whose penalty is half of theirs.
        probe = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(
            z[:start], labels[:start]
        )
        p = probe.predict_proba(z[start:end])
        bits.append(-sum(np.log2(p[i, label]) for i, label in enumerate(labels[start:end])))
        right = (p.argmax(1) == labels[start:end]).mean()
    assert found.blocks == pytest.approx(bits, rel=1e-4)
    assert found.bits == pytest.approx(sum(bits), rel=1e-4)
    assert found.compression == pytest.approx(120 * np.log2(classes) / sum(bits), rel=1e-4)
    assert found.accuracy == pytest.approx(right, abs=0.02)  # a label on the fence may fall on either side


def test_what_a_layer_knows_compresses() -> None:
    rng = np.random.default_rng(1)
    y = np.array(["singular", "plural"])[rng.integers(0, 2, 800)]
    noise = rng.normal(size=(800, 16))
    sign = np.where(y == "plural", 1.0, -1.0)[:, None]
    layers = np.stack([noise, noise + 0.3 * sign, noise + 3 * sign])
    nothing, little, much = (code.compression for code in layer_codes(layers, y))
    assert nothing < 1.02  # chance: a probe that learns by heart pays for it
    assert 1.1 < little < much
    assert much > 10
    assert online_code(1000 * layers[1] + 5, y).compression == pytest.approx(little, rel=1e-4)  # scale says nothing
    assert online_code(layers[1], y).blocks == pytest.approx(online_code(layers[1], y).blocks)
    assert online_code(layers[1], y, seed=1).bits != pytest.approx(online_code(layers[1], y).bits)
    assert len(online_code(layers[1], y).blocks) == len(TIMESTEPS)


def test_a_label_that_comes_late_costs_finitely_many_bits() -> None:
    rng = np.random.default_rng(2)
    y = np.zeros(200, dtype=int)
    y[rng.permutation(200)[:3]] = [1, 1, 2]
    found = online_code(rng.normal(size=(200, 4)), y)
    assert np.isfinite(found.bits)
    assert found.classes == 3
    constant = online_code(np.ones((200, 2)), y)  # nothing to see but how common each label is
    assert np.isfinite(constant.bits)
    assert constant.compression > 5


def test_correlation_with_alignment_leaves_the_embeddings_out() -> None:
    compression, alignment = [9.0, 1.0, 2.0, 3.0], [0.1, 0.2, 0.4]
    assert compression_against_alignment(compression, alignment) == pytest.approx(1.0)
    assert compression_against_alignment(compression[1:], alignment) == pytest.approx(1.0)
    assert compression_against_alignment([3, 2, 1], alignment) == pytest.approx(-1.0)


@pytest.mark.parametrize("variant", ["bert", "electra", "gpt2"])
def test_representations_are_the_models_own_hidden_states(variant: str) -> None:
    model, tokenizer = tiny.model(variant), tiny.tokenizer()
    texts = ["a good cat", "the film is not very meaningful", "a dog"]
    found = representations(texts, model, tokenizer, batch_size=2)
    inner = model.base_model
    for i, text in enumerate(texts):
        with torch.no_grad():
            states = inner(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        assert len(states) == len(found)
        at = -1 if variant == "gpt2" else 0
        # GPT-2 lists its last state after the final norm; ours is the block's own.
        for ours, theirs in zip(found[: len(found) - (variant == "gpt2"), i], states, strict=False):
            assert np.allclose(ours, theirs[0, at].numpy(), atol=1e-5)


def test_the_mean_is_over_a_sentences_own_tokens() -> None:
    model, tokenizer = tiny.model("bert", "encoder"), tiny.tokenizer()
    texts = ["a good cat", "the film is not very meaningful"]
    mean = representations(texts, model, tokenizer, position="mean")
    assert mean.shape == (4, 2, 24)
    for i, text in enumerate(texts):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        for ours, theirs in zip(mean[:, i], states, strict=True):
            assert np.allclose(ours, theirs[0].mean(0).numpy(), atol=1e-5)


def test_the_mask_is_what_a_masked_model_is_probed_at() -> None:
    model, tokenizer = tiny.model("bert", "masked-lm"), tiny.tokenizer()
    text = "the keys to the cabinets [MASK] good"
    at = tokenizer(text)["input_ids"].index(tokenizer.mask_token_id)
    assert np.allclose(
        representations([text], model, tokenizer),
        representations([text], model, tokenizer, position=at),
        atol=1e-6,
    )
    assert not np.allclose(
        representations([text], model, tokenizer)[-1], representations([text], model, tokenizer, position=0)[-1]
    )


def test_what_probing_refuses() -> None:
    x, y = np.zeros((4, 2)), [0, 1, 0, 1]
    for message, call in (
        ("one label each", lambda: online_code(x, [0, 1])),
        ("1 different labels", lambda: online_code(x, [1, 1, 1, 1])),
        ("NaN", lambda: online_code(x + np.nan, y)),
        ("increasing shares", lambda: online_code(x, y, timesteps=(0.5, 0.2, 1))),
        ("increasing shares", lambda: online_code(x, y, timesteps=(0.5,))),
        ("penalty=0; expected a number above 0", lambda: online_code(x, y, penalty=0)),
        (r"\[layers, examples, dimensions\]", lambda: layer_codes(x, y)),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
