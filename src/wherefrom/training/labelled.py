"""Labelled texts for the trainers, out of tables (wherefrom/data/tables.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wherefrom.data.tables import (
    TEXT,
    BadRow,
    Problems,
    Row,
    cell,
    keeps,
    kept_by,
    kind_of,
    label_text,
    lines,
    rows,
    shown,
    split_source,
    written,
)
from wherefrom.errors import InvalidInput, InvalidOption, UnknownName


@dataclass(frozen=True)
class LabelledText:
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


def documents(source: str) -> Iterator[str]:
    """The text of `file.txt` line by line, or of `table.parquet:column` row by row."""
    path, column = split_source(source)
    kind = kind_of(path)
    if kind in TEXT:
        if column is not None:
            raise UnknownName(f"{source}: a text file has no column '{column}'; name the file alone")
        yield from lines(path)
        return
    if column is None:
        raise InvalidOption(f"{source}: say which column holds the text, e.g. {source}:text")
    problems = Problems(path)
    for number, row in rows(path):
        value = cell(row, column, path)
        if isinstance(value, str):
            yield value
            yield ""  # a row is a document of its own
        else:
            problems.add(number, f"'{column}' is {shown(value)}, not text")
    problems.check()


def examples(path: Path, columns: Columns, drop: Callable[[Row], bool] | None = None) -> list[LabelledText]:
    """The labelled texts of a table. All bad rows are counted and the first of them named in one error."""
    problems = Problems(path)
    found: list[LabelledText] = []
    for number, row in rows(path):
        if not keeps(row, columns.where, path) or (drop is not None and drop(row)):
            continue
        try:
            label = label_name(cell(row, columns.label, path), columns)
            if label == "":
                continue
            text = written(cell(row, columns.text, path), columns.text)
            if columns.until is not None:
                text = before(text, cell(row, columns.until, path))
            pair = None if columns.pair is None else written(cell(row, columns.pair, path), columns.pair)
        except BadRow as bad:
            problems.add(number, str(bad))
            continue
        found.append(LabelledText(number, text, pair, label))
    problems.check()
    if not found:
        raise InvalidInput(f"{path}: no rows to read{kept_by(columns.where)}")
    return found


def label_name(value: object, columns: Columns) -> str:
    """A cell as a label's name."""
    raw = label_text(value, columns.label)
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
        raise BadRow(f"{shown(index)} is not a word index") from None
    if not 0 < end <= len(words):
        raise BadRow(f"word index {end} lies outside the {len(words)} words of the text")
    return " ".join(words[:end])


def pairs_of(options: Iterable[str], what: str) -> dict[str, tuple[str, ...]]:
    """`["a=1", "a=2", "b=3"]` from the command line as `{"a": ("1", "2"), "b": ("3",)}`."""
    found: dict[str, tuple[str, ...]] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise InvalidOption(f"{what} {option!r}: expected the form key=value")
        found[key] = (*found.get(key, ()), value)
    return found


def split(items: Sequence[LabelledText], share: float, seed: int) -> tuple[list[LabelledText], list[LabelledText]]:
    """Hold out `share` of the items (at least one), the same ones for the same seed."""
    import numpy as np

    if len(items) < 2:
        raise InvalidInput(f"{len(items)} row is too few to hold some out; give validation data")
    order = np.random.default_rng(seed).permutation(len(items))
    size = max(1, round(share * len(items)))
    held = set(order[:size].tolist())
    return [e for i, e in enumerate(items) if i not in held], [e for i, e in enumerate(items) if i in held]


def refuse_foreign(labels: Iterable[str], classes: Sequence[str], path: Path) -> None:
    """Labels that a model has no class for are refused, with the option that says which of its classes they are."""
    if strange := sorted({label for label in labels if label not in classes}):
        named = " ".join(f"--name {label}=CLASS" for label in strange[:3])
        raise InvalidInput(
            f"{path}: the model has no class called {', '.join(map(repr, strange[:5]))}{' …' if strange[5:] else ''}; "
            f"its classes are {', '.join(classes)}: say which each label is, {named}"
        )
