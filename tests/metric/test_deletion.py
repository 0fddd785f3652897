"""Erasure by deletion of many texts at once, against one variant of one text after another."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.metric import deletion, erasure
from wherefrom.metric.erasure import ERASER, Way, curves, each_aopc, each_log_odds

TEXTS = [
    "a good cat",
    ("the film is not good", "the cat is not here !"),
    "the film is not very meaningful and not good !",
]


@pytest.mark.parametrize("ways", [[Way()], [Way(), Way(shares=ERASER), Way(shares=ERASER, keep=True)]])
def test_all_at_once_are_those_one_by_one(ways: list[Way], monkeypatch: pytest.MonkeyPatch) -> None:
    model = wherefrom.open_model(tiny.model("bert", "classification", dtype=torch.float64), tiny.tokenizer())
    sentences, _ = model.reader().read(TEXTS)
    asked = [
        (sentence, found, way)
        for method in ("attention-rollout", "saliency", "random")
        for sentence, found in zip(sentences, wherefrom.explain(TEXTS, model, method=method), strict=True)
        for way in ways
    ]
    assert deletion.without_each(model, asked, 2048, 0.125) is not None
    quick = curves(model, asked)
    monkeypatch.setattr(erasure, "without_each", lambda *_: None)
    for one, other in zip(quick, curves(model, asked), strict=True):
        assert one.taken.tolist() == other.taken.tolist()
        assert one.predictions is not None
        assert other.predictions is not None
        assert one.predictions.tolist() == other.predictions.tolist()
        assert np.abs(one.probabilities - other.probabilities).max() < 1e-12
        assert (one.kept, one.protocol) == (other.kept, other.protocol)
    alike = [each for each, (_, _, way) in zip(quick, asked, strict=True) if way == ways[0]]
    assert np.abs(each_aopc(alike) - [each.aopc for each in alike]).max() < 1e-15
    assert np.abs(each_log_odds(alike) - [each.log_odds for each in alike]).max() < 1e-15


def test_what_is_not_plain_goes_one_by_one() -> None:
    tokenizer = tiny.tokenizer()
    opened = wherefrom.open_model(tiny.model("bert", "classification"), tokenizer)
    sentence = opened.reader().read("a good cat")[0]
    found = wherefrom.explain("a good cat", opened, method="saliency")
    ways = [Way("mask"), Way(protocol="attcat-code")]
    assert all(deletion.without_each(opened, [(sentence[0], found, way)], 64, 0.0) is None for way in ways)


def test_curves_of_protocols_with_measures_of_their_own_are_left_to_them() -> None:
    odd = [erasure.Curve(np.arange(3), np.array([0.9, 0.5, 0.1]), protocol="attcat-code")]
    assert np.isnan(each_aopc(odd)).all()
    none = [erasure.Curve(np.arange(3), np.array([0.9, 0.0, 0.1]))]
    assert np.isnan(each_log_odds(none)).all()
    assert each_aopc(none)[0] == none[0].aopc


def test_curves_keep_the_name_that_runs_know() -> None:
    assert str(Way()) == str(Way(by="delete")) == "delete, tenths"
    assert str(Way(by="mask")) == "mask, tenths"


def test_rows_with_one_hash_are_told_apart_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 3, (400, 4), dtype=np.int32)
    first, which = deletion._different(rows)
    assert first.tolist() == [i for i, row in enumerate(rows.tolist()) if row not in rows[:i].tolist()]
    assert np.array_equal(rows[first][which], rows)
    monkeypatch.setattr(
        np.random, "default_rng", lambda _: SimpleNamespace(integers=lambda *_, **__: np.uint64([0] * 4))
    )
    for found, expected in zip(deletion._different(rows), (first, which), strict=True):
        assert found.tolist() == expected.tolist()
