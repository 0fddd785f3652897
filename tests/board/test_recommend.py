"""`wherefrom methods recommend`: the leaderboard's answer for a model, a question and a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
from wherefrom.board import recommending
from wherefrom.cli import app
from wherefrom.cli.recommend import _first_on
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.model import open_model


def place(beaten: float, *alike: str) -> dict[str, Any]:
    return {"rank": 1.0, "of": 5, "beaten": beaten, "tables": {"lm on two": beaten}, "alike": list(alike)}


RECORD = {
    "examples": 800,
    "tables": {
        "lm on two": {"rows": 120, "task": "causal-lm"},
        "sentiment on three": {"rows": 680, "task": "classification"},
    },
    "methods": {
        "deeplift": {"faithful": place(0.9, "attcat"), "passes": 8.0},
        "attcat": {"faithful": place(0.88, "deeplift"), "passes": 2.5},
        "alti": {"faithful": place(0.5), "passes": 2.2},
        "attention-rollout": {"faithful": place(0.4), "passes": 1.1},
        "saliency": {"faithful": place(0.3, "random")},  # of a cost that is not known
        "random": {"faithful": place(0.1), "passes": 1.0},
    },
}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommending, "shipped", lambda: RECORD)


def order(**asked: Any) -> list[str]:
    return [each.method for each in recommending.recommend(open_model(), **asked)]


def test_of_those_not_told_apart_from_the_best_the_cheapest_comes_first() -> None:
    assert order() == ["attcat", "deeplift", "alti", "attention-rollout", "saliency"]  # and chance is no answer


def test_what_was_measured_on_fewer_tables_is_not_recommended_for_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few examples tell nothing apart."""
    wide = {**place(0.9, "attention-rollout"), "tables": {"lm on two": 0.9, "sentiment on three": 0.9}}
    some = {
        "alti": {"faithful": wide, "passes": 8.0},
        "attention-rollout": {"faithful": place(0.7, "alti"), "passes": 1.0},
    }
    monkeypatch.setattr(recommending, "shipped", lambda: {**RECORD, "methods": some})
    assert order() == ["alti", "attention-rollout"]


def test_what_is_of_unknown_cost_is_not_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {"saliency": {"faithful": place(0.9, "alti")}, "alti": {"faithful": place(0.8, "saliency"), "passes": 2.2}}
    monkeypatch.setattr(recommending, "shipped", lambda: {**RECORD, "methods": some})
    assert order() == ["alti", "saliency"]


def test_no_benchmark_is_advised_that_would_be_refused(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    tiny.model("bert", "question-answering", vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = CliRunner().invoke(app, ["methods", "recommend", "--model", str(tmp_path)])
    assert "wherefrom evaluate measures" in " ".join(found.output.split())
    assert "wherefrom benchmark" not in " ".join(found.output.split())


def test_a_translator_is_answered_by_tables_of_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {
        "saliency": {"faithful": {**place(0.8), "tables": {"translate on one": 0.3, "sentiment on three": 0.9}}},
        "alti": {"faithful": {**place(0.6), "tables": {"translate on one": 0.7, "sentiment on three": 0.5}}},
    }
    tables = {**RECORD["tables"], "translate on one": {"rows": 20, "task": "seq2seq"}}
    translator = open_model("wherefrom/translate")
    monkeypatch.setattr(recommending, "shipped", lambda: {"tables": tables, "methods": some})
    assert [each.method for each in recommending.recommend(translator)] == ["alti", "saliency"]
    del tables["translate on one"], some["alti"]["faithful"]["tables"]["translate on one"]
    del some["saliency"]["faithful"]["tables"]["translate on one"]
    assert [each.method for each in recommending.recommend(translator)] == ["saliency", "alti"]  # by all there are


def test_a_language_model_is_answered_by_tables_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {
        "saliency": {"faithful": {**place(0.8, "alti"), "tables": {"lm on two": 0.4, "sentiment on three": 0.9}}},
        "alti": {"faithful": {**place(0.6, "saliency"), "tables": {"lm on two": 0.7, "sentiment on three": 0.5}}},
        "deeplift": {
            "faithful": {**place(0.9), "tables": {"lm on two": None, "sentiment on three": 0.9}}
        },  # was not measured there
    }
    monkeypatch.setattr(recommending, "shipped", lambda: {**RECORD, "methods": some})
    found = recommending.recommend(open_model("wherefrom/lm"))
    assert [(each.method, each.beaten, each.alike) for each in found] == [("alti", 0.7, ()), ("saliency", 0.4, ())]
    assert order() == ["deeplift", "saliency", "alti"]


def test_a_model_of_pictures_is_answered_by_tables_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {
        "saliency": {"faithful": {**place(0.8, "alti"), "tables": {"picture on one": 0.3, "sentiment on three": 0.9}}},
        "alti": {"faithful": {**place(0.6, "saliency"), "tables": {"picture on one": 0.7, "sentiment on three": 0.5}}},
    }
    tables = {**RECORD["tables"], "picture on one": {"rows": 20, "task": "classification", "pictures": True}}
    monkeypatch.setattr(recommending, "shipped", lambda: {"tables": tables, "methods": some})
    found = recommending.recommend(open_model("wherefrom/picture"))
    assert [(each.method, each.beaten, each.alike) for each in found] == [("alti", 0.7, ()), ("saliency", 0.3, ())]
    said = CliRunner().invoke(app, ["methods", "recommend", "--model", "wherefrom/picture"]).output
    assert "20 examples of 1 pair" in " ".join(said.split())
    assert "wherefrom/picture is among them: picture on one, where alti is first (70%)." in " ".join(said.split())


def test_relevance_propagation_is_listed_and_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {
        "cp-lrp": {"faithful": place(0.9, "deeplift"), "passes": 2.0},
        "deeplift": {"faithful": place(0.8, "cp-lrp"), "passes": 8.0},
        "alti": {"faithful": place(0.5), "passes": 2.0},
    }
    monkeypatch.setattr(recommending, "shipped", lambda: {**RECORD, "methods": some})
    assert order() == ["deeplift", "cp-lrp", "alti"]
    assert order(budget=5) == ["alti", "cp-lrp"]
    said = " ".join(CliRunner().invoke(app, ["methods", "recommend", "--model", "wherefrom/lm"]).output.split())
    assert "where cp-lrp is first (90%; deeplift 80%: relevance propagation is not recommended)" in said


def test_a_budget_leaves_out_what_costs_more() -> None:
    assert order(budget=2.3) == ["alti", "attention-rollout"]
    with pytest.raises(NotDefined, match=r"at most 0.5 forward passes; the cheapest costs 1.1"):
        order(budget=0.5)
    with pytest.raises(InvalidOption, match="a budget of -1 forward passes; expected a number above 0"):
        order(budget=-1)


def test_a_map_is_answered_by_methods_that_look_at_no_output() -> None:
    assert order(question="map") == ["alti", "attention-rollout"]


def test_what_was_not_asked_by_anyone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expected one of faithful, map, plausible, cues"):
        order(question="truth")


def test_the_command_says_what_it_rests_on() -> None:
    found = CliRunner().invoke(app, ["methods", "recommend", "--budget", "5"])
    assert found.exit_code == 0, found.output
    assert "attcat" in found.output
    assert "recommended" in found.output
    said = " ".join(found.output.split())
    assert "an average one of 120 examples of 1 pair" in said
    assert "not among them: wherefrom benchmark" in said  # where this question was answered
    among = CliRunner().invoke(app, ["methods", "recommend", "--model", "wherefrom/lm"])
    assert "wherefrom/lm is among them: lm on two, where deeplift is first (90%)." in " ".join(among.output.split())
    within = CliRunner().invoke(app, ["methods", "recommend", "--model", "wherefrom/lm", "--budget", "5"])
    assert "where attcat is first within the budget (88%)." in " ".join(within.output.split())
    refused = CliRunner().invoke(app, ["methods", "alti", "--budget", "5"])
    assert isinstance(refused.exception, InvalidOption)


def test_where_another_method_is_first_on_the_model_itself_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "sentiment on sst2"
    place = {"rank": 1.0, "of": 3, "alike": []}
    known = {
        "attcat": {"faithful": {**place, "beaten": 0.8, "tables": {table: 0.5}}, "passes": 2.0},
        "alti": {"faithful": {**place, "beaten": 0.6, "tables": {table: 0.7}}, "passes": 2.0},
    }
    monkeypatch.setattr("wherefrom.board.recommending.shipped", lambda: {"methods": known})
    assert _first_on(table, "faithful", ["attcat", "alti"], "") == (
        "sentiment on sst2, where alti is first (70%; attcat 50%: one table tells less than all of them)"
    )
