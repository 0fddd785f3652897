"""What probes read off the model's layers, over the whole dataset, when its last shard is there.

The shards keep the vector of the readout token in every layer: "vector 0" goes into block 0, "vector l + 1" comes out
of block l. They are read back one layer at a time, so that memory holds N × d numbers and what a probe makes of them
(about six times as much, in float64), however many layers there are. The result depends on the shards alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import EXAMPLE_ERRORS
from wherefrom.evaluation.store import PROPERTIES, VECTOR
from wherefrom.evaluation.summary import Key
from wherefrom.extras import need
from wherefrom.metric.base import MetricSpec
from wherefrom.metric.correlation import Summary
from wherefrom.metric.probing import Code, Probe, compression_against_alignment, online_code

MODEL = "(model)"  # in the place of a method


def measured(
    whole: Mapping[str, Path], asked: Sequence[MetricSpec], means: Mapping[Key, Summary]
) -> dict[Key, Summary]:
    """The metrics of the model among those asked; and compression against the layers' means of each cue metric."""
    found: dict[Key, Summary] = {}
    known: dict[Probe, list[Code]] = {}
    for each in (each for each in asked if each.probe is not None):
        assert each.probe is not None
        rows = _labels(whole, each.probe)
        try:
            codes = known[each.probe] if each.probe in known else list(_codes(whole, each.probe, rows))
        except EXAMPLE_ERRORS:  # all that could be explained have one label
            found[Key(MODEL, each.name, None)] = Summary(np.nan, np.nan, np.nan, 0, len(rows))
            continue
        known[each.probe] = codes
        for number in each.measure(codes):
            found[Key(MODEL, number.metric, number.layer)] = Summary(number.value, np.nan, np.nan, len(rows), 0)
        if each.metric.name == "compression":
            found.update(_against_cues(each, codes, asked, means))
    return found


def _against_cues(
    compression: MetricSpec, codes: list[Code], asked: Sequence[MetricSpec], means: Mapping[Key, Summary]
) -> Iterator[tuple[Key, Summary]]:
    """ρ over layers of compression with every method's cue alignment."""
    for cue in (each for each in asked if "cues" in each.metric.needs):
        for method in dict.fromkeys(key.method for key in means if key.metric == cue.name):
            layers = [means.get(Key(method, cue.name, layer)) for layer in range(len(codes) - 1)]
            aligned = [np.nan if layer is None else layer.mean for layer in layers]
            if not np.isnan(aligned).any():  # a method without layers, or with some of them, has no alignment
                value = compression_against_alignment([code.compression for code in codes], aligned)
                key = Key(method, f"{compression.name} against {cue.name}", None)
                count = 0 if np.isnan(value) else len(aligned)
                yield key, Summary(value, np.nan, np.nan, count, int(not count))


def _labels(whole: Mapping[str, Path], probe: Probe) -> dict[int, str]:
    """Of every row that has a label and vectors, in the order of the dataset."""
    found: dict[int, str] = {}
    for table in _read(whole, ["row", PROPERTIES[probe.of], f"{VECTOR} 0"]):
        labels, there = table[PROPERTIES[probe.of]].to_pylist(), table[f"{VECTOR} 0"].is_valid().to_pylist()
        rows = zip(table["row"].to_pylist(), labels, there, strict=True)
        found.update({row: label for row, label, known in rows if known and label is not None})
    return dict(sorted(found.items()))


def _codes(whole: Mapping[str, Path], probe: Probe, labels: dict[int, str]) -> Iterator[Code]:
    places = {row: place for place, row in enumerate(labels)}
    named = list(labels.values())
    layer = 0
    while (vectors := _vectors(whole, layer, places)) is not None:
        yield online_code(vectors, named, probe=probe.probe, penalty=probe.penalty, seed=probe.seed)
        layer += 1


def _vectors(whole: Mapping[str, Path], layer: int, places: dict[int, int]) -> NDArray[np.float32] | None:
    """[N, d] of one layer; None where the model has no such layer."""
    found: NDArray[np.float32] | None = None
    for table in _read(whole, ["row", f"{VECTOR} {layer}"]):
        column = table[f"{VECTOR} {layer}"].combine_chunks()
        rows = table["row"].filter(column.is_valid()).to_pylist()
        if rows:
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(rows), -1)
            chosen = [i for i, row in enumerate(rows) if row in places]
            if found is None:
                found = np.empty((len(places), vectors.shape[1]), dtype=np.float32)
            found[[places[rows[i]] for i in chosen]] = vectors[chosen]
    return found


def _read(whole: Mapping[str, Path], columns: list[str]) -> Iterator[Any]:
    """These columns of every shard that has them; one of which nothing could be explained has no vectors."""
    parquet = need("pyarrow.parquet", extra="eval")
    for _, path in sorted(whole.items()):
        file = parquet.ParquetFile(path)
        if set(columns) <= set(file.schema_arrow.names):
            yield file.read(columns=columns)
