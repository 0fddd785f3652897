"""Integrated gradients: the change of the output, divided up with as many steps as that takes."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.method.quadrature import Averaged, averaged
from wherefrom.model import open_model

TOKENIZER = tiny.tokenizer()
TEXTS = ["the film is deep and meaningful", "a cat", "the keys to the cabinets are not good !"]


def sharp(factor: float = 6) -> Any:
    """A model whose attention switches over within a small part of the way."""
    model = tiny.model(dtype=torch.float64)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.self.query.weight.mul_(factor)
    return model


def ends(text: str) -> tuple[list[int], list[int]]:
    """A sentence and the one in which every word is masked."""
    ids = TOKENIZER(text)["input_ids"]
    return ids, [i if i in TOKENIZER.all_special_ids else TOKENIZER.mask_token_id for i in ids]


def change(model: Any, text: str, target: int) -> float:
    with torch.no_grad():
        now, then = (model(torch.tensor([each])).logits[0, target] for each in ends(text))
    return float(now - then)


@pytest.mark.parametrize("variant", ["bert", "distilbert", "gpt2"])
@pytest.mark.parametrize("steps", [1, 7])
def test_n_steps_are_captums(variant: str, steps: int) -> None:
    captum = pytest.importorskip("captum.attr", reason="captum is not installed (it comes with the extra dev)")
    model = tiny.model(variant, dtype=torch.float64)
    ids, blank = (torch.tensor([each]) for each in ends(TEXTS[0]))
    embeddings = open_model(model).part(open_model(model).family.embeddings)
    theirs = captum.LayerIntegratedGradients(lambda each: model(each).logits[:, 1], embeddings)
    expected = theirs.attribute(ids, blank, n_steps=steps).sum(-1)[0].detach().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wherefrom.WherefromWarning)  # so few steps miss the change, theirs too
        options = {"n_steps": steps, "baseline": blank[0].tolist()}
        found = wherefrom.explain(ids[0], model, TOKENIZER, method="IG", target=1, **options)
    assert np.abs(found.scores - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("steps", [2, 5])
def test_delta_is_the_sum_minus_the_change(steps: int) -> None:
    """Its sign too: positive where the scores promise more than there is."""
    model = sharp()
    signs = set()
    for target in range(3):
        with pytest.warns(wherefrom.WherefromWarning, match="have not converged"):
            results = wherefrom.explain(TEXTS, model, TOKENIZER, method="IG", n_steps=steps, target=target)
        for found, text in zip(results, TEXTS, strict=True):
            assert abs(found.delta) > 1e-3
            assert found.delta == pytest.approx(found.scores.sum() - change(model, text, target), abs=1e-9)
            signs.add(found.delta > 0)
    assert signs == {True, False}


@pytest.mark.parametrize("norm", ["dot", "l2"])
def test_as_many_steps_as_it_takes(norm: str) -> None:
    model = sharp()
    with warnings.catch_warnings():
        warnings.simplefilter("error", wherefrom.WherefromWarning)
        results = wherefrom.explain(TEXTS, model, TOKENIZER, method="IG", target=1, norm=norm)
        exact = wherefrom.explain(TEXTS, model, TOKENIZER, method="IG", target=1, norm=norm, n_steps=300)
    for found, expected, text in zip(results, exact, TEXTS, strict=True):
        largest = np.abs(expected.scores).max()
        assert np.abs(found.scores - expected.scores).max() <= 0.02 * largest
        if norm == "dot":
            assert abs(found.delta) <= 0.01 * max(largest, abs(change(model, text, 1)))
        finer = wherefrom.explain(text, model, TOKENIZER, method="IG", target=1, norm=norm, tolerance=1e-6)
        assert np.abs(finer.scores - expected.scores).max() <= 1e-4 * largest


def test_points_go_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    module = sys.modules["wherefrom.method.integrated_gradients"]
    averaged = module.averaged

    def spy(*args: Any, **options: Any) -> Any:
        taken.append(averaged(*args, **options))
        return taken[-1]

    monkeypatch.setattr(module, "averaged", spy)
    for model in (tiny.model(dtype=torch.float64), sharp()):
        wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", target=1)
    assert 16 <= taken[0].points[0] < taken[1].points[0] < 300


def test_not_converged_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp(40)
    with pytest.warns(wherefrom.WherefromWarning, match=r"after 3 steps their sum misses .*; leave n_steps out"):
        wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", target=1, n_steps=3)
    monkeypatch.setattr(sys.modules["wherefrom.method.quadrature"], "MOST", 30)
    with pytest.warns(
        wherefrom.WherefromWarning,
        match=r"have not converged: after 24 steps .*; use another baseline, more steps \(n_steps=240, as long",
    ):
        wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", target=1)
    with pytest.warns(wherefrom.WherefromWarning, match=r"have not converged: after 24 steps .*; use a float64 model"):
        wherefrom.explain(TEXTS[0], sharp(40).float(), TOKENIZER, method="IG", target=1)


def test_where_a_model_chooses_experts_the_way_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["wherefrom.method.quadrature"], "MOST", 30)
    model = tiny.model("mixtral", "causal-lm", dtype=torch.float64, initializer_range=1.0)
    with pytest.warns(wherefrom.WherefromWarning, match="the model chooses among experts, and of a choice that jumps"):
        wherefrom.explain(tiny.ids(8), model, method="IG", baseline=5)


def test_half_precision_ends_where_rounding_begins_and_says_so() -> None:
    """Halving a piece cannot mend what bfloat16 rounds away: the number of steps stays small."""
    opened = open_model("wherefrom/sentiment")
    text = "a deep and meaningful film ."
    expected = wherefrom.explain(text, method="IG").scores
    model = copy.deepcopy(opened.model).to(torch.bfloat16)
    with pytest.warns(
        wherefrom.WherefromWarning, match=r"bfloat16 rounds too coarsely for .* 0\.0001: .* use a float32 model"
    ):
        found = wherefrom.explain(text, model, opened.tokenizer, method="IG", tolerance=1e-4)
    assert np.abs(found.scores - expected).max() <= 0.05 * np.abs(expected).max()
    with warnings.catch_warnings():
        warnings.simplefilter("error", wherefrom.WherefromWarning)
        wherefrom.explain(text, model, opened.tokenizer, method="IG", tolerance=0.05)  # which it does keep


def test_float32_says_where_its_rounding_begins() -> None:
    with pytest.warns(wherefrom.WherefromWarning, match="float32 rounds too coarsely .* use a float64 model"):
        wherefrom.explain(TEXTS[0], sharp().float(), TOKENIZER, method="IG", target=1, tolerance=1e-9)


def bends(scales: list[float]) -> Averaged:
    """The way of a number that rises from 0 to its scale within a twentieth of it, for sentences side by side."""
    size = torch.tensor(scales)

    def run(states: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return size[rows] * torch.sigmoid(60 * (states[:, 0, 0] - 0.37))

    start, end = torch.zeros(len(size), 1, 1), torch.ones(len(size), 1, 1)
    return averaged(run, start, end, run(end, torch.arange(len(size))), together=64)


def test_a_neighbour_in_the_batch_takes_no_steps_away() -> None:
    """What rounding hides is a matter of the sentence's own output, not of the largest in the batch."""
    alone, beside = bends([1.0]), bends([1.0, 1e7])
    assert alone.points[0] == beside.points[0] == beside.points[1] > 16
    assert torch.allclose(alone.gradient[0], beside.gradient[0], rtol=1e-5)
    assert float(beside.missed[0]) == pytest.approx(float(alone.missed[0]), abs=1e-6)


@pytest.mark.parametrize("norm", ["abs", "l2", "abs-mean"])
def test_what_adds_up_to_nothing_misses_nothing(norm: str) -> None:
    found = wherefrom.explain(TEXTS[0], tiny.model(), TOKENIZER, method="IG", norm=norm)
    assert found.delta is None
    assert "delta" not in found.to_html().partition("<script")[0]
    assert wherefrom.explain(TEXTS[0], tiny.model(), TOKENIZER, method="IG", norm="dot").delta is not None


def test_at_once_changes_no_score() -> None:
    few, many = (
        wherefrom.explain(TEXTS, sharp(), TOKENIZER, method="IG", target=1, at_once=at_once) for at_once in (1, 64)
    )
    for one, other in zip(few, many, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-9, atol=1e-12)


def test_what_is_held_says_how_many_points_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module, asked = sys.modules["wherefrom.method.integrated_gradients"], list[int]()

    def watched(*args: Any, together: int, **options: Any) -> Averaged:
        asked.append(together)
        return averaged(*args, together=together, **options)

    monkeypatch.setattr(module, "averaged", watched)
    for held in (1, 2**30):
        monkeypatch.setitem(module.HELD, "cpu", held)
        with pytest.warns(wherefrom.WherefromWarning, match="have not converged"):
            wherefrom.explain(TEXTS, sharp(), TOKENIZER, method="IG", target=1, n_steps=3)
    assert asked == [1, 32]


def test_no_option_hides_behind_an_argument() -> None:
    """An option that has the name of an argument of `explain` could not be given there."""
    taken = set(inspect.signature(wherefrom.explain).parameters)
    assert {each.name: taken & set(each.options) for each in wherefrom.methods() if taken & set(each.options)} == {}


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, "small", True, None])
def test_a_tolerance_is_a_share(tolerance: Any) -> None:
    with pytest.raises(wherefrom.WherefromError, match="expected a number between 0 and 1"):
        wherefrom.explain(TEXTS[1], tiny.model(), TOKENIZER, method="IG", tolerance=tolerance)
