"""Scores over the picture that they explain. A view never computes a score.

    heat       the picture in grey, every patch tinted as strongly as its score: from the smallest to the largest, or
               where there are signs from 0
    grid       the same with lines between the patches
    contour    the picture in its own colours, the patches with the largest scores outlined

The tints are Okabe & Ito's, which colour-blind readers tell apart: blue where there are no signs, green for and
vermilion against. They stand on grey, since on a coloured picture no tint would mean one thing; and the grey keeps off
black and white, so that neither swallows them. An outline is white between two black lines: one of the two shows
on any picture.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import NotDefined
from wherefrom.result.picture import Patches, Pixels, spread, to_png
from wherefrom.view.colour import AGAINST, FOR, STRENGTH

if TYPE_CHECKING:
    from wherefrom.result.explanation import Explanation

Style = Literal["heat", "grid", "contour"]
LUMINANCE = (0.2126, 0.7152, 0.0722)
GREYS = (60, 215)  # what black and white become under a tint
TINT = 0.8  # how much of a patch with the largest score is its tint
LARGE = 448  # pixels of the longer side that a small picture is enlarged to
TOP = 0.2  # the share of the patches that is outlined


def patches_of(explanation: Explanation) -> Patches:
    """The picture behind an explanation, or an error that says that there is none."""
    if explanation.picture is None:
        raise NotDefined("this is no explanation of a picture; choose another kind (kind='text')")
    return explanation.picture


def overlay(explanation: Explanation, style: Style = "heat", *, smooth: bool = False, top: float = TOP) -> Pixels:
    """The picture with the scores over it: [height, width, 3]. `smooth`: from patch to patch by degrees."""
    picture = patches_of(explanation)
    pixels = enlarged(picture.pixels, picture.grid)
    scores = picture.on_grid(np.asarray(explanation.scores, np.float64))
    if explanation.rounding:
        scores, style = np.zeros_like(scores), "heat" if style == "contour" else style  # no patch is above another
    if style == "contour":
        return _outlined(pixels, scores, top)
    found = tinted(pixels, scaled(scores, explanation.signed), explanation.signed, smooth=smooth)
    return _ruled(found, picture.grid) if style == "grid" else found


def scaled(scores: NDArray[np.float64], signed: bool) -> NDArray[np.float64]:
    """Scores for the eye: by the largest magnitude, or from 0 for the smallest to 1 for the largest."""
    if not signed:
        scores = scores - scores.min()
    return scores / (float(np.abs(scores).max()) or 1.0)


def enlarged(pixels: Pixels, grid: tuple[int, int]) -> Pixels:
    """A small picture by a whole factor, pixel by pixel; the edge that no patch covers is cut off."""
    height, width = (size // count * count for size, count in zip(pixels.shape[:2], grid, strict=True))
    factor = max(1, round(LARGE / max(height, width)))
    return pixels[:height, :width].repeat(factor, 0).repeat(factor, 1)


def tinted(pixels: Pixels, values: NDArray[np.float64], signed: bool, *, smooth: bool = False) -> Pixels:
    """In grey, each part tinted by its value from -1 to 1 on the grid."""
    low, high = GREYS
    grey = low + (pixels @ np.array(LUMINANCE)) / 255 * (high - low)
    over = spread(values, pixels.shape[:2], smooth)[..., None]
    hue = np.where(over < 0, AGAINST, FOR) if signed else np.array(STRENGTH)
    share = TINT * np.minimum(np.abs(over), 1)
    colours: Pixels = np.rint(grey[..., None] * (1 - share) + hue * share).astype(np.uint8)
    return colours


def _ruled(pixels: Pixels, grid: tuple[int, int]) -> Pixels:
    """Thin lines between the patches."""
    found = pixels.copy()
    rows, columns = (size // count for size, count in zip(pixels.shape[:2], grid, strict=True))
    found[rows::rows] = found[rows::rows] // 2 + 127
    found[:, columns::columns] = found[:, columns::columns] // 2 + 127
    return found


def _outlined(pixels: Pixels, scores: NDArray[np.float64], top: float) -> Pixels:
    """The patches with the largest scores inside a line: white between black."""
    count = max(1, round(top * scores.size))
    order = np.argsort(-scores, axis=None, kind="stable")[:count]
    inside = np.zeros(scores.size, bool)
    inside[order] = True
    rows, columns = (size // number for size, number in zip(pixels.shape[:2], scores.shape, strict=True))
    mask = inside.reshape(scores.shape).repeat(rows, 0).repeat(columns, 1)
    width = max(1, max(pixels.shape[:2]) // 200)
    found = pixels.copy()
    for grey, reach in ((0, 2 * width), (255, width)):
        found[_grown(mask, reach) & _grown(~mask, reach)] = grey
    return found


def _grown(mask: NDArray[np.bool_], by: int) -> NDArray[np.bool_]:
    """With everything that is at most `by` pixels away."""
    found = mask.copy()
    for axis in (0, 1):
        wider = found.copy()
        for step in range(1, by + 1):
            near, far = [slice(None)] * 2, [slice(None)] * 2
            near[axis], far[axis] = slice(step, None), slice(None, -step)
            wider[tuple(near)] |= found[tuple(far)]
            wider[tuple(far)] |= found[tuple(near)]
        found = wider
    return found


def data_uri(pixels: Pixels) -> str:
    """As the source of an image on a page."""
    return f"data:image/png;base64,{base64.b64encode(to_png(pixels)).decode('ascii')}"


def legend(signed: bool) -> list[tuple[str, Any]]:
    """What the tints mean."""
    return [("against", AGAINST), ("for", FOR)] if signed else [("from the least to the most", STRENGTH)]
