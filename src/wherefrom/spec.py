"""Names with options, as they are typed: `random(seed=1), spearman:saliency@layers, aopc(by=mask)`.

The same for methods and metrics, on the command line and in Python. Values are JSON where they can be, else words.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from wherefrom.errors import InvalidOption, did_you_mean
from wherefrom.typecheck import checked, shown

WORDS = {"True": True, "False": False, "None": None}
TOKENIZER = {"add_special_tokens", "is_split_into_words", "max_length"}  # what people give beside a text, out of habit


def split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket.

    >>> split("aopc, aopc(by=mask, shares=[0.1,0.5])")
    ['aopc', 'aopc(by=mask, shares=[0.1,0.5])']
    """
    return [part.strip() for _, part in apart(text, ",") if part.strip()]


def apart(text: str, signs: str) -> list[tuple[str, str]]:
    """A text taken apart at these signs where they stand in no bracket: each part with the sign before it.

    >>> apart("spearman(protocol=dense):ablation@layers", ":@")
    [('', 'spearman(protocol=dense)'), (':', 'ablation'), ('@', 'layers')]
    """
    parts, depth = [("", "")], 0
    for char in text.strip():
        depth += (char in "([") - (char in ")]")
        if char in signs and depth == 0:
            parts.append((char, ""))
        else:
            parts[-1] = (parts[-1][0], parts[-1][1] + char)
    return parts


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


def checked_options(
    name: str, given: Mapping[str, Any], own: Collection[str], kinds: Mapping[str, Any]
) -> dict[str, Any]:
    """The options given to a method or metric of this name, each its own and of the right kind; or what is wrong."""
    if unknown := sorted(given.keys() - set(own)):
        hint = did_you_mean(unknown[0], own)
        if unknown[0] in TOKENIZER:
            hint = f"arguments of the tokenizer go into tokenizer_kwargs={{'{unknown[0]}': …}}; "
        known = ", ".join(own) or "none"
        raise InvalidOption(f"'{name}' has no option {', '.join(map(shown, unknown))}; {hint}its options: {known}")
    return {key: checked(f"'{name}' cannot have {key}", value, kinds[key]) for key, value in given.items()}


def summary_of(run: Callable[..., Any]) -> str:
    """What a method or metric says of itself: the first line of its docstring."""
    return (inspect.getdoc(run) or "").splitlines()[0]


def options_of(run: Callable[..., Any]) -> dict[str, Any]:
    """The options that it takes, which have to be named, and their defaults."""
    parameters = inspect.signature(run).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def refuse_uncallable(name: str, run: Callable[..., Any], given: Collection[str]) -> None:
    """Refuse a function that cannot be called with what is `given` and nothing else, or whose options cannot be set.

    Options are what has to be named; another parameter with a default would keep it whatever is asked for.
    """
    if not callable(run):
        raise InvalidOption(f"'{name}' is {shown(run)}; expected a function, def {name}({', '.join(given)})")
    parameters = inspect.signature(run).parameters.values()
    loose = [each for each in parameters if each.default is not each.empty and each.kind is not each.KEYWORD_ONLY]
    if loose:
        raise InvalidOption(
            f"'{name}' has options without a * before them ({', '.join(each.name for each in loose)}), which no call "
            f"could set; expected def {run.__name__}(…, *, {', '.join(map(str, loose))})"
        )
    if bare := [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]:
        raise InvalidOption(f"'{name}' has options without a default: {', '.join(bare)}; give them one")
    try:
        inspect.signature(run).bind(*given)
    except TypeError as error:
        raise InvalidOption(
            f"'{name}' is called with ({', '.join(given)}) and its options by name, which its function does not take: "
            f"{error}"
        ) from error
