"""Names with options, as they are typed: `random(seed=1), spearman:saliency@layers, aopc(by=mask)`.

The same for methods and measures, on the command line and in Python. Values are JSON where they can be, else words.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from wherefrom.errors import InvalidOption

WORDS = {"True": True, "False": False, "None": None}


def split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket.

    >>> split("aopc, aopc(by=mask, shares=[0.1,0.5])")
    ['aopc', 'aopc(by=mask, shares=[0.1,0.5])']
    """
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """A name and its options.

    >>> parse("random(seed=1)")
    ('random', {'seed': 1})
    """
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, {}
    if not rest.endswith(")") or not name.strip():
        raise InvalidOption(f"cannot read {text!r}; expected NAME or NAME(OPTION=VALUE, …)")
    return name.strip(), options(split(rest[:-1]))


def options(typed: list[str]) -> dict[str, Any]:
    """`["n_steps=50", "metric=l2"]` as keyword arguments."""
    found: dict[str, Any] = {}
    for each in typed:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise InvalidOption(f"cannot read the option {each!r}; expected NAME=VALUE")
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return WORDS.get(text, text)


def summary_of(run: Callable[..., Any]) -> str:
    """What a method or measure says of itself: the first line of its docstring."""
    return (inspect.getdoc(run) or "").splitlines()[0]


def options_of(run: Callable[..., Any]) -> dict[str, Any]:
    """The options that it takes, which have to be named, and their defaults."""
    parameters = inspect.signature(run).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
