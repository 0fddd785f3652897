"""A model in half precision is explained nearly as in float64: its probabilities and differences are not rounded."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.metric.erasure import erasure
from wherefrom.model import OutputTrace, open_model
from wherefrom.model import answer as ask

TEXT = "a deep and meaningful film ."


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """wherefrom/sentiment, sure of itself as trained models are: p(positive) is 0.997, where bfloat16 has no steps."""
    opened = open_model("wherefrom/sentiment")
    made = {name: copy.deepcopy(opened.model).to(getattr(torch, name)) for name in ("float64", "bfloat16", "float16")}
    return {**made, "tokenizer": opened.tokenizer}


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("method", "options", "off"),
    [
        ("ablation", {}, 0.05),
        ("ablation", {"of": "logit"}, 0.05),
        ("ablation", {"foil": "negative"}, 0.05),
        ("ablation", {"of": "logit", "foil": "negative"}, 0.05),
        ("saliency", {"of": "probability"}, 0.1),
    ],
)
def test_scores_near_those_of_float64(models: dict[str, Any], half: str, method: str, options: Any, off: float) -> None:
    exact, low = (
        wherefrom.explain(TEXT, models[name], models["tokenizer"], method=method, target="positive", **options).scores
        for name in ("float64", half)
    )
    assert low.dtype in (np.float32, np.float64)
    assert np.abs(low - exact).max() <= off * np.abs(exact).max()
    assert len(set(low[np.abs(exact) > 0.1 * np.abs(exact).max()])) > 1


@pytest.mark.parametrize(("layout", "seed"), [("phi", 2), ("gptj", 3), ("bloom", 1)])
def test_deeplift_knows_attention_that_float16_has_no_number_for(layout: str, seed: int) -> None:
    """Below 3e-8 a weight is 0 there; its logarithm, which the rule for the softmax takes, is not that of 0.

    BLOOM does not show its keys: by which rule they are made is seen on the text, since on a baseline of one token all
    rules are alike.
    """
    low, exact = (tiny.model(layout, "causal-lm", dtype=dtype, seed=seed) for dtype in (torch.float16, torch.float64))
    with torch.no_grad():
        for ours, theirs in zip(exact.parameters(), low.parameters(), strict=True):
            ours.copy_(theirs)
    ids = tiny.ids(6)
    lost = [(layer.attention == 0) & torch.ones(6, 6).tril().bool() for layer in wherefrom.capture(ids, low).layers]
    assert any(each.any() for each in lost)
    found, expected = (wherefrom.explain(ids, model, method="deeplift(baseline=4)", target=7) for model in (low, exact))
    assert np.abs(found.scores - expected.scores).max() <= 0.01 * np.abs(expected.scores).max()


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_erasure_near_that_of_float64(models: dict[str, Any], half: str) -> None:
    found = wherefrom.explain(TEXT, models["float64"], models["tokenizer"], method="saliency")
    exact, low = (erasure(TEXT, found, models[name], models["tokenizer"]) for name in ("float64", half))
    assert low.aopc == pytest.approx(exact.aopc, rel=0.05)
    assert low.log_odds == pytest.approx(exact.log_odds, rel=0.05)
    assert low.drops[1:].all()


@pytest.mark.parametrize(
    ("target", "of"),
    [("start", "probability"), ("end", "probability"), ("answer", "probability"), ("answer", "logit")],
)
def test_what_is_made_of_an_answers_logits_is_not_rounded_again(target: str, of: str) -> None:
    model, tokenizer = tiny.model(task="question-answering", dtype=torch.bfloat16), tiny.tokenizer()
    numbers = []
    for text in ("the keys are good", "a cat is not a dog", "the film is deep", "a very bad key"):
        trace = wherefrom.capture(text, model, tokenizer)
        answer = ask(trace.opened, trace.batch.sentences[0], trace.output, 0, target)
        numbers.append(OutputTrace(trace, [answer]).number(of)[0])
    assert all(number.dtype == torch.float32 for number in numbers)
    assert any(number != number.bfloat16() for number in numbers)
