"""A docstring in a terminal: prose filled to its width, formulas kept as they stand as far as there is room."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise, zip_longest

HANGING = " " * 12  # of a formula that goes on below
BOLD = re.compile(r"\*\*(.+?)\*\*")


def fitted(text: str, width: int) -> str:
    """The text in lines of at most `width` letters; what is indented is a formula or a table."""
    return "\n".join(line for part in text.split("\n\n") for line in (*_paragraph(part, width), "")).rstrip("\n")


def folded(line: str, width: int) -> str:
    """One line of a list, indented, in lines of at most `width` letters; a command is folded as a shell reads it."""
    command = line.startswith("wherefrom ")
    parts = _filled(line, max(20, width - 6))
    return "  " + (" \\\n    " if command else "\n    ").join(parts)


def hanging(line: str, width: int) -> str:
    """One line in lines of at most `width` letters, those below indented by two more, or under its last column."""
    columns = [each.end() for each in re.finditer(r"\S {2,}", line)]
    indent = columns[0] if columns else len(line) - len(line.lstrip()) + 2
    below = " " * min(indent, width // 2)
    return "\n".join(_filled(line, width, below))


def _paragraph(text: str, width: int) -> Iterator[str]:
    for kept, lines in groupby(text.splitlines(), _stands_alone):
        if kept:
            yield from _formulas(list(lines), width)
        else:
            for prose in _references(lines):
                yield from _filled(BOLD.sub(r"\1", " ".join(prose)), width)


def _references(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines of prose that are filled together: an address at the end of a line ends its reference."""
    together: list[str] = []
    for line in lines:
        together.append(line)
        if line.split()[-1].startswith("http"):
            yield together
            together = []
    if together:
        yield together


def _filled(text: str, width: int, below: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=below, break_on_hyphens=False, break_long_words=False)


def _stands_alone(line: str) -> bool:
    return line.startswith((" ", "http", "- ", "| ", "|-"))  # not |y|, a formula amid prose


def _formulas(lines: list[str], width: int) -> Iterator[str]:
    """Where a line is too long, all have their columns closer together, and those of a table one column narrower.

    A line that is still too long is continued below.
    """
    if max(map(len, lines)) > width:
        lines = _closer(lines)
    if max(map(len, lines)) > width:
        lines = _narrower(lines, width)
    for line in lines:
        folded = _folded(line, width)
        yield from [folded] if len(folded) <= width else _filled(folded, width, HANGING)


def _narrower(lines: list[str], width: int) -> list[str]:
    """A table with the cells of its last column filled, or of its widest of words; where none has room, as it is."""
    starts = _columns(lines)
    if len(lines) < 3 or len(starts) < 2:
        return lines
    rows = [[line[begin:end].rstrip() for begin, end in pairwise([*starts, None])] for line in lines]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    over = max(map(len, lines)) - width
    last = len(columns) - 1
    able = [at for at in range(last + 1) if widths[at] - over >= _longest_word(columns[at])]
    able = [at for at in able if at == last or not any("=" in cell for cell in columns[at])]  # a formula stays whole
    if not able:
        return lines
    chosen = last if last in able else max(able, key=widths.__getitem__)
    widths[chosen] -= over
    cells = [[_filled(cell, widths[at]) if at == chosen else [cell] for at, cell in enumerate(row)] for row in rows]
    return [
        " " * starts[0] + "  ".join(part.ljust(room) for part, room in zip(parts, widths, strict=True)).rstrip()
        for row in cells
        for parts in zip_longest(*row, fillvalue="")
    ]


def _longest_word(column: Sequence[str]) -> int:
    return max(len(word) for cell in column for word in cell.split())


def _columns(lines: list[str]) -> list[int]:
    """Where the columns of a table begin: after two blanks in every line."""

    def blank(at: int) -> bool:
        return all(line[at : at + 1] in ("", " ") for line in lines)

    return [at for at in range(2, max(map(len, lines))) if blank(at - 2) and blank(at - 1) and not blank(at)]


def _folded(line: str, width: int) -> str:
    """The line with gaps between its columns closed, from the right, until it fits."""
    for gap in reversed(list(re.finditer(r"(?<=\S) {3,}", line))):
        if len(line) <= width:
            break
        line = f"{line[: gap.start()]}  {line[gap.end() :]}"
    return line


def _closer(lines: list[str]) -> list[str]:
    """The lines with at most two blanks between columns, still aligned."""
    long = max(map(len, lines))
    blank = [all(line[at : at + 1] in ("", " ") for line in lines) for at in range(long)]
    indent = blank.index(False)
    kept = [at for at in range(long) if at < indent or not (at > 1 and all(blank[at - 2 : at + 1]))]
    return ["".join(line[at : at + 1] for at in kept).rstrip() for line in lines]
