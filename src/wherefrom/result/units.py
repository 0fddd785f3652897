"""Larger units of a text than words: which tokens belong to one sentence, line, document, turn or span."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wherefrom.errors import InvalidOption
from wherefrom.result.words import Span, group
from wherefrom.typecheck import shown

# A full stop after these, or after a single capital, ends no sentence.
SHORT = "".join(
    rf"(?<!\b{each})" for each in ("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "vs", "cf", r"e\.g", r"i\.e", "[A-Z]")
)
ENDS = {
    # where one ends, with the blanks after it
    "sentence": re.compile(rf"(?:(?!\.)|{SHORT})[.!?…。！？]+[\"'”’)\]]*(?=\s|$)\s*|\n+"),
    "line": re.compile(r"\n+"),
    "document": re.compile(r"\n[^\S\n]*\n\s*"),  # an empty line
}
UNITS = ("token", "word", "sentence", "line", "document", "turn")


def grouped(
    unit: Any,
    texts: Sequence[str],
    spans: Sequence[Span | None],
    segments: Sequence[str],
    word_ids: Sequence[int | None] | None = None,
) -> list[list[int]]:
    """Token indices by unit, in order; no unit reaches over the end of a segment, and no token is lost.

    A unit is one of `UNITS`; a regular expression, of what parts two units; or a list of spans (start, end) in the
    characters of the first text, beside which tokens stand for themselves. A token that lies in two units belongs to
    the one in which it ends.

    >>> grouped("sentence", ["Go. Now"], [None, (0, 0, 2), (0, 2, 3), (0, 3, 7)], [])
    [[0], [1, 2], [3]]
    """
    if unit == "token":
        return [[i] for i in range(len(spans))]
    if unit == "word":
        return group(texts, spans, word_ids)
    if unit == "turn":
        keys: list[Any] = list(segments or [""] * len(spans))
    elif isinstance(unit, re.Pattern) or (isinstance(unit, str) and unit in ENDS):
        keys = [_part(ENDS[unit] if isinstance(unit, str) else unit, texts, span) for span in spans]
    elif isinstance(unit, str) or not _are_spans(unit):
        raise InvalidOption(
            f"unknown unit {shown(unit)}; expected {', '.join(UNITS)}, a compiled regular expression of what parts two "
            f"units, or a list of spans (start, end) in the text"
        )
    else:
        _check(unit, len(texts[0]) if texts else 0)
        keys = [_within(unit, span) for span in spans]
    parts = segments or [""] * len(spans)
    groups: list[list[int]] = []
    for token, key in enumerate(keys):
        before = token - 1
        joins = key is not None and token > 0 and keys[before] == key and parts[before] == parts[token]
        if joins:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def _part(ends: re.Pattern[str], texts: Sequence[str], span: Span | None) -> tuple[int, int] | None:
    """The text of a token, and how many units have ended in it before the token does."""
    if span is None:
        return None
    which, _, end = span
    return which, sum(found.end() < end for found in ends.finditer(texts[which]))


def _check(spans: Sequence[tuple[int, int]], length: int) -> None:
    """Spans of a text lie inside it, and none in another."""
    last = 0
    for start, end in sorted(map(tuple, spans)):
        if not 0 <= start < end <= length:
            raise InvalidOption(f"the span ({start}, {end}) is no part of a text of {length} characters")
        if start < last:
            raise InvalidOption(f"the span ({start}, {end}) begins inside another one; expected spans that lie apart")
        last = end


def _within(spans: Sequence[tuple[int, int]], span: Span | None) -> int | None:
    if span is None or span[0] != 0:
        return None
    return next((number for number, (start, end) in enumerate(spans) if start < span[2] <= end), None)


def _are_spans(unit: Any) -> bool:
    pairs = isinstance(unit, list | tuple) and all(isinstance(each, list | tuple) and len(each) == 2 for each in unit)
    return pairs and all(isinstance(end, int) for each in unit for end in each)
