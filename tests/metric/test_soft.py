"""Soft sufficiency and comprehensiveness where the draws are certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.metric.soft import Dimming
from wherefrom.model.opening import open_model


@pytest.mark.parametrize(("keep", "expected"), [(True, 0.0), (False, 1.0)])
def test_equal_scores_lose_nothing_or_everything(keep: bool, expected: float) -> None:
    """Shares of 1 keep every entry of every draw, or none; the empty text is no draw of its own."""
    model, ids = tiny.model(initializer_range=0.5), tiny.ids(6)
    opened = open_model(model)
    (sentence,), _ = opened.reader().read(ids)
    even = replace(wherefrom.explain(ids, model, method="saliency"), scores=np.ones(6))
    (lost,) = Dimming(samples=2, keep=keep).measured(opened, [(sentence, even)])
    assert lost.empty > 1e-3
    assert lost.dimmed == pytest.approx(expected * lost.empty, abs=1e-7)
