"""`wherefrom explain --file texts.txt --out scores.csv`: many texts into one table, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from wherefrom.errors import InvalidInput, InvalidOption, UnknownName, WherefromError
from wherefrom.files import uninterrupted
from wherefrom.interrupts import begun

STDIN = "-"
COLUMN = "text"  # where none is named
LOOKED = 100  # rows of a jsonl file, none of which has the column: it is misspelt, and no row is to blame


def stdin_text() -> str:
    """All of standard input, as one text."""
    return "".join(_stdin()).strip("\n")


def _stdin() -> Iterator[str]:
    """Its lines."""
    from wherefrom.data.tables import decoded

    if sys.stdin is None:  # closed before python began
        raise InvalidInput("nothing can be read from standard input: it is closed")
    return decoded(sys.stdin.buffer, "standard input")


def texts(path: Path, column: str) -> Iterator[Any]:
    """The texts of a file: a line each, or of a table the column of that name (two names, "a,b": a pair of texts)."""
    from wherefrom.data import tables

    if tables.kind_of(path) not in tables.TABLES and column != COLUMN:  # so is what comes in by "-"
        raise InvalidOption(f"'{path}' is read as a text a line, and has no columns: leave --column {column} out")
    if str(path) == STDIN:
        return (line.rstrip("\n") for line in _stdin())
    if not path.is_file():
        raise UnknownName(f"there is no file '{path}'")
    if tables.kind_of(path) == ".json":
        raise InvalidOption(f"{path}: one JSON value is no list of texts; save it as .jsonl, an object on each line")
    if tables.kind_of(path) not in tables.TABLES:
        return tables.lines(path)
    return _cells(path, [name.strip() for name in column.split(",")])


def _cells(path: Path, names: list[str]) -> Iterator[Any]:
    from wherefrom.data import tables

    anywhere = False  # whether a row had them: every row of jsonl has columns of its own
    for number, row in tables.attempts(path):
        if isinstance(row, tables.BadRow):
            yield InvalidInput(f"row {number} of {path.name} {row}")  # left out and counted, as any other
            continue
        if unknown := [name for name in names if name not in row]:
            if tables.kind_of(path) != ".jsonl" or (number > LOOKED and not anywhere):
                raise UnknownName(
                    f"{path}: there is no column '{unknown[0]}'; its columns are {', '.join(row)}: name one with "
                    f"--column"
                )
            yield InvalidInput(f"row {number} of {path.name} has no column '{unknown[0]}', but {', '.join(row)}")
            continue
        anywhere = True
        cells = [row[name] for name in names]
        yield cells[0] if len(cells) == 1 else tuple(cells)


def explain_file(file: Path, column: str, out: Path, *, words: bool, **arguments: Any) -> None:
    """Explain every text and write its scores; a text that cannot be explained is left out and named.

    An older table gives way when the first texts are explained: a question that cannot be asked costs nobody a table.
    """
    import wherefrom
    from wherefrom.result import tabular

    tabular.check(out)
    if file.exists() and out.exists() and out.samefile(file):
        raise InvalidOption(f"--out is '{out}', the file whose texts are read; name another")
    read = done = 0

    def explained() -> Iterator[tuple[int, Any]]:
        nonlocal read
        for one in wherefrom.explain_stream(texts(file, column), **arguments, on_error="skip"):
            read += 1
            if one is not None:
                yield read - 1, one

    found = explained()
    try:
        first = list(islice(found, 1))
        if not first:
            what = (
                f"none of the {read} texts of '{file}' could be explained" if read else f"there is no text in '{file}'"
            )
            raise InvalidInput(f"{what}; '{out}' was not written")
        begun()
        with tabular.opened(out) as write:
            for number, one in chain(first, found):
                every = [one] if isinstance(one, wherefrom.Explanation) else one.values()
                made = [each.words() if words else each for each in every]
                with uninterrupted():  # all rows of a text, and counted, or none
                    for each in made:
                        write(number, each)
                    done += 1
    except (KeyboardInterrupt, WherefromError) as stopped:
        if done:
            print(f"stopped; {_count(done)} written to {out} before", file=sys.stderr)
        elif isinstance(stopped, KeyboardInterrupt):
            print(f"stopped before a text was explained; '{out}' is as it was", file=sys.stderr)
        raise
    left = f"; left out: {read - done} of {read} texts" if read > done else ""
    print(f"{_count(done)} written to {out}{left}")


def _count(done: int) -> str:
    return f"{done} explanation{'s' * (done != 1)}"
