"""Recipes: the papers' tables and figures by name. A recipe says what the paper reports and how we measure the same.

    @recipe("abnar2020/table1", "…", samples="2000 of the test set", model=…, data=…, spare=…, limit=…, reported=…)
    def table1(call: RecipeCall) -> Table: …

A table has the paper's rows and columns; each cell holds our summary, and the recipe the paper's number beside it. A
figure is a table too, of the numbers that it draws. Claims are sentences of the paper that the table can answer
(wherefrom/papers/claims.py).

    texts      a recipe about single texts shows these by default: a text, or a pair of texts
    options    choices of its own: {"norm": ("l2", "sum")} (the first is the default), {"n_steps": 100}, {"target": ""}
    joins      columns that earlier calls wrote into the same folder stay in the table: several models, one table
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherefrom.data import drawn
from wherefrom.data.example import titled
from wherefrom.errors import InvalidInput, InvalidOption, RowsLeftOut
from wherefrom.metric.correlation import Summary, summary
from wherefrom.metric.names import metric_of
from wherefrom.papers import samples
from wherefrom.registry import Registry

if TYPE_CHECKING:
    from wherefrom.data import Dataset, Example
    from wherefrom.evaluation import Run
    from wherefrom.evaluation.summary import Key
    from wherefrom.papers.claims import Claim
    from wherefrom.view.plot import Picture

Place = tuple[str, str]  # row, column
Text = str | tuple[str, str]  # a text, or a pair of texts


class Reported(NamedTuple):
    """A number of the paper, with its standard deviation where it gives one."""

    mean: float
    deviation: float | None = None


def reported(text: str) -> dict[Place, Reported]:
    """A table of the paper as it is printed: columns by bars, the heading first, `0.69 ± 0.27` or `0.331` in a cell.

    >>> reported("| L1 \\n Raw | 0.69 ± 0.27")
    {('Raw', 'L1'): Reported(mean=0.69, deviation=0.27)}
    """
    heading, *lines = (
        [cell.strip() for cell in line.split("|")] for line in text.strip("\n").splitlines() if line.strip()
    )
    found = {}
    for row, *cells in lines:
        for column, cell in zip(heading[1:], cells, strict=True):
            mean, _, deviation = cell.partition("±")
            if mean.strip():
                found[row, column] = Reported(float(mean), float(deviation) if deviation else None)
    return found


@dataclass(frozen=True)
class Measured(Summary):
    """A summary that can give the numbers it sums up, by example: what two rows are compared by."""

    values: Callable[[], Mapping[str, float]] = field(default=dict, repr=False, compare=False)

    @classmethod
    def of(cls, found: Summary, values: Callable[[], Mapping[str, float]]) -> Measured:
        return cls(found.mean, found.deviation, found.interval, found.count, found.undefined, values)


Draw = Callable[["Table"], "Picture"]


@dataclass(frozen=True, eq=False)
class Table:
    """Our numbers, and the pictures drawn from them."""

    rows: Sequence[str]
    columns: Sequence[str]
    ours: Mapping[Place, Summary]
    of: str  # what the numbers are
    used: Sequence[str] | Mapping[str, str]  # model, data and number of examples: of the table, or of each column
    notes: Sequence[str] = ()
    pictures: Mapping[str, Draw] = field(default_factory=dict)  # by the suffix of the file; without any, a grid
    comparable: bool = True  # the paper reports such a model; False for a family that it has no numbers of
    predictions: Mapping[Text, str | None] = field(default_factory=dict)  # by text, where single texts are shown

    @property
    def sources(self) -> list[str]:
        """Every model, dataset and sample size, in the order of the columns."""
        lines = self.used.values() if isinstance(self.used, Mapping) else self.used
        return list(dict.fromkeys(lines))

    def mean(self, row: str, column: str) -> float:
        """Our mean, NaN where there is none."""
        found = self.ours.get((row, column))
        return float("nan") if found is None else found.mean

    def matrix(self, rows: Iterable[str] | None = None, columns: Iterable[str] | None = None) -> Any:
        """Our means as an array."""
        chosen = list(self.columns if columns is None else columns)
        return np.array(
            [[self.mean(row, column) for column in chosen] for row in (self.rows if rows is None else rows)]
        )


@dataclass(frozen=True)
class Recipe:
    """One table or figure of a paper."""

    name: str  # "abnar2020/table1"
    about: str
    samples: str  # what the paper's numbers were measured on
    make: Callable[[RecipeCall], Table] = field(repr=False)
    model: str = "wherefrom/sentiment"
    data: tuple[str, ...] = ()  # names for `wherefrom.data.read`: those found on this machine are used,
    spare: str = (
        ""  # and where none is found, this (or these, by commas); without either, the recipe has sentences of its own
    )
    limit: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)  # the paper's column of each dataset, where it has several
    reported: Mapping[Place, Reported] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    at_hand: bool = True  # whether we have read the numbers that the paper prints, if it prints any
    texts: tuple[Text, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    joins: bool = False
    model_of: str = ""  # the dataset whose model a recipe about single texts takes, where each dataset has its own

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def short(self) -> str:
        """The name within the paper: "table1"."""
        return self.name.partition("/")[2]


_RECIPES: Registry[Recipe] = Registry("recipe", also="the name of a paper for all of its recipes")


def recipe(
    name: str, about: str, **known: Any
) -> Callable[[Callable[[RecipeCall], Table]], Callable[[RecipeCall], Table]]:
    """Register the decorated function under `name`."""

    def register(make: Callable[[RecipeCall], Table]) -> Callable[[RecipeCall], Table]:
        _RECIPES.add(name, Recipe(name, about, make=make, **known))
        return make

    return register


def all_recipes() -> list[Recipe]:
    """Every recipe, paper by paper."""
    return list(_RECIPES.values())


def lookup(name: str) -> list[Recipe]:
    """The recipe of a name, or all of a paper."""
    of_paper = [each for each in _RECIPES.values() if each.paper == name]
    return of_paper or [_RECIPES.find(name)]


# One call -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecipeCall:
    """One run of a recipe: its arguments, and the shared steps of measuring."""

    recipe: Recipe
    model: str
    data: tuple[str, ...]
    limit: int
    seed: int = 0
    device: str | None = None
    out: Path | None = None
    folder: Path | None = None  # of datasets
    names: Mapping[Any, str] | None = None  # the data's name of each class of the model
    models: Mapping[str, str] = field(default_factory=dict)  # the model of one dataset, where it has its own
    texts: tuple[Text, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    columns: Mapping[str, str] | None = None
    train_limit: int | None = None  # training examples
    _scratch: list[Any] = field(default_factory=list, repr=False)  # a temporary folder lives as long as this

    def model_for(self, name: str) -> str:
        """The model of a dataset: its own where one was named for it, else the model of the call."""
        return self.models.get(samples.dataset_of(name), self.model)

    @cached_property
    def work(self) -> Path:
        """Where runs and models are kept: in the folder asked for, so that other recipes find them, or for now."""
        if self.out is not None:
            return self.out
        self._scratch.append(tempfile.TemporaryDirectory(prefix="wherefrom-papers-"))
        return Path(self._scratch[0].name)

    @property
    def only(self) -> str:
        """The one dataset of a recipe that takes one."""
        if len(self.data) != 1:
            raise InvalidOption(f"{self.recipe.name} takes one dataset, not {len(self.data)}: {', '.join(self.data)}")
        return self.data[0]

    def column(self, name: str) -> str:
        """The paper's column for a dataset, by name or file, or its own name where the paper has none."""
        return self.recipe.columns.get(samples.dataset_of(name), name)

    def read(self, name: str | None = None) -> Dataset:
        """All examples of a dataset, in the split and columns of the call."""
        return samples.read(self.only if name is None else name, self.folder, self.columns, self.split)

    def examples(self, name: str | None = None, change: Callable[[Dataset], Dataset] | None = None) -> Dataset:
        """`limit` examples of a dataset, drawn by the seed."""
        data = self.read(name)
        return drawn(data if change is None else change(data), self.limit, self.seed)

    def prompts(
        self, chosen: Callable[[Example], bool], *, contrast: bool = True, name: str | None = None
    ) -> Dataset | None:
        """`limit` examples as a language model reads them (`samples.prompts`); None where the data has none such."""
        from wherefrom.model import open_model

        tokenizer = open_model(self.model).tokenizer

        def change(data: Dataset) -> Dataset:
            mine = samples.changed(data, lambda example: example if chosen(example) else None)
            return samples.prompts(mine, tokenizer, contrast=contrast)

        try:
            return self.examples(name, change)
        except InvalidInput:
            return None

    def evaluate(
        self, data: Dataset, methods: Iterable[str], metrics: Iterable[str], *, model: str | None = None, **more: Any
    ) -> Run:
        """`wherefrom.evaluate`, in a folder of its own; recipes that ask the same share it: nothing is run twice."""
        from wherefrom.evaluation import evaluate

        name = self.model if model is None else model
        samples.refuse_foreign_labels(name, data, self.names)
        asked = {
            "model": name,
            "methods": list(dict.fromkeys(methods)),
            "metrics": list(dict.fromkeys(metrics)),
            "seed": self.seed,
            "device": self.device,
            "truncate": True,
            **more,
        }
        gold = asked.get("target") == "label" or any(metric_of(each).gold for each in asked["metrics"])
        if self.names is not None and gold:
            asked["names"] = dict(self.names)
        key = hashlib.sha256(json.dumps([data.name, data.fingerprint, asked], sort_keys=True).encode()).hexdigest()[:12]
        path = self.work / "runs" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsLeftOut)  # which `used` says under the table
            return evaluate(data, **asked, out=path)


# What recipes have in common ------------------------------------------------------------------------------


def called(model: str) -> str:
    """A model's name; that of its folder, where it has only a folder."""
    return Path(model).name if Path(model).is_dir() else model


def used(run: Run, model: str = "") -> str:
    """Which model was measured on which data, and how many examples; a model in a folder is named by that."""
    known = run.manifest
    failed = sum((run.finished or {}).get("failures", {}).values())
    data = titled(known["data"]["name"], known["data"]["split"])
    missing = f", {failed} more could not be explained" if failed else ""
    return f"{model or called(known['model']['name'])} on {data}: n = {known['data']['rows'] - failed}{missing}"


def used_each(runs: Mapping[str, Run], model: str) -> str:
    """The same of runs on parts of one dataset, by what each part is."""
    counts = {name: used(run, model).rpartition("n = ") for name, run in runs.items()}
    first = next(iter(counts.values()), ("", "", ""))[0]
    return f"{first}n = {', '.join(f'{count} ({name})' for name, (_, _, count) in counts.items())}"


def by_layer(run: Run, rows: Mapping[str, str], metric: str) -> dict[Place, Summary]:
    """A metric layer by layer: a row for each method, columns L1, L2, …"""
    return {(row, f"L{key.layer + 1}"): each for row, key, each in _found(run, rows, metric) if key.layer is not None}


def overall(run: Run, rows: Mapping[str, str], metric: str, column: str) -> dict[Place, Summary]:
    """A metric of the whole answer, as one column."""
    return {(row, column): each for row, key, each in _found(run, rows, metric) if key.layer is None}


def _found(run: Run, rows: Mapping[str, str], metric: str) -> Iterator[tuple[str, Key, Measured]]:
    methods = {method: row for row, method in rows.items()}
    records = _Records(run)
    for key, found in run.summary.items():
        if key.metric == metric and key.method in methods:
            yield methods[key.method], key, Measured.of(found, partial(records.of, key))


@dataclass(frozen=True)
class _Records:
    """The numbers of a run by example, read once when the first of them is wanted."""

    run: Run

    def of(self, key: Key) -> dict[str, float]:
        return self._every.get(key, {})

    @cached_property
    def _every(self) -> dict[Key, dict[str, float]]:
        from wherefrom.evaluation.summary import Key

        columns = ("method", "metric", "layer", "example", "value")
        table = self.run.table("records")
        found: dict[Key, dict[str, float]] = {}
        for method, metric, layer, example, value in zip(*(table[name].to_pylist() for name in columns), strict=True):
            found.setdefault(Key(method, metric, layer), {})[example] = float("nan") if value is None else value
        return found


def over_layers(every: Sequence[Summary]) -> Summary:
    """The mean over layers, example by example."""

    def values() -> dict[str, float]:
        known = [each.values() for each in every if isinstance(each, Measured)]
        return {example: float(np.mean([layer[example] for layer in known])) for example in known[0]}

    return Measured.of(summary(values().values()), values)


def together(every: Sequence[Summary]) -> Summary:
    """Several columns as one, over all their examples."""

    def values() -> dict[str, float]:
        known = [each.values() for each in every if isinstance(each, Measured)]
        return {example: value for each in known for example, value in each.items()}

    return Measured.of(summary(values().values()), values)


def layers(ours: Mapping[Place, Summary]) -> list[str]:
    """The columns L1, L2, … that there are."""
    found = {int(column[1:]) for _, column in ours if column[0] == "L" and column[1:].isdigit()}
    return [f"L{number}" for number in sorted(found)]


def with_last(ours: dict[Place, Summary], told: Mapping[Place, Reported]) -> list[str]:
    """The layers; and, where the paper's model is not as deep as ours, a column for the last of either."""
    here, there = layers(ours), sorted({column for _, column in told if column != "last"}, key=lambda c: int(c[1:]))
    if not there or here[-1] == there[-1]:
        return here
    ours.update({(row, "last"): found for (row, column), found in list(ours.items()) if column == here[-1]})
    return [*here, "last"]


def number(value: float, count: int) -> Summary:
    """A number that is no mean of numbers, measured on `count` examples."""
    return Summary(float(value), float("nan"), float("nan"), count, 0)
