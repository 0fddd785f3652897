"""The default methods against the leaderboard that ships: no affordable candidate is more faithful."""

from __future__ import annotations

from statistics import mean

import pytest

from wherefrom.board.recommending import CHANCE, is_patented, shipped, table_kind
from wherefrom.defaults import DEFAULT_METHODS

# Candidates: at most 17 forward passes by `planted-facts/lm`, and not relevance propagation (docs/methods.md).
CANDIDATES = ("deeplift", "alti-logit", "attcat", "gradient-x-input")
KINDS = {"classification": "classification", "masked-lm": "masked-lm", "image": "pictures"}  # -> kind of table
VERB_NUMBER = "agreement on linzen_lgd"


def tables_of(kind: str) -> list[str]:
    if kind == "verb number":
        return [VERB_NUMBER]
    return [name for name in shipped()["tables"] if table_kind(name) == KINDS[kind]]


def losers(method: str, tables: list[str]) -> list[str]:
    """The candidates that beat a method: a larger share of the others beaten, and told apart from it."""
    every = shipped()["methods"]

    def share(name: str) -> float | None:
        found = [every[name]["faithful"]["tables"].get(table) for table in tables]
        return None if None in found else mean(found)

    own = share(method)
    assert own is not None
    return [
        name
        for name in CANDIDATES
        if (other := share(name)) is not None and other > own and name not in every[method]["faithful"]["alike"]
    ]


@pytest.mark.parametrize("kind", [*KINDS, "verb number"])
def test_no_candidate_is_more_faithful_than_the_default(kind: str) -> None:
    default = DEFAULT_METHODS["classification" if kind == "verb number" else kind][0]
    assert losers(default, tables_of(kind)) == []


def test_a_default_that_loses_is_caught() -> None:
    assert losers("attcat", tables_of("masked-lm")) == ["deeplift"]
    assert "deeplift" in losers("gradient-x-input", tables_of("classification"))


def test_the_default_of_translators_is_the_better_of_those_that_are_defined() -> None:
    """DeepLift is not defined on two streams; ALTI is told apart from chance by the table of translations."""
    (table,) = (name for name in shipped()["tables"] if table_kind(name) == "seq2seq")
    every = shipped()["methods"]
    assert every["deeplift"]["faithful"]["tables"].get(table) is None
    first = DEFAULT_METHODS["seq2seq"][0]
    assert every[first]["faithful"]["tables"][table] > every[CHANCE]["faithful"]["tables"][table]
    assert not is_patented(first)
