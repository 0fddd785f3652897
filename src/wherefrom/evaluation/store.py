"""Shards on disk: one parquet file each, written whole or not at all, with the hash of its content in its name.

    shards/00003-002of032.3f0c9be2a1d04c77.parquet        window 3, the third of its 32 shards

After a kill or a power cut a shard is there or is not. What a disk made of it later is seen by the hash, and such a
shard is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import ResourceUnavailable
from wherefrom.evaluation.task import ExampleOutcome
from wherefrom.extras import need
from wherefrom.files import write

NAME = re.compile(
    r"(?P<name>(?P<window>\d{5,})-(?P<number>\d{3,})of(?P<count>\d{3,}))\.(?P<hash>[0-9a-f]{16})\.parquet"
)
VECTOR = "vector"  # "vector 0", "vector 1", …: where a probe was asked for, in every layer
PROPERTIES = {"label": "label", "group": "group", "target": "wanted"}  # of an example, by column
SECONDS = b"seconds"  # in a shard's metadata: what each method took, which is no result


def name(window: int, number: int, count: int) -> str:
    return f"{window:05d}-{number:03d}of{count:03d}"


def put(folder: Path, shard: str, content: bytes) -> Path:
    """Keep a shard."""
    path = folder / f"{shard}.{_hash(content)}.parquet"
    write(path, content)
    return path


def found(folder: Path) -> dict[str, Path]:
    """The whole shards in a folder by name. Leftovers of a kill and damaged files are removed."""
    try:
        return _found(folder)
    except OSError as error:
        raise ResourceUnavailable(f"cannot use the shards in '{folder}': {error.strerror or error}") from error


def _found(folder: Path) -> dict[str, Path]:
    for path in folder.glob(".*.part"):
        path.unlink()
    whole: dict[str, Path] = {}
    for path in sorted(folder.glob("*.parquet")):
        match = NAME.fullmatch(path.name)
        if match and match["name"] not in whole and _hash(path.read_bytes()) == match["hash"]:
            whole[match["name"]] = path
        else:
            path.unlink()
    return whole


def windows(whole: dict[str, Path]) -> Iterator[tuple[int, list[Path]]]:
    """The shards of each window, window by window."""
    by_window: dict[int, list[Path]] = {}
    for shard, path in sorted(whole.items()):
        by_window.setdefault(int(shard.partition("-")[0]), []).append(path)
    yield from sorted(by_window.items())


def complete(whole: dict[str, Path]) -> set[int]:
    """The windows of which every shard is there."""
    done = set()
    for window, paths in windows(whole):
        match = NAME.fullmatch(paths[0].name)
        if match and int(match["count"]) == len(paths):
            done.add(window)
    return done


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


# What is in them ------------------------------------------------------------------------------------------


def schema() -> Any:
    """One row for each example; its numbers and curves are lists within it."""
    pa = need("pyarrow", extra="eval")
    record = pa.struct(
        [
            ("method", pa.string()),
            ("metric", pa.string()),
            ("layer", pa.int32()),
            ("value", pa.float64()),  # null where it has no value,
            ("why", pa.string()),  # and the reason
        ]
    )
    curve = pa.struct(
        [
            ("method", pa.string()),
            ("way", pa.string()),
            ("taken", pa.list_(pa.int32())),
            ("probabilities", pa.list_(pa.float64())),
        ]
    )
    return pa.schema(
        [
            ("row", pa.int64()),
            ("example", pa.string()),
            ("content", pa.string()),  # a hash of it
            ("tokens", pa.int32()),
            ("label", pa.string()),
            ("target", pa.string()),
            ("foil", pa.string()),
            ("prediction", pa.string()),
            ("probability", pa.float64()),  # of the target, where the model lists it
            ("group", pa.string()),
            ("attractors", pa.int32()),
            ("failure", pa.string()),  # why nothing was measured
            ("records", pa.list_(record)),
            ("curves", pa.list_(curve)),
        ]
    )


def pack(outcomes: list[ExampleOutcome], seconds: dict[str, float]) -> bytes:
    """A shard as the content of its file."""
    pa, parquet = need("pyarrow", extra="eval"), need("pyarrow.parquet", extra="eval")
    table = pa.table({**_plain(outcomes), **_lists(outcomes)}, schema=schema())
    for name, column in _probed(outcomes):
        table = table.append_column(name, column)
    table = table.replace_schema_metadata({SECONDS: json.dumps(seconds)})
    packed = io.BytesIO()
    parquet.write_table(table, packed, compression="zstd")
    return packed.getvalue()


def _probed(outcomes: list[ExampleOutcome]) -> Iterator[tuple[str, Any]]:
    """The columns that only probes read: the wanted word, and a column of vectors for each layer."""
    pa = need("pyarrow", extra="eval")
    depth = max((len(each.vectors) for each in outcomes if each.vectors is not None), default=0)
    if depth:
        yield PROPERTIES["target"], pa.array([each.item.example.target for each in outcomes], pa.string())
    for layer in range(depth):
        vectors = [None if each.vectors is None else each.vectors[layer] for each in outcomes]
        yield f"{VECTOR} {layer}", pa.array(vectors, pa.list_(pa.float32()))


def _plain(outcomes: list[ExampleOutcome]) -> dict[str, list[Any]]:
    """The columns with one value for each example."""
    answers = [each.answer for each in outcomes]
    targets = [None if each is None else each.target for each in answers]
    examples = [each.item.example for each in outcomes]
    return {
        "row": [each.item.row for each in outcomes],
        "example": [each.id for each in examples],
        "content": [each.content for each in outcomes],
        "tokens": [each.tokens or None for each in outcomes],
        "label": [None if each.label is None else str(each.label) for each in examples],
        "target": [None if each is None else each.label for each in targets],
        "foil": [None if each is None else each.foil_label for each in targets],
        "prediction": [None if each is None else each.prediction for each in answers],
        "probability": [
            None if each is None or each.target.label is None else each.probabilities.get(each.target.label)
            for each in answers
        ],
        "group": [each.group for each in examples],
        "attractors": [each.attractors for each in examples],
        "failure": [each.failure for each in outcomes],
    }


def _lists(outcomes: list[ExampleOutcome]) -> dict[str, Any]:
    """The columns with lists: records and curves, written one after another, and where each example's begin."""
    whole = [each.failure is None for each in outcomes]  # what failed half way is not half measured
    records = [each.records if fits else [] for each, fits in zip(outcomes, whole, strict=True)]
    curves = [each.curves if fits else [] for each, fits in zip(outcomes, whole, strict=True)]
    numbers = [(method, *number) for some in records for method, number in some]
    methods, metrics, layers, values, reasons = zip(*numbers, strict=True) if numbers else ([],) * 5
    drawn = [each for some in curves for each in some]
    return {
        "records": _nested("records", records, methods, metrics, layers, np.array(values, dtype=np.float64), reasons),
        "curves": _nested(
            "curves",
            curves,
            [each.method for each in drawn],
            [each.way for each in drawn],
            _joined([each.curve.taken for each in drawn], np.int32),
            _joined([each.curve.probabilities for each in drawn], np.float64),
        ),
    }


def _nested(column: str, lists: Sequence[Sized], *fields: Any) -> Any:
    """A column of lists of structs, from the fields of all of them; NaN becomes null."""
    pa = need("pyarrow", extra="eval")
    kind = schema().field(column).type
    inner = [kind.value_type.field(i) for i in range(kind.value_type.num_fields)]
    arrays = [
        each if isinstance(each, pa.Array) else pa.array(each, field.type, from_pandas=True)
        for each, field in zip(fields, inner, strict=True)
    ]
    return pa.ListArray.from_arrays(_starts(lists), pa.StructArray.from_arrays(arrays, fields=inner), type=kind)


def _joined(every: Sequence[NDArray[Any]], dtype: Any) -> Any:
    """A column of lists of numbers."""
    pa = need("pyarrow", extra="eval")
    numbers = np.concatenate(every).astype(dtype) if every else np.empty(0, dtype)
    return pa.ListArray.from_arrays(_starts(every), pa.array(numbers))


def _starts(lists: Sequence[Sized]) -> Any:
    """Where each begins in all of them, and where the last one ends."""
    return need("pyarrow", extra="eval").array(np.cumsum([0, *map(len, lists)]), "int32")
