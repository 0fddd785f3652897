"""Tables as pictures: layer curves with confidence bands, bars, matrices of numbers, erasure curves.

They take plain arrays by name, whoever measured them:

    curves({"globenc": Series(mean, interval), "alti": other}, x_label="layer", y_label="Spearman's ρ")
    bars({"BERT": [0.41, 0.38], "DistilBERT": [0.35, 0.33]}, groups=["attcat", "alti"])
    grid(matrix, rows=methods, columns=layers)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from wherefrom.errors import InvalidInput
from wherefrom.metric.correlation import Summary, summary
from wherefrom.view.colour import AGAINST, FOR, PALE, SERIES, hexadecimal, intensities
from wherefrom.view.plot.canvas import GAP, SIZE, SMALL, Picture, inches, theme
from wherefrom.view.plot.heat import (
    KEY,
    UPRIGHT,
    ColourKey,
    Sheet,
    arrange,
    draw_legend,
    label_size,
    label_step,
    place,
    total_height,
)
from wherefrom.view.plot.lettering import extent, plain, short, widest

if TYPE_CHECKING:
    from wherefrom.analysis import NormOutliers
    from wherefrom.metric.erasure import Curve

Array = NDArray[np.float64]
LINES = ("-", "--", ":")
HATCHES = ("", "////", "....")


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers along an axis, and how sure they are: half the width of an interval [n], or its two ends [2, n]."""

    values: ArrayLike
    interval: ArrayLike | None = None

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> Series:
        """The means of measured summaries with their 99 % intervals."""
        every = list(summaries)
        return cls([each.mean for each in every], [each.interval for each in every])

    def ends(self) -> tuple[Array, Array] | None:
        """Lower and upper end of the interval."""
        if self.interval is None:
            return None
        values, interval = np.asarray(self.values, np.float64), np.asarray(self.interval, np.float64)
        if interval.shape == values.shape:
            return values - interval, values + interval
        if interval.shape == (2, *values.shape):
            return interval[0], interval[1]
        raise InvalidInput(
            f"an interval of shape {interval.shape} does not fit {len(values)} values; "
            f"expected one half width each, or two rows with the lower and the upper ends"
        )


def curves(
    series: Mapping[str, Series | ArrayLike],
    *,
    x: Sequence[float] | None = None,
    x_label: str = "layer",
    y_label: str = "",
    limits: tuple[float, float] | None = None,
    width: str | float | None = None,
    height: float | None = None,
    dark: bool = False,
) -> Picture:
    """A line for every series over `x` (0, 1, 2 … if none is given), its interval as a band (GlobEnc, figure 3)."""
    named = _named(series)
    picture, axes = _sheet(width, height, dark)
    _draw_lines(axes, named, list(named), x)
    if limits is not None:
        axes.set_ylim(limits)
    _name_axes(picture, axes, x_label, y_label)
    _finish(picture, axes, list(named), lines=True)
    return picture


def curve_panels(
    panels: Mapping[str, Mapping[str, Series | ArrayLike]],
    *,
    x_label: str = "layer",
    y_label: str = "",
    width: str | float | None = "page",
    height: float | None = None,
    dark: bool = False,
) -> Picture:
    """Curves in panels side by side, with one y axis and one legend (GlobEnc, figure 3)."""
    named = {title: _named(series) for title, series in panels.items()}
    names = list(dict.fromkeys(name for series in named.values() for name in series))
    picture, first = _sheet(width, height, dark)
    every = [first, *(picture.panel(0, 0, 1, 1) for _ in range(len(named) - 1))]
    for axes, (title, series) in zip(every, named.items(), strict=True):
        if axes is not first:
            _dress(picture, axes)
        _draw_lines(axes, series, names, None)
        arguments = plain(title, SIZE, color=picture.theme.ink)
        axes.set_title(arguments.pop("s"), pad=3, **arguments)
        _name_axes(picture, axes, x_label, y_label if axes is first else "")
    low, high = (pick(axes.get_ylim()[end] for axes in every) for pick, end in ((min, 0), (max, 1)))
    for axes in every:
        axes.set_ylim(low, high)
    bottom = _draw_legend(picture, names, lines=True)
    total = picture.get_size_inches()[0]
    for number, axes in enumerate(every):
        _fit(picture, axes, total * number / len(every), total * (number + 1) / len(every), bottom)
    return picture


def _draw_lines(axes: Axes, named: Mapping[str, Series], names: Sequence[str], x: Sequence[float] | None) -> None:
    """A line for every series, in the style of its place among `names`, with its interval as a band."""
    for name, each in named.items():
        values = np.asarray(each.values, np.float64)
        places = np.arange(len(values)) if x is None else np.asarray(x, np.float64)
        if len(places) != len(values):
            raise InvalidInput(f"'{name}' has {len(values)} values for {len(places)} places on the x axis")
        style = _style(names.index(name))
        if (ends := each.ends()) is not None:
            axes.fill_between(places, *ends, color=style["color"], alpha=0.22, linewidth=0, label=f"_{name}")
        mark: dict[str, Any] = {"marker": "o", "markersize": 2.2} if len(values) <= 30 else {}
        axes.plot(places, values, label=name, linewidth=1.1, **style, **mark)
    axes.margins(x=0.03)
    if x is None or all(float(place_).is_integer() for place_ in x):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=13, integer=True, min_n_ticks=1))


def bars(
    series: Mapping[str, Series | ArrayLike],
    groups: Sequence[str],
    *,
    y_label: str = "",
    limits: tuple[float, float] | None = None,
    signs: bool = False,
    written: bool = False,
    pale: Sequence[int] = (),
    width: str | float | None = None,
    height: float | None = None,
    dark: bool = False,
) -> Picture:
    """For every group one bar of each series, with its interval (ALTI, figures 6 and 7; AttCAT, figure 3).

    signs: colour a single series by its signs. written: the numbers above the bars. pale: groups that are shown pale
    and do not set the scale.
    """
    named = _named(series)
    picture, axes = _sheet(width, height, dark)
    share = 0.8 / len(named)
    for number, (name, each) in enumerate(named.items()):
        values = np.asarray(each.values, np.float64)
        if len(values) != len(groups):
            raise InvalidInput(f"'{name}' has {len(values)} values for {len(groups)} groups")
        places = np.arange(len(groups)) + (number - (len(named) - 1) / 2) * share
        colours = [hexadecimal(FOR if v >= 0 else AGAINST) for v in values] if signs else _style(number)["color"]
        ends = each.ends()
        reach = None if ends is None else np.abs(np.stack([values - ends[0], ends[1] - values]))
        hatch = HATCHES[number // len(SERIES) % 3]
        whisker = {"elinewidth": 0.7, "ecolor": picture.theme.ink, "capsize": 1.2}
        axes.bar(places, values, share * 0.92, color=colours, label=name, hatch=hatch, edgecolor=picture.ground,
                 linewidth=0.3, yerr=reach, error_kw=whisker)  # fmt: skip
        for group in pale:
            axes.containers[-1][group].set_alpha(PALE)
        if written:
            tops = values if reach is None else values + np.where(values < 0, -reach[0], reach[1])
            for place_, value, top in zip(places, values, tops, strict=True):
                up = value >= 0
                label = plain(f"{value:.2g}", SMALL - 1, color=picture.theme.ink, va="bottom" if up else "top")
                _annotate(axes, label, (place_, top), 1.5 if up else -1.5, ha="center")
    axes.axhline(0, color=picture.theme.faint, linewidth=0.6)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks([])
    limits = _limits(named, pale) if limits is None else limits
    if limits is not None:
        axes.set_ylim(limits)
    room = (picture.get_size_inches()[0] - 0.5) / max(1, len(groups))
    names = [short(group) for group in groups]
    level = widest(names, SMALL) <= room * 0.95
    turned: dict[str, Any] = {"ha": "center", "va": "top"} if level else UPRIGHT
    for place_ in range(0, len(names), label_step(room)):
        label = plain(names[place_], min(SMALL, label_size(room)), color=picture.theme.ink, **turned)
        _annotate(axes, label, (place_, 0), -3, xycoords=axes.get_xaxis_transform())
    _name_axes(picture, axes, "", y_label)
    _finish(picture, axes, list(named) if len(named) > 1 else [], lines=False)
    return picture


def _limits(named: Mapping[str, Series], pale: Sequence[int]) -> tuple[float, float] | None:
    """From the least to the largest of what is not pale, and a little more; None where all of it counts."""
    counted = np.concatenate([np.delete(np.asarray(each.values, np.float64), list(pale)) for each in named.values()])
    if not len(pale) or not np.abs(counted).max(initial=0.0):
        return None
    low, high = min(0.0, float(counted.min())), max(0.0, float(counted.max()))
    return low - 0.05 * (high - low) * (low < 0), high + 0.05 * (high - low) * (high > 0)


def grid(
    matrix: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[Any],
    *,
    limits: tuple[float, float] | None = None,
    written: bool = True,
    title: str = "",
    width: str | float | None = None,
    dark: bool = False,
) -> Picture:
    """A matrix of numbers as cells, for example methods × layers (Value Zeroing, figures 1 and 2).

    `limits` are the numbers with no colour and with all of it: 0 and the largest if none are given; numbers below 0
    get the second hue. A number that is missing (NaN) is a dash. `written`: the numbers in the cells, where they fit.
    """
    numbers = np.asarray(matrix, np.float64)
    if numbers.shape != (len(rows), len(columns)) or not numbers.size:
        raise InvalidInput(f"a matrix of shape {numbers.shape} for {len(rows)} rows and {len(columns)} columns")
    known = np.nan_to_num(numbers)
    signed = limits is None and bool((known < 0).any())
    low, high = limits if limits is not None else (0.0, float(np.abs(known).max()) or 1.0)
    strength = intensities(known, signed) if signed else np.clip((known - low) / ((high - low) or 1.0), 0, 1)
    strength = np.where(np.isnan(numbers), 0.0, strength)
    texts = [["–" if np.isnan(v) else _number(v) for v in row] for row in numbers]
    total = inches(width, "page" if len(columns) > 8 else "column")
    bare = Sheet(strength, list(rows), [str(column) for column in columns], signed, title)
    layout = arrange([bare], total - 2 * GAP, widest_cell=0.5)
    fits = written and widest([text for row in texts for text in row], 5.0) <= layout.width * 0.95
    sheet = Sheet(strength, bare.rows, bare.columns, signed, title, written=texts if fits else [])
    layout = arrange([sheet], total - 2 * GAP, 0.17, widest_cell=0.5)
    picture = Picture(total, total_height([sheet], layout, True) + KEY + 4 * GAP, theme(dark))
    bottom = place(picture, [sheet], layout, GAP, GAP, every_row_labelled=True)
    draw_legend(picture, bottom + GAP, [[ColourKey(signed, _number(-high if signed else low), _number(high))]])
    return picture


def erasure(curves_of: Mapping[str, Curve | Sequence[Curve]], **options: Any) -> Picture:
    """What is left of the probability as tokens go: one curve a method, or the mean over many inputs with its interval.

    Options as in `curves`. The curves come from `wherefrom.metric.erasure`.
    """
    drawn: dict[str, Series] = {}
    places: dict[str, Array] = {}
    for name, given in curves_of.items():
        every = list(given) if isinstance(given, Sequence) else [given]
        steps = {len(curve.taken) for curve in every}
        if len(steps) != 1:
            raise InvalidInput(f"the curves of '{name}' have {sorted(steps)} steps; expected the same shares for all")
        many = np.stack([curve.probabilities for curve in every])
        shares = np.stack([curve.taken / max(1, curve.taken[-1]) for curve in every])
        places[name] = shares.mean(0)
        drawn[name] = Series(many[0]) if len(every) == 1 else Series.of(summary(column) for column in many.T)
    first = next(iter(places.values()), np.zeros(0))
    if any(each.shape != first.shape or np.abs(each - first).max() > 0.05 for each in places.values()):
        raise InvalidInput(
            "these curves take different shares of the tokens; expected one set of steps for all methods"
        )
    options = {"x_label": "share of tokens taken", "y_label": "probability of the target", **options}
    return curves(drawn, x=first.tolist(), **options)


def outliers(
    found: Sequence[NormOutliers],
    *,
    layer: int = -2,
    width: str | float | None = None,
    dark: bool = False,
) -> Picture:
    """The correlation of both LayerNorms' outlying weights per layer, and the weights of one (GlobEnc, figure 5)."""
    picture, axes = _sheet(inches(width, "page"), 2.2, dark)
    style = _style(0)
    axes.plot([each.layer for each in found], [each.correlation for each in found], marker="o", markersize=2.2,
              linewidth=1.1, label="correlation", **style)  # fmt: skip
    for each in found:  # a correlation of two points is ±1, whatever they are
        if each.correlation == each.correlation:
            label = plain(str(len(each.first)), SMALL - 1, color=picture.theme.faint, va="bottom")
            _annotate(axes, label, (each.layer, each.correlation), 1.5, ha="center")
    axes.axhline(0, color=picture.theme.faint, linewidth=0.6)
    axes.set_xlim(-0.5, len(found) - 0.5)  # also where a layer has no correlation
    axes.xaxis.set_major_locator(MaxNLocator(nbins=13, integer=True))
    _name_axes(picture, axes, "layer (at each point: the number of outliers)", "correlation of outliers")
    chosen = found[layer]
    other = picture.panel(0, 0, 1, 1)
    _dress(picture, other)
    other.scatter(chosen.first, chosen.second, s=7, linewidths=0, color=_style(1)["color"])
    _name_axes(
        picture,
        other,
        f"γ of the first norm, layer {chosen.layer} ({len(chosen.first)} outliers)",
        "γ of the second norm",
    )
    total, height = picture.get_size_inches()
    _fit(picture, axes, 0, total * 0.56, height)
    _fit(picture, other, total * 0.57, total, height)
    return picture


# The frame ----------------------------------------------------------------------------------------------------


def _named(series: Mapping[str, Series | ArrayLike]) -> dict[str, Series]:
    if not series:
        raise InvalidInput("there is nothing to draw; expected at least one series")
    named = {name: each if isinstance(each, Series) else Series(each) for name, each in series.items()}
    for name, each in named.items():
        try:
            np.asarray(each.values, np.float64)
        except (TypeError, ValueError):
            raise InvalidInput(f"'{name}' holds what is no number; expected numbers, or a Series") from None
    return named


def _sheet(width: str | float | None, height: float | None, dark: bool) -> tuple[Picture, Axes]:
    total = inches(width, "column")
    picture = Picture(total, height or (2.2 if total < 5 else 2.8), theme(dark))
    axes = picture.panel(0.5, 0.1, total - 0.6, 1)
    _dress(picture, axes)
    return picture, axes


def _annotate(axes: Axes, label: dict[str, Any], at: tuple[float, float], above: float, **more: Any) -> None:
    """A text `above` points over a place."""
    axes.annotate(label.pop("s"), at, (0, above), textcoords="offset points", **label, **more)


def _dress(picture: Picture, axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    family = plain("0", SMALL)["fontfamily"]
    axes.tick_params(labelsize=SMALL, colors=picture.theme.ink, color=picture.theme.faint, width=0.5, length=2, pad=2,
                     labelfontfamily=family[-1])  # fmt: skip
    axes.grid(visible=True, axis="y", color=picture.theme.faint, alpha=0.25, linewidth=0.4)
    axes.set_axisbelow(True)


def _name_axes(picture: Picture, axes: Axes, x_label: str, y_label: str) -> None:
    for text, name in ((x_label, axes.set_xlabel), (y_label, axes.set_ylabel)):
        arguments = plain(text, SIZE, color=picture.theme.ink)
        name(arguments.pop("s"), labelpad=2, **arguments)


def _style(number: int) -> dict[str, Any]:
    """Hue first, then the kind of line: more methods than hues stay apart."""
    return {"color": hexadecimal(SERIES[number % len(SERIES)]), "linestyle": LINES[number // len(SERIES) % len(LINES)]}


def _finish(picture: Picture, axes: Axes, names: list[str], *, lines: bool) -> None:
    """Put the legend under the axes and give them the rest of the figure."""
    _fit(picture, axes, 0, picture.get_size_inches()[0], _draw_legend(picture, names, lines=lines))


def _draw_legend(picture: Picture, names: Sequence[str], *, lines: bool) -> float:
    """Draw the legend at the bottom; return where it begins, in inches from the top."""
    total, height = picture.get_size_inches()
    entries: list[list[tuple[int, str, float]]] = [[]]
    x = GAP
    for number, name in enumerate(names):
        needs = 0.24 + extent(name, SMALL)[0] + 0.12
        if x + needs > total and entries[-1]:
            entries.append([])
            x = GAP
        entries[-1].append((number, name, x))
        x += needs
    pitch = 0.125
    legend = pitch * len(entries) + GAP if names else 0.0
    for line, row in enumerate(entries):
        y = height - legend + (line + 0.5) * pitch
        for number, name, start in row:
            style = _style(number)
            inch = picture.dpi_scale_trans
            if lines:
                picture.add_artist(
                    Line2D([start, start + 0.18], [height - y] * 2, linewidth=1.3, transform=inch, **style)
                )
            else:
                box = Rectangle((start + 0.06, height - y - 0.04), 0.1, 0.08, facecolor=style["color"], transform=inch)
                box.set_hatch(HATCHES[number // len(SERIES) % 3])
                box.set_edgecolor(picture.ground)
                box.set_linewidth(0.3)
                picture.add_artist(box)
            picture.write(start + 0.22, y, name, SMALL, va="center_baseline")
    return float(height - legend)


def _fit(picture: Picture, axes: Axes, left: float, right: float, bottom: float) -> None:
    """Give axes, with everything written around them, the room between these inches (from the upper left corner)."""
    total, height = picture.get_size_inches()
    for _ in range(2):  # the second time with the ticks of the new size
        picture.draw_without_rendering()
        inside = axes.get_window_extent()
        outside = axes.get_tightbbox() or inside
        dpi = picture.dpi
        before, after = (inside.x0 - outside.x0) / dpi, (outside.x1 - inside.x1) / dpi
        below, above = (inside.y0 - outside.y0) / dpi, (outside.y1 - inside.y1) / dpi
        x0, x1 = left + before + GAP, right - after - GAP
        y0, y1 = bottom - below - GAP, above + GAP
        axes.set_position((x0 / total, 1 - y0 / height, (x1 - x0) / total, (y0 - y1) / height))


def _number(value: float) -> str:
    """Two decimals that say something: .83, -.10, 12, 0."""
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}"
    if text in ("0.00", "-0.00"):
        return "0"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text
