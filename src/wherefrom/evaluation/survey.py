"""The data of a run, read once: which rows are taken, and what there is to know of them before anything is computed.

A dataset whose texts fit into memory is read from its source a single time. A larger one is read twice: for the survey,
and again while its shards are computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wherefrom.data import MASK, Dataset, Dropped, Example, drawn
from wherefrom.data import read as read_data
from wherefrom.data.datasets import from_row
from wherefrom.data.example import first, kept, unfit
from wherefrom.data.tables import shown
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.evaluation import planning
from wherefrom.evaluation.config import count_needs
from wherefrom.evaluation.task import Item
from wherefrom.model import TextInput
from wherefrom.model.pictures import is_picture, pixels_of
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import BLACK, WHITE, to_png
from wherefrom.typecheck import shown as shown_value

LABELS = 1000  # gold labels beyond which no more are looked at: they are no classes
DataLike: TypeAlias = (
    str | os.PathLike[str] | Dataset | Iterable[TextInput | list[str] | Example | Mapping[str, Any]] | None
)
GIVEN = "given"  # the name of a list of texts or examples


@dataclass(frozen=True)
class Rows:
    """Which rows of a dataset are taken."""

    split: str | None = None
    columns: Mapping[str, str] | None = None
    folder: str | os.PathLike[str] | None = None
    limit: int | None = None
    draw: bool = False  # at random, by the seed, and not the first ones
    seed: int = 0


@dataclass
class Survey:
    """What one pass over the data tells."""

    rows: int = 0
    having: dict[str, int] = field(default_factory=dict)  # how many rows have cues, a label, …
    kinds: dict[str, set[str]] = field(default_factory=dict)  # two labels, groups and targets that occur
    characters: list[planning.Load] = field(default_factory=list)  # of each window
    masked: int = 0  # rows with a mask in their text
    at_mask: int = 0  # those that also say which word is wanted there
    prefixed: int = 0  # rows with what a decoder has written so far
    labels: dict[Any, None] = field(default_factory=dict)  # the gold labels that occur


def choose_rows(data: DataLike, rows: Rows) -> Dataset:
    """The examples of a run, kept in memory where they fit."""
    if rows.draw:
        if rows.limit is None:
            raise InvalidOption("draw says that rows are drawn at random, and not how many; expected limit as well")
        return kept(drawn(_dataset(data, rows, None), rows.limit, rows.seed))
    return kept(_dataset(data, rows, rows.limit))


def survey(source: Dataset) -> Survey:
    """Go through the examples once; an error at the first that no table can hold."""
    found = Survey()
    for _, window in planning.windows(source.surveyed()):
        for example in window:
            if (why := unfit(example)) is not None:
                raise InvalidInput(f"example {example.id!r} cannot be evaluated: {why}")
            count_needs(example, found.having, found.kinds)
            found.masked += (masked := MASK in str(example.text))
            found.at_mask += masked and example.target is not None
            found.prefixed += example.prefix is not None
            if example.label is not None and len(found.labels) < LABELS:
                found.labels[example.label] = None
        found.rows += len(window)
        found.characters.append(planning.load(map(planning.characters, window)))
    return found


def items(source: Dataset, given: Mapping[str, Sequence[Explanation]]) -> Iterator[Item]:
    """The examples with their numbers, each with the explanations of it that were made elsewhere."""
    for row, example in enumerate(source):
        yield Item(row, example, {name: every[row] for name, every in given.items()})


def _dataset(data: DataLike, rows: Rows, limit: int | None) -> Dataset:
    if data is None:
        raise InvalidOption(
            "no data to evaluate on; expected the name of a dataset, a file, or a list of texts or pictures"
        )
    if isinstance(data, Dataset):
        return data if limit is None else first(data, limit)
    if isinstance(data, str | os.PathLike):
        return read_data(data, rows.split, rows.columns, limit, rows.folder)
    data = _rows_of(data)
    if not isinstance(data, Iterable) or isinstance(data, bytes | Mapping) or getattr(data, "ndim", 1) != 1:
        raise InvalidOption(f"data={shown_value(data)}; expected the name of a dataset, a file, or a list of texts")
    every = [_example(row, each, rows.columns) for row, each in enumerate(islice(data, limit))]
    examples = [each for each in every if isinstance(each, Example)]
    for each in examples:
        texts = each.text if isinstance(each.text, tuple) else (each.text,)
        if len(texts) > 2 or not all(isinstance(text, str) for text in texts):
            raise InvalidInput(f"example {each.id} is {shown(each.text)}; expected a text, or a pair of texts")
    if len({each.id for each in examples}) < len(examples):
        raise InvalidInput("two examples have the same id; expected each to have its own")
    return Dataset(GIVEN, "", lambda: iter(every))


def _rows_of(data: Any) -> Any:
    """The rows of a table of pandas, polars or pyarrow; anything else as it is."""
    if hasattr(data, "columns"):
        for name, how in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
            if callable(make := getattr(data, name, None)):
                return make(*how)
    return data


def _example(row: int, given: Any, columns: Mapping[str, str] | None) -> Example | Dropped:
    """A text or a pair, a picture, the cells of a row, or an example as it is."""
    id = str(row)
    if isinstance(given, Mapping):
        pictured = [name for name, each in given.items() if is_picture(each) or getattr(each, "ndim", 0) == 2]
        region = (columns or {}).get("region", "region")  # where a mask is transparent, nothing is marked
        grounds = {name: BLACK if name == region else WHITE for name in pictured}
        cells = {**given, **{name: packed(given[name], ground) for name, ground in grounds.items()}}
        return from_row(id, row + 1, cells, columns)
    if is_picture(given):
        return Example(id, "", image=packed(given))
    return given if isinstance(given, Example) else Example(id, _text(given))


def packed(given: Any, ground: int = WHITE) -> bytes | str:
    """A picture as an example holds it: the path of its file, or a PNG's bytes."""
    if isinstance(given, Path):
        return str(given)
    mask = isinstance(given, np.ndarray) and given.dtype == np.bool_
    pixels = pixels_of(given.astype(np.float64) if mask else given, ground)
    if pixels is None:
        raise InvalidInput(f"{shown_value(given)} is no picture that can be evaluated; expected an image or an array")
    return to_png(pixels)


def _text(given: Any) -> Any:
    """A pair may also be a list; whatever else it is, it is looked at later."""
    return tuple(given) if isinstance(given, list) else given
