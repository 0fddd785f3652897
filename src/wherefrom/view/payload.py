"""Explanations as data for the viewer: JSON in which matrices are packed numbers instead of lists.

    {"shape": [L, n, n], "type": "f4", "scale": 1.0, "data": "<base64, little-endian>"}

    f8, f4   the numbers themselves
    f2       half floats of x / scale, scale = max |x|: 3 significant digits at a quarter of JSON's size
    i1       sign(x) · round(127 √(|x| / scale)): what a picture needs, in one byte

Scores and the readout row of every layer keep their precision; maps take the finest type with which all of them fit
into `BUDGET`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import InvalidInput
from wherefrom.result import serialise
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import DARK, WHITE, Colour, hexadecimal, ink, shade
from wherefrom.view.terminal import arrival, gaps, title

Array = NDArray[np.floating[Any]]

FORMAT = "wherefrom.view"
BUDGET = {"f4": 4_000_000, "f2": 32_000_000}  # bytes of all maps together; beyond the last, one byte each
WIDTH = {"f8": 8, "f4": 4, "f2": 2, "i1": 1}
MATRICES = ("maps", "aggregated", "head_maps")
STOPS = 128  # of a colour ramp from nothing to the full hue


def payload(
    explanations: Mapping[str, Explanation], title: str | None = None, *, failed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the viewer draws, by the name each explanation is shown under. JSON-serialisable."""
    if not explanations:
        raise InvalidInput("there is nothing to show; expected at least one explanation")
    named = list(explanations.values())
    entries = sum(array.size for each in named for array in _matrices(each).values())
    kind = next((kind for kind, most in BUDGET.items() if entries * WIDTH[kind] <= most), "i1")
    return {
        "format": FORMAT,
        "version": 1,
        "title": title or _title(named),
        "colours": themes(),
        "explanations": [_subject(name, each, kind) for name, each in zip(explanations, named, strict=True)],
        **({"failed": dict(failed)} if failed else {}),
    }


def pack(array: Array, kind: str) -> dict[str, Any]:
    """An array as base64 of the given type."""
    scale = 1.0
    if kind in ("f2", "i1"):
        scale = float(np.abs(array).max(initial=0.0)) or 1.0
        array = array / scale
    if kind == "i1":
        array = np.sign(array) * np.rint(127 * np.sqrt(np.abs(array)))
    data = np.ascontiguousarray(array, dtype=np.dtype(f"<{kind}")).tobytes()
    return {
        "shape": list(array.shape),
        "type": kind,
        "scale": scale,
        "data": base64.b64encode(data).decode("ascii"),
    }


def _matrices(explanation: Explanation) -> dict[str, Array]:
    return {name: array for name in MATRICES if (array := getattr(explanation, name)) is not None}


def _subject(name: str, explanation: Explanation, kind: str) -> dict[str, Any]:
    """One explanation: its record as `to_dict` writes it, its arrays packed, and how it reads in pieces and words."""
    arrays = {"scores", "layer_scores", *MATRICES}
    bare = replace(explanation.without_maps(), layer_scores=None)
    record = {key: value for key, value in serialise.to_dict(bare).items() if key not in arrays | {"dtypes"}}
    dtypes = {each: str(array.dtype) for each in arrays if (array := getattr(explanation, each)) is not None}
    groups = None if explanation.granularity == "word" else explanation.groups
    joins = groups is not None and len(groups) < len(explanation)
    return {
        "name": name,
        "title": title(explanation),
        "explained": explanation.explained,
        "likelihood": explanation.likelihood,
        "read_at": explanation.read_at,
        "remarks": explanation.remarks,
        "arrival": arrival(explanation),
        "rounding": explanation.rounding,
        "record": {**record, "dtypes": dtypes},
        "signed": explanation.signed,
        "pieces": _unit(explanation),
        "words": {**_unit(explanation.words()), "groups": groups, "adds": explanation.additive} if joins else None,
        "layer_scores": None if explanation.layer_scores is None else exact(explanation.layer_scores),
        **{each: pack(array, kind) for each, array in _matrices(explanation).items()},
    }


def _unit(explanation: Explanation) -> dict[str, Any]:
    rows = explanation.readout_rows
    return {
        "tokens": explanation.pieces,
        "gaps": gaps(explanation),
        "special": explanation.special,
        "unknown": explanation.unknown,
        "position": explanation.position,
        "scores": exact(explanation.scores),
        "rows": None if rows is None else exact(rows),  # [L, n]: the readout row of every layer
    }


def exact(array: Array) -> dict[str, Any]:
    """An array in the precision that it has."""
    return pack(array, "f4" if array.dtype.itemsize <= 4 else "f8")


def _title(explanations: Sequence[Explanation]) -> str:
    first = explanations[0]
    if first.picture is not None:
        return str((first.given or {}).get("image", "a picture"))
    return " / ".join(text.strip() for text in first.texts) or " ".join(first.tokens)


def themes() -> dict[str, Any]:
    """The colours of a light and of a dark page."""
    return {"light": _theme(WHITE), "dark": _theme(DARK)}


def _theme(ground: Colour) -> dict[str, Any]:
    """The page's colours, from view/colour.py: six hexadecimal digits a stop, and which ink reads on it (0: black)."""
    ramps = {
        "unsigned": [shade(i / (STOPS - 1), False, ground) for i in range(STOPS)],
        "signed": [shade(i / (STOPS - 1), True, ground) for i in range(1 - STOPS, STOPS)],
    }
    return {
        "ground": hexadecimal(ground),
        "ink": ink(ground),
        **{name: "".join(hexadecimal(stop)[1:] for stop in stops) for name, stops in ramps.items()},
        **{f"{name}_ink": "".join("01"[ink(stop) == "#ffffff"] for stop in stops) for name, stops in ramps.items()},
    }
