"""Tables as rows: parquet, jsonl, csv and tsv, packed or not. What is wrong with a row is said with its number.

Rows come one by one, so that memory does not grow with the file, but for a packed parquet, which is unpacked first.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, Literal

from wherefrom.errors import DamagedFile, InvalidInput, InvalidOption, UnknownName
from wherefrom.extras import need
from wherefrom.files import replacing, writing

Row = dict[str, Any]

TEXT = (".txt",)
TABLES = (".parquet", ".jsonl", ".csv", ".tsv")
DELIMITED = {".csv": ",", ".tsv": "\t"}
LARGEST = 2**27  # characters of a cell
PACKED = (".gz", ".xz", ".bz2", ".zst")
PARQUET_ROWS = 1024  # read at a time


class BadRow(Exception):
    """Why one row cannot be used."""


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
            noun = "bad row" if len(self.found) == 1 else "bad rows"
            raise InvalidInput(f"{self.path}: {len(self.found)} {noun}: {first_few(self.found)}")


def first_few(found: list[tuple[int, str]], most: int = 5) -> str:
    """The first bad rows by number and reason, and how many more there are."""
    named = "; ".join(f"row {row}: {why}" for row, why in found[:most])
    return named + (f"; and {len(found) - most} more" if len(found) > most else "")


def rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Every row of a parquet, jsonl, csv or tsv file with its number, counted from 1 (a csv's header is row 0)."""
    for number, row in attempts(path):
        if isinstance(row, BadRow):
            raise InvalidInput(f"{path}: row {number} {row}")
        yield number, row


def attempts(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    """As `rows`, but a line that is no row comes as the reason why."""
    kind = kind_of(path)
    if kind == ".parquet":
        yield from _parquet(path)
    elif kind == ".jsonl":
        yield from _jsonl(path)
    elif kind in DELIMITED:
        yield from read_delimited(path)
    else:
        raise InvalidOption(f"{path}: expected one of {', '.join(TABLES)} (also compressed: {', '.join(PACKED)})")


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    if not path.exists():
        raise UnknownName(f"{path}: no such file")
    parquet = need("pyarrow.parquet", extra="eval")
    number = 0
    try:
        for batch in parquet.ParquetFile(_seekable(path)).iter_batches(PARQUET_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        raise DamagedFile(f"{path}: not a readable parquet file: {error}") from error


def _seekable(path: Path) -> Path | io.BytesIO:
    """A parquet file, which is read from its end: one that is packed is unpacked in memory."""
    if path.suffix.lower() not in PACKED:
        return path
    with open_packed(path) as stream, _unpacking(path):
        return io.BytesIO(stream.read())


def label_names(path: Path) -> tuple[str, ...]:
    """The names that a parquet file has for the numbers of its labels, in its metadata: "airplane,automobile,…"."""
    if kind_of(path) != ".parquet" or not path.is_file():
        return ()
    try:
        metadata = need("pyarrow.parquet", extra="eval").read_schema(_seekable(path)).metadata or {}
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path}: not a readable parquet file: {error}") from error
    names = metadata.get(b"names", b"").decode()
    return tuple(names.split(",")) if names else ()


def _jsonl(path: Path) -> Iterator[tuple[int, Row | BadRow]]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            yield number, BadRow(f"is not JSON: {error.msg}")
            continue
        yield number, row if isinstance(row, dict) else BadRow(f"is {shown(row)}, not an object with named columns")


def read_delimited(
    path: Path, columns: Sequence[str] = (), quoting: Literal[0, 3] | None = None
) -> Iterator[tuple[int, Row | BadRow]]:
    """Read a csv or tsv. `columns` names the cells of a file without a header; `quoting` is one of csv's constants."""
    delimiter = DELIMITED[kind_of(path)]
    # Python's own limit is 131,072 characters: some texts are longer.
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST))
    rule = _quoting(path, delimiter) if quoting is None else quoting
    reader = csv.reader(_whole_lines(path), delimiter=delimiter, quoting=rule)
    try:
        header = list(columns)
        if not header:
            first = next(reader, None)
            if not first:
                raise DamagedFile(f"{path}: the file is empty; its first line should name the columns")
            _check_separator(path, first, delimiter)
            header = _names(path, first)
        for number, cells in enumerate(reader, 1):
            if not cells:
                continue
            if len(cells) != len(header):
                yield (
                    number,
                    BadRow(f"has {len(cells)} fields, {'expected' if columns else 'the header'} {len(header)}"),
                )
            else:
                yield number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise DamagedFile(f"{path}: line {reader.line_num} is not {path.suffix[1:]}: {error}") from error


def first_cells(path: Path) -> list[str]:
    """The cells of the first line of a csv or tsv: its header, if it has one."""
    try:
        delimiter = DELIMITED[kind_of(path)]
        quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        return next(csv.reader(islice(_whole_lines(path), 1), delimiter=delimiter, quoting=quoting), [])
    except csv.Error:
        return []


def _quoting(path: Path, delimiter: str) -> Any:
    """Quotes are part of the text in a tsv in which they are not in order, as where nobody ever thought of them."""
    if delimiter != "\t":
        return csv.QUOTE_MINIMAL
    try:
        for _ in csv.reader(_whole_lines(path), delimiter=delimiter, strict=True):
            pass
    except csv.Error:
        return csv.QUOTE_NONE
    return csv.QUOTE_MINIMAL


def _names(path: Path, header: Sequence[str]) -> list[str]:
    """What the columns are called: blanks beside a separator are no part of it, and no two have one name."""
    names = [name.strip() for name in header]
    if twice := [name for i, name in enumerate(names) if name and name in names[:i]]:
        raise DamagedFile(f"{path}: two columns are called '{twice[0]}'; give each a name of its own")
    return names


def _check_separator(path: Path, header: Sequence[str], delimiter: str) -> None:
    """Refuse one column that another separator makes several of: some spreadsheets write csv with semicolons."""
    for other in (";", ",", "\t") if len(header) == 1 else ():
        names = header[0].split(other)
        if other != delimiter and len(names) > 1 and all(name and name == name.strip() for name in names):
            raise DamagedFile(
                f"{path}: it seems to be separated by {other!r}: its first line is {header[0]!r}; "
                f"separate the columns by {delimiter!r}, or save it as .jsonl or .parquet"
            )


def side_by_side(files: Mapping[str, Path]) -> Iterator[tuple[int, Row]]:
    """The rows of texts that lie in a file for each column, a line a row."""
    columns = zip_longest(*map(lines, files.values()))
    for number, cells in enumerate(columns, 1):
        if None in cells:
            raise DamagedFile(f"{', '.join(map(str, files.values()))}: not of the same number of lines")
        yield number, dict(zip(files, cells, strict=True))


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, packed or not, without their ends."""
    return (line.removesuffix("\n") for line in _whole_lines(path))


def _whole_lines(path: Path) -> Iterator[str]:
    """The same with their ends, which may stand inside a quoted cell."""
    with open_packed(path) as stream, _unpacking(path):
        yield from decoded(stream, str(path))


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    """What a packed file can go wrong with is said of the file."""
    try:
        yield
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if path.suffix.lower() not in PACKED:
            raise
        raise DamagedFile(f"{path}: it cannot be unpacked, or not to its end: {error}") from error


def decoded(stream: IO[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8 with their ends, all of them up to one that is not."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline=None)
    for number, line in enumerate(text, 1):
        try:
            if not line.isascii():  # what is not UTF-8 is among it, escaped
                line.encode("utf-8", "surrogateescape").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DamagedFile(f"{name}: line {number} is not UTF-8: {error.reason}; save the file as UTF-8") from error
        yield line


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


def values(source: str) -> set[str]:
    """All values of `table.parquet:column`, as text."""
    path, column = split_source(source)
    if column is None:
        raise InvalidOption(f"{source}: say which column to read, e.g. {source}:sentence")
    return {str(cell(row, column, path)) for _, row in rows(path)}


def kept_by(where: Mapping[str, Sequence[str]] | None) -> str:
    """Which rows `keeps` keeps, at the end of a sentence."""
    return "".join(f" where {column} is {' or '.join(values)}" for column, values in (where or {}).items())


def keeps(row: Row, where: dict[str, tuple[str, ...]], path: Path) -> bool:
    """Whether the row has one of the wanted values in every filtered column."""
    return all(str(cell(row, column, path)) in values for column, values in where.items())


def cell(row: Row, column: str, path: Path) -> Any:
    """The value of a column that must be there."""
    if column not in row:
        raise UnknownName(f"{path}: no column '{column}'; it has: {', '.join(map(str, row))}")
    return row[column]


def written(value: object, column: str) -> str:
    """A cell that must hold text."""
    if not isinstance(value, str):
        raise BadRow(f"'{column}' is {shown(value)}, not text")
    if not value.strip():
        raise BadRow(f"'{column}' is empty")
    return value


def label_text(value: object, column: str) -> str:
    """A cell as a label: 1, 1.0, True, "1" and "1.0" are the same label."""
    if value is None or value == "":
        raise BadRow(f"'{column}' is empty")
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+\.\d+", value.strip()):  # csv has strings alone
        value = float(value)
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str):
        return value.strip()
    raise BadRow(f"'{column}' is {shown(value)}; a label is a word or a whole number")


def shown(value: object, limit: int = 40) -> str:
    """A value short enough for an error."""
    text = "missing" if value is None else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind_of(path: Path) -> str:
    """The ending of a file's name without that of its packing."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def open_packed(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked."""
    openers: dict[str, Callable[[Path], Any]] = {
        ".gz": gzip.open,
        ".xz": lzma.open,
        ".bz2": bz2.open,
        ".zst": _open_zst,
    }
    try:
        stream = openers.get(path.suffix.lower(), _open_plain)(path)
    except FileNotFoundError:
        raise UnknownName(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UnknownName(f"{path}: a folder; name the files in it") from None
    return stream  # type: ignore[no-any-return]


def _open_plain(path: Path) -> IO[bytes]:
    return path.open("rb")


def _open_zst(path: Path) -> Any:
    arrow = need("pyarrow", extra="eval")
    return io.BufferedReader(arrow.CompressedInputStream(path.open("rb"), "zstd"))


def write_rows(path: Path, made: Iterable[Row]) -> int:
    """Write rows as jsonl, packed if the name says so; returns how many. Until all are made, the file is as it was."""
    if kind_of(path) != ".jsonl":
        raise InvalidOption(f"{path}: rows are written as .jsonl (compressed: .jsonl.gz, .jsonl.xz)")
    packers: dict[str, Callable[..., Any]] = {".jsonl": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    if path.suffix not in packers:
        raise InvalidOption(f"{path}: cannot write {path.suffix}; use .jsonl, .jsonl.gz or .jsonl.xz")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with replacing(path) as place:
        with writing(path):
            stream = packers[path.suffix](place, "wt", encoding="utf-8")
        with stream:
            for row in made:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
    return count
