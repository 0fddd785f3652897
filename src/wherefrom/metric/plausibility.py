r"""Plausibility: do the scores fall where a person marked the reason? (Says nothing of what the model used.)

    AUPRC       area under precision over recall, as the threshold on the scores falls            (ERASER, section 4)
    IOU F1      of runs of tokens: a run of the chosen tokens counts as found where it shares with some run of the
                rationale at least half of their union; precision and recall of runs              (ERASER, section 4)

Token F1 and token IOU are `precision.overlap`. The area is taken by steps (average precision); `protocol="eraser-code"`
joins the points by straight lines from (recall 0, precision 1), as the benchmark's code does. ERASER chooses as many
tokens as rationales have on average in the dataset (a share of the input): give that as k.

DeYoung et al. (2020), ERASER: A Benchmark to Evaluate Rationalized NLP Models. ACL.
Mathew et al. (2021), HateXplain: A Benchmark Dataset for Explainable Hate Speech Detection. AAAI.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.metric.precision import average_precision, highest, precision_recall
from wherefrom.typecheck import above, checked

Protocol = Literal["text", "eraser-code"]
Threshold = Annotated[float, above(0, 1)]  # a share of the union of two runs


def auprc(scores: ArrayLike, rationale: ArrayLike, protocol: str = "text") -> float:
    """Area under the precision–recall curve of the scores against a rationale (a mask over the tokens)."""
    checked("protocol", protocol, Protocol)
    if protocol == "text":
        return average_precision(scores, rationale)
    precision, recall = precision_recall(scores, rationale)
    return float(trapezoid([1.0, *precision], [0.0, *recall]))


class Runs(NamedTuple):
    """Runs of neighbouring tokens found again. Counts add up over a dataset (ERASER's micro average)."""

    found: int  # chosen runs that match a run of the rationale
    chosen: int
    marked: int

    @property
    def precision(self) -> float:
        return self.found / self.chosen

    @property
    def recall(self) -> float:
        """Over 1 where several chosen runs match one that was marked, as in ERASER's code (thresholds below ½)."""
        return self.found / self.marked

    @property
    def f1(self) -> float:
        return 2 * self.found / (self.chosen + self.marked)


def run_overlap(scores: ArrayLike, rationale: ArrayLike, k: int | None = None, threshold: float = 0.5) -> Runs:
    """The runs among the k highest-scored tokens (by default as many as are marked) against those of the rationale."""
    marked = np.asarray(rationale).astype(bool)
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.shape != marked.shape or not np.isfinite(values).all():
        raise InvalidInput(
            f"scores have shape {values.shape} and the rationale {marked.shape}; expected one finite entry per token"
        )
    if not marked.any():
        raise NotDefined("the rationale marks no token; leave such inputs out and report how many")
    checked("threshold", threshold, Threshold)
    ours, theirs = _runs(highest(values, int(marked.sum()) if k is None else k)), _runs(marked)
    found = sum(max(len(run & other) / len(run | other) for other in theirs) >= threshold for run in ours)
    return Runs(found, len(ours), len(theirs))


def _runs(mask: NDArray[np.bool_]) -> list[set[int]]:
    """Maximal runs of neighbouring tokens."""
    runs: list[set[int]] = []
    for i in np.flatnonzero(mask).tolist():
        if runs and i - 1 in runs[-1]:
            runs[-1].add(i)
        else:
            runs.append({i})
    return runs
