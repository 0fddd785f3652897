"""What the pipeline gives: a record for each input and method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wherefrom.errors import WherefromError
from wherefrom.pipeline.resolution import Job
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one method has to say of one input: an explanation for each target, or the error why there is none."""

    input: int  # its place among the inputs
    name: str  # the method as it was asked for
    job: Job
    explanations: tuple[Explanation, ...] = ()
    error: WherefromError | None = None

    def at(self, place: int) -> Outcome:
        """The same of the input at another place."""
        return self if place == self.input else replace(self, input=place)


Outcomes = dict[str, Outcome]  # of one input, by the method as it was asked for


def by_target(found: Sequence[Explanation]) -> Comparison:
    return Comparison({_target_name(each): each for each in found})


def _target_name(found: Explanation) -> str:
    """A class by its label, the parts of an answer by what they are."""
    measured = found.measured
    return str(measured.label) if measured.kind in ("class", "token") else measured.kind


def by_name(names: Sequence[str], found: Mapping[str, Outcome], failed: Mapping[str, WherefromError]) -> Comparison:
    """By the names asked for, in their order; where every target was asked for, by name and label."""
    named: dict[str, Explanation] = {}
    missing: dict[str, str] = {}
    for name in names:
        error = failed.get(name) or found[name].error
        if error is not None:
            missing[name] = str(error)
            continue
        every = found[name].explanations
        every = every[:1] if _alike(every) else every
        for each in every:
            named[name if len(every) == 1 else f"{name}: {_target_name(each)}"] = each
    return Comparison(named, missing)


def _alike(found: Sequence[Explanation]) -> bool:
    """Whether a method that looks at no target gave the same for each of them: the same row."""
    return all(each.target == found[0].target and not each.target.towards for each in found)
