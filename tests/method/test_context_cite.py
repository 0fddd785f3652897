"""ContextCite against the authors' arithmetic, scikit-learn and the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_decoders_golden import arrays, having, opened
from tokenizers import processors

import tiny
import wherefrom
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method.context_cite import answers_without, lasso, random_masks, surrogates
from wherefrom.model.phrase import continued
from wherefrom.result.answer import Answer, Readout, Target

TEXT = "the film was good . a cat is bad . the key was deep . the film is"


@pytest.fixture(scope="module")
def speaker() -> dict[str, Any]:
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    return {"model": tiny.model("gpt2", "causal-lm", dtype=torch.float64), "tokenizer": tokenizer}


@having("context_cite")
def test_runs_and_weights_are_the_authors(case: str) -> None:
    golden, model = arrays(case, "context_cite"), opened(case)
    response = golden["response"].tolist()
    prompt = model.reader().read(golden["prompt"].tolist())[0][0]
    sentence = continued(model, prompt, response)
    rows = tuple(range(len(prompt) - 1, len(sentence)))
    answer = Answer(Target("phrase", response[0], tokens=tuple(response)), Readout(None, "", rows), None, {})
    units = [list(range(*each)) for each in golden["spans"]]
    masks = random_masks(len(units), 64, 0.5, 0)
    assert (masks == golden["masks"]).all()
    for of, name in (("logit-probability", "logit_prob"), ("log-probability", "log_prob")):
        runs = answers_without(model, [sentence], [[answer]], [units], [masks], of, "delete")[0][:, 0]
        assert np.allclose(runs, golden[f"outputs/{name}"], atol=1e-10)
        if name == "logit_prob":
            (found,) = surrogates(masks, runs[:, None], [len(response)], 0.01)
            assert np.allclose([each["weight"] for each in found["units"]], golden["weights"], atol=1e-6)
            assert found["bias"] == pytest.approx(float(golden["bias"]), abs=1e-6)
    second = lasso(masks[None].astype(float), golden["logit_probs"][None, :, 1:2], 0.01)[0][0, :, 0]
    assert np.allclose(second, golden["weights_second_token"], atol=1e-6)


def test_the_lasso_is_scikit_learns() -> None:
    linear, preprocessing = (pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "preprocessing"))
    rng = np.random.default_rng(0)
    x = (rng.random((3, 40, 6)) < 0.5).astype(float)
    x[1, :, 2] = 1  # never missing: no weight
    y = x @ np.array([2.0, 0, -1, 0.5, 0, 0]) + 0.3 * rng.normal(size=(3, 40))
    weights, bias = (found[..., 0] for found in lasso(x, y[..., None], 0.05))
    for which in range(3):
        scaler = preprocessing.StandardScaler().fit(x[which])
        theirs = linear.Lasso(alpha=0.05, tol=1e-10).fit(scaler.transform(x[which]), y[which])
        assert np.allclose(weights[which] * scaler.scale_, theirs.coef_, atol=1e-3)  # both stop before the optimum
        assert bias[which] == pytest.approx(theirs.intercept_ - (weights[which] * scaler.mean_).sum(), abs=1e-6)
    assert weights[1, 2] == 0


def test_a_linear_answer_is_found_and_believed_and_noise_is_not() -> None:
    masks = random_masks(5, 64, 0.5, 1)
    true = np.array([3.0, 0, -2, 0, 1])
    answers = np.stack([masks @ true - 4, np.zeros(64)], -1)
    found, nothing = surrogates(masks, answers, [1, 1], 1e-6)
    assert np.allclose([each["weight"] for each in found["units"]], true, atol=1e-3)
    assert found["bias"] == pytest.approx(-4, abs=1e-3)
    assert found["correlation"] > 0.95
    assert all(each["low"] - 1e-3 <= each["weight"] <= each["high"] + 1e-3 for each in found["units"])
    (noise,) = surrogates(masks, np.random.default_rng(3).normal(size=(64, 1)), [1], 0.01)
    assert noise["correlation"] < 0.5
    assert nothing["correlation"] is None


def slow_lasso(x: np.ndarray, y: np.ndarray, alpha: float) -> tuple[np.ndarray, float]:
    """One fit to x [N, S] and y [N], each weight against what the others leave of y."""
    mean, scale = x.mean(0), np.where(x.std(0) == 0, 1, x.std(0))
    z, weights = (x - mean) / scale, np.zeros(x.shape[1])
    for _ in range(1000):
        before = weights.copy()
        for s in range(len(weights)):
            rest = y - y.mean() - np.delete(z, s, 1) @ np.delete(weights, s)
            pull = (z[:, s] * rest).mean()
            weights[s] = np.sign(pull) * max(abs(pull) - alpha, 0) if z[:, s].any() else 0
        if abs(weights - before).max() <= 1e-4 * abs(weights).max():
            break
    return weights / scale, y.mean() - (weights / scale * mean).sum()


def test_fits_that_share_a_design_are_those_of_each_alone() -> None:
    rng = np.random.default_rng(1)
    x = (rng.random((3, 24, 5)) < 0.5).astype(float)
    x[1, :, 2] = 1
    y = x @ rng.normal(size=(3, 5, 4)) + 0.3 * rng.normal(size=(3, 24, 4))
    y[:, :, 3] = 0.2
    weights, bias = lasso(x, y, 0.03)
    for r in range(3):
        for k in range(4):
            alone = slow_lasso(x[r], y[r, :, k], 0.03)
            assert np.allclose(weights[r, :, k], alone[0], atol=1e-10)
            assert bias[r, k] == pytest.approx(alone[1], abs=1e-10)


def test_a_units_weight_is_what_its_tokens_sum_to(speaker: dict[str, Any]) -> None:
    found = wherefrom.explain(TEXT, method="context-cite", target="good", **speaker)
    fit = found.surrogate
    assert fit is not None
    assert [each["text"] for each in fit["units"]] == ["the film was good .", "a cat is bad .", "the key was deep ."]
    by_sentence = found.by("sentence")
    assert np.allclose(
        by_sentence.scores, [*(each["weight"] for each in fit["units"]), 0]
    )  # the last one is the question
    assert "ρ = " in found.remarks[-1]
    assert found.fit == f"held-out ρ {fit['correlation']:.2f}"
    assert found.fit in found._repr_html_()
    assert wherefrom.Explanation.from_dict(found.to_dict()).surrogate == fit


def test_the_weights_are_those_of_the_texts_read_one_by_one(speaker: dict[str, Any]) -> None:
    """The formula once more: each run by the model itself on what is left, the fit in closed form without a penalty."""
    found = wherefrom.explain(TEXT, method="context-cite(n_masks=16, alpha=1e-9)", target="good", **speaker)
    sentences, last = TEXT.split(" . ")[:3], TEXT.split(" . ")[3]
    token = speaker["tokenizer"].convert_tokens_to_ids("good")
    masks = random_masks(3, 16, 0.5, 0)
    outputs = []
    for mask in masks:
        left = " ".join(f"{each} ." for each, stays in zip(sentences, mask, strict=True) if stays)
        read = speaker["tokenizer"](f"{left} {last}".strip(), return_tensors="pt")
        with torch.no_grad():
            p = speaker["model"](**read).logits[0, -1].softmax(-1)[token].item()
        outputs.append(np.log(p / (1 - p)))
    design = np.column_stack([masks, np.ones(16)])
    expected = np.linalg.lstsq(design, np.array(outputs), rcond=None)[0][:3]
    assert found.surrogate is not None
    assert np.allclose([each["weight"] for each in found.surrogate["units"]], expected, atol=1e-3 * abs(expected).max())


def test_units_are_what_was_asked_for(speaker: dict[str, Any]) -> None:
    def units(text: str, unit: str, **more: Any) -> list[str]:
        found = wherefrom.explain(text, method=f"context-cite(n_masks=10, unit={unit})", **more, **speaker)
        assert found.surrogate is not None
        return [each["text"] for each in found.surrogate["units"]]

    assert units("a good film is", "auto") == ["a", "good", "film"]
    assert units("a cat\n\nthe film was good .\nthe key\n\na key is", "document") == [
        "a cat",
        "the film was good .\nthe key",
    ]
    assert units("a cat\nthe key\na key is", "line") == ["a cat", "the key"]
    assert units(TEXT, "[[0,8],[39,53]]") == ["the film", "key was deep ."]
    said = wherefrom.explain(TEXT, method="context-cite(n_masks=10)", target="good and bad", **speaker)
    assert not said.scores[[i for i, name in enumerate(said.segments) if name == "answer"]].any()
    with pytest.raises(NotDefined, match="no part of the text"):
        units("film", "auto")
    with pytest.raises(InvalidOption, match="pairs of whole numbers"):
        units(TEXT, "[[0,8,9]]")


def test_the_first_token_of_an_answer_has_what_it_has_alone(speaker: dict[str, Any]) -> None:
    """One set of runs serves all tokens of an answer."""
    g = wherefrom.generate(TEXT, method="context-cite(n_masks=10)", max_new_tokens=2, **speaker)
    first = wherefrom.explain(
        TEXT, method="context-cite(n_masks=10, of=log-probability)", target=g.ids[g.start], **speaker
    )
    assert np.allclose(g.scores[0, : g.start], first.scores, atol=1e-9)
    assert (g.scores[1, : g.start] != 0).any()


@pytest.mark.parametrize("seed", [2**32 - 1, 2**63 - 1])
def test_a_seed_beyond_what_numpy_takes_draws_too(seed: int) -> None:
    found = wherefrom.explain("the cat is good", tiny.model(), tiny.tokenizer(), method="context-cite", seed=seed)
    assert np.isfinite(found.scores).all()


def test_an_answer_that_is_certain_without_a_part_is_refused_with_a_way_out() -> None:
    """Of one token that is left, both edges of an answer are sure."""
    model = tiny.model("bert", "question-answering")
    asked = {"inputs": [2, 8, 30, 3], "model": model, "method": "context-cite"}
    with pytest.raises(wherefrom.errors.NotDefined, match=r"the answer is certain, or impossible, .* of='probability'"):
        wherefrom.explain(**asked)
    assert np.isfinite(wherefrom.explain(**asked, of="probability").scores).all()
