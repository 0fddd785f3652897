"""The small trained models that ship inside the package. Looking them up imports no torch."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.errors import UnknownName

_HERE = Path(__file__).parent
IMAGES = "image classification"


@dataclass(frozen=True)
class Card:
    """What a model is, what made it and how good it was measured to be (its folder's card.json)."""

    name: str
    summary: str
    architecture: str
    parameters: int
    task: str
    labels: tuple[str, ...]
    data: tuple[str, ...]
    commands: tuple[str, ...]
    seed: int
    made: str
    measured: dict[str, float]
    measured_by: tuple[str, ...]
    limits: str


def names(but: Collection[str] = ()) -> list[str]:
    """The shipped models: every folder here that has a card, `but` those for one of these tasks."""
    every = sorted(f"wherefrom/{file.parent.name}" for file in _HERE.glob("*/card.json"))
    return [name for name in every if card(name).task not in but] if but else every


def expected() -> str:
    """What may stand for a model, for whoever has named none."""
    return (
        f"expected a shipped model: {', '.join(names())}; a folder written by save_pretrained; or a Hugging Face id "
        f"that is reachable or cached"
    )


def path(name: str) -> Path:
    """The folder of a shipped model, for `from_pretrained`."""
    if name not in names():
        raise UnknownName(f"no shipped model is called {name!r}; there are: {', '.join(names())}")
    return _HERE / name.removeprefix("wherefrom/")


def card(name: str) -> Card:
    """The card of a shipped model."""
    file = path(name) / "card.json"
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    made: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return Card(**made)
