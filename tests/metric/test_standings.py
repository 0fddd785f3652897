"""Who stands where: against the definitions written out, and on data whose order is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from wherefrom.errors import InvalidInput
from wherefrom.metric.significance import holm
from wherefrom.metric.standings import beaten, standings


def by_hand(values: np.ndarray, higher: bool) -> np.ndarray:
    """For every method and example, how many of the others are worse, half of those that are level."""
    found = np.full(values.shape, np.nan)
    for e in range(values.shape[1]):
        known = [m for m in range(len(values)) if not np.isnan(values[m, e])]
        for m in known:
            others = [values[o, e] for o in known if o != m]
            if others:
                mine = values[m, e]
                worse = sum((o < mine) if higher else (o > mine) for o in others)
                found[m, e] = (worse + 0.5 * sum(o == mine for o in others)) / len(others)
    return found


@pytest.mark.parametrize("higher", [True, False])
def test_shares_beaten_are_those_counted_by_hand(higher: bool) -> None:
    values = np.random.default_rng(0).integers(0, 4, (5, 30)).astype(float)
    values[1, 3] = values[0, 4] = np.nan
    values[1:, 5] = np.nan  # one method alone beats nobody and is beaten by nobody
    np.testing.assert_allclose(beaten(values, higher), by_hand(values, higher))


def test_what_rounding_moves_is_level() -> None:
    assert beaten([[1.0, 2.0], [1.0 + 1e-9, 3.0]]).tolist() == [[0.5, 0.0], [0.5, 1.0]]


def test_levels_are_chains_and_no_cells_of_a_grid() -> None:
    """Neighbors within the tolerance are level wherever they fall; a chain of them is one level."""
    assert beaten([[0.1234565 - 1e-10], [0.1234565 + 1e-10], [1.0]]).T.tolist() == [[0.25, 0.25, 1.0]]
    chain = [[1.0], [1 + 0.9e-6], [1 + 1.8e-6], [1 + 3e-6]]
    assert beaten(chain).T.tolist() == [[1 / 3, 1 / 3, 1 / 3, 1.0]]
    assert beaten(chain, higher=False).T.tolist() == [[2 / 3, 2 / 3, 2 / 3, 0.0]]


def test_the_better_method_stands_first_and_noise_is_not_told_apart() -> None:
    random = np.random.default_rng(1)
    quality = {"good": 1.0, "fair": 0.5, "one": 0.0, "other": 0.0}
    tables = {}
    for table in ("a", "b"):
        values = np.stack([shift + random.normal(size=200) for shift in quality.values()])
        tables[table] = dict(zip(quality, beaten(values), strict=True))
    found = standings(tables)
    assert found.methods[:2] == ("good", "fair")
    assert found.told_apart("good", "fair")
    assert not found.told_apart("one", "other")
    assert found.alike == ((2, 3),)
    assert found.examples == 400
    assert sum(found.beaten) == pytest.approx(2.0)  # half of the others on average
    assert found.ranks[0] == pytest.approx(1 + 3 * (1 - found.beaten[0]))


def test_pairs_are_tested_by_wilcoxon_and_corrected_by_holm() -> None:
    values = np.random.default_rng(2).normal(size=(4, 60)) + np.array([[0.0], [0.2], [0.4], [0.6]])
    shares = beaten(values)
    found = standings({"one": dict(zip("abcd", shares, strict=True))})
    pairs = list(combinations(range(4), 2))
    thirds = np.round(3 * shares)  # whole numbers: no two that are equal are told apart by rounding
    chances = holm([stats.wilcoxon(thirds[a] - thirds[b]).pvalue for a, b in pairs])
    for (a, b), chance in zip(pairs, chances, strict=True):
        mine = found.p[found.methods.index("abcd"[a]), found.methods.index("abcd"[b])]
        assert mine == pytest.approx(chance)


def test_rounding_tells_nobody_apart() -> None:
    rng = np.random.default_rng(0)
    other = rng.random(16)
    one = np.full(16, 0.2)
    found = standings({"x": {"b": one + rng.choice([0, 5e-17], 16), "a": one, "c": other}})
    assert found.p[found.methods.index("a"), found.methods.index("b")] == 1
    assert found.methods.index("a") < found.methods.index("b"), "by name, as their means are one"


def test_a_table_may_lack_a_method() -> None:
    both, one = np.array([1.0, 1.0, 0.5]), np.array([0.0, 0.0, 0.5])
    found = standings({"x": {"a": both, "b": one}, "y": {"a": both[:2]}})
    assert found.methods == ("a", "b")
    assert np.isnan(found.tables["y"][1])
    with pytest.raises(InvalidInput, match="nothing to rank"):
        standings({"x": {"a": both}})
