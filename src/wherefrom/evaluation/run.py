"""A run folder, read: its state, its tables, and two runs compared."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.data.example import titled
from wherefrom.display import view
from wherefrom.errors import DamagedFile, NotDefined, RunConflict, UnknownName
from wherefrom.evaluation import manifest, summary
from wherefrom.evaluation.summary import Key
from wherefrom.extras import need
from wherefrom.metric.correlation import Summary
from wherefrom.metric.names import metric_of
from wherefrom.metric.significance import ROUNDING, Paired, holm, paired

SINGLE = 1e-6  # what other batches change in the numbers of a float32 model, relative to the largest

if TYPE_CHECKING:
    from pyarrow import Table


@dataclass(frozen=True, eq=False)
class Run:
    """An evaluation in its folder. `summary` are the means; `table` gives records, curves and examples whole."""

    path: Path  # a string will do
    _temporary: Any = field(default=None, repr=False)  # the folder goes when the run does

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked, of which model, on which data, with which versions."""
        return manifest.read(self.path)

    @property
    def finished(self) -> dict[str, Any] | None:
        """What it came to; None while it is not finished, or where that file is damaged: the same command mends it."""
        try:
            found = json.loads((self.path / manifest.FINISHED).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and all(isinstance(found.get(part), dict) for part in ("failures", "seconds"))
        return found if whole else None

    @property
    def failures(self) -> dict[str, int]:
        """Why rows could not be explained, and how many of them each reason has."""
        return dict((self.finished or {}).get("failures", {}))

    @cached_property
    def summary(self) -> dict[Key, Summary]:
        """Mean, deviation and 99 % interval by (method, metric, layer)."""
        rows = self.table(summary.SUMMARY).to_pylist()
        return {Key(*(row.pop(name) for name in Key._fields)): Summary(**_numbers(row)) for row in rows}

    def mean(self, method: str, metric: str, layer: int | None = None) -> float:
        """One mean of the summary."""
        found = self.summary.get(Key(method, metric, layer))
        if found is None:
            layers = [key.layer for key in self.summary if key[:2] == (method, metric) and key.layer is not None]
            if layers:
                raise UnknownName(
                    f"{metric!r} of {method!r} is measured layer by layer; say which: "
                    f"layer={min(layers)} to {max(layers)}"
                )
            known = ", ".join(sorted({f"{key.method} {key.metric}" for key in self.summary}))
            raise UnknownName(f"the run has no {metric!r} of {method!r} (layer {layer}); it has: {known}")
        return found.mean

    def table(self, name: str = "records") -> Table:
        """A pyarrow table: records, curves, examples or summary."""
        if self.finished is None:
            raise RunConflict(f"'{self.path}' is not finished; repeat its command to resume it: {self.command}")
        file = name if name.endswith(".parquet") else f"{name}.parquet"
        if not (self.path / file).is_file():
            raise UnknownName(f"'{self.path}' has no table {name!r}; expected records, curves, examples or summary")
        return self._read(file)

    def _read(self, file: str, **chosen: object) -> Table:
        parquet = need("pyarrow.parquet", extra="eval")
        with self.reading(file):
            return parquet.read_table(self.path / file, **chosen)

    @contextmanager
    def reading(self, file: str) -> Iterator[None]:
        """What goes wrong in a table of this run is said with its name, and what to do."""
        try:
            yield
        except (OSError, ValueError) as error:  # pyarrow's own errors are one or the other
            raise DamagedFile(
                f"'{self.path / file}' cannot be read ({error}); repeat the run's command, which makes it anew: "
                f"{self.command}"
            ) from error

    @property
    def contents(self) -> dict[str, str]:
        """A hash of each example, by its id."""
        found = self.table("examples")
        return dict(zip(found["example"].to_pylist(), found["content"].to_pylist(), strict=True))

    @property
    def command(self) -> str:
        return shlex.join(self.manifest.get("command", []))

    def values(self, key: Key) -> dict[str, float]:
        """One metric of one method by example; NaN where it has no value. The key is one of `summary`'s."""
        key = Key(*key)
        chosen = [("method", "=", key.method), ("metric", "=", key.metric)]
        columns = ["example", "layer", "value"]
        found = self._read(summary.RECORDS, columns=columns, filters=chosen)
        ids, layers, values = (found[name].to_pylist() for name in columns)
        return {
            i: float("nan") if value is None else value
            for i, layer, value in zip(ids, layers, values, strict=True)
            if layer == key.layer
        }

    def show(self, *, layers: bool = False) -> None:
        """The tables in the terminal."""
        from wherefrom.evaluation.export import show

        show(self, layers=layers)

    def _repr_html_(self) -> str:
        from wherefrom.evaluation.export import means

        if self.finished is None:
            return str(view("html-paragraphs")([repr(self)]))
        heading, *rows = means(self)
        return str(view("html-table")(heading, rows, repr(self), best="**"))

    def __repr__(self) -> str:
        return f"<Run '{self.path}', {'finished' if self.finished else 'not finished'}>"


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float("nan") if value is None else value for name, value in row.items()}


def runs(folder: Path) -> Iterator[Run]:
    """The runs in a folder, or the one that it is; in a benchmark's they lie in a folder for each table."""
    if not folder.is_dir():
        raise UnknownName(f"there is no folder '{folder}'")
    for path in (folder, *sorted(folder.iterdir())):
        if (path / manifest.FILE).is_file():
            yield Run(path)
        elif path != folder and path.is_dir():
            yield from (Run(each) for each in sorted(path.iterdir()) if (each / manifest.FILE).is_file())


# Comparing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One metric of two methods, or of one method in two runs, on the examples that both have."""

    metric: str
    layer: int | None
    method: str  # where it is one in two runs; else first and second are the methods
    first: str
    second: str
    found: Paired  # p-values corrected by Holm for all comparisons made


def compare_runs(first: Run, second: Run, *, layers: bool = False, seed: int = 0) -> list[Compared]:
    """Every metric that both runs have, method by method; where they have no method in common, each with each."""
    one, other = first.manifest["data"], second.manifest["data"]
    if (one["name"], one["split"]) != (other["name"], other["split"]):
        raise NotDefined(
            f"the runs are on different data ({titled(one['name'], one['split'])} against "
            f"{titled(other['name'], other['split'])}); "
            f"a paired test needs the same examples"
        )
    before, after = first.contents, second.contents
    if changed := [example for example in before if example in after and before[example] != after[example]]:
        raise NotDefined(
            f"{len(changed)} examples have one id in both runs and different content ({', '.join(changed[:3])}, …); a "
            f"paired test needs the same examples"
        )
    ours, theirs = list(_keys(first, layers)), list(_keys(second, layers))
    shared = {key.method for key in ours} & {key.method for key in theirs}
    pairs = [(a, b) for a in ours for b in theirs if a[1:] == b[1:] and (a.method == b.method if shared else True)]
    if not pairs:
        raise NotDefined("the runs have no metric in common")
    return _tested([(first, a, second, b) for a, b in pairs], seed)


def left_out(first: Run, second: Run) -> Iterator[str]:
    """Which methods and metrics `compare_runs` compares with nothing, since the other run lacks them."""
    methods, metrics = ([[key[part] for key in run.summary] for run in (first, second)] for part in (0, 1))
    shared = set(methods[0]) & set(methods[1])  # without a method in common each is compared with each
    ours, theirs = (dict.fromkeys([*(methods[i] if shared else ()), *metrics[i]]) for i in (0, 1))
    for which, names, others in (("first", ours, theirs), ("second", theirs, ours)):
        if alone := [name for name in names if name not in others]:
            yield f"of the {which} run alone, and not compared: {', '.join(alone)}"


def compare_methods(run: Run, *, layers: bool = False, seed: int = 0) -> list[Compared]:
    """Every two methods of one run, metric by metric."""
    keys = list(_keys(run, layers))
    pairs = [(a, b) for a, b in combinations(keys, 2) if a[1:] == b[1:]]
    if not pairs:
        raise NotDefined("the run has one method; expected two to compare, or a second run")
    return _tested([(run, a, run, b) for a, b in pairs], seed)


def _keys(run: Run, layers: bool) -> Iterator[Key]:
    """What is compared: the answer, or the last layer where a metric has only layers; or all layers."""
    every = [key for key in run.summary if metric_of(key.metric).probe is None]  # which has one value, and no examples
    for key in every:
        siblings = [each.layer for each in every if each[:2] == key[:2]]
        last = None if None in siblings else max(each for each in siblings if each is not None)
        if layers or key.layer == last:
            yield key


def _tested(pairs: list[tuple[Run, Key, Run, Key]], seed: int) -> list[Compared]:
    found = []
    for first, a, second, b in pairs:
        x, y = _aligned(first.values(a), second.values(b))
        if np.isfinite(x + y).sum() < 2:  # there is nothing to test
            continue
        one = first is not second and a.method == b.method
        names = (a.method, str(first.path), str(second.path)) if one else ("", a.method, b.method)
        double = all(run.manifest["model"]["dtype"] == "float64" for run in (first, second))
        rounding = ROUNDING if double else SINGLE
        found.append(Compared(a.metric, a.layer, *names, paired(x, y, seed=seed, rounding=rounding)))
    if not found:
        raise NotDefined("no metric has a value on two examples in common; a paired test needs two or more")
    by_t, by_rank = (holm([getattr(each.found, name) for each in found]) for name in ("t_p", "wilcoxon_p"))
    return [
        replace(each, found=replace(each.found, t_p=float(t), wilcoxon_p=float(w)))
        for each, t, w in zip(found, by_t, by_rank, strict=True)
    ]


def _aligned(a: dict[str, float], b: dict[str, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shared = [example for example in a if example in b]
    if not shared:
        raise NotDefined("the runs share no example; a paired test needs the same examples in both")
    return np.array([a[each] for each in shared]), np.array([b[each] for each in shared])
