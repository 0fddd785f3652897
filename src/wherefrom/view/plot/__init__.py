"""Pictures for papers, by matplotlib (the extra `plot`): `ex.plot(kind)`, `comparison.plot(kind)`, and of tables.

    text     highlighted text, one method under the other
    tokens   methods × tokens
    bars     the scores as bars
    layers   layers × tokens: what every layer draws on
    maps     the n × n map of every layer
    map      one n × n map and its readout row
    graph    tokens in columns of layers, edges as wide as the weight
    image    scores over the picture that they explain, methods side by side

`curves`, `curve_panels`, `bars`, `grid`, `erasure`, `outliers` and `critical` draw numbers of any origin, `measured`
those of an evaluation. A view never computes a score.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wherefrom.errors import InvalidInput, InvalidOption, NotDefined, warn
from wherefrom.extras import need

need("matplotlib", extra="plot")  # said before the first module below fails to find it

from wherefrom.view.plot.canvas import Picture, inches, save, theme  # noqa: E402
from wherefrom.view.plot.charts import Series, bars, curve_panels, curves, erasure, grid, outliers  # noqa: E402
from wherefrom.view.plot.critical import critical  # noqa: E402
from wherefrom.view.plot.graph import graph, routes  # noqa: E402
from wherefrom.view.plot.image import image  # noqa: E402
from wherefrom.view.plot.maps import alignment, generation, layers, maps, one_map, tokens  # noqa: E402
from wherefrom.view.plot.runs import measured  # noqa: E402
from wherefrom.view.plot.text import highlighted  # noqa: E402

if TYPE_CHECKING:
    from wherefrom.result.explanation import Explanation

__all__ = [
    "KINDS",
    "Picture",
    "Series",
    "alignment",
    "bars",
    "critical",
    "curve_panels",
    "curves",
    "draw",
    "erasure",
    "generation",
    "grid",
    "measured",
    "outliers",
    "routes",
    "save",
]


def scores(named: Mapping[str, Explanation], width: float, theme: Any, *, special: bool = True) -> Picture:
    """The scores of every token as bars, coloured by sign or by method; special ones pale, or left out."""
    first = next(iter(named.values()))
    if any(each.tokens != first.tokens for each in named.values()):
        raise InvalidInput("these explanations are of different tokens; expected one text cut in one way")
    shown = [i for i in range(len(first)) if special or not first.special[i]]
    values = {name: each.scores[shown] for name, each in named.items()}
    alone = len(named) == 1 and first.signed
    pale = [place for place, i in enumerate(shown) if first.special[i]]
    names = [first.pieces[i] for i in shown]
    return bars(values, names, y_label="score", signs=alone, pale=pale, width=width, dark=theme.dark)


KINDS: dict[str, Callable[..., Picture]] = {
    "text": highlighted,
    "tokens": tokens,
    "bars": scores,
    "layers": layers,
    "maps": maps,
    "map": one_map,
    "graph": graph,
    "image": image,
}
WIDE = ("maps", "graph", "image")  # kinds that want both columns of a paper
LAYERED = ("layers", "maps", "map", "graph")  # kinds that show layers, which some methods do not have


def draw(
    named: Mapping[str, Explanation],
    kind: str | None = None,
    *,
    width: str | float | None = None,
    dark: bool = False,
    **options: Any,
) -> Picture:
    """Explanations of one input, by the name that stands above each, as a figure.

    width: "column" (3.3 inches), "page" (6.9), or inches. The options are those of the kind's own function.
    """
    if not named:
        raise InvalidInput("there is nothing to draw; expected at least one explanation")
    if kind is None:
        kind = "text" if next(iter(named.values())).picture is None else "image"
    if kind not in KINDS:
        raise InvalidOption(f"unknown kind of picture {kind!r}; expected {', '.join(KINDS)}")
    known = [p.name for p in inspect.signature(KINDS[kind]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if unknown := [name for name in options if name not in known]:
        raise InvalidOption(f"'{kind}' takes no {', '.join(unknown)}; it takes {', '.join(['width', 'dark', *known])}")
    named = _with_layers(named, kind) if kind in LAYERED else named
    named = {f"{name}: {each.rounding}" if each.rounding else name: each for name, each in named.items()}
    usual = "page" if kind in WIDE or len(named) > 1 else "column"
    return KINDS[kind](named, inches(width, usual), theme(dark), **options)


def _with_layers(named: Mapping[str, Explanation], kind: str) -> Mapping[str, Explanation]:
    """Those that can be drawn so; a warning names the others, and an error where none can."""
    parts = ("maps", "aggregated", *(("layer_scores",) if kind == "layers" else ()))
    drawn = {name: each for name, each in named.items() if any(getattr(each, part) is not None for part in parts)}
    missing = [name for name in named if name not in drawn]
    lacking = f"{', '.join(missing)}: {'nothing is known about layers' if kind == 'layers' else 'there are no maps'}"
    if not drawn:
        raise NotDefined(f"{lacking}; choose another method, or show scores (kind='text')")
    if missing:
        warn(f"{lacking}, so left out of the picture")
    return drawn
