"""Explanations in the terminal: coloured text, and with `layers` what every layer did.

24-bit colour, or the nearest of 256. Of 16 the nearest would be cyan for green and blue, so there the hue is named.
Where the terminal does not say whether its background is light or dark, nothing can fade into it: three steps then say
how strong a score is, in ink, in bold ink and as a background. Without colour (NO_COLOR, pipes) scores are printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from wherefrom.patents import PATENT_NOTE
from wherefrom.registry import fold
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import (
    AGAINST,
    FOR,
    STRENGTH,
    WHITE,
    Colour,
    hexadecimal,
    ink,
    intensities,
    nearest_of_256,
    shade,
    strengths,
)

# Options that a title leaves out: what was read and explained stands beside it.
TOLD = ("target", "foil", "position", "rows", "keep", "long", "overlap", "tokenizer_kwargs")
CELL = 3  # characters of one entry of a map
LEGIBLE = 3  # times the output, up to which a sum is said as a part of it
COLUMN = 7  # and of one entry of the table of layers
DARK_GROUND: Colour = (38, 40, 44)
FEW = ("standard", "windows")  # rich's names for 16 colours
# Of 16 colours: the ink of a weak score, the ground of a strong one, and the ink on that ground.
NAMED = {STRENGTH: (12, 4, 15), FOR: (2, 2, 0), AGAINST: (1, 1, 15)}
SEEN, MIDDLE, STRONG = 0.1, 0.35, 0.7  # where the three steps begin
MUTED = Style(dim=True)
SHOWN_ONCE: set[str] = set()  # notes that this process has shown and does not repeat
CELL_STYLE = Style(underline=False)  # lines under numbers run together
READABLE_INK = {STRENGTH: (56, 140, 200)}  # on light and dark grounds alike; the other hues are so by themselves


def show(
    explanations: Sequence[Explanation],
    *,
    layers: bool = False,
    pieces: bool = False,
    console: Console | None = None,
    names: Sequence[str] | None = None,
    failed: Mapping[str, str] | None = None,
) -> None:
    """Print explanations, those of one input under one heading: over words, or over the tokenizer's pieces.

    `names` are what their owner calls them, `failed` says why some methods have none.
    """
    console = console or Console()
    depth = None if console.no_color else console.color_system
    called = iter(labels(names or [each.method for each in explanations], explanations))
    for number, alike in enumerate(by_input(explanations)):
        common, shared = explained_by_all(alike), remarks_of_all(alike)
        if number:
            console.print()
        console.print(heading(alike[0], common))
        _print_remarks(console, shared)
        for each in alike:
            read = each if pieces or each.granularity == "word" else each.words()
            console.print()
            console.print(Text.assemble((next(called), "bold"), _beside(each, read, common)))
            _print_remarks(console, [remark for remark in each.remarks if remark not in shared])
            _print_scores(read, console, depth, layers)
    for name, detail in (failed or {}).items():
        console.print()
        console.print(Text.assemble((name, "bold"), f"  {detail}"))


def _print_remarks(console: Console, remarks: Sequence[str]) -> None:
    """Print what a reader must know of a result; the patent note once in a process."""
    for remark in remarks:
        if remark not in SHOWN_ONCE:
            console.print(Text(remark, "dim"))
        if remark == PATENT_NOTE:
            SHOWN_ONCE.add(remark)


def _print_scores(read: Explanation, console: Console, depth: str | None, layers: bool) -> None:
    console.print(highlighted(read, depth) if depth else Text(plain(read, console.width)))
    if layers:
        for part in layer_tables(read, console.width, depth):
            console.print(part)
        for line in map_grid(read, console.width, depth):
            console.print(line, no_wrap=True, overflow="ignore", crop=True)


def title(explanation: Explanation) -> str:
    parts = [explanation.method]
    if explanation.aggregate and explanation.aggregate not in explanation.method:
        parts.append(explanation.aggregate)
    parts += [f"{name}={value}" for name, value in explanation.options.items() if name not in TOLD]
    return " · ".join(parts)


def labels(names: Sequence[str], explanations: Sequence[Explanation]) -> list[str]:
    """What stands above each explanation: its title, and before it the name it has where the title does not say it."""
    said = [(title(each), each.explained) for each in explanations]
    found = []
    for name, each, (own, what) in zip(names, explanations, said, strict=True):
        if said.count((own, what)) == 1 and _says(name, each):
            found.append(own)
        else:
            found.append(name if own in name else f"{name} · {own}")
    return found


def _says(name: str, explanation: Explanation) -> bool:
    """Whether a name is that of the method, with its options or its target, or of the target alone."""
    measured, method = explanation.measured, fold(re.split(r"[(:]", name)[0])
    return not name or method == fold(explanation.method) or name in (measured.label, measured.kind)


def by_input(explanations: Sequence[Explanation]) -> list[list[Explanation]]:
    """One after another, those together that one heading serves: of what one model read and said."""
    found: list[list[Explanation]] = []
    for each in explanations:
        if found and _agree(found[-1][0], each):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _agree(one: Explanation, other: Explanation) -> bool:
    """Whether text, model and prediction are the same; scores made elsewhere may say nothing of them."""
    facts = [(each.texts, each.model, predicted(each)) for each in (one, other)]
    return all(this == that or not this or not that for this, that in zip(*facts, strict=True))


def explained_by_all(explanations: Sequence[Explanation]) -> str | None:
    """What a heading says is explained; None where there are several outputs, of which each is named beside its own."""
    outputs = {each.explained for each in explanations if each.target.towards}
    return None if len(outputs) > 1 else explanations[0].explained


def remarks_of_all(explanations: Sequence[Explanation]) -> list[str]:
    """What a heading says beside that; the other remarks stand each with its own explanation."""
    first, *others = (each.remarks for each in explanations)
    return [remark for remark in first if all(remark in each for each in others)]


def arrival(explanation: Explanation) -> str:
    """What the scores add up to, where their method promises no sum; else nothing.

    A part of the output, or both numbers where the output lies so near zero that its parts say nothing.
    """
    part = explanation.arrived
    if part is None:
        return ""
    if 0 <= part <= LEGIBLE:
        return f"sums to {part:.0%} of the output"
    total = float(explanation.scores.sum())
    return f"sums to {total:+.2g} where the output is {total / part:+.2g}"


def predicted(explanation: Explanation) -> tuple[str, str] | None:
    """What the model says, and how likely that is."""
    if explanation.prediction is None:
        return None
    p = explanation.probabilities.get(explanation.prediction)
    return explanation.prediction, "" if p is None else f" ({likely(p)})"


def likely(p: float) -> str:
    """A probability to three digits; one that they would show as none is less than the least of them.

    >>> likely(0.25), likely(0.00002)
    ('0.250', '< 0.001')
    """
    return "< 0.001" if 0 < p < 0.0005 else f"{p:.3f}"


def heading(explanation: Explanation, explained: str | None) -> Text:
    """What was predicted, what is explained, and which row it is read from."""
    text = Text()
    if (said := predicted(explanation)) is not None:
        text.append("predicts ").append(said[0], "bold").append(f"{said[1]}  ")
    shown = (explained and f"explained: {explained}", explanation.likelihood)
    facts = (*shown, explanation.read_at and f"read at: {explanation.read_at}", explanation.model)
    text.append("  ".join(fact for fact in facts if fact), "dim")
    return text


def _beside(explanation: Explanation, read: Explanation, common: str | None) -> Text:
    """What stands beside a method's name: what it explains if not the same, whether the numbers beneath, of `read`, are
    shares, what it misses, how long it took.
    """
    text = Text("" if explanation.explained == common else f"  explained: {explanation.explained}")
    missed = "" if explanation.delta is None else f"  delta {explanation.delta:+.2g}"
    missed += "".join(f"  {said}" for said in (arrival(explanation), explanation.fit, explanation.rounding) if said)
    took = f"  {explanation.seconds * 1000:.0f} ms" if explanation.seconds else ""
    shares = "  shares" if _are_shares(read) else ""
    return text.append(shares + missed + took, "dim")


def highlighted(explanation: Explanation, depth: str | None = "truecolor") -> Text:
    """The text itself, each piece as strong as its score. Special tokens are no part of it and stay pale."""
    text = Text()
    rows = zip(explanation.pieces, gaps(explanation), strengths(explanation), explanation.special, strict=True)
    for piece, gap, value, special in rows:
        text.append(gap)
        text.append(piece, MUTED if special else style(float(value), explanation.signed, depth))
    return text


def gaps(explanation: Explanation) -> list[str]:
    """What stands before each piece: the text's own white space, or a blank around tokens not in the text."""
    result: list[str] = []
    previous = None
    for token, span in enumerate(explanation.spans):
        if token == 0:
            result.append("")
        elif _parts(explanation, token):
            result.append("\n")
        elif span is not None and previous is not None and span[0] == previous[0]:
            between = explanation.texts[span[0]][previous[2] : span[1]]
            result.append(" " if between.isspace() else between)
        else:
            result.append(" ")
        previous = span
    return result


def _parts(explanation: Explanation, token: int) -> bool:
    """Whether a stream begins with this token: the target after the source."""
    segments = explanation.segments
    return bool(segments) and token > 0 and segments[token - 1 : token + 1] == ["source", "target"]


def readable(explanation: Explanation, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scores as they are shown. Without signs, shares of their sum: rollouts of norms grow beyond any measure."""
    total = float(scores.sum())
    if explanation.signed or total <= 0 or abs(total - 1) < 1e-3:
        return scores
    shares: np.ndarray[Any, Any] = scores / total
    return shares


def _are_shares(explanation: Explanation) -> bool:
    """Whether what is shown is not the scores as they are."""
    return not np.array_equal(readable(explanation, explanation.scores), explanation.scores)


def in_a_line(explanation: Explanation) -> str:
    """What `print` shows: every piece with its score, or with its share, which is then said."""
    return ("shares:  " if _are_shares(explanation) else "") + plain(explanation)


def plain(explanation: Explanation, width: int | None = None) -> str:
    """Without colour: every piece with its score, the two on one line."""
    form = "{} {:+.3g}" if explanation.signed else "{} {:.3g}"
    scores = readable(explanation, explanation.scores)
    pieces = [piece.strip() or repr(piece) for piece in explanation.pieces]  # blanks by name, for they are tokens, too
    parts = [form.format(*each) for each in zip(pieces, scores, strict=True)]
    lines = [""]
    for token, part in enumerate(parts):
        joined = f"{lines[-1]}  {part}" if lines[-1] else part
        if _parts(explanation, token) or (width is not None and lines[-1] and cell_len(joined) > width):
            lines.append(part)
        else:
            lines[-1] = joined
    return "\n".join(lines)


def layer_tables(explanation: Explanation, width: int, depth: str | None = "truecolor") -> Iterator[Table | Text]:
    """Tokens down, layers across, as many as fit: Abnar & Zuidema's figure 2, turned to fit a terminal."""
    rows = explanation.readout_rows
    if rows is None:
        yield Text(f"{explanation.method} says nothing about layers; attcat and all methods with layer maps do", "dim")
        return
    shown, power = _in_a_unit(np.stack([readable(explanation, row) for row in rows]))
    if power:
        yield Text(f"all × 10^{power}", "dim")
    label = max(map(cell_len, explanation.pieces)) + 1
    tables = -(-len(rows) // max(1, (width - label) // COLUMN))
    across = -(-len(rows) // tables)  # as many in each: no last one of a single column
    for start in range(0, len(rows), across):
        if start:
            yield Text("")
        yield _layer_table(explanation, shown, range(start, min(start + across, len(rows))), depth)


def _layer_table(explanation: Explanation, shown: np.ndarray[Any, Any], layers: range, depth: str | None) -> Table:
    table = Table(box=None, padding=(0, 0), collapse_padding=True, show_edge=False)
    table.add_column("layer", justify="right", no_wrap=True)
    table.add_column("", width=1)
    for layer in layers:
        table.add_column(f"{layer:^{COLUMN}}", justify="center", no_wrap=True)
    looks = {layer: strengths(explanation, shown[layer]) for layer in layers}
    for token, (piece, special) in enumerate(zip(explanation.pieces, explanation.special, strict=True)):
        cells = [
            Text(
                _short(float(shown[layer, token])),
                MUTED if special else style(float(looks[layer][token]), explanation.signed, depth) + CELL_STYLE,
            )
            for layer in layers
        ]
        table.add_row(Text(piece, MUTED if special else ""), "", *cells)
    return table


def _in_a_unit(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """Scores in a unit, a power of ten, in which three decimals say something; and that power."""
    largest = float(np.abs(rows).max(initial=0.0))
    power = int(np.floor(np.log10(largest))) + 1 if largest > 0 else 0
    return (rows, 0) if -1 < power <= 2 else (rows / 10.0**power, power)


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
        lines.append(Text(" " * label + "".join(f"layer {layer}".ljust(CELL * n + 2) for layer in shown), "bold"))
        lines.append(Text(" " * label + ("".join(f"{j:{CELL}d}" for j in range(n)) + "  ") * len(shown), "dim"))
        for i, piece in enumerate(pieces):
            line = Text(" " * (label - 4 - cell_len(piece)) + f"{piece} {i:2d} ")
            for layer in shown:
                for value in intensities(explanation.maps[layer], explanation.signed)[i]:
                    cell = f"{round(99 * value):{CELL}d}"
                    look = style(float(value), explanation.signed, depth) + CELL_STYLE
                    line.append(cell if cell.strip() != "0" else " " * CELL, look)
                line.append("  ")
            lines.append(line)
        lines.append(Text(""))
    return lines


def _short(score: float) -> str:
    """Seven characters: '  .123 ', ' -.123 ', '  12.3 '."""
    text = f"{score: .3f}".replace("0.", ".", 1) if abs(score) < 1 else f"{score: .3g}"
    return f" {text:<6.6}"


def ground() -> Colour | None:
    """The terminal's ground, where it says so: COLORFGBG, "15;0", which some set."""
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if not number.isdecimal():
        return None
    return DARK_GROUND if int(number) < 7 or int(number) == 8 else WHITE


def style(intensity: float, signed: bool, depth: str | None = "truecolor") -> Style:
    """Ink and ground of a score, as far as a terminal of that colour depth (rich's name, or None) can show them."""
    if depth is None or abs(intensity) < 0.05:
        return Style()
    behind = ground()
    if behind is None or depth in FEW:
        return _step(abs(intensity), STRENGTH if not signed else FOR if intensity > 0 else AGAINST, depth)
    return _on(shade(intensity, signed, behind), depth)


def _step(strength: float, hue: Colour, depth: str) -> Style:
    """One of three looks that read on any ground: ink, bold ink underlined, and letters on a ground of their own."""
    if strength < SEEN:
        return Style()
    weak, behind, on_it = NAMED[hue]
    if strength >= STRONG:
        few = Style(color=Color.from_ansi(on_it), bgcolor=Color.from_ansi(behind), bold=True)
        return few if depth in FEW else _on(hue, depth) + Style(bold=True)
    marked = {"bold": True, "underline": True} if strength >= MIDDLE else {}
    return Style(color=Color.from_ansi(weak) if depth in FEW else _colour(READABLE_INK.get(hue, hue), depth), **marked)  # type: ignore[arg-type]


def _on(background: Colour, depth: str) -> Style:
    """Letters that read on this ground."""
    found = _colour(background, depth)
    red, green, blue = found.get_truecolor()
    letters = Color.parse(ink((red, green, blue)))
    return Style(color=letters.downgrade(ColorSystem.EIGHT_BIT) if depth == "256" else letters, bgcolor=found)


def _colour(colour: Colour, depth: str) -> Color:
    return Color.from_ansi(nearest_of_256(colour)) if depth == "256" else Color.parse(hexadecimal(colour))
