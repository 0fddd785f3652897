"""Online coding step by step, by scikit-learn's probe and by an MLP written out; and properties of any such code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

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
def test_the_linear_probe_step_by_step(classes: int, strength: float) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 120)
    x = rng.normal(size=(120, 5)) * [1, 2, 3, 4, 5] + np.eye(classes, 5)[y] * 2
    found = online_code(x, y, timesteps=(0.2, 0.5, 1), probe="linear", penalty=1.0, seed=7)
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


def mlp_bits(x: np.ndarray, y: np.ndarray, start: int, end: int, seed: int, *, as_code: bool) -> float:
    """The code length of one block, from the paper's formula: the network, its loss and AdamW written out."""
    x_all, labels = torch.tensor(x), torch.tensor(y)
    classes = int(labels.max()) + 1
    torch.manual_seed(seed)
    first, second = torch.nn.Linear(x.shape[1], 128), torch.nn.Linear(128, classes)  # their initial weights
    weights = [
        each.detach().double().requires_grad_()
        for each in (first.weight, first.bias, torch.ones(128), torch.zeros(128), second.weight, second.bias)
    ]

    def probabilities(rows: torch.Tensor, training: bool) -> torch.Tensor:
        w1, b1, gain, bias, w2, b2 = weights
        hidden = (functional.dropout(rows, 0.2, training) @ w1.T + b1).clamp(min=0)
        centered = hidden - hidden.mean(-1, keepdim=True)
        hidden = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias
        odds = (functional.dropout(hidden, 0.3, training) @ w2.T + b2).exp()
        p = odds / odds.sum(-1, keepdim=True)
        return p.exp() / p.exp().sum(-1, keepdim=True) if as_code else p

    means, squares = ([torch.zeros_like(each) for each in weights] for _ in range(2))
    batches, step, lengths, rises = -(-start // 128), 0, [np.inf], 0
    for _ in range(15):
        for at in range(0, start, 128):
            rows, right = x_all[at : min(at + 128, start)], labels[at : min(at + 128, start)]
            loss = -probabilities(rows, True)[torch.arange(len(right)), right].log().mean()
            rate = 1e-3 * max(0.0, 1 - step / (batches * (1 if as_code else 15)))
            step += 1
            for weight, gradient, m, v in zip(weights, torch.autograd.grad(loss, weights), means, squares, strict=True):
                m.mul_(0.9).add_(gradient, alpha=0.1)
                v.mul_(0.999).add_(gradient**2, alpha=0.001)
                change = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-6)
                weight.data -= rate * change
        with torch.no_grad():
            p = probabilities(x_all[start:end], False)[torch.arange(end - start), labels[start:end]]
        lengths.append(float(-(p.log() if as_code else p.log2()).sum()))
        rises = rises + 1 if lengths[-1] >= lengths[-2] else 0
        if rises == 5:
            break
    return min(lengths)


@pytest.mark.parametrize(("probe", "classes"), [("mlp", 2), ("mlp", 3), ("mlp-code", 2)])
def test_the_mlp_probe_step_by_step(probe: str, classes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 300)
    x = rng.normal(size=(300, 5)) + np.eye(classes, 5)[y]
    found = online_code(x, y, timesteps=(0.1, 0.5, 1), probe=probe, seed=3)  # type: ignore[arg-type]
    order = np.random.default_rng(3).permutation(300)
    x, y = x[order], y[order]
    blocks = [mlp_bits(x, y, *places, 3, as_code=probe == "mlp-code") for places in ((30, 150), (150, 300))]
    assert found.blocks == pytest.approx([30 * np.log2(classes), *blocks], rel=1e-6)
    assert found.compression == pytest.approx(300 * np.log2(classes) / sum(found.blocks))


def labelled(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, noise, and the direction in which a layer knows them."""
    rng = np.random.default_rng(seed)
    y = np.array(["singular", "plural"])[rng.integers(0, 2, 800)]
    return y, rng.normal(size=(800, 16)), np.where(y == "plural", 1.0, -1.0)[:, None]


@pytest.mark.parametrize("probe", ["mlp", "linear"])
def test_layers_that_know_the_labels_compress(probe: Any) -> None:
    y, noise, sign = labelled()
    layers = np.stack([noise, noise + 0.3 * sign, noise + 3 * sign])
    nothing, little, much = (code.compression for code in layer_codes(layers, y, probe=probe))
    assert nothing < 1.02  # chance: a probe that learns by heart pays for it
    assert 1.1 < little < much
    assert much > 10
    again = online_code(layers[1], y, probe=probe)
    assert again.compression == little
    assert online_code(layers[1], y, probe=probe, seed=1).bits != pytest.approx(again.bits)
    assert len(again.blocks) == len(TIMESTEPS)


def test_the_mlp_is_the_default_and_leaves_the_random_state_alone() -> None:
    y, noise, sign = labelled()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    found = online_code(noise + sign, y)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert online_code(noise + sign, y, probe="mlp") == found


def test_the_authors_code_measures_on_a_scale_of_its_own() -> None:
    """A guess is at 1.44 where equation 13 has 1, and no code compresses to more than 3.14."""
    rng = np.random.default_rng(1)
    y, noise = rng.integers(0, 2, 2000), rng.normal(size=(2000, 64))
    known = noise + 3 * np.where(y == 1, 1.0, -1.0)[:, None]
    guess, code, text = (
        online_code(each, y, probe=probe).compression  # type: ignore[arg-type]
        for each, probe in ((noise, "mlp-code"), (known, "mlp-code"), (known, "mlp"))
    )
    assert guess == pytest.approx(1 / (0.008 + 0.992 * np.log(2)), rel=0.05)
    assert 1.8 < code < 1 / (0.008 + 0.992 * np.log(1 + 1 / np.e))
    assert text > 10


def test_the_linear_probe_does_not_depend_on_the_scale() -> None:
    y, noise, sign = labelled()
    little = online_code(noise + 0.3 * sign, y, probe="linear").compression
    assert online_code(1000 * (noise + 0.3 * sign) + 5, y, probe="linear").compression == pytest.approx(
        little, rel=1e-4
    )


@pytest.mark.parametrize("probe", ["mlp", "linear"])
def test_a_label_that_comes_late_costs_finitely_many_bits(probe: Any) -> None:
    rng = np.random.default_rng(2)
    y = np.zeros(200, dtype=int)
    y[rng.permutation(200)[:3]] = [1, 1, 2]
    found = online_code(rng.normal(size=(200, 4)), y, probe=probe)
    assert np.isfinite(found.bits)
    assert found.classes == 3
    constant = online_code(np.ones((200, 2)), y, probe="linear")  # nothing to see but how common each label is
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
        ("penalty=0; expected a number above 0", lambda: online_code(x, y, probe="linear", penalty=0)),
        ("penalty= applies to the linear probe", lambda: online_code(x, y, penalty=1)),
        ("probe='tree'; expected", lambda: online_code(x, y, probe="tree")),  # type: ignore[arg-type]
        (r"\[layers, examples, dimensions\]", lambda: layer_codes(x, y)),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
