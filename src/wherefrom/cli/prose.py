"""A docstring in a terminal: prose filled to its width, formulas kept as they stand as far as there is room."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import groupby

HANGING = " " * 12  # of a formula that goes on below


def fitted(text: str, width: int) -> str:
    """The text in lines of at most `width` letters; what is indented is a formula or a table."""
    return "\n".join(line for part in text.split("\n\n") for line in (*_paragraph(part, width), "")).rstrip("\n")


def folded(line: str, width: int) -> str:
    """One line of a list, indented, in lines of at most `width` letters; a command is folded as a shell reads it."""
    command = line.startswith("wherefrom ")
    parts = textwrap.wrap(line, max(20, width - 6), break_on_hyphens=False, break_long_words=False)
    return "  " + (" \\\n    " if command else "\n    ").join(parts)


def hanging(line: str, width: int) -> str:
    """One line in lines of at most `width` letters, those below indented by two more, or under its last column."""
    columns = [each.end() for each in re.finditer(r"\S {2,}", line)]
    indent = columns[0] if columns else len(line) - len(line.lstrip()) + 2
    below = " " * min(indent, width // 2)
    parts = textwrap.wrap(line, width, subsequent_indent=below, break_on_hyphens=False, break_long_words=False)
    return "\n".join(parts)


def _paragraph(text: str, width: int) -> Iterator[str]:
    for kept, lines in groupby(text.splitlines(), _stands_alone):
        if kept:
            yield from _formulas(list(lines), width)
        else:
            yield from textwrap.wrap(" ".join(lines), width, break_on_hyphens=False, break_long_words=False)


def _stands_alone(line: str) -> bool:
    return line.startswith((" ", "http", "- ", "|"))


def _formulas(lines: list[str], width: int) -> Iterator[str]:
    """Where a line is too long, all have their columns closer together; one still too long is continued below."""
    if max(map(len, lines)) > width:
        lines = _closer(lines)
    for line in lines:
        folded = _folded(line, width)
        yield from (
            [folded]
            if len(folded) <= width
            else textwrap.wrap(folded, width, subsequent_indent=HANGING, break_on_hyphens=False, break_long_words=False)
        )


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
