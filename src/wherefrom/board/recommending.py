"""Which method to take on a model, for a question and a budget: what the leaderboard that ships says, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import lookup
from wherefrom.model import Model
from wherefrom.patents import PATENTED_IDEA
from wherefrom.pipeline.auto import suited

RECORD = Path(__file__).with_name("record.json")
CHANCE = "random"
PICTURES = "pictures"
OWN = ("masked-lm", "causal-lm", "seq2seq", PICTURES)  # kinds of models that are answered by tables of their kind
UNMEASURED = inf  # forward passes
# What may be asked, by which standing it is answered, and whether only maps of no output are an answer.
ASKED = {
    "faithful": ("faithful", False, "what the model uses for its answer"),
    "map": ("faithful", True, "what a representation is made of, layer by layer"),
    "plausible": ("plausible", False, "what people would mark"),
    "cues": ("cues", False, "which word decides the grammar"),
}
ONCE = {"output": "faithful", "people": "plausible"}  # what they were called before


@dataclass(frozen=True)
class Recommended:
    """A method and its place among those that came into question."""

    method: str
    beaten: float  # the share of the other methods that it beats on an average example
    passes: float | None
    alike: tuple[str, ...]  # those that are not told apart from it


def question_called(name: str) -> str:
    """The question that a name asks, one of `ASKED`."""
    found = ONCE.get(name, name)
    if found not in ASKED:
        raise InvalidOption(f"there is no question {name!r}; expected one of {', '.join(ASKED)}")
    return found


def looks_at_no_output(method: str) -> bool:
    """Whether it is an answer where a map is asked for."""
    return not lookup(method)[0].class_specific


def is_patented(method: str) -> bool:
    """Whether the patent note of relevance propagation is about this method."""
    return lookup(method)[0].idea == PATENTED_IDEA


@lru_cache
def shipped() -> dict[str, Any]:
    """The record of the leaderboard that ships (docs/leaderboard.md)."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def answering(question: str) -> dict[str, int]:
    """The tables that have something to say on a question, each named MODEL on DATA, and how many examples each has."""
    standing = ASKED[question][0]
    names = {name for found in shipped()["methods"].values() for name in found.get(standing, {}).get("tables", ())}
    return {name: about["rows"] for name, about in shipped()["tables"].items() if name in names}


def resting_on(question: str, opened: Model) -> dict[str, int]:
    """Those of them by which a model is answered.

    Words at a mask, words that follow, translations and pictures have other winners than classes of texts: there, the
    tables of that kind alone, if there are some.
    """
    return _own(question, opened) or answering(question)


def _own(question: str, opened: Model) -> dict[str, int]:
    kind = PICTURES if opened.images else opened.task
    return {name: rows for name, rows in answering(question).items() if kind in OWN and table_kind(name) == kind}


def table_kind(name: str) -> str:
    """Of what kind the model of a table is: what it predicts, or that it reads pictures."""
    about = shipped()["tables"][name]
    return PICTURES if about.get("pictures") else str(about["task"])


def tested_together(question: str, opened: Model) -> bool:
    """Whether a model is not answered by tables of its kind: over all tables together methods were told apart."""
    return not _own(question, opened)


def best_on(table: str, question: str, names: list[str]) -> tuple[str, float]:
    """Of these methods the first on one table, and the share of the others that it beats there."""
    standing, every = ASKED[question][0], shipped()["methods"]
    shares = {name: every[name][standing]["tables"].get(table) for name in names}
    return max(((name, share) for name, share in shares.items() if share is not None), key=lambda each: each[1])


def recommend(opened: Model, question: str = "faithful", budget: float | None = None) -> list[Recommended]:
    """The methods in question, the recommended one first: of those not told apart from the best, and measured on as
    many tables, the cheapest. Relevance propagation is listed and not recommended (a patent, docs/methods.md).

    budget: forward passes that a method may cost; one whose cost was not measured may be dearer.
    """
    if budget is not None and not budget > 0:
        raise InvalidOption(f"a budget of {budget:g} forward passes; expected a number above 0")
    question = question_called(question)
    standing, maps, _ = ASKED[question]
    known = {name: found for name, found in shipped()["methods"].items() if standing in found and name != CHANCE}
    tables = resting_on(question, opened)
    there = [name for name in known if _shares(known[name][standing], tables)]
    fitting = [name for name in suited(opened, there) if not maps or looks_at_no_output(name)]
    costs = {name: known[name].get("passes", UNMEASURED) for name in fitting}
    within = [name for name in fitting if budget is None or costs[name] <= budget]
    if not within:
        least = min(costs.values(), default=None)
        raise NotDefined(
            f"no method that was measured and is defined on {opened.name} costs at most {budget:g} forward passes"
            + ("" if least is None else f"; the cheapest costs {least:g}")
        )
    beaten = {name: _beaten(known[name][standing], tables) for name in within}
    order = sorted(beaten, key=lambda name: -beaten[name])
    together = tested_together(question, opened)
    alike = {name: [each for each in known[name][standing]["alike"] if together and each in within] for name in order}
    measured = {name: set(_shares(known[name][standing], tables)) for name in order}  # fewer tables tell less apart
    free = [name for name in order if not is_patented(name)] or order
    as_well = [name for name in alike[free[0]] if name in free and measured[name] >= measured[free[0]]]
    first = min([free[0], *as_well], key=lambda name: costs[name])
    chosen = [first, *(name for name in order if name != first)]
    return [Recommended(name, beaten[name], known[name].get("passes"), tuple(alike[name])) for name in chosen]


def _beaten(found: dict[str, Any], tables: dict[str, int]) -> float:
    """The share of the others that a method beats on an average example of these tables."""
    shares = _shares(found, tables)
    if shares == _shares(found, found["tables"]):
        return float(found["beaten"])
    return float(sum(share * tables[name] for name, share in shares.items()) / sum(tables[name] for name in shares))


def _shares(found: dict[str, Any], tables: Iterable[str]) -> dict[str, float]:
    """The share of the others that a method beats on each of these tables, where it was measured there."""
    return {name: found["tables"][name] for name in tables if found["tables"].get(name) is not None}
