"""Which way words go where scripts from the left and from the right stand in one text.

Unicode's annex 9 in small, over pieces of text and the blanks between them; letters within a piece are put in order by
whoever draws it. A piece has a level, which is odd where it is read from the right. On a line, runs of higher levels
are turned around, the highest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from unicodedata import bidirectional

LEFT, RIGHT, NUMBER, NEITHER = "left", "right", "number", "neither"


def levels(texts: Sequence[str | None], backwards: bool) -> list[int]:
    """The level of each piece, in a text that as a whole runs from the right (`backwards`) or from the left.

    None is what is no part of the text, such as [CLS]: it goes with the whole.
    """
    whole = RIGHT if backwards else LEFT
    ways: list[str] = []
    letters = whole  # the way of the last piece with letters
    for text in texts:
        way = whole if text is None else _way(text)
        if way in (LEFT, RIGHT):
            letters = way
        elif way == NUMBER and letters == LEFT:
            way = LEFT
        ways.append(way)
    level = {LEFT: 2 * int(backwards), RIGHT: 1, NUMBER: 2}  # a number is read from the left, also among Arabic words
    return [level[way if way != NEITHER else _around(ways, i, whole)] for i, way in enumerate(ways)]


def turned(starts: Sequence[float], widths: Sequence[float], found: Sequence[int], backwards: bool) -> list[float]:
    """Where the pieces of one line start when its runs are turned around.

    Of a text that is `backwards`, places count from the right and stay so: the whole line is not turned here.
    """
    places = list(starts)
    for level in range(max(found, default=0), int(backwards), -1):
        above = [each >= level for each in found]
        for turns, run in groupby(range(len(places)), above.__getitem__):
            if turns:
                members = list(run)
                left = min(places[i] for i in members)
                right = max(places[i] + widths[i] for i in members)
                for i in members:
                    places[i] = left + right - places[i] - widths[i]
    return places


def _way(text: str) -> str:
    kinds = {bidirectional(letter) for letter in text}
    if kinds & {"R", "AL"}:
        return RIGHT
    if "L" in kinds:
        return LEFT
    return NUMBER if kinds & {"EN", "AN"} else NEITHER


def _around(ways: Sequence[str], place: int, whole: str) -> str:
    """The way of a comma or a blank: that of its neighbours where they agree, else that of the whole text."""
    before = next((way for way in reversed(ways[:place]) if way != NEITHER), whole)
    after = next((way for way in ways[place + 1 :] if way != NEITHER), whole)
    first, second = (RIGHT if way == NUMBER else way for way in (before, after))
    return first if first == second else whole
