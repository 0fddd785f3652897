"""A benchmark's folder, read: who stands where by each question, and what every method scored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.board.choosing import CUES, FAITHFUL, PAINTED, PLAUSIBLE, plain_name
from wherefrom.board.measuring import FORMAT, TABLE
from wherefrom.errors import DamagedFile, UnknownName
from wherefrom.evaluation import Run
from wherefrom.metric.correlation import spearman
from wherefrom.metric.names import metric_of
from wherefrom.metric.standings import Standings, beaten, standings

Array = NDArray[np.float64]
QUESTIONS = {"faithful": FAITHFUL, "plausible": PLAUSIBLE, "cues": CUES}
# What is told of a method beside its ranks: a column of the record, and the metric that it is the mean of.
SANE_COLUMNS = {
    "randomised": "randomisation embeddings",
    "padding": "stability padding",
    "bfloat16": "stability bfloat16 rho",
}


@dataclass(frozen=True)
class BoardTable:
    """One model on one dataset: what was measured, by metric and method one number for each example."""

    name: str
    about: Mapping[str, Any]  # the manifest of its run
    values: Mapping[str, Mapping[str, Array]]
    sane: Mapping[str, Mapping[str, Array]]
    left_out: Mapping[str, str]
    passes: Mapping[str, float]
    retrained: bool = False  # whether the sanity checks are of the same model trained once more

    @property
    def task(self) -> str:
        return str(self.about["model"]["task"])

    @property
    def pictures(self) -> bool:
        """Whether the model reads pictures, whose patches are painted over."""
        return any(f"(by={PAINTED})" in metric for metric in self.values)

    def shares(self, question: str) -> dict[str, Array]:
        """Of each method and example the share of the others that it beats, mean over the metrics of a question."""
        asked = [metric for metric in self.values if plain_name(metric) in QUESTIONS[question]]
        if not asked:
            return {}
        methods = list(self.values[asked[0]])
        each = [
            beaten(np.stack([self.values[metric][name] for name in methods]), metric_of(metric).better == "higher")
            for metric in asked
        ]
        known = np.stack(each)
        count = (~np.isnan(known)).sum(0)
        mean = np.where(count > 0, np.nansum(known, axis=0) / np.maximum(count, 1), np.nan)
        return dict(zip(methods, mean, strict=True))

    def mean(self, method: str, metric: str) -> float | None:
        """The mean of a metric by its plain name."""
        for full, found in {**self.values, **self.sane}.items():
            if plain_name(full) == metric and method in found:
                known = found[method][~np.isnan(found[method])]
                return float(known.mean()) if len(known) else None
        return None


@dataclass(frozen=True)
class Board:
    """All tables of a benchmark, and the standings that follow from them."""

    tables: tuple[BoardTable, ...]
    unfinished: tuple[str, ...] = ()

    @cached_property
    def standings(self) -> dict[str, Standings]:
        """By question: faithful, and where there was data for it plausible and cues."""
        found = {}
        for question in QUESTIONS:
            shares = {table.name: mine for table in self.tables if (mine := table.shares(question))}
            if shares:
                found[question] = standings(shares)
        return found

    @property
    def methods(self) -> tuple[str, ...]:
        return self.standings["faithful"].methods

    @property
    def comparable(self) -> tuple[BoardTable, ...]:
        """The tables whose numbers of erasure are averaged: of classifiers of texts, where tokens are deleted."""
        alike = tuple(table for table in self.tables if table.task == "classification" and not table.pictures)
        return alike or self.tables

    def mean(self, method: str, metric: str) -> float | None:
        """The mean over the tables that have it; of erasure over those that are comparable."""
        tables = self.comparable if metric in FAITHFUL else self.tables
        found = [value for table in tables if (value := table.mean(method, metric)) is not None]
        return fmean(found) if found else None

    def passes(self, method: str) -> float | None:
        """The cost in forward passes, the median of the tables where it was measured."""
        found = [table.passes[method] for table in self.tables if method in table.passes]
        return median(found) if found else None

    @property
    def left_out(self) -> dict[str, str]:
        """The methods that were measured nowhere, and why."""
        every = {name: why for table in self.tables for name, why in table.left_out.items()}
        return {name: why for name, why in every.items() if name not in self.methods}

    def lacking(self, table: BoardTable) -> list[str]:
        """The methods that were measured elsewhere and not on this table."""
        at = self.standings["faithful"].tables[table.name]
        return [method for method, share in zip(self.methods, at, strict=True) if np.isnan(share)]

    @property
    def agreement(self) -> float | None:
        """How alike the tables order the methods: the mean rank correlation of every two of them."""
        every = [np.array(each) for each in self.standings["faithful"].tables.values()]
        found = []
        for at, a in enumerate(every):
            for b in every[at + 1 :]:
                both = ~(np.isnan(a) | np.isnan(b))
                if both.sum() > 2:
                    found.append(spearman(a[both], b[both]))
        return fmean(found) if found else None

    def record(self) -> dict[str, Any]:
        """What ships: for each method its ranks, means and cost."""
        return {
            "format": FORMAT,
            "version": 1,
            "tables": {table.name: _told(table) for table in self.tables},
            "examples": self.standings["faithful"].examples,
            "agreement": _rounded(self.agreement),
            "methods": {method: self._of(method) for method in self.methods},
            "left_out": self.left_out,
        }

    def _of(self, method: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for question, each in self.standings.items():
            if method in each.methods:
                at = each.methods.index(method)
                found[question] = {
                    "rank": _rounded(each.ranks[at], 2),
                    "of": len(each.methods),
                    "beaten": _rounded(each.beaten[at], 4),
                    "tables": {name: _rounded(mine[at], 4) for name, mine in each.tables.items()},
                    "alike": [
                        other for other in each.methods if other != method and not each.told_apart(method, other)
                    ],
                }
        metrics = {metric: self.mean(method, metric) for every in QUESTIONS.values() for metric in every}
        sane = {column: self.mean(method, metric) for column, metric in SANE_COLUMNS.items()}
        found |= {name: _rounded(value, 4) for name, value in {**metrics, **sane}.items() if value is not None}
        passes = self.passes(method)
        return found if passes is None else {**found, "passes": round(passes, 1)}


def _told(table: BoardTable) -> dict[str, Any]:
    model, data = table.about["model"], table.about["data"]
    rows = max((len(each) for found in table.values.values() for each in found.values()), default=0)
    sane = max((len(each) for found in table.sane.values() for each in found.values()), default=0)
    return {
        "task": table.task,
        "pictures": table.pictures,
        "split": data["split"],
        "rows": rows,
        "sane_rows": sane,
        "device": model["device"],
        "dtype": model["dtype"],
        "versions": {name: table.about["versions"].get(name) for name in ("wherefrom", "torch", "transformers")},
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


def read_board(folder: Path) -> Board:
    """The tables in a benchmark's folder; those that are not finished are named."""
    if not folder.is_dir():
        raise UnknownName(f"there is no folder '{folder}'; expected one that `wherefrom benchmark --out` wrote")
    tables, unfinished = [], []
    for path in sorted(folder.iterdir()):
        if not (path / TABLE).is_file():
            continue
        if Run(path / "faithful").finished is None:
            unfinished.append(path.name)
        else:
            tables.append(_table(path))
    if not tables:
        raise UnknownName(
            f"'{folder}' has no finished table of the part 'faithful', by which methods are ranked; expected what "
            f"`wherefrom benchmark --out {folder}` writes, without --parts or with that part among them"
        )
    return Board(tuple(tables), tuple(unfinished))


def _table(path: Path) -> BoardTable:
    try:
        known = json.loads((path / TABLE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFile(f"'{path / TABLE}' cannot be read: {error}; delete it and repeat the benchmark") from error
    run, sane = Run(path / "faithful"), Run(path / "sane")
    return BoardTable(
        name=path.name,
        about=run.manifest,
        values=dict(_values(run)),
        sane=dict(_values(sane)) if sane.finished is not None else {},
        left_out=known.get("left_out", {}),
        passes=known.get("passes", {}),
        retrained=sane.finished is not None and sane.manifest["model"]["hash"] != run.manifest["model"]["hash"],
    )


def _values(run: Run) -> Iterator[tuple[str, dict[str, Array]]]:
    """By metric and method a number for each example, in one order; NaN where it has none."""
    columns = ("example", "method", "metric", "layer", "value")
    records = run.table("records")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for example, method, metric, layer, value in zip(*(records[name].to_pylist() for name in columns), strict=True):
        if layer is None:
            found.setdefault(metric, {}).setdefault(method, {})[example] = np.nan if value is None else value
    examples = list(dict.fromkeys(records["example"].to_pylist()))
    for metric, by_method in found.items():
        yield (
            metric,
            {method: np.array([mine.get(each, np.nan) for each in examples]) for method, mine in by_method.items()},
        )
