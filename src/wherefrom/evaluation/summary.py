"""The tables of a finished run, made from its shards window by window, in the order of the dataset.

    examples.parquet   one row an example: what was predicted and explained, or why it failed
    records.parquet    one row a number: example, method, metric, layer, value (and why there is none)
    curves.parquet     one row a curve of erasure
    summary.parquet    one row a method, metric and layer: mean, deviation, 99 % interval, counts; and summary.csv;
                       metrics of the model itself have "(model)" for a method

They depend on what is in the shards alone, so a run that was killed ten times has the same bytes as one that was not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.evaluation import store
from wherefrom.extras import need
from wherefrom.files import publish, write
from wherefrom.metric.base import MetricSpec
from wherefrom.metric.correlation import Summary, half_width

EXAMPLES, RECORDS, CURVES = "examples.parquet", "records.parquet", "curves.parquet"
SUMMARY, SUMMARY_CSV = "summary.parquet", "summary.csv"
_VARYING = re.compile(r"\d+|'[^']*'")
COLUMNS = ("method", "metric", "layer", "mean", "deviation", "interval", "count", "undefined")


class Key(NamedTuple):
    """What a mean is taken over."""

    method: str
    metric: str
    layer: int | None


@dataclass(frozen=True)
class _Moments:
    count: int
    mean: float
    squares: float  # Σ (x − mean)²
    undefined: int


class Totals(NamedTuple):
    """What a run came to."""

    examples: int
    failures: dict[str, int]  # how many for each reason
    seconds: dict[str, float]  # of each method


def build(folder: Path, whole: dict[str, Path], methods: Sequence[str], asked: Sequence[MetricSpec]) -> Totals:
    """Write all tables of a run whose shards are all there."""
    from wherefrom.evaluation import probes

    moments: dict[Key, _Moments] = {}
    count, failures, seconds = 0, dict[str, int](), dict[str, float]()
    with ExitStack() as stack:
        writers = {name: stack.enter_context(_Writer(folder / name)) for name in (EXAMPLES, RECORDS, CURVES)}
        for window, times in _windows(whole):
            count += len(window)
            count_reasons(failures, window["failure"].drop_null().to_pylist())
            for name, spent in times.items():
                seconds[name] = seconds.get(name, 0.0) + spent
            records = _flat(window, "records")
            writers[EXAMPLES].write(window.drop_columns(["row", "records", "curves"]))
            writers[RECORDS].write(records)
            writers[CURVES].write(_flat(window, "curves"))
            for key, found in _moments(records):
                moments[key] = _joined(moments[key], found) if key in moments else found
    means = {key: _summary(found) for key, found in moments.items()}
    means |= probes.measured(whole, asked, means)
    _write_summary(folder, _ordered(means, [probes.MODEL, *methods], [each.name for each in asked]))
    return Totals(count, failures, seconds)


def count_reasons(counts: dict[str, int], reasons: Iterable[str]) -> None:
    """Add to the counts; reasons that differ in numbers and names alone are one, under the first that came."""
    known = {_VARYING.sub("…", reason): reason for reason in counts}
    for reason in reasons:
        first = known.setdefault(_VARYING.sub("…", reason), reason)
        counts[first] = counts.get(first, 0) + 1


class _Writer:
    """A parquet file that gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.beside = path, path.with_name(f".{path.name}.part")
        self.writer: Any = None

    def __enter__(self) -> _Writer:
        return self

    def write(self, table: Any) -> None:
        if self.writer is None:
            parquet = need("pyarrow.parquet", extra="eval")
            self.writer = parquet.ParquetWriter(self.beside, table.schema, compression="zstd")
        self.writer.write_table(table)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.writer is None:
            return
        self.writer.close()
        if kind is None:
            with self.beside.open("rb") as file:
                os.fsync(file.fileno())
            publish(self.beside, self.path)


def _windows(whole: dict[str, Path]) -> Iterator[tuple[Any, dict[str, float]]]:
    """The examples of each window in the order of the dataset, and the seconds that each method took."""
    pa, parquet = need("pyarrow", extra="eval"), need("pyarrow.parquet", extra="eval")
    for _, paths in store.windows(whole):
        parts, seconds = [], dict[str, float]()
        for path in paths:
            part = parquet.read_table(path, columns=store.schema().names)  # no vectors
            for name, spent in json.loads(part.schema.metadata[store.SECONDS]).items():
                seconds[name] = seconds.get(name, 0.0) + spent
            parts.append(part.replace_schema_metadata(None))
        yield pa.concat_tables(parts).sort_by("row").combine_chunks(), seconds


def _flat(window: Any, column: str) -> Any:
    """The lists of a column one after another, each entry beside its example's id."""
    pa, compute = need("pyarrow", extra="eval"), need("pyarrow.compute", extra="eval")
    owners = compute.list_parent_indices(window[column])
    entries = compute.list_flatten(window[column]).combine_chunks()
    fields = entries.type
    arrays = [window["example"].take(owners), *(compute.struct_field(entries, i) for i in range(fields.num_fields))]
    names = ["example", *(fields.field(i).name for i in range(fields.num_fields))]
    return pa.table(dict(zip(names, arrays, strict=True))).combine_chunks()


# Means ----------------------------------------------------------------------------------------------------


def _moments(records: Any) -> Iterator[tuple[Key, _Moments]]:
    """Count, mean and spread of every method, metric and layer in one window."""
    if not len(records):
        return
    codes, names = [], []
    for column in ("method", "metric"):
        encoded = records[column].combine_chunks().dictionary_encode()
        codes.append(encoded.indices.to_numpy(zero_copy_only=False))
        names.append(encoded.dictionary.to_pylist())
    codes.append(records["layer"].fill_null(-1).to_numpy())
    keys, group = np.unique(np.stack(codes, 1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    values: NDArray[np.float64] = records["value"].to_numpy()
    known = ~np.isnan(values)
    size = np.bincount(group, minlength=len(keys))
    count = np.bincount(group[known], minlength=len(keys))
    mean = np.bincount(group[known], values[known], len(keys)) / np.maximum(count, 1)
    squares = np.bincount(group[known], (values[known] - mean[group[known]]) ** 2, len(keys))
    for i, (method, metric, layer) in enumerate(keys.tolist()):
        key = Key(names[0][method], names[1][metric], None if layer < 0 else layer)
        yield key, _Moments(int(count[i]), float(mean[i]), float(squares[i]), int(size[i] - count[i]))


def _joined(a: _Moments, b: _Moments) -> _Moments:
    """The moments of two sets together (Chan et al. 1979)."""
    count = a.count + b.count
    if not a.count or not b.count:
        full = a if a.count else b
        return replace(full, undefined=a.undefined + b.undefined)
    gap = b.mean - a.mean
    squares = a.squares + b.squares + gap * gap * a.count * b.count / count
    return _Moments(count, a.mean + gap * b.count / count, squares, a.undefined + b.undefined)


def _summary(found: _Moments) -> Summary:
    """As `correlation.summary` has it."""
    mean = found.mean if found.count else np.nan
    deviation = float(np.sqrt(found.squares / (found.count - 1))) if found.count > 1 else np.nan
    return Summary(mean, deviation, half_width(deviation, found.count), found.count, found.undefined)


def _ordered(means: dict[Key, Summary], methods: Sequence[str], metrics: Sequence[str]) -> list[tuple[Key, Summary]]:
    """As they were asked for; the parts of a metric by name, layers from the first, the answer itself before them."""

    def place(key: Key) -> tuple[Any, ...]:
        asked = [i for i, metric in enumerate(metrics) if key.metric == metric or key.metric.startswith(f"{metric} ")]
        layer = -1 if key.layer is None else key.layer
        return asked[0], key.metric, methods.index(key.method), layer

    return [(key, means[key]) for key in sorted(means, key=place)]


def _write_summary(folder: Path, rows: list[tuple[Key, Summary]]) -> None:
    pa, parquet = need("pyarrow", extra="eval"), need("pyarrow.parquet", extra="eval")
    flat = [(*key, s.mean, s.deviation, s.interval, s.count, s.undefined) for key, s in rows]
    plain = [[None if value != value else value for value in row] for row in flat]
    types = (pa.string(), pa.string(), pa.int32(), *[pa.float64()] * 3, pa.int64(), pa.int64())
    columns = {
        name: pa.array([row[place] for row in plain], kind)
        for place, (name, kind) in enumerate(zip(COLUMNS, types, strict=True))
    }
    table = pa.table(columns)
    packed = io.BytesIO()
    parquet.write_table(table, packed)
    write(folder / SUMMARY, packed.getvalue())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *(["" if value is None else value for value in row] for row in plain)])
    write(folder / SUMMARY_CSV, text.getvalue().encode())
