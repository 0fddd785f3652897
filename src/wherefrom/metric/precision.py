r"""Scores against tokens that are known to matter: an answer, cue words, a human rationale.

    precision@K         of the K highest-scored tokens, how many belong to the answer      (AttCAT, section 6)
    dot product         Σ_i S_i c_i with the cue vector c, Σ_i |S_i| = 1                   (Value Zeroing, section 5)
    average precision   of the ranking by S with c as relevance                            (Value Zeroing, section 5)
    probes needed       tokens that are no cue, ranked above the best cue                  (Value Zeroing, A.2)
    reciprocal rank     1 / the rank of the best cue                                       (Yin & Neubig, section 4)
    token F1, IOU       of the k highest-scored tokens with the rationale                  (ERASER; HateXplain)

AttCAT's code gives precision@K as a count, the name says fraction: both are returned. It adds the scores towards the
start and the end of the answer (`combined`): as they are in the notebook for SQuAD v1, by magnitude in that for v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import InvalidInput, InvalidOption, NotDefined

Combine = Literal["sum", "magnitudes"]


@dataclass(frozen=True)
class Precision:
    """Precision at one K."""

    count: int
    fraction: float


def precision_at(scores: ArrayLike, relevant: ArrayLike, k: int | Sequence[int] = 20) -> dict[int, Precision]:
    """How many of the K highest-scored tokens are relevant, for each K; `relevant` is a mask over the tokens."""
    values, mask = _checked(scores, relevant)
    order = np.argsort(-values, kind="stable")
    wanted = [k] if isinstance(k, int) else list(k)
    if any(each < 1 for each in wanted):
        raise InvalidOption(f"K is {min(wanted)}; expected 1 or more")
    counts = {each: int(mask[order[:each]].sum()) for each in wanted}
    return {each: Precision(count, count / min(each, len(values))) for each, count in counts.items()}


def combined(start: ArrayLike, end: ArrayLike, combine: Combine = "sum") -> NDArray[np.float64]:
    """Scores towards an answer: towards its start plus towards its end, each by magnitude for `magnitudes`."""
    first, last = (np.asarray(each, dtype=np.float64) for each in (start, end))
    return first + last if combine == "sum" else np.abs(first) + np.abs(last)


def dot_product(scores: ArrayLike, cues: ArrayLike, *, signed: bool = False) -> float:
    """Share of the scores that lies on cue words; the scores are divided by their L1 norm first. NaN if that is 0.

    With `signed`, scores below 0 count against the cues that have them (Yin & Neubig).
    """
    values, mask = _checked(scores, cues)
    if not signed and (values < 0).any():
        raise InvalidInput("the dot product with cues needs scores without signs; take their magnitude first")
    total = np.abs(values).sum()
    return float(values[mask].sum() / total) if total > 0 else float("nan")


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Area under the precision–recall steps of the ranking; tied tokens are ranked together."""
    precision, recall = precision_recall(scores, relevant)
    return float((np.diff(recall, prepend=0) * precision).sum())


def precision_recall(scores: ArrayLike, relevant: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall of the tokens scored at least as high as each score that occurs, the highest first."""
    values, mask = _checked(scores, relevant)
    if not mask.any():
        raise NotDefined("average precision needs at least one relevant token")
    order = np.argsort(-values, kind="stable")
    last = np.append(np.diff(values[order]) != 0, True)  # of the tokens that are tied
    found, taken = np.cumsum(mask[order])[last], np.arange(1, len(order) + 1)[last]
    return found / taken, found / mask.sum()


def probes_needed(scores: ArrayLike, cues: ArrayLike) -> int:
    """How many tokens that are no cue stand above the best cue; a tie counts against the cue."""
    values, mask = _checked(scores, cues)
    if not mask.any():
        raise NotDefined("probes-needed needs at least one cue")
    return int((values[~mask] >= values[mask].max()).sum())


def reciprocal_rank(scores: ArrayLike, cues: ArrayLike) -> float:
    """1 where a cue has the highest score, 1/2 where one token that is no cue stands above all of them; and so on."""
    return 1 / (1 + probes_needed(scores, cues))


class Overlap(NamedTuple):
    """Agreement of the highest-scored tokens with a rationale."""

    precision: float
    recall: float
    f1: float
    iou: float


def overlap(scores: ArrayLike, rationale: ArrayLike, k: int | None = None) -> Overlap:
    """The k highest-scored tokens (by default as many as the rationale has) against the rationale."""
    values, mask = _checked(scores, rationale)
    if not mask.any():
        raise NotDefined("the rationale marks no token; leave such inputs out and report how many")
    chosen = highest(values, int(mask.sum()) if k is None else k)
    both, either = int((chosen & mask).sum()), int((chosen | mask).sum())
    precision, recall = both / max(1, int(chosen.sum())), both / int(mask.sum())
    f1 = 2 * precision * recall / (precision + recall) if both else 0.0
    return Overlap(precision, recall, f1, both / either)


def highest(scores: ArrayLike, k: int) -> NDArray[np.bool_]:
    """A mask over the k highest-scored tokens; of tied ones the first."""
    values = np.asarray(scores, dtype=np.float64)
    if k < 1:
        raise InvalidOption(f"K is {k}; expected 1 or more")
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-values, kind="stable")[:k]] = True
    return chosen


def _checked(scores: ArrayLike, relevant: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values, mask = np.asarray(scores, dtype=np.float64), np.asarray(relevant)
    if values.ndim != 1 or mask.shape != values.shape:
        raise InvalidInput(
            f"scores have shape {values.shape} and the mask {mask.shape}; expected one entry per token each"
        )
    if not np.isin(mask, (0, 1)).all():
        raise InvalidInput("the mask holds values other than 0 and 1")
    if not np.isfinite(values).all():
        raise InvalidInput("the scores contain NaN or infinite values")
    return values, mask.astype(bool)
