"""Flow: against Edmonds and Karp, against the authors' numbers, against its bounds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden
import tiny
import wherefrom
from oracles import flow as oracle
from wherefrom.aggregate.flow import flow, flow_values
from wherefrom.progress import wanted_by

FLOW = sys.modules["wherefrom.aggregate.flow"]  # the package shows the function under this name


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(kind: str, depth: int, n: int, seed: int) -> np.ndarray:
    """Maps of the kinds that attention takes, residual included."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(depth, n, n))
    if kind == "peaked":
        logits *= 6
    elif kind == "one-hot":
        logits *= 40
    elif kind == "causal":
        logits = np.where(np.tri(n, dtype=bool), 3 * logits, -np.inf)
    elif kind == "identity":
        logits = 4 * logits + 6 * np.eye(n)
    elif kind == "heads":  # the mean of sharp heads, some of which look at the first or last token
        logits = 3 * rng.normal(size=(12, depth, n, n))
        logits[..., 0] += 3 * rng.normal(size=(12, depth, 1))
        logits[..., -1] += 4 * rng.random(size=(12, depth, 1))
        return 0.5 * softmax(logits).mean(0) + 0.5 * np.eye(n)
    return 0.5 * softmax(logits) + 0.5 * np.eye(n)


KINDS = ("random", "peaked", "one-hot", "causal", "identity", "heads")


@pytest.mark.parametrize("kind", KINDS)
def test_every_flow_is_the_maximum(kind: str) -> None:
    maps = attention(kind, depth=5, n=5, seed=3)
    assert np.abs(flow_values(maps) - oracle.flow_values(maps)).max() <= 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_deep_rows_are_the_maximum(kind: str) -> None:
    maps = attention(kind, depth=8, n=9, seed=4)
    found = flow_values(maps)[-1]
    for i, j in ((0, 0), (0, 5), (4, 1), (8, 8), (8, 0)):
        assert found[i, j] == pytest.approx(oracle.flow_value(maps, i, j), abs=1e-7)


@given(st.integers(1, 5), st.integers(1, 4), st.floats(0, 1), st.floats(0.01, 100), st.integers(0, 2**31))
def test_random_capacities_give_the_maximum_flow(n: int, depth: int, density: float, size: float, seed: int) -> None:
    """Zeros, rows of zeros and rows that do not sum to one included."""
    rng = np.random.default_rng(seed)
    maps = size * rng.random((depth, n, n)) * (rng.random((depth, n, n)) < density)
    assert np.abs(flow_values(maps) - oracle.flow_values(maps)).max() <= 1e-7 * max(size, 1)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
def test_a_head_stands_on_the_mean_of_those_below(n: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps, below = rng.dirichlet(np.full(n, 0.3), size=(2, depth, n))
    assert np.abs(flow_values(maps, below) - oracle.flow_values(maps, below)).max() <= 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_flow_identities_hold_for_random_maps(kind: str) -> None:
    maps = attention(kind, depth=6, n=12, seed=0)
    values = flow_values(maps)
    assert (values[0] == maps[0]).all()
    assert np.allclose(values[1], np.minimum(maps[1][:, :, None], maps[0][None]).sum(1))
    for layer in range(6):  # no more than leaves the source, no more than reaches the sink
        assert (values[layer] <= maps[layer].sum(1)[:, None] + 1e-7).all()
        assert (values[layer] <= maps[0].sum(0) + 1e-7).all()
    shares = flow(maps)
    assert np.allclose(shares.sum(-1), 1)
    assert np.allclose(shares, values / values.sum(-1, keepdims=True))
    order = np.random.default_rng(1).permutation(12)
    permuted = flow_values(maps[:, order][:, :, order])
    assert np.abs(permuted - values[:, order][:, :, order]).max() <= 1e-7
    assert np.abs(flow_values(3 * maps) - 3 * values).max() <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_true_ties_stay_ties(kind: str, seed: int) -> None:
    """Tokens 2, 3 and 4 may change places without any map changing: every other token draws on them alike."""
    maps = attention(kind, depth=5, n=7, seed=seed)
    swaps = [np.arange(7), *(np.array([0, 1, *order, 5, 6]) for order in ((3, 2, 4), (4, 3, 2), (2, 4, 3)))]
    swaps += [np.array([0, 1, *order, 5, 6]) for order in ((3, 4, 2), (4, 2, 3))]
    maps = np.mean([maps[:, order][:, :, order] for order in swaps], axis=0)
    for found in (flow_values(maps), flow(maps), flow(maps, rows=[0, 1])):
        others = [0, 1] if found.shape[1] == 2 else [0, 1, 5, 6]
        for layer in found[1:]:
            assert (layer[others, 2] == layer[others, 3]).all()
            assert (layer[others, 3] == layer[others, 4]).all()


def test_a_solved_flow_is_its_cut() -> None:
    """No solver's rounding is left: flows are as exact as sums of float64."""
    for kind in ("peaked", "causal", "identity"):
        maps = attention(kind, depth=5, n=6, seed=7)
        solved = FLOW._solve(maps[-1][:2], maps[:-1], np.array([[i, j] for i in (0, 1) for j in range(6)]))
        expected = [oracle.flow_value(maps, i, j) for i in (0, 1) for j in range(6)]
        assert np.abs(solved - expected).max() <= 1e-12


@pytest.mark.parametrize("edges", [1, 200, FLOW.EDGES])
@pytest.mark.parametrize("shared", [1, FLOW.SHARED])
def test_flows_that_are_solved_together_are_those_of_each_alone(
    edges: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder of two blocks and a decoder of two over four and three tokens: other nodes lead to each input."""
    monkeypatch.setattr(FLOW, "EDGES", edges)
    monkeypatch.setattr(FLOW, "SHARED", shared)
    s, rng = 4, np.random.default_rng(5)
    maps = np.stack([np.eye(7)] * 6)
    for block in maps[:2]:
        block[:s, :s] = 0.5 * block[:s, :s] + 0.5 * softmax(3 * rng.normal(size=(s, s)))
    for to_itself, to_source in zip(maps[2::2], maps[3::2], strict=True):
        to_itself[s:, s:] = 0.5 * (np.eye(3) + softmax(np.where(np.tri(3) > 0, 3 * rng.normal(size=(3, 3)), -np.inf)))
        to_source[s:] = 0.5 * np.concatenate([softmax(3 * rng.normal(size=(3, s))), np.eye(3)], 1)
    assert np.abs(flow_values(maps) - oracle.flow_values(maps)).max() <= 1e-12
    every = np.array([[i, j] for i in range(7) for j in range(7)])
    solved = FLOW._solve(maps[-1], maps[:-1], every).reshape(7, 7)
    assert np.abs(solved - [[oracle.flow_value(maps, i, j) for j in range(7)] for i in range(7)]).max() <= 1e-12


def test_identity_and_zero_maps_stay_as_they_are() -> None:
    eye = np.broadcast_to(np.eye(4), (5, 4, 4))
    assert (flow(eye) == eye).all()
    nothing = np.zeros((4, 3, 3))
    assert (flow(nothing) == 0).all()
    assert (flow(np.ones((3, 1, 1))) == 1).all()
    assert flow(np.ones((3, 2, 2), dtype=np.float32)).dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_single_rows_are_rows_of_the_whole(kind: str) -> None:
    maps = attention(kind, depth=7, n=10, seed=5)
    whole = flow_values(maps)
    assert np.abs(flow_values(maps, rows=[9, 2]) - whole[:, [9, 2]]).max() <= 1e-7
    assert np.abs(flow_values(maps, rows=[4], last=True) - whole[-1:, [4]]).max() <= 1e-7
    assert (flow_values(maps, last=True) == whole[-1:]).all()
    assert np.abs(flow(maps, rows=[9]) - flow(maps)[:, [9]]).max() <= 1e-7


@pytest.mark.parametrize("kind", ["random", "heads"])
def test_bounds_settle_the_usual_case(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deep and diffuse attention needs no solver, and gets the same answer."""
    maps = attention(kind, depth=8, n=40, seed=0)
    solved = FLOW._solve(maps[-1][[3]], maps[:-1], np.array([[0, j] for j in range(40)]))
    monkeypatch.setattr(FLOW, "_solve", lambda *_: pytest.fail("the solver was called"))
    found = FLOW._layer(maps[-1][[3]], maps[:-1], np.full((40, 40), np.inf), known=False)[0]
    assert np.abs(found - solved).max() <= 1e-7


@pytest.mark.parametrize("seed", range(40))
def test_what_spreads_fully_is_feasible(seed: int) -> None:
    """Capacities of very different size: a flow that claims to reach the cut must exist."""
    rng = np.random.default_rng(seed)
    maps = rng.random((7, 3, 3)) * np.exp(1.5 * rng.normal(size=(7, 3, 1)))
    cut = np.minimum(maps[-1][0].sum(), maps[0].sum(0))
    found = FLOW._spread(maps[-1][0], maps[:-1], np.arange(3), cut)
    for sink in np.flatnonzero(found >= cut * (1 - 1e-8)):
        assert oracle.flow_value(maps, 0, int(sink)) == pytest.approx(cut[sink], rel=1e-7)


def test_what_cannot_flow_is_refused() -> None:
    for wrong in (-0.1, np.nan, np.inf):
        maps = np.ones((2, 3, 3))
        maps[1, 1, 1] = wrong
        with pytest.raises(wherefrom.WherefromError, match="not negative"):
            flow(maps)


def test_flows_that_nobody_waits_for_any_more_are_broken_off() -> None:
    maps = np.random.default_rng(0).dirichlet([0.1] * 30, size=(6, 30))
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise InterruptedError

    with pytest.raises(InterruptedError), wanted_by(check):
        flow(maps)
    assert looks == 4
    assert flow(maps[:2]).shape == (2, 30, 30)  # afterwards as before


CASES = [(case, sentence) for case in golden.having("attention_flow") for sentence in case.sentences("attention_flow")]


@pytest.mark.parametrize(("case", "sentence"), CASES, ids=lambda each: getattr(each, "name", each))
def test_flow_equals_the_authors_numbers(case: golden.Golden, sentence: str) -> None:
    """Abnar & Zuidema's own code, in float64."""
    found = wherefrom.explain(case.ids(sentence), case.model(), method="attention-flow")
    if ("attention_flow", f"{sentence}_flow") in case:
        expected = case["attention_flow", f"{sentence}_flow"]
        assert np.abs(found.aggregated - expected).max() <= 1e-6
    if ("attention_flow", f"{sentence}_flow_lastlayer_rows") in case:
        expected = case["attention_flow", f"{sentence}_flow_lastlayer_rows"]
        assert np.abs(found.aggregated[-1, : len(expected)] - expected).max() <= 1e-6
    rollout = wherefrom.explain(case.ids(sentence), case.model(), method="attention-rollout").aggregated
    assert np.abs(rollout - case["attention_flow", f"{sentence}_rollout"]).max() <= 1e-10


MAXFLOW = [
    (case, sentence, key)
    for case in golden.having("globenc_maxflow")
    for sentence in case.sentences("globenc_maxflow")
    for key in case.keys("globenc_maxflow")
    if key.startswith(f"{sentence}_") and key.endswith("_maxflow")
]


@pytest.mark.parametrize(("case", "sentence", "key"), MAXFLOW, ids=lambda each: getattr(each, "name", each))
def test_flow_equals_globencs_numbers(case: golden.Golden, sentence: str, key: str) -> None:
    """GlobEnc's own code on each of its maps, which are not normalised first."""
    name = key.removeprefix(f"{sentence}_").removesuffix("_maxflow")
    maps = case["globenc", f"{sentence}_{name}"]
    expected = case["globenc_maxflow", key]
    assert np.abs(flow(maps)[-len(expected) :] - expected).max() <= 1e-6
    raw = f"{key}_nx_unnormalised"
    if ("globenc_maxflow", raw) in case:
        values = case["globenc_maxflow", raw]
        assert np.abs(flow_values(maps)[-1] - values).max() <= 1e-6 * values.max()


def test_the_readout_row_alone_equals_that_row_of_all() -> None:
    model, ids = tiny.model(), tiny.ids(9)
    whole = wherefrom.explain(ids, model, method="attention-flow")
    row = wherefrom.explain(ids, model, method="attention-flow", rows="readout")
    assert row.aggregated is None
    assert np.abs(row.layer_scores - whole.aggregated[:, 0]).max() <= 1e-6
    assert np.abs(row.scores - whole.scores).max() <= 1e-6
    rolled = wherefrom.explain(ids, model, method="attention-rollout", rows="readout")
    assert np.allclose(rolled.scores, wherefrom.explain(ids, model, method="attention-rollout").scores)
    mean = wherefrom.explain(ids, model, method="attention-flow", rows="readout", position="mean")
    assert np.abs(mean.scores - whole.aggregated[-1].mean(0)).max() <= 1e-6


def test_all_flows_of_a_long_text_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherefrom.pipeline.shelf.LARGE_FLOW", 100)
    with pytest.warns(wherefrom.WherefromWarning, match="rows='readout'"):
        wherefrom.explain(tiny.ids(9), tiny.model(), method="attention-flow")
    wherefrom.explain(tiny.ids(9), tiny.model(), method="attention-flow", rows="readout")
