"""Matrices as coloured cells, with their tokens beside and below: one panel or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import ink, shades
from wherefrom.view.plot.canvas import GAP, SIZE, SMALL, TINY, Picture
from wherefrom.view.plot.lettering import INCH, extent, short, widest

Array = NDArray[np.floating[Any]]

NARROWEST = 0.095  # inches of a cell whose label is still read; a wider matrix goes on below
WIDEST = 0.24
KEY = 0.12  # inches that a key is high,
RAMP = 0.6  # that its ramp is wide,
APART = 3 * GAP  # and between two of them
TARGET = 44  # letters of what scores are for: what fits beside a key on a column of a page
UPRIGHT = {"rotation": 90, "rotation_mode": "anchor", "ha": "right", "va": "center_baseline"}


@dataclass(frozen=True)
class Sheet:
    """A matrix to be coloured: `strength` in [-1, 1] (view/colour.py), its first row on top."""

    strength: Array  # [rows, columns]
    rows: list[str]
    columns: list[str]
    signed: bool | list[bool]  # of all rows, or of each
    title: str = ""
    corner: str = ""  # what the rows are
    apart: bool = False  # the last row stands apart from the others
    written: list[list[str]] = field(default_factory=list)  # what stands in the cells, if anything


def with_row(sheet: Sheet, strength: Array, label: str) -> Sheet:
    """The sheet with one more row, apart from the others."""
    more = np.concatenate([sheet.strength, strength[None]])
    return replace(sheet, strength=more, rows=[*sheet.rows, label], apart=True)


@dataclass(frozen=True)
class Layout:
    """Where sheets of one size stand: `across` beside each other, cells `width` × `height` inches."""

    across: int
    width: float
    height: float
    labels: float  # room left of the first sheet
    below: float  # room under the last row of sheets
    level: bool  # labels below lie, for they fit; otherwise they stand upright
    pitch: float  # from one sheet to the next
    title: float


def arrange(
    sheets: Sequence[Sheet],
    room: float,
    height: float | None = None,
    *,
    widest_cell: float = WIDEST,
    narrowest: float = NARROWEST,
) -> Layout:
    """The most sheets beside each other with cells that can be read. Without a height, cells are square."""
    columns = max(len(sheet.columns) for sheet in sheets)
    labels = _label_room(sheets)
    titles = widest([sheet.title for sheet in sheets], SIZE)
    between = 2 * GAP
    for across in range(len(sheets), 0, -1):
        free = (room - labels - (across - 1) * between) / across
        cell = min(free / columns, widest_cell)
        if across == 1 or (cell >= narrowest and titles <= free):
            break
    columns_widest = widest([short(column) for sheet in sheets for column in sheet.columns], label_size(cell))
    level = columns_widest <= cell * 0.95
    below = (extent("Ag", label_size(cell))[1] if level else columns_widest) + GAP
    title = extent("Ag", SIZE)[1] + GAP / 2 if any(sheet.title for sheet in sheets) else 0.0
    pitch = max(cell * columns, min(titles, free)) + between
    return Layout(across, cell, cell if height is None else height, labels, below, level, pitch, title)


def _label_room(sheets: Sequence[Sheet]) -> float:
    rows = widest([short(row) for sheet in sheets for row in sheet.rows], SIZE)
    return max(rows, widest([sheet.corner for sheet in sheets], SMALL)) + GAP


def strips(sheets: Sequence[Sheet], room: float) -> list[Sheet]:
    """Sheets too wide for the page, cut into pieces that stand under each other."""
    most = max(1, int((room - _label_room(sheets)) / NARROWEST))
    found = []
    for sheet in sheets:
        parts = -(-len(sheet.columns) // most)
        cuts = np.linspace(0, len(sheet.columns), parts + 1).round().astype(int).tolist()
        for start, end in pairwise(cuts):
            title = sheet.title if start == 0 else f"{sheet.title} …"
            piece = replace(sheet, strength=sheet.strength[:, start:end], columns=sheet.columns[start:end], title=title)
            found.append(replace(piece, written=[row[start:end] for row in sheet.written]))
    return found


def total_height(sheets: Sequence[Sheet], layout: Layout, every_row_labelled: bool) -> float:
    """Inches from the first title to the last label."""
    lines = [sheets[i : i + layout.across] for i in range(0, len(sheets), layout.across)]
    heights = [layout.title + max(_height(sheet, layout) for sheet in line) for line in lines]
    labelled = len(lines) if every_row_labelled else 1
    return sum(heights) + labelled * layout.below + (len(lines) - 1) * 1.5 * GAP


def place(
    picture: Picture, sheets: Sequence[Sheet], layout: Layout, left: float, top: float, every_row_labelled: bool
) -> float:
    """Draw the sheets; the height below the last one."""
    for start in range(0, len(sheets), layout.across):
        line = sheets[start : start + layout.across]
        last = start + layout.across >= len(sheets)
        top += layout.title
        for number, sheet in enumerate(line):
            # A column of sheets is labelled under its lowest one.
            labelled = every_row_labelled or last or start + layout.across + number >= len(sheets)
            x = left + layout.labels + number * layout.pitch
            _draw(picture, sheet, layout, x, top, rows=number == 0, columns=labelled)
        top += max(_height(sheet, layout) for sheet in line)
        top += (layout.below if every_row_labelled or last else 0.0) + (0.0 if last else 1.5 * GAP)
    return top


def _height(sheet: Sheet, layout: Layout) -> float:
    return len(sheet.rows) * layout.height + (GAP if sheet.apart else 0.0)


def _draw(
    picture: Picture, sheet: Sheet, layout: Layout, left: float, top: float, *, rows: bool, columns: bool
) -> None:
    width, height = layout.width * len(sheet.columns), _height(sheet, layout)
    signs = np.array(sheet.signed, dtype=bool).reshape(-1, 1)
    colours = shades(sheet.strength, signs, picture.theme.ground)
    middles = top + (np.arange(len(sheet.rows)) + 0.5) * layout.height
    middles[-1] += GAP if sheet.apart else 0.0
    for block in np.split(np.arange(len(sheet.rows)), [-1] if sheet.apart else []):
        axes = picture.panel(left, middles[block[0]] - layout.height / 2, width, layout.height * len(block))
        axes.set_label(sheet.title)
        axes.imshow(colours[block], aspect="auto", interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
    if sheet.title:
        picture.write(left, top - GAP / 2, sheet.title, ha="left", va="baseline")
    if rows and sheet.corner:
        colour = picture.theme.faint
        picture.write(left - GAP / 2, top - GAP / 2, sheet.corner, SMALL, color=colour, ha="right", va="baseline")
    if rows:
        size, step = label_size(layout.height), label_step(layout.height)
        for i in range(0, len(sheet.rows), step):
            picture.write(left - GAP / 2, middles[i], short(sheet.rows[i]), size, ha="right", va="center_baseline")
    if columns:
        size, step = label_size(layout.width), label_step(layout.width)
        turned: dict[str, Any] = {"ha": "center", "va": "top"} if layout.level else UPRIGHT
        for j in range(0, len(sheet.columns), step):
            x = left + (j + 0.5) * layout.width
            picture.write(x, top + height + GAP / 2, short(sheet.columns[j]), size, **turned)
    for i, texts in enumerate(sheet.written):
        for j, text in enumerate(texts):
            x, y = left + (j + 0.5) * layout.width, middles[i]
            colour = ink(tuple(colours[i, j].tolist()))
            picture.write(x, y, text, TINY + 0.5, color=colour, ha="center", va="center_baseline")


def label_size(room: float) -> float:
    """Points of a label beside or under a cell of that many inches."""
    return max(TINY, min(SIZE, 0.92 * room * INCH))


def label_step(room: float) -> int:
    """The step from one drawn label to the next: 1 where all have room, 2 for every second."""
    return max(1, int(np.ceil(TINY * 0.95 / (room * INCH))))


def towards(named: Mapping[str, Explanation]) -> str:
    """What scores with signs are for or against, where it is the same for all of them."""
    said = {str(each.target) for each in named.values() if each.signed and each.target.kind not in ("none", "random")}
    return said.pop() if len(said) == 1 else ""


@dataclass(frozen=True)
class ColourKey:
    """What the colours mean: a small ramp between two words."""

    signed: bool
    low: str
    high: str

    @property
    def width(self) -> float:
        return _room(self.low) + RAMP + GAP + _room(self.high)


def _room(word: str) -> float:
    """Inches for a word of a key, however many pixels these have: at few, letters snap to the grid and take more."""
    return 1.1 * extent(word, SMALL)[0]


def legend(width: float, signs: set[bool], low: str, high: str, target: str = "") -> list[list[ColourKey]]:
    """The keys of numbers without signs and of those with them (for `target`), in one line if it is wide enough."""
    plain = [ColourKey(False, low, high)] if False in signs else []
    signed = [ColourKey(True, "against", short(f"for {target}".strip(), TARGET))] if True in signs else []
    both = [*plain, *signed]
    fits = sum(key.width for key in both) + (len(both) - 1) * APART <= width - 2 * GAP
    return [both] if fits else [[key] for key in both]


def legend_height(lines: list[list[ColourKey]]) -> float:
    return len(lines) * (KEY + GAP) - GAP


def draw_legend(picture: Picture, top: float, lines: list[list[ColourKey]]) -> None:
    """The keys at the right, line under line."""
    for number, line in enumerate(lines):
        right = picture.get_size_inches()[0] - GAP
        for key in reversed(line):
            draw_key(picture, right - key.width, top + number * (KEY + GAP), key)
            right -= key.width + APART


def draw_key(picture: Picture, left: float, top: float, key: ColourKey) -> None:
    """One key from `left` on; its words keep to the ramp, and what they take more or less of is outside."""
    height, start = 0.07, left + _room(key.low) + GAP / 2
    axes = picture.panel(start, top + (KEY - height) / 2, RAMP, height)
    axes.set_label("key")
    ramp = np.linspace(-1 if key.signed else 0, 1, 101)[None]
    axes.imshow(shades(ramp, key.signed, picture.theme.ground), aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    picture.write(start - GAP / 2, top + KEY / 2, key.low, SMALL, ha="right", va="center_baseline")
    picture.write(start + RAMP + GAP / 2, top + KEY / 2, key.high, SMALL, ha="left", va="center_baseline")
