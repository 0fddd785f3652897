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
from wherefrom.pipeline.auto import suited

RECORD = Path(__file__).with_name("record.json")
CHANCE = "random"
WORDS = ("masked-lm", "causal-lm")  # tasks with tables of their own
UNMEASURED = inf  # forward passes
# What may be asked, by which standing it is answered, and whether only maps of no output are an answer.
ASKED = {
    "output": ("faithful", False, "what the model uses for its answer"),
    "map": ("faithful", True, "what a representation is made of, layer by layer"),
    "people": ("plausible", False, "what people would mark"),
    "cues": ("cues", False, "which word decides the grammar"),
}


@dataclass(frozen=True)
class Recommended:
    """A method and its place among those that came into question."""

    method: str
    beaten: float  # the share of the other methods that it beats on an average example
    passes: float | None
    alike: tuple[str, ...]  # those that are not told apart from it


@lru_cache
def shipped() -> dict[str, Any]:
    """The record of the leaderboard that ships (docs/leaderboard.md)."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def resting_on(question: str, task: str) -> dict[str, int]:
    """The tables from which a question is answered, each named MODEL on DATA, and how many examples each has.

    Words at a mask and words that follow have other winners than classes: there, the tables of that task alone.
    """
    standing, every = ASKED[question][0], shipped()["tables"]
    names = {name for found in shipped()["methods"].values() for name in found.get(standing, {}).get("tables", ())}
    own = {name for name in names if every[name]["task"] == task and task in WORDS}
    return {name: about["rows"] for name, about in every.items() if name in (own or names)}


def best_on(table: str, question: str, names: list[str]) -> tuple[str, float]:
    """Of these methods the first on one table, and the share of the others that it beats there."""
    standing, every = ASKED[question][0], shipped()["methods"]
    shares = {name: every[name][standing]["tables"].get(table) for name in names}
    return max(((name, share) for name, share in shares.items() if share is not None), key=lambda each: each[1])


def recommend(opened: Model, question: str = "output", budget: float | None = None) -> list[Recommended]:
    """The methods in question, the recommended one first: of those not told apart from the best, the cheapest.

    budget: forward passes that a method may cost; one whose cost was not measured may be dearer.
    """
    if budget is not None and not budget > 0:
        raise InvalidOption(f"a budget of {budget:g} forward passes; expected a number above 0")
    if question not in ASKED:
        raise InvalidOption(f"there is no question {question!r}; expected one of {', '.join(ASKED)}")
    standing, maps, _ = ASKED[question]
    known = {name: found for name, found in shipped()["methods"].items() if standing in found and name != CHANCE}
    tables = resting_on(question, opened.task)
    there = [name for name in known if _shares(known[name][standing], tables)]
    fitting = [name for name in suited(opened, there) if not maps or not lookup(name)[0].class_specific]
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
    # Differences were tested over all tables together.
    together = opened.task not in WORDS
    alike = {name: [each for each in known[name][standing]["alike"] if together and each in within] for name in order}
    first = min([order[0], *alike[order[0]]], key=lambda name: costs[name])
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
