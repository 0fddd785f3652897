r"""Which of several methods does better on the whole: ranked on every example, averaged, and told apart or not.

    b_e(a)     the share of the other methods that a beats on example e, ties counting half; mean over the metrics
    B(a)       mean of b_e(a) over the examples of a table (one model on one dataset), then over the tables
    rank(a)    1 + (k − 1)(1 − B(a)),  k methods: the usual mean rank, also where a table lacks some of them
    p(a, b)    of Wilcoxon's signed ranks of b_e(a) − b_e(b) over all examples, corrected by Holm for all pairs
    alike      runs of neighbours in rank, as long as they can be, in which no pair has p < level

Pairs are tested by themselves: where a test looks at mean ranks (Nemenyi's), whether two methods differ depends on the
others that stand beside them.

Demšar (2006), Statistical Comparisons of Classifiers over Multiple Data Sets. JMLR. Benavoli, Corani & Mangili (2016),
Should We Really Use Post-Hoc Tests Based on Mean-Ranks? JMLR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from wherefrom.errors import InvalidInput
from wherefrom.metric.significance import chained_levels, holm, signed_ranks

Array = NDArray[np.float64]
LEVEL = 0.01
ROUNDING = 1e-6  # what other batches change in float32, relative to the largest number: no difference to count


@dataclass(frozen=True, eq=False)
class Standings:
    """Methods from the best to the worst by mean rank."""

    methods: tuple[str, ...]
    beaten: tuple[float, ...]  # B: the share of the other methods that each beats on average
    tables: Mapping[str, tuple[float, ...]]  # the same within each table; NaN where it lacks the method
    p: Array  # [k, k], corrected
    alike: tuple[tuple[int, int], ...]  # places, the first and the last of each run
    examples: int

    @property
    def ranks(self) -> tuple[float, ...]:
        return tuple(1 + (len(self.methods) - 1) * (1 - each) for each in self.beaten)

    def told_apart(self, one: str, other: str, level: float = LEVEL) -> bool:
        a, b = self.methods.index(one), self.methods.index(other)
        return bool(self.p[a, b] < level)


def beaten(values: ArrayLike, higher: bool = True) -> Array:
    """For every example the share of the other methods that each method beats: [k, N], NaN where it has no value."""
    given = np.asarray(values, dtype=np.float64)
    finest = ROUNDING * np.nanmax(np.abs(given), initial=0.0)
    levels = chained_levels(given if higher else -given, finest)
    ranks = np.asarray(stats.rankdata(levels, axis=0, nan_policy="omit"))
    others = (~np.isnan(given)).sum(0) - 1
    return np.where(np.isnan(given) | (others < 1), np.nan, (ranks - 1) / np.maximum(others, 1))


def standings(tables: Mapping[str, Mapping[str, Array]], level: float = LEVEL) -> Standings:
    """Who stands where: of each table and method the shares beaten, one number for each example of the table."""
    methods = list(dict.fromkeys(method for table in tables.values() for method in table))
    if len(methods) < 2:
        raise InvalidInput("there is nothing to rank; expected measurements of two methods or more")
    within = {name: {each: _mean(table[each]) for each in table} for name, table in tables.items()}
    whole = {each: _mean([table[each] for table in within.values() if each in table]) for each in methods}
    order = sorted(methods, key=lambda each: (-round(float(np.nan_to_num(whole[each], nan=-1.0)), 9), each))
    p = _every_pair(order, tables)
    return Standings(
        methods=tuple(order),
        beaten=tuple(whole[each] for each in order),
        tables={name: tuple(table.get(each, np.nan) for each in order) for name, table in within.items()},
        p=p,
        alike=tuple(_runs(p >= level)),
        examples=sum(max(map(len, table.values()), default=0) for table in tables.values()),
    )


def _mean(values: ArrayLike) -> float:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else float("nan")


def _every_pair(methods: Sequence[str], tables: Mapping[str, Mapping[str, Array]]) -> Array:
    """The corrected p of every two methods; 1 where nothing can be said, and on the diagonal."""
    pairs = list(combinations(range(len(methods)), 2))
    chances = []
    for a, b in pairs:
        both = [table for table in tables.values() if methods[a] in table and methods[b] in table]
        d = np.concatenate([table[methods[a]] - table[methods[b]] for table in both] or [np.zeros(0)])
        chances.append(signed_ranks(d[~np.isnan(d)], ROUNDING)[1])  # shares, of 1
    p = np.ones((len(methods), len(methods)))
    for (a, b), chance in zip(pairs, holm(chances), strict=True):
        p[a, b] = p[b, a] = chance
    return p


def _runs(alike: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The longest runs of places among which all are alike, none inside another."""
    found: list[tuple[int, int]] = []
    for start in range(len(alike)):
        end = start
        while end + 1 < len(alike) and alike[start : end + 2, start : end + 2].all():
            end += 1
        if end > start and (not found or end > found[-1][1]):
            found.append((start, end))
    return found
