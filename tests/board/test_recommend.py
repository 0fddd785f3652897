"""`wherefrom methods recommend`: the leaderboard's answer for a model, a question and a budget."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from wherefrom.board import recommending
from wherefrom.cli import app
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.model import open_model


def place(beaten: float, *alike: str) -> dict[str, Any]:
    return {"rank": 1.0, "of": 5, "beaten": beaten, "tables": {}, "alike": list(alike)}


RECORD = {
    "examples": 800,
    "tables": {"one on two": {}},
    "methods": {
        "deeplift": {"faithful": place(0.9, "attn-lrp"), "passes": 8.0},
        "attn-lrp": {"faithful": place(0.88, "deeplift"), "passes": 2.5},
        "alti": {"faithful": place(0.5), "passes": 2.2},
        "attention-rollout": {"faithful": place(0.4), "passes": 1.1},
        "random": {"faithful": place(0.1), "passes": 1.0},
    },
}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommending, "shipped", lambda: RECORD)


def order(**asked: Any) -> list[str]:
    return [each.method for each in recommending.recommend(open_model(), **asked)]


def test_of_those_not_told_apart_from_the_best_the_cheapest_comes_first() -> None:
    assert order() == ["attn-lrp", "deeplift", "alti", "attention-rollout"]  # and chance is no answer


def test_a_budget_leaves_out_what_costs_more() -> None:
    assert order(budget=2.3) == ["alti", "attention-rollout"]
    with pytest.raises(NotDefined, match=r"at most 0.5 forward passes; the cheapest costs 1.1"):
        order(budget=0.5)


def test_a_map_is_answered_by_methods_that_look_at_no_output() -> None:
    assert order(question="map") == ["alti", "attention-rollout"]


def test_what_was_not_asked_by_anyone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expected one of output, map, people, cues"):
        order(question="truth")


def test_the_command_says_what_it_rests_on() -> None:
    found = CliRunner().invoke(app, ["methods", "recommend", "--budget", "5"])
    assert found.exit_code == 0, found.output
    assert "attn-lrp" in found.output
    assert "recommended" in found.output
    assert "wherefrom benchmark" in found.output
    refused = CliRunner().invoke(app, ["methods", "alti", "--budget", "5"])
    assert isinstance(refused.exception, InvalidOption)
