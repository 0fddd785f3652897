"""A phrase after a prompt: several tokens explained as one, and against another phrase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import InvalidTarget, TooLong, Unsuited

TOKENIZER = tiny.tokenizer()
PHRASE, FOIL = "very deep film", "not good"
PROMPT = [2, 5, 8, 15, 3, 30]
# Which explain a sum by the sum of explanations; those that can, of the log-probability.
LINEAR = [
    "gradient-x-input(of=log-probability)",
    "integrated-gradients(of=log-probability, n_steps=8, baseline=zero)",
    "ablation(by=attention, of=log-probability)",
    "ablation(of=log-probability)",
    "attn-lrp",
    "cp-lrp",
    "decompx",
    "alti-logit",
    "deeplift(of=log-probability)",
]


@pytest.fixture(scope="module")
def model() -> Any:
    return wherefrom.open_model(tiny.model("llama", "causal-lm", dtype=torch.float64, num_hidden_layers=2), TOKENIZER)


def said(text: str) -> list[int]:
    found: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return found


def step_by_step(model: Any, method: str, tokens: list[int]) -> np.ndarray[Any, Any]:
    """Each token explained by itself, after the prompt and what was said before it; and the sum."""
    total = np.zeros(len(PROMPT) + len(tokens) - 1)
    for step, token in enumerate(tokens):
        before = [*PROMPT, *tokens[:step]]
        total[: len(before)] += wherefrom.explain(before, model, method=method, target=token).scores
    return total


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.filterwarnings("ignore:integrated gradients have not converged")
def test_a_phrase_is_the_sum_of_its_tokens(model: Any, method: str) -> None:
    found = wherefrom.explain(PROMPT, model, method=method, target=PHRASE)
    expected = step_by_step(model, method, said(PHRASE))
    assert np.abs(found.scores - expected).max() < 1e-9 * np.abs(expected).max()
    assert found.target.kind == "phrase"
    assert found.target.tokens == tuple(said(PHRASE))
    assert found.explained == f"phrase '{PHRASE}'"
    assert found.segments == ["prompt"] * len(PROMPT) + ["answer"] * (len(said(PHRASE)) - 1)


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.filterwarnings("ignore:integrated gradients have not converged")
def test_a_foil_of_another_length_is_a_difference(model: Any, method: str) -> None:
    found = wherefrom.explain(PROMPT, model, method=method, target=PHRASE, foil=FOIL)
    n, ours, theirs = len(PROMPT), step_by_step(model, method, said(PHRASE)), step_by_step(model, method, said(FOIL))
    expected = np.concatenate([ours[:n] - theirs[:n], ours[n:], -theirs[n:]])
    assert np.abs(found.scores - expected).max() < 1e-9 * np.abs(expected).max()
    assert found.explained == f"phrase '{PHRASE}' rather than '{FOIL}'"
    assert found.segments[n:] == ["answer", "answer", "foil"]


def test_the_number_is_the_log_probability_of_the_whole(model: Any) -> None:
    """As the model itself gives it, in float32 inside."""
    tokens = said(PHRASE)
    with torch.no_grad():
        p = model.model(torch.tensor([[*PROMPT, *tokens]])).logits[0].softmax(-1)
    whole = float(np.prod([float(p[len(PROMPT) - 1 + step, token]) for step, token in enumerate(tokens)]))
    found = wherefrom.explain(PROMPT, model, method="ablation", by="attention", target=PHRASE, of="probability")
    assert found.probabilities[PHRASE] == pytest.approx(whole, rel=1e-4)
    drops = wherefrom.explain(PROMPT, model, method="ablation", by="attention", target=PHRASE)
    assert drops.scores[2] == pytest.approx(-np.log1p(-found.scores[2] / whole), rel=1e-4)


def test_maps_are_read_at_one_row_for_each_token(model: Any) -> None:
    n, k = len(PROMPT), len(said(PHRASE))
    found = wherefrom.explain(PROMPT, model, method="alti", target=PHRASE)
    assert np.allclose(found.scores, found.aggregated[-1, n - 1 : n - 1 + k].mean(0), atol=1e-12)
    for kept in ("row", "scores"):
        alone = wherefrom.explain(PROMPT, model, method="alti", target=PHRASE, keep=kept)
        assert np.allclose(alone.scores, found.scores, atol=1e-9)
    assert "the mean of 3 rows of the map" in found.notes[0]
    with pytest.raises(InvalidTarget, match="the same for every target"):
        wherefrom.explain(PROMPT, model, method="alti", target=PHRASE, foil=FOIL)
    with pytest.raises(Unsuited, match="saliency has no signs"):
        wherefrom.explain(PROMPT, model, method="saliency", target=PHRASE, foil=FOIL)


def test_batches_and_padding_on_the_left_change_nothing(model: Any) -> None:
    longer = [2, 7, 9, 11, 13, 15, 17, 19, 21]
    rows = [[0] * (len(longer) - len(each)) + each for each in (PROMPT, longer)]
    padded = {"input_ids": rows, "attention_mask": [[int(i != 0) for i in row] for row in rows]}
    for method in ("gradient-x-input", "alti-logit", "alti", "ablation(by=attention)", "attn-lrp"):
        alone = [wherefrom.explain(each, model, method=method, target=PHRASE) for each in (PROMPT, longer)]
        together = wherefrom.explain(padded, model, method=method, target=PHRASE)
        for one, other in zip(alone, together, strict=True):
            assert np.allclose(one.scores, other.scores, atol=1e-9)
    mixed = wherefrom.explain(padded, model, method="ablation", target=[PHRASE, "film"], foil=[None, FOIL])
    alone = [
        wherefrom.explain(PROMPT, model, method="ablation", target=PHRASE),
        wherefrom.explain(longer, model, method="ablation", target="film", foil=FOIL),
    ]
    for one, other in zip(alone, mixed, strict=True):
        assert np.allclose(one.scores, other.scores, atol=1e-9)


def test_it_is_read_as_it_follows_the_prompt() -> None:
    """A text, its own tokens kept; saved and made again."""
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    model = wherefrom.open_model(tiny.model("llama", "causal-lm", num_hidden_layers=1), tokenizer)
    found = wherefrom.explain("the cat is", model, method="gradient-x-input", target=PHRASE)
    assert found.tokens == ["the", "cat", "is", "very", "deep"]
    assert found.texts == ("the cat is", PHRASE)
    again = wherefrom.explain(model=model, **found.arguments)
    assert np.allclose(again.scores, found.scores)
    back = wherefrom.Explanation.from_dict(found.to_dict())
    assert (back.target, back.readout, back.segments) == (found.target, found.readout, found.segments)
    assert [word.strip() for word in found.words().tokens] == ["the", "cat", "is", "very", "deep"]
    both = wherefrom.explain("the cat is", model, method="gradient-x-input", target=PHRASE, foil=FOIL)
    assert np.allclose(wherefrom.explain(model=model, **both.arguments).scores, both.scores)
    for target, foil in (("film", FOIL), (PHRASE, "cat")):  # one side a single token, which is no source
        both = wherefrom.explain("the cat is", model, method="gradient-x-input", target=target, foil=foil)
        assert both.arguments["inputs"] == "the cat is"
        assert both.pieces[:3] == ["the", "cat", "is"]
        assert np.allclose(wherefrom.explain(model=model, **both.arguments).scores, both.scores)


def test_what_cannot_be_asked_is_refused(model: Any) -> None:
    with pytest.raises(InvalidTarget, match="needs a target="):
        wherefrom.explain(PROMPT, model, method="gradient-x-input", foil=PHRASE)
    with pytest.raises(InvalidTarget, match="the same phrase"):
        wherefrom.explain(PROMPT, model, method="gradient-x-input", target=PHRASE, foil=PHRASE)
    with pytest.raises(InvalidTarget, match="leave position out"):
        wherefrom.explain(PROMPT, model, method="gradient-x-input", target=PHRASE, position=2)
    with pytest.raises(InvalidTarget, match=r"only as \[UNK\]"):
        wherefrom.explain(PROMPT, model, method="gradient-x-input", target="very ω film")
    short = tiny.model("gpt2", "causal-lm", n_positions=7)
    with pytest.raises(TooLong, match="have 8 tokens but the model reads at most 7"):
        wherefrom.explain(PROMPT, short, TOKENIZER, method="gradient-x-input", target=PHRASE)


def test_a_probability_too_small_for_a_number_is_shown_by_its_logarithm(tmp_path: Path) -> None:
    sure = tiny.model("llama", "causal-lm", num_hidden_layers=1)
    with torch.no_grad():
        sure.lm_head.weight.mul_(3000 / sure.lm_head.weight.abs().max())
        logs = sure(torch.tensor([[*PROMPT, *said(PHRASE)]])).logits[0].log_softmax(-1)
    each = [float(logs[len(PROMPT) - 1 + step, token]) for step, token in enumerate(said(PHRASE))]
    opened = wherefrom.open_model(sure, TOKENIZER)
    found = wherefrom.explain(PROMPT, opened, method="gradient-x-input", target=PHRASE, foil=FOIL)
    assert (found.probabilities[PHRASE], sum(each) < -750) == (0, True)
    assert found.log_probabilities[PHRASE] == pytest.approx(sum(each), rel=1e-5)
    assert set(found.log_probabilities) == {PHRASE, FOIL}
    assert found.likelihood == f"log-probability {found.log_probabilities[PHRASE]:.4g}"
    assert found.likelihood in found.to_html()
    assert wherefrom.Explanation.load(found.save(tmp_path / "long.json")).log_probabilities == found.log_probabilities
    steps = wherefrom.generate(PROMPT, opened, method="gradient-x-input", target=PHRASE)
    assert steps.log_probabilities == pytest.approx(each, rel=1e-5)
    assert steps[1:].log_probabilities == pytest.approx({"deep film": sum(each[1:])}, rel=1e-5)
