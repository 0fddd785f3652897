"""Pictures with scores over them, side by side: the picture itself, then one panel for each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.typecheck import checked
from wherefrom.view.colour import hexadecimal
from wherefrom.view.overlay import TINT, TOP, Style, enlarged, legend, overlay, patches_of
from wherefrom.view.plot.canvas import GAP, SMALL, Picture
from wherefrom.view.plot.lettering import short

if TYPE_CHECKING:
    from wherefrom.result.explanation import Explanation

ACROSS = 4  # panels in a row
MARGIN = 0.05
LETTER = 0.056  # inches of a letter of a title
TITLE, LEGEND = 0.2, 0.2  # inches above a panel, and below the last


def image(
    named: Mapping[str, Explanation],
    width: float,
    theme: Any,
    *,
    style: Style = "heat",
    smooth: bool = False,
    original: bool = True,
    top: float = TOP,
) -> Picture:
    """The scores over the picture: "heat", "grid" or "contour"; `original` shows the picture itself first."""
    style = checked("style", style, Style)
    if not 0 < top <= 1:
        raise InvalidOption(f"top is {top!r}; expected the share of the patches to outline, above 0 and at most 1")
    one = next(iter(named.values()))
    first = patches_of(one)
    if any(patches_of(each).pixels.shape != first.pixels.shape for each in named.values()):
        raise InvalidInput("these explanations are of different pictures; expected one")
    panels = [(_said(one), enlarged(first.pixels, first.grid))] if original else []
    panels += [(name, overlay(each, style, smooth=smooth, top=top)) for name, each in named.items()]
    across = min(len(panels), ACROSS)
    side = (width - 2 * MARGIN - (across - 1) * GAP) / across
    tall = side * first.pixels.shape[0] / first.pixels.shape[1]
    rows = -(-len(panels) // across)
    found = Picture(width, rows * (TITLE + tall + GAP) + LEGEND, theme)
    for place, (name, pixels) in enumerate(panels):
        left, above = MARGIN + place % across * (side + GAP), place // across * (TITLE + tall + GAP)
        axes = found.panel(left, above + TITLE, side, tall)
        axes.imshow(np.asarray(pixels), interpolation="nearest", aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        found.write(left, above + TITLE - GAP, short(name, int(side / LETTER)), va="bottom")
    _explain_tints(found, list(named.values()), style, top)
    return found


def _said(explanation: Explanation) -> str:
    """What the model makes of the picture, above it."""
    said, sure = explanation.prediction, explanation.probabilities.get(explanation.prediction or "")
    return "" if said is None else said if sure is None else f"{said} ({sure:.2f})"


def _explain_tints(found: Picture, shown: list[Explanation], style: Style, top: float) -> None:
    """A line below the panels: what the tints are, or how much is outlined."""
    bottom, left = float(found.get_size_inches()[1]) - LEGEND / 2, MARGIN
    if style == "contour":
        found.write(left, bottom, f"outlined: the {top:.0%} of the patches with the largest scores", SMALL, va="center")
        return
    kinds = [legend(signed) for signed in sorted({each.signed for each in shown})]
    for name, colour in (each for kind in kinds for each in kind):
        swatch = found.panel(left, bottom - 0.04, 0.16, 0.08)
        swatch.set_facecolor(hexadecimal(colour))
        swatch.patch.set_alpha(TINT)
        swatch.set_xticks([])
        swatch.set_yticks([])
        found.write(left + 0.2, bottom, name, SMALL, va="center")
        left += 0.35 + 0.05 * len(name)
