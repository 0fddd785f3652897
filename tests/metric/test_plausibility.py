"""Rationales: areas against scikit-learn, runs of tokens by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from wherefrom.errors import WherefromError
from wherefrom.metric.plausibility import Runs, auprc, run_overlap


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 99))
def test_areas_are_those_of_scikit_learn(values: list[int], seed: int) -> None:
    rationale = np.random.default_rng(seed).integers(0, 2, len(values))
    rationale[0] = 1
    assert auprc(values, rationale) == pytest.approx(average_precision_score(rationale, values), abs=1e-12)
    points, recall, _ = precision_recall_curve(rationale, values)
    assert auprc(values, rationale, "eraser-code") == pytest.approx(auc(recall, points), abs=1e-12)


def test_runs_by_hand() -> None:
    marked = [0, 1, 1, 1, 0, 0, 1, 0]
    #         the four highest: 1, 2, 5 and 6. {1, 2} shares 2 of 3 with {1, 2, 3}; {5, 6} 1 of 2 with {6}
    scores = [0, 9, 8, 0, 0, 7, 6, 0]
    assert run_overlap(scores, marked) == Runs(2, 2, 2)
    assert run_overlap(scores, marked, threshold=0.6) == Runs(1, 2, 2)
    found = run_overlap(scores, marked, k=1)  # {1} is a third of {1, 2, 3}
    assert (found, found.precision, found.recall, found.f1) == (Runs(0, 1, 2), 0.0, 0.0, 0.0)
    uneven = Runs(1, 3, 2)
    assert uneven.f1 == pytest.approx(2 / (1 / uneven.precision + 1 / uneven.recall))
    assert run_overlap(scores, marked, k=8) == Runs(0, 1, 2)


def test_what_plausibility_refuses() -> None:
    for message, call in (
        ("marks no token", lambda: run_overlap([1, 2], [0, 0])),
        ("one finite entry", lambda: run_overlap([1, 2], [1])),
        ("one finite entry", lambda: run_overlap([1, np.nan], [0, 1])),
        ("threshold=0; expected a number above 0", lambda: run_overlap([1, 2], [0, 1], threshold=0)),
        ("K is 0", lambda: run_overlap([1, 2], [0, 1], k=0)),
        ("protocol='mine'", lambda: auprc([1, 2], [0, 1], "mine")),
        ("at least one relevant", lambda: auprc([1, 2], [0, 0])),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
