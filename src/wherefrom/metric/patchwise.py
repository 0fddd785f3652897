"""How well scores of a picture's patches hold: patches taken away in their order, and masks of where the object is.

    positive, negative   p(y | x without the top share), p(y | x without the lowest share)    (Chefer et al. 2021)
    deletion, insertion  the areas under the two                                              (Petsiuk et al. 2018)
    focus                Σ scores⁺ inside / Σ scores⁺                                         (Arias-Duart et al. 2022)
    pointing             whether the largest score lies on the object                         (Zhang et al. 2018)
    segmentation         the map above its mean as the object: accuracy of pixels, IoU, AP    (Chefer et al. 2021)

To insert the top share into a picture that is painted over is to take the lowest away from it: insertion is the
negative curve, read backwards. Patches are taken away whole, where Chefer et al. take pixels of an enlarged map; their
nine shares from 10 to 90 % and their black are `shares=NINE` and `by="black"`. A mask is True where the object is.

Chefer, Gur & Wolf (2021), Transformer Interpretability Beyond Attention Visualization. https://arxiv.org/abs/2012.09838
Petsiuk, Das & Saenko (2018), RISE. https://arxiv.org/abs/1806.07421
Arias-Duart et al. (2022), Focus! Rating XAI Methods and Finding Biases. https://arxiv.org/abs/2109.15035
Zhang et al. (2018), Top-down Neural Attention by Excitation Backprop. https://arxiv.org/abs/1608.00507
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wherefrom.data.pictured import mosaic as mosaic
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined
from wherefrom.metric.erasure import NINE as NINE
from wherefrom.metric.erasure import TENTHS, Curve, erasure
from wherefrom.metric.precision import average_precision
from wherefrom.model.perturb import By
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import Patches

Array = NDArray[np.float64]
UNKNOWN = -1  # of a label: neither object nor ground
TOLERANCE = 15  # pixels beside the object that still count, of pictures as large as Zhang et al.'s


class Perturbed(NamedTuple):
    """The probability of what is explained, the highest scores gone first and the lowest first."""

    positive: Curve
    negative: Curve

    @property
    def deletion(self) -> float:
        """Lower is better."""
        return self.positive.area

    @property
    def insertion(self) -> float:
        """Higher is better."""
        return self.negative.area


def perturbation(
    image: Any,
    explanation: Explanation,
    model: Any,
    tokenizer: Any | None = None,
    *,
    by: By = "mean",
    shares: Sequence[float] = TENTHS,
) -> Perturbed:
    """The two curves of one picture, its patches painted over (`by`: "mean", "black", "blur") or left out
    ("attention")."""
    orders = (explanation, replace(explanation, scores=-explanation.scores))
    found = [erasure(image, each, model, tokenizer, by=by, shares=shares) for each in orders]
    return Perturbed(found[0], found[1])


def focus(scores: ArrayLike, inside: ArrayLike) -> float:
    """The share of the positive scores that lies inside, such as in the quarter of a mosaic that shows the class."""
    positive = np.maximum(np.asarray(scores, np.float64), 0)
    mask = _mask(inside, positive)
    if not positive.any():
        raise NotDefined("no score is positive, so that none lies anywhere; expected at least one")
    return float(positive[mask].sum() / positive.sum())


def quarter(grid: tuple[int, int], which: int) -> NDArray[np.bool_]:
    """Which patches of a grid lie wholly in one quarter of a mosaic, counted from 0 row by row, as its pictures are."""
    if which not in range(4):
        raise InvalidOption(f"quarter {which}; expected 0, 1 (the upper ones), 2 or 3 (the lower ones)")
    halves = [np.arange(size) for size in grid]
    rows, columns = (
        index < size // 2 if not side else index >= -(-size // 2)
        for index, size, side in zip(halves, grid, divmod(which, 2), strict=True)
    )
    found: NDArray[np.bool_] = rows[:, None] & columns
    return found


def pointing(scores: ArrayLike, inside: ArrayLike, tolerance: int = TOLERANCE) -> bool:
    """Whether the pixel with the largest score is at most so many pixels away from the object."""
    values = np.asarray(scores, np.float64)
    mask = _mask(inside, values)
    place = np.array(np.unravel_index(values.argmax(), values.shape))
    away = np.linalg.norm(np.argwhere(mask) - place, axis=1)
    if not len(away):
        raise NotDefined("the mask is empty: there is no object to point at")
    return bool(away.min() <= tolerance)


@dataclass(frozen=True)
class Segmentation:
    """How maps, above their own means, cover the objects of several pictures; counts are over all their pixels."""

    pixel_accuracy: float
    ground_iou: float
    object_iou: float
    mean_average_precision: float

    @property
    def mean_iou(self) -> float:
        return (self.ground_iou + self.object_iou) / 2


class Covered(NamedTuple):
    """The counts of one picture, for the ground and the object."""

    correct: int
    labelled: int
    both: Array  # [2]: pixels of the class that are taken for it
    either: Array  # [2]: pixels that are of the class or taken for it
    average_precision: float


def segmentation(maps: Iterable[ArrayLike], labels: Iterable[ArrayLike]) -> Segmentation:
    """Over several pictures. A label is 1 on the object, 0 on the ground, and -1 where it counts for nothing."""
    found = [covered(each, label) for each, label in zip(maps, labels, strict=True)]
    if not found:
        raise NotDefined("there are no maps to measure; expected at least one")
    both, either = np.sum([each.both for each in found], 0), np.sum([each.either for each in found], 0)
    ground, thing = (both / np.maximum(either, 1)).tolist()
    accuracy = sum(each.correct for each in found) / max(1, sum(each.labelled for each in found))
    return Segmentation(accuracy, ground, thing, float(np.mean([each.average_precision for each in found])))


def covered(scores: ArrayLike, label: ArrayLike) -> Covered:
    """One picture. AP is over both classes at once: the map for the object, one minus it for the ground."""
    values, truth = np.asarray(scores, np.float64), np.asarray(label, int)
    if values.shape != truth.shape:
        raise InvalidInput(f"a map of shape {values.shape} and a label of {truth.shape}; expected the same")
    span = float(values.max() - values.min())
    scaled = (values - values.min()) / (span or 1.0)
    known, taken = truth != UNKNOWN, scaled > scaled.mean()
    classes = [(known & (taken == bool(each)), known & (truth == each)) for each in (0, 1)]
    ranked = np.concatenate([(1 - scaled)[known], scaled[known]])
    wanted = np.concatenate([(truth == 0)[known], (truth == 1)[known]])
    return Covered(
        int((known & (taken == truth)).sum()),
        int(known.sum()),
        np.array([float((a & b).sum()) for a, b in classes]),
        np.array([float((a | b).sum()) for a, b in classes]),
        average_precision(ranked, wanted),
    )


def on_patches(explanation: Explanation, inside: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """The patches' scores on their grid, and which of them lie inside by half of their pixels or more."""
    picture, (_, mask) = _picture(explanation), on_pixels(explanation, inside)
    rows, columns = picture.grid
    cells = mask.reshape(rows, mask.shape[0] // rows, columns, mask.shape[1] // columns)
    return picture.on_grid(np.asarray(explanation.scores, np.float64)), cells.mean((1, 3)) >= 0.5


def on_pixels(explanation: Explanation, inside: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """The scores of the pixels that patches cover, and which of those lie inside."""
    values = _picture(explanation).on_pixels(explanation.scores)
    return values, np.asarray(inside, bool)[: values.shape[0], : values.shape[1]]


def _picture(explanation: Explanation) -> Patches:
    if explanation.picture is None:
        raise NotDefined("a region is a place in a picture, and what is explained is a text")
    return explanation.picture


def _mask(inside: ArrayLike, like: Array) -> NDArray[np.bool_]:
    mask = np.asarray(inside, bool)
    if mask.shape != like.shape:
        raise InvalidInput(f"a mask of shape {mask.shape} for scores of {like.shape}; expected the same")
    return mask
