"""Explanations as tables: a row per token, or a line per explanation, written as they come.

.csv and .parquet have one row for each token of each explanation, .jsonl one line for each explanation, whose columns
of tokens are lists. Rows are written as they are made, so that a table of any length needs no memory; what was written
when an error came is kept.
"""

from __future__ import annotations

import csv
import io
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

# The number of the input, its explanation, and the name that it has in a comparison
Entries = Iterable[tuple[int, "Explanation"] | tuple[int, "Explanation", str | None]]
Writer = Callable[..., None]  # takes the parts of such an entry


def columns(named: bool) -> dict[str, str]:
    """Those of a table, and their types; only that of comparisons has names."""
    name = {"name": "string"} if named else {}
    return {"input": SHARED["input"], **name, **SHARED, **EACH}


def record(number: int, explanation: Explanation, name: str | None = None) -> dict[str, Any]:
    """One explanation: its columns, those of tokens as lists."""
    target = explanation.target
    towards = str(target.label) if target.towards else None
    places = [span or (None, None, None) for span in explanation.spans]
    return {
        "input": number,
        **({} if name is None else {"name": name}),
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


def rows(number: int, explanation: Explanation, name: str | None = None) -> Iterator[dict[str, Any]]:
    """A row per token."""
    found = record(number, explanation, name)
    shared = {column: cell for column, cell in found.items() if column not in EACH}
    for values in zip(*(found[name] for name in EACH), strict=True):
        yield {**shared, **dict(zip(EACH, values, strict=True))}


def dataframe(explanations: Entries, *, named: bool = False) -> DataFrame:
    """A pandas DataFrame with a row per token."""
    pandas = need("pandas", extra="pandas")
    filled: dict[str, list[Any]] = {column: [] for column in columns(named)}
    for number, each, *name in explanations:
        found = record(number, each, *name)
        for column, cells in filled.items():
            cells += found[column] if column in EACH else [found.get(column)] * len(each)
    table = pandas.DataFrame(filled)
    kinds = {"Int64": ("part", "start", "end"), "float64": ("probability", "log_probability")}  # or None
    return table.astype({name: kind for kind, names in kinds.items() for name in names})


def save(explanations: Entries, path: Path, *, named: bool = False) -> Path:
    """All of them into one file."""
    with opened(path, named=named) as write:
        for entry in explanations:
            write(*entry)
    return path


def check(path: Path) -> None:
    """Whether a table can have this name, before it is made."""
    if path.suffix not in ENDINGS:
        raise InvalidOption(f"cannot save a table to '{path.name}'; expected a name ending in {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise ResourceUnavailable(f"cannot write '{path}': there is no folder '{path.parent}'")


@contextmanager
def opened(path: Path, *, named: bool = False) -> Iterator[Writer]:
    """A function that writes one explanation after another into a file of the kind that its name says."""
    check(path)
    kinds = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
    try:
        with ExitStack() as stack:
            yield stack.enter_context(kinds[path.suffix](path, columns(named)))
    except OSError as error:
        raise ResourceUnavailable(f"cannot write '{path}': {error.strerror or error}") from error


@contextmanager
def _csv(path: Path, columns: dict[str, str]) -> Iterator[Writer]:
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        csv.DictWriter(file, list(columns)).writeheader()

        def write(number: int, each: Explanation, name: str | None = None) -> None:
            whole = io.StringIO(newline="")
            csv.DictWriter(whole, list(columns)).writerows(rows(number, each, name))
            file.write(whole.getvalue())
            file.flush()  # whoever is killed has lost nothing that was explained

        yield write


@contextmanager
def _jsonl(path: Path, _columns: dict[str, str]) -> Iterator[Writer]:
    with path.open("w", encoding="utf-8", errors="replace") as file:

        def write(number: int, each: Explanation, name: str | None = None) -> None:
            file.write(json.dumps(record(number, each, name), ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()

        yield write


@contextmanager
def _parquet(path: Path, columns: dict[str, str]) -> Iterator[Writer]:
    arrow, parquet = need("pyarrow", extra="pandas"), need("pyarrow.parquet", extra="pandas")
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in columns.items()])
    waiting: list[dict[str, Any]] = []
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as table:

        def flush() -> None:
            table.write_table(arrow.Table.from_pylist(waiting, schema))
            waiting.clear()

        def write(number: int, each: Explanation, name: str | None = None) -> None:
            waiting.extend([*rows(number, each, name)])
            if len(waiting) >= GROUP:
                flush()

        try:
            yield write
        finally:
            flush()
