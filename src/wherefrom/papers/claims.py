"""Claims: sentences of a paper, each with the place where it stands, and whether a table bears them out.

    Claim("ALTI is the best.", "section 5", best("ALTI"), each=True)

That one row is above another is told by a paired t test over the examples. A claim that takes several comparisons (the
best of eight rows, above in every layer) is one question asked several times, so their p-values are corrected by Holm:
it holds where all of them are below 0.01, it does not where one is and points the other way, else it cannot be told.
Where a claim is about single numbers (the scores of one sentence, a correlation over layers) there are no examples to
test it on: the numbers are compared as they are, and the verdict says that it is untested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wherefrom.errors import EXAMPLE_ERRORS
from wherefrom.metric.correlation import Summary
from wherefrom.metric.significance import holm, paired
from wherefrom.papers.recipe import Measured, Table, layers, number, over_layers

CHANCE = 0.01  # a difference with a larger p-value is not told from chance
Pair = tuple[Summary | None, Summary | None]  # what should be above, what below


class Verdict(NamedTuple):
    """A claim, and whether it holds: None where it cannot be told."""

    says: str
    holds: bool | None
    tested: bool = True

    def __str__(self) -> str:
        found = {True: "holds here", False: "does not hold here", None: "cannot be told here"}[self.holds]
        return found if self.tested or self.holds is None else f"{found}, untested"


class Claim(NamedTuple):
    """What the paper says, where it says so, and how a table answers.

    each: it is asked of every column in which we have numbers, but for those of which the paper does not say it
    (`but`); else once, of the table.
    tested: whether the answer comes from tests over examples.
    """

    says: str
    where: str
    holds: Callable[[Table, str], bool | None]
    each: bool = False
    but: tuple[str, ...] = ()
    tested: bool = True

    def verdicts(self, table: Table) -> list[Verdict]:
        """The claim in words, with the answer."""
        says = f"{self.says.removesuffix('.')} ({self.where})."
        if not self.each:
            return [Verdict(says, self.holds(table, ""), self.tested)]
        measured = {column for _, column in table.ours}
        return [
            Verdict(f"{column}: {says}", self.holds(table, column), self.tested)
            for column in table.columns
            if column in measured and column not in self.but
        ]


def all_above(pairs: Iterable[Pair]) -> bool | None:
    """Whether in all pairs the first is above the second, the tests corrected for how many they are."""
    found = [_compared(*pair) for pair in pairs]
    chances = holm([p for _, p in found])
    told = [difference for (difference, _), p in zip(found, chances, strict=True) if p < CHANCE]
    if any(difference < 0 for difference in told):
        return False
    return True if found and len(told) == len(found) and all(difference > 0 for difference in told) else None


def _compared(upper: Summary | None, lower: Summary | None) -> tuple[float, float]:
    """The difference, and how likely chance makes one as large: NaN where that is not known, 0 for single numbers."""
    if upper is None or lower is None or np.isnan([upper.mean, lower.mean]).any():
        return np.nan, np.nan
    if not isinstance(upper, Measured) or not isinstance(lower, Measured):
        return upper.mean - lower.mean, 0.0
    mine, others = upper.values(), lower.values()
    shared = [example for example in mine if example in others]
    try:
        found = paired([mine[each] for each in shared], [others[each] for each in shared], resamples=99)
    except EXAMPLE_ERRORS:  # too few examples
        return np.nan, np.nan
    return found.difference, found.t_p


def above(table: Table, row: str, other: str, columns: Sequence[str]) -> bool | None:
    """Whether a row is above another in all of these columns."""
    return all_above((table.ours.get((row, column)), table.ours.get((other, column))) for column in columns)


def best(row: str, *others: str, lowest: bool = False) -> Callable[[Table, str], bool | None]:
    """Whether a row is the best of a column, among these others or all that have a number."""

    def holds(table: Table, column: str) -> bool | None:
        measured = [each for each in table.rows if each != row and not np.isnan(table.mean(each, column))]
        pairs = ((each, row) if lowest else (row, each) for each in others or measured)
        return all_above((table.ours.get((a, column)), table.ours.get((b, column))) for a, b in pairs)

    return holds


def rising(*rows: str) -> Callable[[Table, str], bool | None]:
    """Whether each of these rows is above the one before it."""

    def holds(table: Table, column: str) -> bool | None:
        every = [table.ours.get((row, column)) for row in rows]
        return all_above((after, before) for before, after in pairwise(every))

    return holds


def averaged(table: Table, row: str) -> Summary | None:
    """A row's mean over the layers, by example where it was measured so."""
    every = [table.ours[row, column] for column in layers(table.ours) if (row, column) in table.ours]
    if not every:
        return None
    if all(isinstance(each, Measured) for each in every):
        return over_layers(every)
    return number(float(np.mean([each.mean for each in every])), every[0].count)


def nearly_all(answers: Iterable[bool | None], share: float = 0.9) -> bool | None:
    """Whether at least this share is true: None where that depends on those that cannot be told."""
    every = list(answers)
    yes, no = (sum(each is wanted for each in every) for wanted in (True, False))
    return True if yes >= share * len(every) else False if len(every) - no < share * len(every) else None
