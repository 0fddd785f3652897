"""Evenness of scores: the formula, its ends, and the metric of that name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.metric.evenness import evenness

TEXT = "the film is not very meaningful , and not good ."


def oracle(scores: list[float], k: int) -> float:
    """Entropy of the k largest scores' shares, in units of its largest value."""
    largest = sorted(scores, reverse=True)[:k]
    shares = [score / sum(largest) for score in largest]
    return sum(-p * math.log(p) for p in shares if p > 0) / math.log(k)


@given(st.lists(st.floats(0.01, 10), min_size=4, max_size=12))
def test_evenness_is_the_formulas(scores: list[float]) -> None:
    n = len(scores)
    assert evenness(scores) == pytest.approx(oracle(scores, n), rel=1e-9)
    assert evenness(scores, top=0.5) == pytest.approx(oracle(scores, (n + 1) // 2), rel=1e-9)
    assert evenness([-score for score in scores]) == pytest.approx(evenness(scores), rel=1e-9)


def test_its_ends() -> None:
    assert evenness([2.0] * 7) == pytest.approx(1)
    assert evenness([0, 3.0, 0]) == 0
    assert evenness([3.0, 2.0, 2.0, 0.0], top=0.75) == pytest.approx(oracle([3, 2, 2], 3))
    assert np.isnan([evenness([1.0]), evenness([0.0, 0.0]), evenness([1.0, 2.0], top=0.5)]).all()
    for wrong in ([[1.0, 2.0]], [1.0, float("nan")]):
        with pytest.raises(WherefromError):
            evenness(wrong)


def test_the_metric_is_taken_of_the_scores_and_of_every_layer() -> None:
    model, tokenizer = tiny.model(), tiny.tokenizer()
    metrics = ["evenness", "evenness@layers", "evenness(top=0.5)@layers"]
    run = wherefrom.evaluate([TEXT], model, tokenizer, ["attention-rollout", "raw-attention"], metrics)
    rollout = wherefrom.explain(TEXT, model, tokenizer, method="attention-rollout", rows="all")
    raw = wherefrom.explain(TEXT, model, tokenizer, method="attention", rows="all", aggregate=None)
    assert rollout.aggregated is not None
    assert raw.maps is not None
    values = {(key.method, key.metric, key.layer): found.mean for key, found in run.summary.items()}
    n = len(rollout)
    assert values["attention-rollout", "evenness", None] == pytest.approx(oracle(rollout.scores.tolist(), n), rel=1e-5)
    for layer in range(3):
        row = rollout.aggregated[layer][0].tolist()
        assert values["attention-rollout", "evenness@layers", layer] == pytest.approx(oracle(row, n), rel=1e-5)
        half = values["attention-rollout", "evenness(top=0.5)@layers", layer]
        assert half == pytest.approx(oracle(row, (n + 1) // 2), rel=1e-5)
        own = raw.maps[layer][0].tolist()
        assert values["raw-attention", "evenness@layers", layer] == pytest.approx(oracle(own, n), rel=1e-5)
