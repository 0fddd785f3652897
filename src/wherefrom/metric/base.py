"""What a named metric is: its numbers, what it needs, and the case that it is taken of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import EXAMPLE_ERRORS, InvalidOption, NotDefined
from wherefrom.metric import consistency, erasure, sanity
from wherefrom.metric.probing import Code, Probe
from wherefrom.registry import Registry
from wherefrom.result.explanation import Explanation
from wherefrom.spec import options_of, refuse_uncallable, summary_of
from wherefrom.typecheck import kinds_of, shown

if TYPE_CHECKING:
    from wherefrom.data import Example
    from wherefrom.model import Model, Sentence

NEEDS = {
    "cues": "cue words",
    "rationale": "a human rationale",
    "answer": "a gold answer",
    "label": "a gold label",
    "group": "a group",
    "target": "a target word",
    "region": "a mask of where its object is (region)",
}


class Rerun(Protocol):
    """What the model is run again for, beside erasure: a frozen dataclass whose fields are options of its metrics."""

    def measured(self, opened: Model, cases: Sequence[tuple[Sentence, Explanation]]) -> Sequence[Any]:
        """What came of each case, for the metric's own function."""


Again = consistency.Second | sanity.Randomised | sanity.Disturbed | sanity.Alone


@dataclass(frozen=True)
class Case:
    """One example as one method explains it, and what is measured beside it."""

    example: Example
    explanation: Explanation
    references: Mapping[str, Explanation] = field(default_factory=dict)
    classes: Mapping[str, Explanation] = field(default_factory=dict)  # by class label, or by edge of an answer
    curves: Mapping[erasure.Way, erasure.Curve] = field(default_factory=dict)
    again: Mapping[Again, Mapping[str, Explanation]] = field(default_factory=dict)  # once more, by what was changed
    reruns: Mapping[Rerun, Any] = field(default_factory=dict)
    gold: int | None = None  # the model's class that the gold label is, where a metric asks for it
    inside: NDArray[np.bool_] | None = None  # the pixels of the picture's object, as the model reads it


class Number(NamedTuple):
    """What a metric says of one case: NaN where it has no value, and why."""

    metric: str
    layer: int | None
    value: float
    why: str | None = None


class Part(NamedTuple):
    """One number of a metric; `name` where it has several."""

    layer: int | None
    value: float
    name: str = ""


Run = Callable[..., Iterator[Part]]
OfCurves = Callable[[Sequence[erasure.Curve]], NDArray[np.float64]]  # NaN where each must be asked by itself


@dataclass(frozen=True)
class Metric:
    """What is known of a metric beside its definition."""

    name: str
    better: str  # "higher", "lower", or "" where neither is
    run: Run = field(repr=False)
    needs: tuple[str, ...] = ()  # parts of the example
    reference: bool = False  # compares with another method
    where: tuple[str, ...] = ()  # the levels it can be taken at, its own first
    every_class: bool = False  # explains every class, not only the predicted one
    edges: bool = False  # explains the start and the end of an answer
    way: erasure.Way | None = None  # takes tokens away like this
    again: Again | None = None  # explains once more like this
    rerun: Rerun | None = None  # runs the model again like this
    probe: Probe | None = None  # reads the vectors of the whole dataset like this
    requires: tuple[str, ...] = ()  # options that must be given
    at: str = "in layer"  # how a number of one layer is spoken of
    narrowed: Mapping[str, Any] = field(default_factory=dict)  # options of which its way or change allows more
    gold: bool = False  # compares with the gold class
    map_protocols: tuple[str, ...] = ()  # values of `protocol` that are of whole maps alone
    of_curves: OfCurves | None = field(default=None, repr=False)  # of many curves at once, where it needs no more

    @property
    def summary(self) -> str:
        return summary_of(self.run)

    @property
    def every_target(self) -> bool:
        """True where the explanations of all targets of a model are measured (`explain(…, target="all")`)."""
        return self.every_class or self.edges

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        more = (chosen_by(each) for each in (self.way, self.again, self.rerun, self.probe))
        return {name: value for each in (options_of(self.run), *more) for name, value in each.items()}

    @property
    def kinds(self) -> dict[str, Any]:
        """What each option may be, as annotations (`wherefrom.typecheck`)."""
        more = (type(each).__init__ for each in (self.way, self.again, self.rerun, self.probe) if each is not None)
        known = {name: kind for each in (self.run, *more) for name, kind in kinds_of(each).items()}
        return {name: {**known, **self.narrowed}[name] for name in self.options}


def chosen_by(more: Any) -> dict[str, Any]:
    """Those by which a metric's way, change, rerun or probe is chosen; keeping tokens is a metric of its own."""
    return {} if more is None else {each.name: getattr(more, each.name) for each in fields(more) if each.name != "keep"}


@dataclass(frozen=True)
class MetricSpec:
    """A metric as a name asks for it, what the name leaves open filled in."""

    name: str
    metric: Metric
    options: dict[str, Any]
    reference: str | None = None
    where: str = ""
    way: erasure.Way | None = None
    again: Again | None = None
    rerun: Rerun | None = None
    probe: Probe | None = None

    @property
    def at_once(self) -> bool:
        """Whether it is measured from the explanation alone."""
        return all(each is None for each in (self.way, self.again, self.rerun, self.probe))

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts that an example must have."""
        return self.metric.needs if self.probe is None else (*self.metric.needs, self.probe.of)

    def measure(self, case: Case | Sequence[Code]) -> list[Number]:
        """All numbers of one case; or of a model, from the codes of its layers."""
        try:
            if isinstance(case, Case):
                self._refuse_missing(case)
            found = self._parts(self.metric.run(case, self, **self.options))
        except EXAMPLE_ERRORS as error:
            return [Number(self.name, None, np.nan, str(error))]
        except Exception as error:
            error.add_note(f"raised by the metric '{self.name}'")
            raise
        none = "the metric has no value here (all scores are equal, or zero)"
        return [
            Number(f"{self.name} {part.name}".rstrip(), part.layer, part.value, none if np.isnan(part.value) else None)
            for part in found
        ]

    def _parts(self, found: Any) -> list[Part]:
        """What the metric's function gave, which may be somebody's own."""
        parts = list(found) if isinstance(found, Iterable) else [found]
        for part in parts:
            numbers = (
                isinstance(part, Part) and isinstance(part.layer, Integral | None) and isinstance(part.value, Real)
            )
            if not numbers:
                raise InvalidOption(
                    f"the metric '{self.metric.name}' gives {shown(part)}; expected parts, as in "
                    f"`yield Part(layer, value)`, layer a number or None and value a number"
                )
        return parts

    def _refuse_missing(self, case: Case) -> None:
        for need in self.metric.needs:
            value = getattr(case.example, need)
            if value is None or value == ():
                raise NotDefined(f"the example lacks {NEEDS[need]}")


METRICS: Registry[Metric] = Registry("metric", group="wherefrom.metrics", between=":@")
BETTER = ("higher", "lower", "")


def metric(name: str, *, better: str = "higher", **known: Any) -> Callable[[Run], Run]:
    """Register the decorated function under `name`."""
    if better not in BETTER:
        raise InvalidOption(f"'{name}' is better {shown(better)}; expected {', '.join(map(repr, BETTER))}")
    if unknown := sorted(set(known.get("needs", ())) - NEEDS.keys()):
        raise InvalidOption(f"'{name}' needs {shown(unknown[0])}; expected words of {', '.join(NEEDS)}")

    def register(run: Run) -> Run:
        refuse_uncallable(name, run, ["case", "asked"])
        METRICS.add(name, Metric(name, better, run, **known))
        return run

    return register
