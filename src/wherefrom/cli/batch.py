"""`wherefrom explain --file texts.txt --out scores.csv`: many texts into one table, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from wherefrom.errors import UnknownName

STDIN = "-"


def stdin_text() -> str:
    """All of standard input, as one text."""
    return sys.stdin.read().strip("\n")


def texts(path: Path, column: str) -> Iterator[Any]:
    """The texts of a file: a line each, or of a table the column of that name (two names, "a,b": a pair of texts)."""
    from wherefrom.data import tables

    if str(path) == STDIN:
        return (line.rstrip("\n") for line in sys.stdin)
    if not path.is_file():
        raise UnknownName(f"there is no file '{path}'")
    if tables.kind_of(path) not in tables.TABLES:
        return tables.lines(path)
    return _cells(path, [name.strip() for name in column.split(",")])


def _cells(path: Path, names: list[str]) -> Iterator[Any]:
    from wherefrom.data import tables

    for _, row in tables.rows(path):
        if unknown := [name for name in names if name not in row]:
            raise UnknownName(
                f"{path}: there is no column '{unknown[0]}'; its columns are {', '.join(row)}: name one with --column"
            )
        cells = [row[name] for name in names]
        yield cells[0] if len(cells) == 1 else tuple(cells)


def explain_file(inputs: Iterator[Any], out: Path, *, words: bool, **arguments: Any) -> None:
    """Explain every text and write its scores; a text that cannot be explained is left out and named."""
    import wherefrom
    from wherefrom.result import tabular

    done = 0
    with tabular.opened(out) as write:
        for number, found in zip(count(), wherefrom.explain_stream(inputs, **arguments, on_error="skip"), strict=False):
            if found is None:
                continue
            for each in [found] if isinstance(found, wherefrom.Explanation) else found.values():
                write(number, each.words() if words else each)
            done += 1
    print(f"{done} explanation{'s' * (done != 1)} written to {out}")
