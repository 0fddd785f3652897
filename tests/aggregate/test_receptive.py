"""The correction for the receptive field: an even reader ends with an even score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
import wherefrom
from wherefrom.aggregate import aggregate, aggregate_row
from wherefrom.aggregate.receptive import even_reader

N = 7


def uniform(residual: float, depth: int = 4) -> np.ndarray:
    visible = np.tri(N)
    attention = visible / visible.sum(1, keepdims=True)
    return np.broadcast_to((1 - residual) * attention + residual * np.eye(N), (depth, N, N)).copy()


@pytest.mark.parametrize("name", ["rollout", "flow"])
@pytest.mark.parametrize("residual", [0.0, 0.5, 0.9])
def test_uniform_attention_becomes_uniform(name: str, residual: float) -> None:
    maps = uniform(residual)
    plain = aggregate(name, maps)
    assert plain[-1, -1, 0] > 1.2 * plain[-1, -1, -2]  # the bias towards the first tokens that Abnar & Zuidema name
    found = aggregate(name, maps, receptive_field=True)
    visible = np.tri(N)
    assert np.abs(found - visible / visible.sum(1, keepdims=True)).max() <= 1e-6
    assert np.abs(aggregate_row(name, maps, N - 1, receptive_field=True) - 1 / N).max() <= 1e-6


@pytest.mark.parametrize("name", ["rollout", "flow"])
@given(seed=st.integers(0, 2**31), depth=st.integers(1, 3))
def test_the_correction_equals_its_formula(name: str, seed: int, depth: int) -> None:
    maps = np.random.default_rng(seed).random((depth, 4, 4)) * np.tri(4)
    even = maps.copy()
    for layer in range(depth):
        for i in range(4):
            for j in range(i):
                even[layer, i, j] = maps[layer, i, :i].sum() / i
    assert np.allclose(even_reader(maps), even)
    found, expected = aggregate(name, maps), aggregate(name, even)
    ratio = np.where(np.tri(4) > 0, found / np.where(expected > 0, expected, 1), 0)
    corrected = aggregate(name, maps, receptive_field=True)
    assert np.allclose(corrected, ratio / ratio.sum(-1, keepdims=True), atol=1e-6)
    assert np.allclose(aggregate_row(name, maps, 2, receptive_field=True), corrected[:, 2], atol=1e-6)


def test_hidden_tokens_are_outside_the_field() -> None:
    visible = np.array([False, True, True, True])
    maps = np.random.default_rng(0).random((3, 4, 4)) * np.tri(4, k=-1) * visible + np.eye(4)
    even = even_reader(maps, visible)
    assert (even[:, 1:, 0] == 0).all()
    assert np.allclose(even.sum(-1), maps.sum(-1))
    assert np.allclose(even[:, 3, 1], even[:, 3, 2])


def test_a_head_is_compared_with_an_even_head() -> None:
    maps, below = uniform(0.2), uniform(0.5)
    found = aggregate("rollout", maps, below, receptive_field=True)
    assert np.allclose(found[-1, -1], 1 / N)


def test_explain_corrects_for_the_receptive_field() -> None:
    model, ids = tiny.model("gpt2", "encoder"), tiny.ids(6)
    plain = wherefrom.explain(ids, model, method="attention-rollout")
    for name in ("attention-rollout", "attention-flow"):
        found = wherefrom.explain(ids, model, method=name, receptive_field=True)
        kind = found.aggregate
        assert np.allclose(found.aggregated, aggregate(kind, plain.maps, receptive_field=True), atol=1e-6)
        assert np.allclose(found.aggregated.sum(-1), 1, atol=1e-6)
        assert found.options == {"receptive_field": True}
        assert np.abs(found.scores - wherefrom.explain(ids, model, method=name).scores).max() > 0.01


@pytest.mark.parametrize("layout", ["llama", "gemma2", "mistral", "bloom"])
@pytest.mark.parametrize("name", ["attention-rollout", "attention-flow"])
def test_decoders_are_compared_with_a_reader_that_sees_what_they_see(layout: str, name: str) -> None:
    """Windows of four in every layer of Mistral, in every other one of Gemma 2."""
    model, ids = tiny.model(layout, "causal-lm", num_hidden_layers=2), tiny.ids(7)
    windows = {"gemma2": [4, 7], "mistral": [4, 4]}.get(layout, [7, 7])
    maps = wherefrom.explain(ids, model, method=name).maps
    even = np.zeros_like(maps)
    for layer, window in enumerate(windows):
        for i in range(7):
            seen = range(max(0, i - window + 1), i)
            even[layer, i, i] = maps[layer, i, i]
            for j in seen:
                even[layer, i, j] = maps[layer, i, :i].sum() / len(seen)
    found = wherefrom.explain(ids, model, method=name, receptive_field=True)
    plain, expected = aggregate(found.aggregate, maps), aggregate(found.aggregate, even)
    ratio = np.where(expected > 0, plain / np.where(expected > 0, expected, 1), 0)
    assert np.allclose(found.aggregated, ratio / ratio.sum(-1, keepdims=True), atol=1e-5)
    padded = {"input_ids": [0, 0, *ids], "attention_mask": [0, 0, *[1] * 7]}
    left = wherefrom.explain(padded, model, method=name, receptive_field=True)
    assert np.allclose(left.scores, found.scores, atol=1e-5)


def test_the_correction_is_refused_where_it_has_no_meaning() -> None:
    with pytest.raises(wherefrom.WherefromError, match="sees all"):
        wherefrom.explain(tiny.ids(4), tiny.model(), receptive_field=True)
    with pytest.raises(wherefrom.WherefromError, match="corrects rollout and flow, not none"):
        wherefrom.explain(tiny.ids(4), tiny.model("gpt2", "encoder"), method="raw-attention", receptive_field=True)
    with pytest.raises(wherefrom.WherefromError, match="which 'saliency' has not; leave it out"):
        wherefrom.explain(tiny.ids(4), tiny.model("gpt2", "causal-lm"), method="saliency", receptive_field=True)
    with pytest.raises(wherefrom.WherefromError, match="look ahead"):
        aggregate("rollout", np.ones((2, 3, 3)), receptive_field=True)
