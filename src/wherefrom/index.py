"""What there is to choose from, by name and summary, without importing torch: for lists and completion.

It is stored in index.json; `python -m wherefrom.index` writes that anew from the registries, and a test says when
it is due.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from wherefrom.files import write
from wherefrom.registry import declared

FILE = Path(__file__).with_name("index.json")


@lru_cache(maxsize=1)
def stored() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def listed(kind: str) -> list[dict[str, Any]]:
    """The methods, metrics or recipes; made anew, which imports torch, where another package adds to them."""
    return made()[kind] if declared(f"wherefrom.{kind}") else stored()[kind]


def made() -> dict[str, list[dict[str, Any]]]:
    """The catalogue as the registries have it now."""
    return {"methods": _methods(), "metrics": _metrics(), "recipes": _recipes()}


def _methods() -> list[dict[str, Any]]:
    from wherefrom.method import Method, Preset, methods, presets

    known = {each.name: each for each in methods()}
    ideas = list(dict.fromkeys(each.idea for each in known.values()))
    entries: list[tuple[Method | Preset, Method]] = [(each, each) for each in known.values()]
    entries += [(each, known[each.method]) for each in presets()]
    found = [
        {
            "name": each.name,
            "symbols": list(each.symbols),
            "summary": each.summary,
            "of": None if each is base else base.name,
            "towards": base.class_specific,
            "random": base.random,
            "signed": base.signed,
            "idea": base.idea,
            "paper": each.paper.short,
        }
        for each, base in entries
    ]
    return sorted(found, key=lambda each: (not each["towards"], ideas.index(str(each["idea"]))))


def _metrics() -> list[dict[str, Any]]:
    from wherefrom.metric.base import NEEDS
    from wherefrom.metric.names import metrics

    return [
        {
            "name": each.name + (":METHOD" if each.reference else "") + ("[@K]" if "K" in each.where else ""),
            "summary": each.summary,
            "better": each.better,
            "needs": [NEEDS[need] for need in each.needs],
            "options": [*each.options, *(f"@{where}" for where in each.where if where != "K")],
        }
        for each in metrics()
    ]


def _recipes() -> list[dict[str, Any]]:
    from wherefrom.papers import recipes

    return [
        {
            "name": each.name,
            "paper": each.name.partition("/")[0],
            "summary": each.about,
            "model": each.model,
            "data": ", ".join(each.data) + (f"; without data: {each.spare}" if each.spare else ""),
        }
        for each in recipes()
    ]


if __name__ == "__main__":
    write(FILE, json.dumps(made(), ensure_ascii=False, indent=1) + "\n")
    print(f"written to {FILE.name}")
