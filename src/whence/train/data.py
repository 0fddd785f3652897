"""Reading text and tables for training; what is wrong with a row is said with the row's number."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from whence.errors import WhenceError
from whence.extras import need

Row = dict[str, Any]

TEXT = (".txt",)
TABLES = (".parquet", ".jsonl", ".csv", ".tsv")
PACKED = (".gz", ".xz", ".bz2", ".zst")


@dataclass(frozen=True)
class Example:
    """One row as the trainers use it. `row` counts from 1, as a person would."""

    row: int
    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what.

    `until` names a column with a word index: only the words before it are read. `names` renames labels
    (`{"0": "negative"}`); a label renamed to "" is left out. `where` keeps rows whose column has one of the values.
    """

    text: str = "text"
    label: str = "label"
    pair: str | None = None
    until: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    where: dict[str, tuple[str, ...]] = field(default_factory=dict)


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, packed or not, without their ends."""
    with _open(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline=None)
        number = 0
        try:
            for number, line in enumerate(text, 1):  # noqa: B007  (read by the error below)
                yield line.rstrip("\n")
        except UnicodeDecodeError as error:
            raise WhenceError(f"{path}: not UTF-8 after line {number}: {error.reason}") from error


def documents(source: str) -> Iterator[str]:
    """The text of `file.txt` line by line, or of `table.parquet:column` row by row."""
    path, column = split_source(source)
    kind = _kind(path)
    if kind in TEXT:
        if column is not None:
            raise WhenceError(f"{source}: a text file has no column '{column}'; name the file alone")
        yield from lines(path)
        return
    if column is None:
        raise WhenceError(f"{source}: say which column holds the text, e.g. {source}:text")
    problems = Problems(path)
    for number, row in rows(path):
        value = cell(row, column, path)
        if isinstance(value, str):
            yield value
            yield ""  # a row is a document of its own
        else:
            problems.add(number, f"'{column}' is {_shown(value)}, not text")
    problems.check()


def split_source(source: str) -> tuple[Path, str | None]:
    """`table.parquet:column` apart; a path that exists as it stands is never cut.

    >>> split_source("a/b.parquet:text")
    (PosixPath('a/b.parquet'), 'text')
    """
    path = Path(source)
    if not path.exists() and ":" in source:
        head, _, column = source.rpartition(":")
        return Path(head), column
    return path, None


def rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Every row of a parquet, jsonl, csv or tsv file with its number, counted from 1 (a csv's header is row 0)."""
    kind = _kind(path)
    if kind == ".parquet":
        if not path.exists():
            raise WhenceError(f"{path}: no such file")
        parquet = need("pyarrow.parquet", extra="train")
        number = 0
        try:
            for batch in parquet.ParquetFile(path).iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
            raise WhenceError(f"{path}: not a readable parquet file: {error}") from error
    elif kind == ".jsonl":
        for number, line in enumerate(lines(path), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise WhenceError(f"{path}: row {number} is not JSON: {error.msg}") from error
            if not isinstance(row, dict):
                raise WhenceError(f"{path}: row {number} is {_shown(row)}, not an object with named columns")
            yield number, row
    elif kind in (".csv", ".tsv"):
        yield from _delimited(path, "," if kind == ".csv" else "\t")
    else:
        raise WhenceError(f"{path}: expected one of {', '.join(TABLES)} (also packed: {', '.join(PACKED)})")


def _delimited(path: Path, delimiter: str) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(lines(path), delimiter=delimiter)
    try:
        header = next(reader, None)
        if not header:
            raise WhenceError(f"{path}: the file is empty; its first line should name the columns")
        for number, cells in enumerate(reader, 1):
            if not cells:
                continue
            if len(cells) != len(header):
                raise WhenceError(f"{path}: row {number} has {len(cells)} fields, the header {len(header)}")
            yield number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise WhenceError(f"{path}: line {reader.line_num} is not {path.suffix[1:]}: {error}") from error


def examples(path: Path, columns: Columns, drop: Callable[[Row], bool] | None = None) -> list[Example]:
    """The labelled texts of a table. All bad rows are counted and the first of them named in one error."""
    problems = Problems(path)
    found: list[Example] = []
    for number, row in rows(path):
        if not keeps(row, columns.where, path) or (drop is not None and drop(row)):
            continue
        try:
            label = label_name(cell(row, columns.label, path), columns)
            if label == "":
                continue
            text = _text(row, columns.text, path)
            if columns.until is not None:
                text = before(text, cell(row, columns.until, path))
            pair = None if columns.pair is None else _text(row, columns.pair, path)
        except BadRow as bad:
            problems.add(number, str(bad))
            continue
        found.append(Example(number, text, pair, label))
    problems.check()
    if not found:
        raise WhenceError(f"{path}: no rows to read" + (f" with {columns.where}" if columns.where else ""))
    return found


def label_name(value: object, columns: Columns) -> str:
    """A cell as a label's name: 1, 1.0, True and "1" are the same label."""
    if value is None or value == "":
        raise BadRow(f"'{columns.label}' is empty")
    if isinstance(value, bool | int):
        raw = str(int(value))
    elif isinstance(value, float):
        if value != value or value != int(value):
            raise BadRow(f"'{columns.label}' is {_shown(value)}; a label is a word or a whole number")
        raw = str(int(value))
    elif isinstance(value, str):
        raw = value.strip()
    else:
        raise BadRow(f"'{columns.label}' is {_shown(value)}; a label is a word or a whole number")
    if columns.names and raw not in columns.names:
        known = ", ".join(columns.names)
        raise BadRow(f"'{columns.label}' is {raw!r}, which has no name (named: {known})")
    return columns.names.get(raw, raw)


def before(text: str, index: object) -> str:
    """The first `index` words of `text`."""
    words = text.split()
    try:
        end = int(str(index))
    except ValueError:
        raise BadRow(f"{_shown(index)} is no word index") from None
    if not 0 < end <= len(words):
        raise BadRow(f"word index {end} lies outside the {len(words)} words of the text")
    return " ".join(words[:end])


def keeps(row: Row, where: dict[str, tuple[str, ...]], path: Path) -> bool:
    """Whether the row has one of the wanted values in every filtered column."""
    return all(str(cell(row, column, path)) in values for column, values in where.items())


def values(source: str) -> set[str]:
    """All values of `table.parquet:column`, as text."""
    path, column = split_source(source)
    if column is None:
        raise WhenceError(f"{source}: say which column to read, e.g. {source}:sentence")
    return {str(cell(row, column, path)) for _, row in rows(path)}


def pairs_of(options: Iterable[str], what: str) -> dict[str, tuple[str, ...]]:
    """`["a=1", "a=2", "b=3"]` from the command line as `{"a": ("1", "2"), "b": ("3",)}`."""
    found: dict[str, tuple[str, ...]] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise WhenceError(f"{what} {option!r}: expected the form key=value")
        found[key] = (*found.get(key, ()), value)
    return found


@dataclass
class Problems:
    """Bad rows of one file, gathered so that a person sees all of them at once."""

    path: Path
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, row: int, why: str) -> None:
        self.found.append((row, why))

    def check(self) -> None:
        """Raise if there was any bad row."""
        if self.found:
            first = "; ".join(f"row {row}: {why}" for row, why in self.found[:5])
            more = f"; and {len(self.found) - 5} more" if len(self.found) > 5 else ""
            noun = "bad row" if len(self.found) == 1 else "bad rows"
            raise WhenceError(f"{self.path}: {len(self.found)} {noun}: {first}{more}")


class BadRow(Exception):
    """Why one row cannot be used."""


def _text(row: Row, column: str, path: Path) -> str:
    value = cell(row, column, path)
    if not isinstance(value, str):
        raise BadRow(f"'{column}' is {_shown(value)}, not text")
    if not value.strip():
        raise BadRow(f"'{column}' is empty")
    return value


def cell(row: Row, column: str, path: Path) -> Any:
    """The value of a column that must be there."""
    if column not in row:
        raise WhenceError(f"{path}: no column '{column}'; it has: {', '.join(map(str, row))}")
    return row[column]


def _shown(value: object, limit: int = 40) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _open(path: Path) -> IO[bytes]:
    openers: dict[str, Callable[[Path], Any]] = {
        ".gz": gzip.open,
        ".xz": lzma.open,
        ".bz2": bz2.open,
        ".zst": _open_zst,
    }
    try:
        stream = openers.get(path.suffix.lower(), _open_plain)(path)
    except FileNotFoundError:
        raise WhenceError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise WhenceError(f"{path}: a folder; name the files in it") from None
    return stream  # type: ignore[no-any-return]


def _open_plain(path: Path) -> IO[bytes]:
    return path.open("rb")


def _open_zst(path: Path) -> Any:
    arrow = need("pyarrow", extra="train")
    return io.BufferedReader(arrow.CompressedInputStream(path.open("rb"), "zstd"))


def split(items: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Hold out `share` of the items (at least one), the same ones for the same seed."""
    import numpy as np

    if len(items) < 2:
        raise WhenceError(f"{len(items)} row is too few to hold some out; give validation data")
    order = np.random.default_rng(seed).permutation(len(items))
    size = max(1, round(share * len(items)))
    held = set(order[:size].tolist())
    return [e for i, e in enumerate(items) if i not in held], [e for i, e in enumerate(items) if i in held]


def write_rows(path: Path, made: Iterable[Row]) -> int:
    """Write rows as jsonl, packed if the name says so; returns how many."""
    if _kind(path) != ".jsonl":
        raise WhenceError(f"{path}: rows are written as .jsonl (packed: .jsonl.gz, .jsonl.xz)")
    packers: dict[str, Callable[..., Any]] = {".jsonl": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    if path.suffix not in packers:
        raise WhenceError(f"{path}: cannot write {path.suffix}; use .jsonl, .jsonl.gz or .jsonl.xz")
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with packers[path.suffix](path, "wt", encoding="utf-8") as stream:
        for row in made:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count
