"""Containers of inputs, told apart by what they can do: pandas, datasets and pyarrow are never imported here.

A container of several inputs is anything that can be iterated over in order: a list, an iterator, a pandas Series, a
numpy array of texts, a column of a dataset, a dataset of encodings. A tuple is none of them: it is a pair of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from wherefrom.errors import InvalidInput, WherefromError
from wherefrom.typecheck import kind_of

# What rows of text are called, one text or a pair; as transformers' pipelines have them.
TEXTS = (("text", "text_pair"), ("question", "context"))


class Chunk(list[Any]):
    """Inputs in the middle of a stream: always several, and counted from `first`."""

    def __init__(self, inputs: Iterable[Any], first: int) -> None:
        super().__init__(inputs)
        self.first = first


def several(inputs: Any) -> Iterable[Any] | None:
    """The inputs one after another; None if this is a single input, an array of numbers, or nothing known."""
    if isinstance(inputs, str | bytes | Mapping | Tensor | tuple):
        return None
    if isinstance(inputs, set | frozenset):
        raise InvalidInput("a set has no order, so nobody could tell whose result is whose; expected a list")
    if isinstance(inputs, np.ndarray):
        return inputs.tolist() if inputs.dtype.kind in "UOT" and inputs.ndim else None
    if _is_dataset(inputs):
        return _rows(inputs)
    if hasattr(inputs, "columns"):  # a table of pandas, polars or pyarrow
        named = getattr(inputs, "column_names", None)  # of pyarrow, whose columns are the values
        columns = named if isinstance(named, list) else inputs.columns
        one = _of_texts(inputs, columns)
        said = ", ".join(map(str, columns))
        raise InvalidInput(f"a table was given, with the columns {said}; pass one of them: table[{one!r}]")
    if hasattr(inputs, "to_frame") and "text" in getattr(
        inputs, "index", ()
    ):  # of pandas, its labels the columns' names
        raise InvalidInput("a row of a table was given, whose cells are no inputs one after another; pass row['text']")
    for name in ("tolist", "to_list", "to_pylist"):  # pandas, polars, pyarrow
        if callable(make := getattr(inputs, name, None)):
            made = make()
            return made if isinstance(made, list) else None  # a single number
    return inputs if isinstance(inputs, Iterable) else None


def _of_texts(table: Any, columns: Sequence[Any]) -> str:
    """The column to suggest: "text", or the one whose first cell is the longest text; many tables begin with an id."""
    names = list(map(str, columns))
    if "text" in names or not names:
        return "text"
    cells = [next(iter(table[each]), None) for each in columns] if hasattr(table, "__len__") else []  # a lazy one waits
    lengths = [len(cell) if isinstance(cell, str) else 0 for cell in cells] or [0]
    return names[lengths.index(max(lengths))]


def _is_dataset(inputs: Any) -> bool:
    return hasattr(inputs, "column_names") and hasattr(inputs, "features")


def _rows(dataset: Any) -> Iterable[Any]:
    names = dataset.column_names
    if names is not None and "input_ids" not in names and not any(first in names for first, _ in TEXTS):
        raise InvalidInput(
            f"the dataset has neither input_ids nor a column 'text'; pass one of its columns ({', '.join(names)}), "
            f"e.g. dataset[{names[0] if names else 'text'!r}]"
        )
    rows: Iterable[Any] = dataset
    return rows


def text_of(row: Mapping[str, Any]) -> str | tuple[str, str] | None:
    """The text of a row by its name ("text", or "question" and "context"), or the pair; None if it has none."""
    for first, second in TEXTS:
        if (text := row.get(first)) is None:
            continue
        other = row.get(second)
        if not isinstance(text, str) or not isinstance(other, str | None):
            columns = isinstance(text, list)  # as a slice of a dataset has them
            how = (
                f"pass that column alone: data[{first!r}]" if columns else "expected one text a row, or a list of texts"
            )
            raise InvalidInput(f"'{first}' holds {kind_of(text)}; {how}")
        return text if other is None else (text, other)
    return None


def refuse_mapping(inputs: Mapping[str, Any]) -> WherefromError:
    """A mapping that is neither an encoding nor a row with a text."""
    if _is_dataset(next(iter(inputs.values()), None)):
        return InvalidInput(f"a dataset of several splits was given; pass one of them: dataset[{next(iter(inputs))!r}]")
    if empty := [first for first, _ in TEXTS if first in inputs]:
        return InvalidInput(f"'{empty[0]}' is empty; expected a text")
    return InvalidInput("the encoding has no input_ids and no text; expected what a tokenizer returns")


def refuse_tuple(inputs: tuple[Any, ...]) -> WherefromError:
    """A tuple that is neither a pair of texts nor token ids."""
    return InvalidInput(
        f"a tuple of {len(inputs)} was given, but a tuple is a pair of texts; put several inputs in a list"
    )


def is_stream(inputs: Any) -> bool:
    """Whether each of its items is an input, whatever it is: of a generator, an open file, a stream."""
    return isinstance(inputs, Iterator | Chunk)


def missing(item: Any) -> bool:
    """Whether a cell of a table is empty: None, NaN, pandas' NA."""
    return item is None or (isinstance(item, float) and item != item) or type(item).__name__ in ("NAType", "NaTType")


def are_ints(values: Iterable[Any]) -> bool:
    """Whether all are whole numbers; asked of their types, of which there are few."""
    return all(issubclass(kind, int | np.integer) and kind is not bool for kind in {*map(type, values)})


def as_ints(values: Iterable[Any]) -> list[int] | None:
    """Whole numbers as Python's own; None where one is none."""
    if {*map(type, values)} == {int}:
        return [*values]
    return [*map(int, values)] if are_ints(values) else None
