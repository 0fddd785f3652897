"""Paired comparison against the textbook formulas, written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wherefrom.errors import WherefromError
from wherefrom.metric.significance import every_pair, holm, paired


def signed_rank_p(d: list[float]) -> float:
    """The exact two-sided p of the signed ranks: every assignment of signs is as likely as every other."""
    ranks = [1 + sum(abs(e) < abs(x) for e in d) for x in d]
    observed = sum(rank for x, rank in zip(d, ranks, strict=True) if x > 0)
    centre = sum(ranks) / 2
    sums = [sum(r for r, sign in zip(ranks, signs, strict=True) if sign) for signs in product([0, 1], repeat=len(d))]
    return float(np.mean([abs(s - centre) >= abs(observed - centre) for s in sums]))


def test_paired_tests_equal_their_formulas() -> None:
    rng = np.random.default_rng(3)
    b = rng.random(9)
    a = b + rng.normal(0.2, 0.3, 9)
    found = paired(a, b)
    d = (a - b).tolist()
    mean = sum(d) / 9
    deviation = np.sqrt(sum((x - mean) ** 2 for x in d) / 8)
    assert found.difference == pytest.approx(mean)
    assert found.effect == pytest.approx(mean / deviation)
    assert found.t == pytest.approx(mean / (deviation / 3))
    assert found.t_p == pytest.approx(2 * stats.t.sf(abs(found.t), 8))
    assert found.wilcoxon_p == pytest.approx(signed_rank_p(d))
    ranks = {x: 1 + sum(abs(e) < abs(x) for e in d) for x in d}
    up, down = sum(r for x, r in ranks.items() if x > 0), sum(r for x, r in ranks.items() if x < 0)
    assert found.wilcoxon == min(up, down)
    assert found.rank_effect == pytest.approx((up - down) / (up + down))
    swapped = paired(b, a)
    assert (swapped.difference, swapped.effect, swapped.rank_effect) == pytest.approx(
        (-found.difference, -found.effect, -found.rank_effect)
    )
    assert "n = 9" in str(found)


@pytest.mark.parametrize("n", [2, 5, 9, 13, 15])
def test_tied_ranks_count_every_sign_flip(n: int) -> None:
    """Against scipy's permutations, which are all 2^n flips where as many resamples are allowed."""
    d = np.random.default_rng(n).integers(-3, 4, n).astype(float)
    d[d == 0] = 1.0
    every = stats.PermutationMethod(n_resamples=2**n)
    assert paired(d, np.zeros(n)).wilcoxon_p == pytest.approx(stats.wilcoxon(d, method=every).pvalue)


@pytest.mark.parametrize("n", [16, 30, 50])
def test_tied_ranks_agree_with_sampled_sign_flips(n: int) -> None:
    d = np.random.default_rng(n).integers(-2, 4, n).astype(float)
    d[d == 0] = 1.0
    sampled = stats.PermutationMethod(n_resamples=20_000, rng=np.random.default_rng(0))
    expected = stats.wilcoxon(d, method=sampled).pvalue
    error = np.sqrt(expected * (1 - expected) / 20_000)
    assert expected > 1e-4
    assert paired(d, np.zeros(n)).wilcoxon_p == pytest.approx(expected, abs=5 * error + 1e-4)


def test_many_pairs_use_the_normal_approximation() -> None:
    d = np.random.default_rng(0).integers(-3, 4, 80).astype(float)
    d[d == 0] = 1.0
    assert paired(d, np.zeros(80)).wilcoxon_p == pytest.approx(stats.wilcoxon(d).pvalue)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(200):
        low, high = paired(rng.normal(0.3, 1, 40), np.zeros(40), confidence=0.8, resamples=499, seed=seed).interval
        hits += low <= 0.3 <= high
    assert 0.7 < hits / 200 < 0.9


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = np.random.default_rng(1).random((2, 30))
    assert paired(a, b) == paired(a, b)
    assert paired(a, b, seed=1).interval != paired(a, b).interval
    wide, narrow = (paired(a, b, confidence=c).interval for c in (0.99, 0.5))
    assert wide[0] < narrow[0] < paired(a, b).difference < narrow[1] < wide[1]


def test_examples_without_a_value_are_counted_apart() -> None:
    found = paired([1.0, np.nan, 3.0, 4.0], [0.5, 1.0, np.nan, 3.0])
    assert (found.count, found.undefined) == (2, 2)
    assert found.difference == pytest.approx(0.75)


def test_differences_without_spread() -> None:
    nothing = paired([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (nothing.t_p, nothing.wilcoxon_p, nothing.effect, nothing.interval) == (1.0, 1.0, 0.0, (0.0, 0.0))
    always = paired([0.3, 0.4, 0.7], [0.1, 0.2, 0.5])  # 0.2 but for rounding
    assert always.effect == np.inf
    assert np.isnan([always.t, always.t_p]).all()  # no spread, no test
    assert always.interval == pytest.approx((0.2, 0.2))
    assert np.isnan(paired([2, 3], [1, 2]).t_p)


def test_rounding_is_no_difference() -> None:
    same, other = np.full(10, 0.1 + 0.2), np.full(10, 0.3)
    assert (same != other).all()
    found = paired(same, other)
    assert (found.difference, found.effect, found.t_p, found.wilcoxon_p) == (0.0, 0.0, 1.0, 1.0)
    noise = np.random.default_rng(0).normal(size=10) * 1e-10
    assert paired(other + noise, other) == found
    assert paired(other + 100 * noise, other, rounding=1e-6) == found
    assert paired(other + 100 * noise, other).effect != 0
    mixed = paired([*same, 1.0, 2.0], [*other, 0.5, 1.0])
    assert mixed.wilcoxon_p == pytest.approx(signed_rank_p([0.5, 1.0]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(p: list[float]) -> None:
    """The least level at which the step-down procedure rejects each hypothesis."""
    corrected = holm(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    for k, i in enumerate(order):
        needed = max((len(p) - j) * p[order[j]] for j in range(k + 1))
        assert corrected[i] == pytest.approx(min(1.0, needed))


def test_holm_leaves_what_was_not_tested() -> None:
    np.testing.assert_allclose(holm([0.01, np.nan, 0.02]), [0.03, np.nan, 0.04])


def test_every_pair_is_corrected_for_the_others() -> None:
    rng = np.random.default_rng(5)
    base = rng.random(25)
    measured = {"a": base, "b": base + rng.normal(0.05, 0.1, 25), "c": base + rng.normal(0, 0.1, 25)}
    found = every_pair(measured)
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    plain = {pair: paired(measured[pair[0]], measured[pair[1]]) for pair in found}
    assert [each.t_p for each in found.values()] == pytest.approx(list(holm([each.t_p for each in plain.values()])))
    by_ranks = holm([each.wilcoxon_p for each in plain.values()])
    assert [each.wilcoxon_p for each in found.values()] == pytest.approx(list(by_ranks))
    assert any(found[pair].t_p > plain[pair].t_p for pair in found)
    assert all(found[pair].interval == plain[pair].interval for pair in found)


def test_the_unit_of_a_metric_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 10, 30).astype(float), rng.integers(0, 10, 30).astype(float)
    whole, ninths = paired(a, b), paired(a / 9, b / 9)
    assert (ninths.wilcoxon, ninths.rank_effect) == (whole.wilcoxon, pytest.approx(whole.rank_effect))
    assert ninths.wilcoxon_p == pytest.approx(whole.wilcoxon_p)


def test_what_cannot_be_paired() -> None:
    for message, call in (
        ("of the same", lambda: paired([1, 2], [1, 2, 3])),
        ("only 1 examples", lambda: paired([1, np.nan], [1, 2])),
        ("infinite", lambda: paired([1, np.inf], [1, 2])),
        ("confidence is 99", lambda: paired([1, 2], [2, 2], confidence=99)),
        ("between 0 and 1", lambda: holm([0.1, 2])),
        ("nothing to compare", lambda: every_pair({"a": [1, 2]})),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
