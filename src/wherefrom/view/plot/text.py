"""Highlighted text: every piece on a background as strong as its score, one method under the other.

AttCAT's figure 5 and ALTI's tables 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from matplotlib.patches import FancyBboxPatch

from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import hexadecimal, ink, shade, strengths
from wherefrom.view.plot import heat
from wherefrom.view.plot.canvas import GAP, SIZE, Picture, Theme
from wherefrom.view.plot.directions import levels, turned
from wherefrom.view.plot.lettering import extent, right_to_left
from wherefrom.view.terminal import gaps

LETTERS = 8.0  # points
PITCH = 0.185  # inches from line to line
PAD = 0.014  # inches around a piece
BLANK = 0.032
FAINTEST = 0.02  # below this a ground is not worth drawing


@dataclass(frozen=True)
class Piece:
    """A piece of text where it stands: inches from the left, in its line."""

    text: str
    strength: float
    width: float
    special: bool = False  # no part of the text: pale
    x: float = 0.0
    line: int = 0


def highlighted(named: Mapping[str, Explanation], width: float, theme: Theme, *, legend: bool = True) -> Picture:
    """The text once for every method, under its name."""
    room = width - 2 * GAP
    settled = {name: flow(each, room) for name, each in named.items()}
    heading, apart = extent("Ag", SIZE)[1] + 0.03, 0.09
    heights = [heading + PITCH * (max((piece.line for piece in pieces), default=0) + 1) for pieces in settled.values()]
    keys = heat.legend(width, {each.signed for each in named.values()}, "less", "more", heat.towards(named))
    footer = heat.legend_height(keys) + GAP if legend else 0.0
    picture = Picture(width, 2 * GAP + sum(heights) + apart * (len(heights) - 1) + footer, theme)
    top = GAP
    for (name, pieces), height in zip(settled.items(), heights, strict=True):
        explanation = named[name]
        backwards = right_to_left("".join(explanation.texts) or "".join(explanation.tokens))
        start = {"x": GAP + room, "ha": "right"} if backwards else {"x": GAP, "ha": "left"}
        picture.write(y=top + heading - 0.045, text=name, va="baseline", color=theme.faint, **start)  # type: ignore[arg-type]
        for piece in _in_order(pieces, backwards):
            x = room - piece.x - piece.width if backwards else piece.x
            _stamp(picture, replace(piece, x=GAP + x), top + heading + piece.line * PITCH, explanation.signed)
        top += height + apart
    if legend:
        heat.draw_legend(picture, top - apart + GAP, keys)
    return picture


def _stamp(picture: Picture, piece: Piece, top: float, signed: bool) -> None:
    height = picture.get_size_inches()[1]
    colour = picture.theme.faint if piece.special else picture.theme.ink
    if abs(piece.strength) >= FAINTEST:
        ground = shade(piece.strength, signed, picture.theme.ground)
        colour = ink(ground)
        box = FancyBboxPatch(
            (piece.x + PAD * 0.3, height - top - PITCH * 0.93),
            piece.width - PAD * 0.6,
            PITCH * 0.86,
            boxstyle="round,pad=0,rounding_size=0.02",
            facecolor=hexadecimal(ground),
            edgecolor="none",
            transform=picture.dpi_scale_trans,
        )
        picture.add_artist(box)
    picture.write(piece.x + PAD, top + PITCH * 0.70, piece.text, LETTERS, color=colour, va="baseline", ha="left")


def flow(explanation: Explanation, room: float) -> list[Piece]:
    """The pieces of a text in lines of `room` inches: a word stays together where it fits into a line."""
    placed: list[Piece] = []
    x, line = 0.0, 0
    for blank, word in _words(explanation, room):
        width = sum(piece.width for piece in word)
        if x > 0 and (blank == "\n" or x + (BLANK if blank else 0.0) + width > room):
            x, line = 0.0, line + 1
        elif blank and x > 0:
            x += BLANK
        for piece in word:
            if x > 0 and x + piece.width > room:
                x, line = 0.0, line + 1
            placed.append(replace(piece, x=x, line=line))
            x += piece.width
    return placed


def _in_order(pieces: list[Piece], backwards: bool) -> list[Piece]:
    """The pieces where they are read: among words from the left, those from the right stand in the other order."""
    every: list[Piece] = []  # the blanks, too, which part two numbers
    for piece in pieces:
        if every and every[-1].line == piece.line and (end := every[-1].x + every[-1].width) < piece.x:
            every.append(Piece("", 0.0, piece.x - end, x=end, line=piece.line))
        every.append(piece)
    found = levels([None if piece.special else piece.text for piece in every], backwards)
    if len(set(found)) < 2:  # all of one direction, as most texts are
        return pieces
    ordered: list[Piece] = []
    for _, line in groupby(zip(every, found, strict=True), lambda each: each[0].line):
        here, level = zip(*line, strict=True)
        places = turned([piece.x for piece in here], [piece.width for piece in here], level, backwards)
        ordered += [replace(piece, x=x) for piece, x in zip(here, places, strict=True)]
    return [piece for piece in ordered if piece.text]


def _words(explanation: Explanation, room: float) -> list[tuple[str, list[Piece]]]:
    """Pieces that stand together without a blank, and what comes before them: nothing, a blank or a new line."""
    words: list[tuple[str, list[Piece]]] = []
    rows = zip(explanation.pieces, gaps(explanation), strengths(explanation), explanation.special, strict=True)
    for piece, gap, value, special in rows:
        between = gap.strip()  # letters of the text that no token stands for
        blank = gap != between or not words
        pieces = [*_fitting(between, 0.0, room), *_fitting(piece, float(value), room, special)]
        if blank:
            words.append((("\n" if gap == "\n" else " ") if words else "", pieces))
        else:
            words[-1][1].extend(pieces)
    return words


def _fitting(text: str, strength: float, room: float, special: bool = False) -> list[Piece]:
    """A piece, cut where it is longer than a whole line."""
    if not text:
        return []
    width = extent(text, LETTERS)[0] + 2 * PAD
    if width <= room or len(text) == 1:
        return [Piece(text, strength, width, special)]
    half = len(text) // 2
    return [part for each in (text[:half], text[half:]) for part in _fitting(each, strength, room, special)]
