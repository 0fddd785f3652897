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


def _paragraph(text: str, width: int) -> Iterator[str]:
    for kept, lines in groupby(text.splitlines(), _stands_alone):
        if kept:
            yield from (part for line in lines for part in _formula(line, width))
        else:
            yield from textwrap.wrap(" ".join(lines), width, break_on_hyphens=False, break_long_words=False)


def _stands_alone(line: str) -> bool:
    return line.startswith((" ", "http", "- ", "|"))


def _formula(line: str, width: int) -> list[str]:
    """A line that is too long has its columns closer together, and what is still too long goes on below."""
    if len(line) <= width:
        return [line]
    closer = line[: len(line) - len(line.lstrip())] + re.sub(r" {3,}", "   ", line.strip())
    broken = textwrap.wrap(
        closer,
        width,
        subsequent_indent=HANGING,
        break_on_hyphens=False,
        break_long_words=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
    return broken or [line]
