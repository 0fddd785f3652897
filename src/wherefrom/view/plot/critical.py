"""Who stands where, and who cannot be told apart: mean ranks as dots, methods alike joined by a bar (Demšar 2006).

    critical(standings.methods, standings.ranks, standings.alike)

The usual critical-difference diagram has its axis above and names on both sides, which holds a dozen; here every method
has a line of its own, and the bars stand upright beside the dots.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.lines import Line2D

from wherefrom.errors import InvalidInput
from wherefrom.view.colour import AGAINST, STRENGTH, hexadecimal
from wherefrom.view.plot.canvas import GAP, SMALL, Picture, inches, theme
from wherefrom.view.plot.lettering import widest

LINE = 0.145  # inches for each method
BAR = 0.09  # inches between two bars
ABOVE, BELOW = 0.3, 0.12


def critical(
    methods: Sequence[str],
    ranks: Sequence[float],
    alike: Sequence[tuple[int, int]] = (),
    *,
    chance: str = "random",
    width: str | float | None = None,
    dark: bool = False,
) -> Picture:
    """Mean ranks, the best on top; a bar joins methods, by their places, that no test tells apart.

    `chance` is the method that knows nothing: it and what stands below it is drawn in another colour.
    """
    if not methods or len(methods) != len(ranks):
        raise InvalidInput(f"{len(ranks)} ranks for {len(methods)} methods; expected one each")
    total, columns = inches(width, "page"), _columns(alike)
    left = widest(list(methods), SMALL) + 3 * GAP
    right = (max(columns, default=-1) + 1) * BAR + 3 * GAP
    height = LINE * len(methods)
    picture = Picture(total, ABOVE + height + BELOW, theme(dark))
    axes = picture.panel(left, ABOVE, total - left - right, height)
    axes.set_xlim(0.5, len(methods) + 0.5)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.tick_params(labelsize=SMALL, length=2, width=0.5, colors=picture.theme.ink, pad=1)
    picture.write(left, GAP, "mean rank, 1 the best", SMALL, va="top", color=picture.theme.faint)
    picture.write(total - GAP, GAP, "not told apart", SMALL, va="top", ha="right", color=picture.theme.faint)
    below = methods.index(chance) if chance in methods else len(methods)
    for place, (name, rank) in enumerate(zip(methods, ranks, strict=True)):
        colour = hexadecimal(AGAINST if place >= below else STRENGTH)
        axes.plot([0.5, rank], [place, place], color=picture.theme.faint, linewidth=0.4, alpha=0.5)
        axes.plot([rank], [place], "o", color=colour, markersize=3.2)
        axes.annotate(f"{rank:.1f}", (rank, place), (3.5, -0.3), textcoords="offset points", va="center",
                      fontsize=SMALL - 1, color=picture.theme.faint)  # fmt: skip
        picture.write(left - GAP, ABOVE + (place + 0.5) * LINE, name, SMALL, ha="right", va="center")
    for column, (first, last) in zip(columns, alike, strict=True):
        at = (total - right + 2 * GAP + column * BAR) / total
        ends = [1 - (ABOVE + (end + 0.5) * LINE) / (ABOVE + height + BELOW) for end in (first - 0.3, last + 0.3)]
        picture.add_artist(Line2D([at, at], ends, color=picture.theme.ink, linewidth=2.0, solid_capstyle="butt"))
    return picture


def _columns(alike: Sequence[tuple[int, int]]) -> list[int]:
    """For each bar the first column in which it touches no other."""
    ends: list[int] = []
    found = []
    for first, last in alike:
        column = next((i for i, end in enumerate(ends) if end < first), len(ends))
        ends[column : column + 1] = [last]
        found.append(column)
    return found
