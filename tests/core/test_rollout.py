"""Rollout against its definition: the sum over all paths of the product of their weights."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
import wherefrom
from wherefrom.aggregate import rollout
from wherefrom.errors import WherefromWarning
from wherefrom.view.plot.along_edges import through


def paths(maps: np.ndarray, below: np.ndarray, layer: int, i: int, j: int) -> float:
    """Every way from token i of a layer down to input j."""
    n = maps.shape[-1]
    total = 0.0
    for between in itertools.product(range(n), repeat=layer):
        stations = [i, *between, j]
        weights = [maps[layer, stations[0], stations[1]]]
        weights += [below[layer - k, stations[k], stations[k + 1]] for k in range(1, layer + 1)]
        total += float(np.prod(weights))
    return total


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))
def test_rollout_sums_over_paths(n: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps, below = rng.random((2, depth, n, n))
    for under in (maps, below):
        found = rollout(maps, under)
        for layer, i, j in itertools.product(range(depth), range(n), range(n)):
            assert found[layer, i, j] == pytest.approx(paths(maps, under, layer, i, j))


def test_rollout_identities_hold() -> None:
    eye = np.broadcast_to(np.eye(5), (4, 5, 5))
    assert (rollout(eye) == eye).all()
    rng = np.random.default_rng(0)
    stochastic = rng.dirichlet(np.ones(6), size=(7, 6))
    assert np.allclose(rollout(stochastic).sum(-1), 1)
    assert (rollout(stochastic)[0] == stochastic[0]).all()
    order = rng.permutation(6)
    permuted = stochastic[:, order][:, :, order]
    assert np.allclose(rollout(permuted), rollout(stochastic)[:, order][:, :, order])


@pytest.mark.parametrize("size", [1e-9, 1e-3, 30.0, 1e7])
def test_deep_rollouts_of_unnormalised_maps_stay_in_range(size: float) -> None:
    """36 layers leave the range of float32 and at last that of float64, but never become 0 or infinite."""
    exact = (size * np.random.default_rng(0).random((36, 5, 5))).astype(np.float32).astype(np.float64)
    shares = np.eye(5)
    for dtype in (np.float32, np.float64):
        maps = exact.astype(dtype)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = rollout(maps)
        assert found.dtype == dtype
        assert np.isfinite(found).all()
        assert (found > 0).all()
        shares, true = np.eye(5), np.eye(5)
        for layer in range(36):
            shares, true = exact[layer] @ shares, exact[layer] @ true
            shares /= shares.sum()
            assert np.allclose(found[layer] / found[layer].sum(dtype=np.float64), shares, rtol=1e-5)
            if 1e-25 < true.max() < 1e37:  # where float32 holds the numbers themselves, they are what they were
                assert np.allclose(found[layer], true, rtol=1e-5)
        left = not 1e-30 < true.max() < 1e38 if dtype == np.float32 else true.max() < 1e-290
        assert bool(caught) == left
        assert all("read them as shares" in str(each.message) for each in caught)


def exactly(maps: np.ndarray, row: int) -> list[Fraction]:
    """One row of the last layer's rollout in whole numbers, which have no range to leave."""
    reached = [Fraction(int(j == row)) for j in range(maps.shape[-1])]
    for layer in reversed(maps):
        columns = [[Fraction(float(weight)) for weight in column] for column in layer.T]
        reached = [sum((a * b for a, b in zip(reached, column, strict=True)), Fraction(0)) for column in columns]
    return reached


def shares(row: Sequence[Fraction]) -> list[float]:
    return [float(each / sum(row)) for each in row]


def uneven() -> np.ndarray:
    """Causal maps whose first row shrinks to 1e-47 while the last ones grow."""
    maps = np.tril(np.random.default_rng(0).random((36, 6, 6))) * 0.8
    maps[:, 0, 0] = 0.05
    return maps.astype(np.float32)


def test_a_row_far_smaller_than_its_neighbours_keeps_its_shares() -> None:
    maps = uneven()
    with pytest.warns(WherefromWarning, match=r"1[0-9] of 36 layers, which are given only up to a factor"):
        found = rollout(maps)
    for row in range(6):
        assert found[-1, row] / found[-1, row].sum() == pytest.approx(shares(exactly(maps, row)), rel=1e-5, abs=1e-30)
    true = rollout(maps.astype(np.float64))
    assert true[-1, 0, 0] == pytest.approx(0.05**36, rel=1e-5)
    assert np.allclose(found[:, 1:], true[:, 1:], rtol=1e-5)  # the others are what they were, and so is the mean
    assert np.allclose(found.mean(1), true.mean(1), rtol=1e-5)


@pytest.mark.parametrize("sizes", [(1e-9, 1e-4), (1e4, 1e9), (1e-9, 1e9)])
def test_rows_and_layers_of_every_size_keep_their_shares(sizes: tuple[float, float]) -> None:
    """Shares in each row are right, and so is the mean over rows, which a model may be read by."""
    rng = np.random.default_rng(1)
    maps = (rng.random((30, 4, 4)) * np.array([sizes[0], sizes[1], 1.0, sizes[0]])[:, None]).astype(np.float32)
    maps[:, 0, 1:] = 0  # a row that stays with itself
    maps[:, 3] = 0  # and one that is nothing
    with pytest.warns(WherefromWarning, match="read them as shares"):
        found = rollout(maps)
    assert np.isfinite(found).all()
    rows = [exactly(maps, row) for row in range(4)]
    for row in range(3):
        assert found[-1, row] / found[-1, row].sum(dtype=np.float64) == pytest.approx(shares(rows[row]), rel=1e-5)
    assert (found[-1, 3] == 0).all()
    mean, total = found[-1].mean(0), [sum(column, Fraction(0)) for column in zip(*rows, strict=True)]
    assert mean / mean.sum(dtype=np.float64) == pytest.approx(shares(total), rel=1e-5)


def test_rows_are_scaled_without_a_trace_where_all_fits() -> None:
    """Powers of two round nothing: bit by bit the plain product, of maps with signs too."""
    rng = np.random.default_rng(2)
    maps = rng.normal(size=(12, 7, 7)) * 10.0 ** rng.integers(-3, 4, size=(12, 7, 1))
    plain = [maps[0]]
    for layer in maps[1:]:
        plain.append(layer @ plain[-1])
    np.testing.assert_allclose(rollout(maps), plain, rtol=1e-12)
    weights = np.eye(7)[2]
    for layer in range(11, -1, -1):
        np.testing.assert_allclose(through(maps, 2)[layer], weights[:, None] * maps[layer], rtol=1e-12)
        weights = (weights[:, None] * maps[layer]).sum(0)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("row", [0, 5])
def test_edges_of_paths_stay_in_range(size: float, row: int) -> None:
    maps = uneven() * np.float32(size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = through(maps, row)
    assert np.isfinite(found).all()
    first = found[0].sum(0)
    assert first / first.sum() == pytest.approx(shares(exactly(maps, row)), rel=1e-4, abs=1e-7)
    assert len(caught) == (0 if (size, row) == (1.0, 5) else 1)


def test_a_zero_map_makes_all_layers_above_it_zero() -> None:
    maps = np.random.default_rng(3).random((5, 3, 3)).astype(np.float32)
    maps[2] = 0
    assert (rollout(maps)[2:] == 0).all()
    assert (through(maps, 1)[:3] == 0).all()
    assert (through(maps, None)[3:] > 0).all()


def test_single_heads_stand_on_the_mean_of_those_below() -> None:
    model, ids = tiny.model(), tiny.ids(6)
    every = wherefrom.explain(ids, model, method="attention", head="all")
    assert every.head_maps.shape == (3, 4, 6, 6)
    assert np.allclose(every.head_maps.mean(1), every.maps, atol=1e-6)
    for head in range(4):
        one = wherefrom.explain(ids, model, method="attention", head=head)
        assert (one.maps == every.head_maps[:, head]).all()
        assert np.allclose(one.aggregated[0], one.maps[0])
        # Abnar & Zuidema, appendix A.1: A(i, k) times the rollout below, which averages over heads.
        assert np.allclose(one.aggregated[2], one.maps[2] @ every.maps[1] @ every.maps[0], atol=1e-6)
        assert one.options == {"head": head}
    fixed = wherefrom.explain(ids, model, method="attention-fixed-residual", head=1)
    assert np.allclose(fixed.maps, 0.5 * every.head_maps[:, 1] + 0.5 * np.eye(6), atol=1e-6)


def test_raw_attention_is_left_alone() -> None:
    found = wherefrom.explain(tiny.ids(5), tiny.model(), method="attention", aggregate=None)
    assert found.aggregated is None
    assert (found.scores == found.maps[-1, 0]).all()


def test_compare_is_one_pass_for_all() -> None:
    model, ids = tiny.model(), [tiny.ids(5), tiny.ids(7)]
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    opened = wherefrom.open_model(model)
    wherefrom.capture(ids, opened)
    calls.clear()  # the proof takes passes of its own, and the first use one
    names = ["attention", "attention-fixed-residual", "raw-attention", "rollout"]
    together = wherefrom.compare(ids, opened, methods=names)
    assert len(calls) == 1
    for i, comparison in enumerate(together):
        assert list(comparison) == names
        for name, each in comparison.items():
            alone = wherefrom.explain(ids, model, method=name)[i]
            assert np.abs(each.scores - alone.scores).max() <= 1e-6
            assert each.method == {"rollout": "attention-rollout"}.get(name, name)
            assert each.seconds > 0
