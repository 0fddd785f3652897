"""What the model said, and which part of it is explained: plain data that every result carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.floating[Any])
BEFORE_EACH = "token before each"  # why several tokens of what was said are read where they are


def quoted(label: str | None) -> str:
    """A label in quotes that it does not hold itself: 'not', "'"."""
    mark = '"' if "'" in str(label) and '"' not in str(label) else "'"
    return f"{mark}{label}{mark}"


@dataclass(frozen=True)
class Target:
    """The number explained. `kind` is "class", "token", "phrase" (several tokens after the prompt), "start", "end",
    "answer", "dimension" or "similarity" (of a sentence embedding: the label is the other text, the foil's label a
    third), "none" or "random".

    "none" is an explanation of a representation: nothing was predicted, or the method does not look at what was. Its
    label is the token that is represented. "random" is no explanation: numbers to compare explanations with.
    """

    kind: str
    index: int | None = None  # the class or token id; for "start" and "end" the position
    label: str | None = None
    end: int | None = None  # for "answer", whose index is where it starts
    foil: int | None = None
    foil_label: str | None = None
    tokens: tuple[int, ...] = ()  # of a phrase, whose index is the first of them
    foil_tokens: tuple[int, ...] = ()

    @property
    def towards(self) -> bool:
        """Whether an output is explained."""
        return self.kind not in ("none", "random")

    def __str__(self) -> str:
        if self.kind == "random":
            return "nothing: random scores, to compare with"
        if self.kind == "none":
            name = self.label or "a token"
            named = (
                name if " " in name or name.startswith(("[", "<")) else quoted(name)
            )  # a word, not [CLS] or the mean
            return f"what {named} is made of, not towards a class or word"
        if self.kind == "similarity":
            than = "" if self.foil_label is None else f" rather than to {quoted(self.foil_label)}"
            return f"similarity to {quoted(self.label)}{than}"
        label = quoted(self.label) if self.kind in ("class", "token", "phrase") else self.label
        named = f"{self.kind} {label}"
        return named if self.foil_label is None else f"{named} rather than {quoted(self.foil_label)}"


@dataclass(frozen=True)
class Readout:
    """Where the output is read: `position` is a token, or None for the mean over all of them, or over `rows`."""

    position: int | None
    why: str  # "first token", "last token", "mask", "mean", "given", …
    rows: tuple[int, ...] = ()  # the tokens that a phrase is read at, one for each of its own

    def row(self, of: NDArray[Number]) -> NDArray[Number]:
        """The readout row of a map, of a stack of maps, or of the tokens' vectors: [..., n, m] -> [..., m]."""
        if self.position is not None:
            return of[..., self.position, :]
        found: NDArray[Number] = (of[..., list(self.rows), :] if self.rows else of).mean(-2)
        return found


@dataclass(frozen=True)
class Answer:
    """What the model said about one sentence, and what of it is explained."""

    target: Target
    readout: Readout
    prediction: str | None
    probabilities: dict[str, float]
    candidates: dict[str, int] = field(default_factory=dict)  # of a language model: the token that each of them is
    predicted: Target | None = None  # the class or word of the prediction, where another is explained
    log_probabilities: dict[str, float] = field(
        default_factory=dict
    )  # of the tokens that a language model is asked for


def finite(logs: Mapping[str, float]) -> dict[str, float]:
    """Logarithms of what can be at all: JSON has no infinite numbers."""
    return {name: log for name, log in logs.items() if isfinite(log)}
