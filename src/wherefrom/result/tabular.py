"""Explanations as tables: a row per token, or a line per explanation, written as they come.

.csv and .parquet have one row for each token of each explanation, .jsonl one line for each explanation, whose columns
of tokens are lists. Rows are written as they are made, so that a table of any length needs no memory; what was written
when an error came is kept.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.errors import InvalidOption, ResourceUnavailable
from wherefrom.extras import need

if TYPE_CHECKING:
    from pandas import DataFrame

    from wherefrom.result.explanation import Explanation

# The columns, with the types that parquet gives them: of the explanation,
SHARED = {
    "input": "int64",
    "method": "string",
    "target": "string",
    "foil": "string",
    "prediction": "string",
    "probability": "float64",  # of the target,
    "log_probability": "float64",  # and of a language model's also its logarithm, which is never too small for a number
}
# and of each of its tokens.
EACH = {
    "token_index": "int32",
    "token": "string",  # as the vocabulary writes it,
    "text": "string",  # and as it stands in the text
    "part": "int32",  # which text of a pair
    "start": "int32",
    "end": "int32",
    "special": "bool_",
    "unknown": "bool_",
    "score": "float64",
}
ENDINGS = (".csv", ".parquet", ".jsonl")
GROUP = 50_000  # rows of a parquet file that are written together

Numbered = Iterable[tuple[int, "Explanation"]]
Writer = Callable[[int, "Explanation"], None]  # the number of the input, and its explanation


def record(number: int, explanation: Explanation) -> dict[str, Any]:
    """One explanation: its columns, those of tokens as lists."""
    target = explanation.target
    towards = str(target.label) if target.towards else None
    places = [span or (None, None, None) for span in explanation.spans]
    return {
        "input": number,
        "method": explanation.method,
        "target": towards,
        "foil": target.foil_label,
        "prediction": explanation.prediction,
        "probability": explanation.probabilities.get(towards or ""),
        "log_probability": explanation.log_probabilities.get(towards or ""),
        "token_index": list(range(len(explanation))),
        "token": list(explanation.tokens),
        "text": explanation.pieces,
        "part": [place[0] for place in places],
        "start": [place[1] for place in places],
        "end": [place[2] for place in places],
        "special": list(explanation.special),
        "unknown": list(explanation.unknown),
        "score": [float(score) for score in explanation.scores],
    }


def rows(number: int, explanation: Explanation) -> Iterator[dict[str, Any]]:
    """A row per token."""
    found = record(number, explanation)
    shared = {name: found[name] for name in SHARED}
    for values in zip(*(found[name] for name in EACH), strict=True):
        yield {**shared, **dict(zip(EACH, values, strict=True))}


def dataframe(explanations: Numbered) -> DataFrame:
    """A pandas DataFrame with a row per token."""
    pandas = need("pandas", extra="pandas")
    columns: dict[str, list[Any]] = {name: [] for name in (*SHARED, *EACH)}
    for number, each in explanations:
        found = record(number, each)
        for name, column in columns.items():
            column += found[name] if name in EACH else [found[name]] * len(each)
    table = pandas.DataFrame(columns)
    kinds = {"Int64": ("part", "start", "end"), "float64": ("probability", "log_probability")}  # or None
    return table.astype({name: kind for kind, names in kinds.items() for name in names})


def save(explanations: Numbered, path: Path) -> Path:
    """All of them into one file."""
    with opened(path) as write:
        for number, each in explanations:
            write(number, each)
    return path


@contextmanager
def opened(path: Path) -> Iterator[Writer]:
    """A function that writes one explanation after another into a file of the kind that its name says."""
    kinds = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
    if path.suffix not in kinds:
        raise InvalidOption(f"cannot save a table to '{path.name}'; expected a name ending in {', '.join(ENDINGS)}")
    try:
        with ExitStack() as stack:
            yield stack.enter_context(kinds[path.suffix](path))
    except OSError as error:
        raise ResourceUnavailable(f"cannot write '{path}': {error.strerror or error}") from error


@contextmanager
def _csv(path: Path) -> Iterator[Writer]:
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        table = csv.DictWriter(file, [*SHARED, *EACH])
        table.writeheader()
        yield lambda number, each: table.writerows(rows(number, each))


@contextmanager
def _jsonl(path: Path) -> Iterator[Writer]:
    with path.open("w", encoding="utf-8", errors="replace") as file:

        def write(number: int, each: Explanation) -> None:
            file.write(json.dumps(record(number, each), ensure_ascii=False, allow_nan=False) + "\n")

        yield write


@contextmanager
def _parquet(path: Path) -> Iterator[Writer]:
    arrow, parquet = need("pyarrow", extra="pandas"), need("pyarrow.parquet", extra="pandas")
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in {**SHARED, **EACH}.items()])
    waiting: list[dict[str, Any]] = []
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as table:

        def flush() -> None:
            table.write_table(arrow.Table.from_pylist(waiting, schema))
            waiting.clear()

        def write(number: int, each: Explanation) -> None:
            waiting.extend(rows(number, each))
            if len(waiting) >= GROUP:
                flush()

        try:
            yield write
        finally:
            flush()
