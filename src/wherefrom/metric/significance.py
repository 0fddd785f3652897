r"""Is the difference between two methods, or two runs, more than chance? Both measured on the same examples.

    d_i = a_i − b_i    the difference on example i; examples on which either has no value are left out
    paired t           t = mean d / (sd d / √n)                         is the mean 0? (d about normal, or n large)
    Wilcoxon           ranks of the |d_i| ≠ 0, added up by sign         are the d_i symmetric about 0?
                       (p from all 2^n sign flips, ties included, up to n = 50; beyond, from the normal distribution)
    bootstrap          resampled means, bias-corrected and accelerated  an interval for the mean difference
    effect size        d_z = mean d / sd d;  r = (W₊ − W₋) / (W₊ + W₋)  how large, whatever n is
    Holm               p_(k) (m + 1 − k), made increasing               m comparisons: the chance of any false alarm

Wilcoxon (1945), Individual Comparisons by Ranking Methods. Efron (1987), Better Bootstrap Confidence Intervals.
Holm (1979), A Simple Sequentially Rejective Multiple Test Procedure. Kerby (2014) for r, the rank-biserial correlation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from wherefrom.errors import InvalidInput, InvalidOption, NotDefined

BATCH = 2**22  # entries of one batch of resamples
EXACT_PAIRS = 50  # differences up to which Wilcoxon's test counts all sign flips; beyond, the normal approximation
ROUNDING = 1e-9  # what a sum in another order may change, relative to the largest number


@dataclass(frozen=True)
class Paired:
    """Two sets of measurements on the same examples, a − b. `interval` is the bootstrap's, of the mean difference."""

    count: int
    undefined: int  # examples on which either has no value
    difference: float  # the mean
    interval: tuple[float, float]
    effect: float  # Cohen's d_z; infinite where all differences are equal and not 0
    rank_effect: float  # the rank-biserial correlation, from −1 to 1
    t: float  # NaN, and its p, where all differences are equal and not 0: no spread to measure them against
    t_p: float
    wilcoxon: float  # the smaller of the two sums of ranks
    wilcoxon_p: float
    confidence: float

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.difference:+.4f} [{low:+.4f}, {high:+.4f}] ({self.confidence:.0%}), "
            f"t p = {self.t_p:.2g}, Wilcoxon p = {self.wilcoxon_p:.2g}, d = {self.effect:.2f}, n = {self.count}"
        )


def paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    confidence: float = 0.99,
    resamples: int = 9999,
    seed: int = 0,
    rounding: float = ROUNDING,
) -> Paired:
    """Compare two measurements of the same examples, in the same order; NaN where one has no value.

    A difference of less than `rounding` times the largest of the measurements counts as none: it has no sign to count
    and no spread to measure others against.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise InvalidInput(
            f"measurements have shapes {first.shape} and {second.shape}; expected one number per example, of the same "
            f"examples"
        )
    if np.isinf(first).any() or np.isinf(second).any():
        raise InvalidInput("the measurements contain infinite values; expected numbers, or NaN for 'no value'")
    if not 0 < confidence < 1:
        raise InvalidOption(f"confidence is {confidence}; expected a number between 0 and 1, such as 0.99")
    d = (first - second)[~(np.isnan(first) | np.isnan(second))]
    if len(d) < 2:
        raise NotDefined(f"only {len(d)} examples have both values; a paired test needs two or more")
    least = rounding * max(np.nanmax(np.abs(first)), np.nanmax(np.abs(second)))
    d[np.abs(d) <= least] = 0.0
    mean, same = float(d.mean()), bool(np.ptp(d) <= least)
    t, t_p = _student(d, same)
    sums, wilcoxon_p = signed_ranks(d, least)
    return Paired(
        count=len(d),
        undefined=len(first) - len(d),
        difference=mean,
        interval=(mean, mean) if same else _bootstrap(d, confidence, resamples, seed),
        effect=float(np.copysign(np.inf, mean) if same and mean else 0.0 if same else mean / d.std(ddof=1)),
        rank_effect=(sums[0] - sums[1]) / sum(sums) if sum(sums) else 0.0,
        t=t,
        t_p=t_p,
        wilcoxon=min(sums),
        wilcoxon_p=wilcoxon_p,
        confidence=confidence,
    )


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values corrected for having looked m times, in their order; at most 1. NaN (no test) stays, and counts."""
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not (np.isnan(p) | ((p >= 0) & (p <= 1))).all():
        raise InvalidInput("p-values must be a list of numbers between 0 and 1")
    order = np.argsort(p, kind="stable")  # NaN last
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.where(np.isnan(steps), np.nan, np.fmax.accumulate(steps))
    return np.minimum(corrected, 1.0)


def every_pair(
    measured: Mapping[str, Sequence[float] | NDArray[np.float64]], *, confidence: float = 0.99, seed: int = 0
) -> dict[tuple[str, str], Paired]:
    """All pairs of methods measured on the same examples, both p-values corrected by Holm for the number of pairs."""
    if len(measured) < 2:
        raise InvalidInput("there is nothing to compare; expected measurements of two methods or more")
    found = {
        (a, b): paired(measured[a], measured[b], confidence=confidence, seed=seed) for a, b in combinations(measured, 2)
    }
    by_t = holm([each.t_p for each in found.values()])
    by_ranks = holm([each.wilcoxon_p for each in found.values()])
    return {
        pair: replace(each, t_p=float(t), wilcoxon_p=float(ranks))
        for (pair, each), t, ranks in zip(found.items(), by_t, by_ranks, strict=True)
    }


def _student(d: NDArray[np.float64], same: bool) -> tuple[float, float]:
    if same:
        return (np.nan, np.nan) if d[0] else (0.0, 1.0)
    found = stats.ttest_1samp(d, 0.0)
    return float(found.statistic), float(found.pvalue)


def signed_ranks(d: NDArray[np.float64], least: float) -> tuple[tuple[float, float], float]:
    """The sums of the ranks of positive and negative differences, and the two-sided p.

    What differs by `least` or less is the same: no difference at all, or two of one size.
    """
    d = d[np.abs(d) > least]
    if not len(d):
        return (0.0, 0.0), 1.0
    sizes = chained_levels(np.abs(d), least)
    ranks = stats.rankdata(sizes)
    sums = float(ranks[d > 0].sum()), float(ranks[d < 0].sum())
    if len(d) > EXACT_PAIRS:
        return sums, float(stats.wilcoxon(np.sign(d) * (1 + sizes)).pvalue)
    return sums, _sign_flip_p(ranks, min(sums))


def chained_levels(values: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """The level of each value along the first axis, 0 for the lowest; NaN stays.

    Two neighbours in size share a level where they differ by `tolerance` or less, and so does a chain of them, wherever
    on a grid they fall.
    """
    order = np.argsort(values, axis=0)  # NaN last
    steps = np.diff(np.take_along_axis(values, order, 0), axis=0) > tolerance
    levels = np.zeros(values.shape)
    np.put_along_axis(levels, order[1:], np.cumsum(steps, 0, dtype=np.float64), 0)
    return np.where(np.isnan(values), np.nan, levels)


def _sign_flip_p(ranks: NDArray[np.float64], smaller: float) -> float:
    """The two-sided p of the smaller sum of ranks: the share of all 2^n sign flips with one as small.

    Counted by sums instead of one flip at a time: mean ranks are halves, so twice their sum is a whole number.
    """
    doubled = np.rint(2 * ranks).astype(int)
    chances = np.ones(1)  # of each doubled sum of the ranks so far
    for rank in doubled:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return min(1.0, 2 * float(chances[: round(2 * smaller) + 1].sum()))


def _bootstrap(d: NDArray[np.float64], confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    found = stats.bootstrap(
        (d,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, BATCH // len(d)),
        confidence_level=confidence,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)
