"""From a score to a colour: one hue where there are no signs, two where there are.

The hues are Okabe & Ito's blue, bluish green and vermilion, which colour-blind readers tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from wherefrom.result.explanation import Explanation

Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
DARK: Colour = (22, 24, 29)  # the ground of a dark page or picture
STRENGTH: Colour = (0, 114, 178)
FOR: Colour = (0, 158, 115)
AGAINST: Colour = (213, 94, 0)
PALE = 0.35  # how much of their colour special tokens keep
# Lines and bars that stand for methods: Okabe & Ito's hues without yellow, which white swallows, and a grey.
SERIES: tuple[Colour, ...] = (
    STRENGTH, AGAINST, FOR, (204, 121, 167), (230, 159, 0), (86, 180, 233), (128, 128, 128)
)  # fmt: skip


def intensities(
    scores: NDArray[np.floating[Any]], signed: bool, own: int | None = None, special: Sequence[bool] = ()
) -> NDArray[np.float64]:
    """Scores scaled for the eye: into [-1, 1] by the largest magnitude, or into [0, 1] if there are no signs.

    What the readout token `own` gives itself does not set the scale: in maps with a residual connection it often
    outweighs everything else, and the rest would look empty. Nor do special tokens, which are no part of the text.
    """
    values: NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    aside = [i for i in range(values.shape[-1]) if i == own or (len(special) and special[i])]
    others = np.delete(values, aside, axis=-1)
    largest = float(np.abs(others).max(initial=0.0)) or float(np.abs(values).max(initial=0.0))
    if largest > 0:
        values = values / largest
    return np.clip(values, -1, 1) if signed else np.clip(values, 0, 1)


def strengths(explanation: Explanation, scores: NDArray[np.floating[Any]] | None = None) -> NDArray[np.float64]:
    """The intensities of an explanation's scores, or of another row over its tokens; of special ones, pale."""
    row = explanation.scores if scores is None else scores
    if scores is None and explanation.rounding:
        return np.zeros(len(explanation))
    found = intensities(row, explanation.signed, explanation.position, explanation.special)
    return np.where(explanation.special, PALE * found, found)


def shade(intensity: float, signed: bool, ground: Colour = WHITE) -> Colour:
    """The ground's colour at 0, the full hue at ±1."""
    red, green, blue = shades(np.array(intensity), signed, ground).tolist()
    return red, green, blue


def shades(
    intensity: NDArray[np.floating[Any]], signed: bool | NDArray[np.bool_], ground: Colour = WHITE
) -> NDArray[np.uint8]:
    """`shade` of every entry of an array: [...] -> [..., 3]. `signed` may differ from entry to entry."""
    signs = np.broadcast_to(signed, np.shape(intensity))[..., None]
    hue = np.where(signs, np.where((np.asarray(intensity) < 0)[..., None], AGAINST, FOR), STRENGTH)
    share = np.minimum(np.abs(intensity), 1.0)[..., None]
    colours: NDArray[np.uint8] = np.rint(ground + (hue - np.array(ground)) * share).astype(np.uint8)
    return colours


def ink(background: Colour) -> str:
    """Black or white, whichever reads better on the background (relative luminance of WCAG).

    In hexadecimal, because a terminal's "black" is often a grey.
    """
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (b / 255 for b in background)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def hexadecimal(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


@lru_cache(maxsize=4096)
def nearest_of_256(colour: Colour) -> int:
    """The number of the xterm colour that looks most like it: the nearest in OKLab (Ottosson 2020)."""
    steps = (0, 95, 135, 175, 215, 255)
    palette = [(r, g, b) for r in steps for g in steps for b in steps] + [(8 + 10 * i,) * 3 for i in range(24)]
    distance = np.square(_oklab(np.array(palette)) - _oklab(np.array(colour))).sum(-1)
    return 16 + int(distance.argmin())  # the first 16 are the terminal's own


def _oklab(colours: NDArray[Any]) -> NDArray[np.float64]:
    """[..., 3] sRGB in 0-255 -> lightness, green-red, blue-yellow."""
    share = colours / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    to_cones = np.array(
        [[0.4122215, 0.5363325, 0.0514460], [0.2119035, 0.6806995, 0.1073970], [0.0883025, 0.2817188, 0.6299787]]
    )
    to_lab = np.array(
        [[0.2104543, 0.7936178, -0.0040720], [1.9779985, -2.4285922, 0.4505937], [0.0259040, 0.7827718, -0.8086758]]
    )
    lab: NDArray[np.float64] = np.cbrt(linear @ to_cones.T) @ to_lab.T
    return lab
