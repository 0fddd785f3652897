"""Explanations in the terminal: coloured text, and with `layers` what every layer did.

24-bit colour, or the nearest of 256. Of 16 the nearest would be cyan for both green and blue, so there the hue is named
and three steps say how strong. Without colour (NO_COLOR, a pipe) the scores are printed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from whence.explanation import Explanation
from whence.view.colour import hexadecimal, ink, intensities, nearest_of_256, shade

CELL = 3  # characters of one entry of a map
GROUND = (205, 209, 214)  # white would shine brightest on a dark terminal, where it should say least,
DARK_GROUND = (38, 40, 44)  # and where the terminal says that it is dark, weak is dark
FEW = ("standard", "windows")  # rich's names for 16 colours
# Of 16 colours: the ink of a weak score, the ground of a stronger one, and the ink on that ground.
UNSIGNED, TOWARDS, AGAINST = (12, 4, 15), (2, 2, 0), (1, 1, 15)


def show(explanations: Sequence[Explanation], *, layers: bool = False, console: Console | None = None) -> None:
    """Print explanations of one input under one heading."""
    console = console or Console()
    depth = None if console.no_color else console.color_system
    console.print(heading(explanations[0]))
    for remark in explanations[0].remarks:
        console.print(Text(remark, "dim"))
    for each in explanations:
        console.print()
        took = f"  {each.seconds * 1000:.0f} ms" if each.seconds else ""
        towards = "" if each.target == explanations[0].target else f"  explained: {each.target}"
        missed = "" if each.delta is None else f"  delta {each.delta:+.2g}"
        console.print(Text.assemble((title(each), "bold"), (towards, ""), (missed + took, "dim")))
        console.print(highlighted(each, depth) if depth else Text(plain(each)))
        if layers:
            console.print(layer_table(each, depth))
            for line in map_grid(each, console.width, depth):
                console.print(line, no_wrap=True, overflow="ignore", crop=True)


def title(explanation: Explanation) -> str:
    parts = [explanation.method]
    if explanation.aggregate and explanation.aggregate not in explanation.method:
        parts.append(explanation.aggregate)
    parts += [f"{name}={value}" for name, value in explanation.options.items()]
    return " · ".join(parts)


def heading(explanation: Explanation) -> Text:
    """What was predicted, what is explained, and which row answers for it."""
    text = Text()
    if explanation.prediction is not None:
        p = explanation.probabilities.get(explanation.prediction)
        text.append("predicts ").append(explanation.prediction, "bold")
        text.append(f" ({p:.3f})" if p is not None else "")
        text.append(f"  explained: {explanation.target}", "dim")
    where = explanation.reading.why
    if explanation.position is not None:
        where += f" {explanation.tokens[explanation.position]}"
    text.append(f"  read at: {where}", "dim")
    text.append(f"  {explanation.model}", "dim")
    return text


def highlighted(explanation: Explanation, depth: str | None = "truecolor") -> Text:
    """The text itself, each piece on a ground as strong as its score."""
    text = Text()
    strength = intensities(explanation.scores, explanation.signed, explanation.position)
    for piece, gap, value in zip(explanation.pieces, gaps(explanation), strength, strict=True):
        text.append(gap)
        text.append(piece, style(float(value), explanation.signed, depth))
    return text


def gaps(explanation: Explanation) -> list[str]:
    """What stands before each piece: the text's own white space, or a blank around tokens not in the text."""
    result: list[str] = []
    previous = None
    for token, span in enumerate(explanation.spans):
        if token == 0:
            result.append("")
        elif span is not None and previous is not None and span[0] == previous[0]:
            between = explanation.texts[span[0]][previous[2] : span[1]]
            result.append(" " if between.isspace() else between)
        else:
            result.append(" ")
        previous = span
    return result


def plain(explanation: Explanation) -> str:
    """Without colour: every piece with its score."""
    return "  ".join(
        f"{piece} {score:+.3g}" if explanation.signed else f"{piece} {score:.3g}"
        for piece, score in zip(explanation.pieces, explanation.scores, strict=True)
    )


def layer_rows(explanation: Explanation) -> np.ndarray[Any, Any] | None:
    """[L, n]: the answering row at every layer, or the method's own layer scores."""
    if explanation.layer_scores is not None:
        return explanation.layer_scores
    maps = explanation.maps if explanation.aggregated is None else explanation.aggregated
    if maps is None:
        return None
    rows: np.ndarray[Any, Any] = maps.mean(1) if explanation.position is None else maps[:, explanation.position]
    return rows


def layer_table(explanation: Explanation, depth: str | None = "truecolor") -> Table:
    """Tokens down, layers across: Abnar & Zuidema's figure 2, turned to fit a terminal."""
    rows = layer_rows(explanation)
    table = Table(box=None, padding=(0, 0), collapse_padding=True, show_edge=False)
    table.add_column("", justify="right")
    table.add_column("", width=1)
    if rows is None:
        return table
    columns = [_readable(row) for row in rows]
    for layer, (_, unit) in enumerate(columns):
        head = Text(f"{layer + 1:^6}")
        table.add_column(
            head.append(f"\n{unit}", "dim") if any(unit for _, unit in columns) else head, justify="center"
        )
    strength = np.stack([intensities(row, explanation.signed, explanation.position) for row in rows])
    for token, piece in enumerate(explanation.pieces):
        cells = [
            Text(_short(float(row[token])), style(float(value), explanation.signed, depth))
            for (row, _), value in zip(columns, strength[:, token], strict=True)
        ]
        table.add_row(Text(piece), "", *cells)
    return table


def _readable(row: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str]:
    """A layer's scores in a unit, a power of ten, in which three decimals say something; and that unit."""
    largest = float(np.abs(row).max(initial=0.0))
    power = int(np.floor(np.log10(largest))) + 1 if largest > 0 else 0
    if -1 < power <= 2:
        return row, ""
    return row / 10.0**power, f"×10^{power}"


def map_grid(explanation: Explanation, width: int, depth: str | None = "truecolor") -> list[Text]:
    """The method's own map of every layer, as many beside each other as fit: Value Zeroing's appendix A.4.

    Rows are the tokens being built, columns those they draw on, by number; 99 is the map's largest entry.
    """
    if explanation.maps is None:
        return []
    pieces, n = explanation.pieces, len(explanation)
    label = max(cell_len(piece) for piece in pieces) + 4
    across = (width - label) // (CELL * n + 2)
    if across < 1:
        return [Text(f"the maps of {n} tokens are wider than this terminal; save them as .html or .json", "dim")]
    lines = [Text(""), Text("the maps of the layers: rows draw on columns, 99 is a map's largest entry", "dim")]
    count = len(explanation.maps)
    for start in range(0, count, across):
        shown = range(start, min(start + across, count))
        lines.append(Text(" " * label + "".join(f"layer {layer + 1}".ljust(CELL * n + 2) for layer in shown), "bold"))
        lines.append(Text(" " * label + ("".join(f"{j:{CELL}d}" for j in range(n)) + "  ") * len(shown), "dim"))
        for i, piece in enumerate(pieces):
            line = Text(" " * (label - 4 - cell_len(piece)) + f"{piece} {i:2d} ")
            for layer in shown:
                for value in intensities(explanation.maps[layer], explanation.signed)[i]:
                    cell = f"{round(99 * value):{CELL}d}"
                    look = style(float(value), explanation.signed, depth)
                    line.append(cell if cell.strip() != "0" else " " * CELL, look)
                line.append("  ")
            lines.append(line)
        lines.append(Text(""))
    return lines


def _short(score: float) -> str:
    """Six characters: ' .123 ', '-.123 ', ' 12.3 '."""
    text = f"{score: .3f}".replace("0.", ".", 1) if abs(score) < 1 else f"{score: .3g}"
    return f"{text:<6.6}"


def dark() -> bool:
    """Whether the terminal says that its ground is dark: COLORFGBG, "15;0", which many set."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return ground.isdecimal() and (int(ground) < 7 or int(ground) == 8)


def style(intensity: float, signed: bool, depth: str | None = "truecolor") -> Style:
    """Ink and ground of a score, as far as a terminal of that colour depth (rich's name, or None) can show them."""
    if depth is None or abs(intensity) < 0.05:
        return Style()
    if depth in FEW:
        weak, behind, on_it = UNSIGNED if not signed else TOWARDS if intensity > 0 else AGAINST
        if abs(intensity) < 0.35:
            return Style(color=Color.from_ansi(weak))
        bold = abs(intensity) >= 0.7
        return Style(color=Color.from_ansi(on_it), bgcolor=Color.from_ansi(behind), bold=bold or None)
    background = shade(intensity, signed, DARK_GROUND if dark() else GROUND)
    if depth == "256":
        ground = Color.from_ansi(nearest_of_256(background))
        red, green, blue = ground.get_truecolor()
        letters = Color.parse(ink((red, green, blue))).downgrade(ColorSystem.EIGHT_BIT)
        return Style(color=letters, bgcolor=ground)
    return Style(color=ink(background), bgcolor=hexadecimal(background))
