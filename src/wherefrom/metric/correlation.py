r"""Agreement of two methods' scores on one input: rank and linear correlation.

    spearman   correlation of ranks, ties at their mean rank             (scipy; GlobEnc, Value Zeroing)
               dense: 1 − 6 Σ d² / (n (n² − 1)) of dense ranks, ties uncorrected (Abnar & Zuidema's and ALTI's code)
    pearson    linear correlation                                        (GlobEnc, figure 4)
    kendall    τ-b                                                       (AttCAT, for confidence)

A constant vector has no correlation with anything: NaN, which `summary` counts apart instead of hiding it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.typecheck import checked

Vector = NDArray[np.float64]
Protocol = Literal["scipy", "dense"]  # ties at their mean rank, or without gaps after them


def spearman(a: ArrayLike, b: ArrayLike, protocol: str = "scipy") -> float:
    """Spearman's rank correlation of two score vectors."""
    x, y = _pair(a, b)
    checked("protocol", protocol, Protocol)
    if _constant(x, y):
        return np.nan
    if protocol == "dense":
        gap = stats.rankdata(x, "dense") - stats.rankdata(y, "dense")
        return float(1 - 6 * (gap**2).sum() / (len(x) * (len(x) ** 2 - 1)))
    return _linear(stats.rankdata(x), stats.rankdata(y))


def pearson(a: ArrayLike, b: ArrayLike) -> float:
    """Linear correlation of two arrays of one shape (vectors, or whole maps)."""
    x, y = _pair(a, b)
    return np.nan if _constant(x, y) else _linear(x, y)


def kendall(a: ArrayLike, b: ArrayLike) -> float:
    """Kendall's τ-b of two score vectors."""
    x, y = _pair(a, b)
    return np.nan if _constant(x, y) else float(stats.kendalltau(x, y).statistic)


@dataclass(frozen=True)
class Summary:
    """A metric over a dataset. `interval` is half the width of the 99 % confidence interval of the mean.

    One value alone has neither deviation nor interval: NaN.
    """

    mean: float
    deviation: float
    interval: float
    count: int
    undefined: int  # inputs on which the metric has no value

    def __str__(self) -> str:
        """The mean ± `interval`, as the tables of a run have it."""
        missing = f", {self.undefined} undefined" if self.undefined else ""
        spread = "" if np.isnan(self.interval) else f" ± {self.interval:.3f}"
        return f"{self.mean:.3f}{spread} (n = {self.count}{missing})"


def summary(values: Iterable[float]) -> Summary:
    """Mean, standard deviation and 99 % confidence interval (Student's t) of a metric over a dataset."""
    every = np.array(list(values), dtype=np.float64)
    known = every[~np.isnan(every)]
    if not len(known):
        raise NotDefined("there is nothing to summarise: the metric has no value on any input")
    deviation = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    width = half_width(deviation, len(known))
    return Summary(float(known.mean()), deviation, width, len(known), len(every) - len(known))


def half_width(deviation: float, count: int) -> float:
    """Half the 99 % confidence interval of a mean of `count` values; NaN where there are not two."""
    return float(stats.t.ppf(0.995, count - 1) * deviation / np.sqrt(count)) if count > 1 else np.nan


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Vector, Vector]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.size < 2:
        raise InvalidInput(
            f"cannot correlate shapes {x.shape} and {y.shape}; expected two of one shape, two entries or more"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidInput("cannot correlate NaN or infinite scores")
    return x.ravel(), y.ravel()


def _linear(x: Vector, y: Vector) -> float:
    """Pearson's r. scipy's own also tests it, which takes ten times as long."""
    a, b = (v / np.abs(v).max() for v in (x - x.mean(), y - y.mean()))  # squares of tiny scores would vanish
    # One root of the product: a vector with itself then gives 1 and not 1 − 2⁻⁵³, whatever the CPU rounds.
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _constant(*vectors: Vector) -> bool:
    return any((vector == vector[0]).all() for vector in vectors)
