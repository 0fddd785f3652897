"""Heatmaps of explanations: the readout row of every layer, and whole maps.

layers   layers × tokens, the first layer at the bottom    Abnar & Zuidema, figures 2-4; GlobEnc, 1; AttCAT, 4
maps     the n × n map of every layer                      Value Zeroing, appendix; ALTI, figures 8-10
map      one n × n map with its readout row beneath        ALTI, figure 5; GlobEnc, figure A.3
tokens   methods × tokens                                  Value Zeroing, figure 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wherefrom.errors import InvalidInput, InvalidOption, NotDefined, UnknownName
from wherefrom.result.alignment import Alignment
from wherefrom.result.explanation import Array, Explanation
from wherefrom.result.generation import Generation
from wherefrom.typecheck import checked
from wherefrom.view.colour import PALE, hexadecimal, intensities, strengths
from wherefrom.view.plot.canvas import GAP, SMALL, Picture, Theme, inches
from wherefrom.view.plot.canvas import theme as theme_of
from wherefrom.view.plot.heat import (
    NARROWEST,
    WIDEST,
    Layout,
    Sheet,
    arrange,
    draw_legend,
    legend,
    legend_height,
    place,
    strips,
    total_height,
    towards,
    with_row,
)
from wherefrom.view.plot.lettering import extent, widest

SCALES = ("layer", "row", "all")
ROW = 0.125  # inches that a layer's row is high
FEW = 24  # tokens that a column of a page has room for
SMALLEST = 1.9  # inches of a map of so many tokens that labels are left out


def layers(
    named: Mapping[str, Explanation],
    width: float,
    theme: Theme,
    *,
    scale: str = "layer",
    tokens: Sequence[int | str] | None = None,
    probabilities: Sequence[str] = (),
    answer: bool = False,
) -> Picture:
    """What every layer draws on: a row per layer, a column per token.

    scale: every layer by its own largest score, or all layers by one ("all"). tokens: only these. answer: a last row
    with the scores over all layers. probabilities: these words or labels as bars beside it.
    """
    sheets = [_layer_sheet(name, each, scale, tokens, answer) for name, each in named.items()]
    bars = _bars_width(probabilities)
    pieces = strips(sheets, width - 2 * GAP - bars)
    layout = arrange(pieces, width - 2 * GAP - bars, ROW, widest_cell=0.4 if tokens is not None else WIDEST)
    picture = _placed(pieces, layout, width, theme, scale, "layer", labelled=True, left=bars, target=towards(named))
    if probabilities:
        first = next(iter(named.values()))
        _probability_bars(picture, first, probabilities, GAP, GAP + layout.title, len(pieces[0].rows) * ROW)
    return picture


def maps(
    named: Mapping[str, Explanation],
    width: float,
    theme: Theme,
    *,
    scale: str = "layer",
    own: bool = False,
    layers: Sequence[int] | None = None,
) -> Picture:
    """The map of every layer, aggregated if the method is; `own=True` takes the method's own maps.

    scale: every map by its largest entry, every row by its largest ("row"), or all maps by one ("all").
    """
    sheets = [
        _map_sheet(f"{name}, layer {i}" if len(named) > 1 else f"layer {i}", each, i, scale, own)
        for name, each in named.items()
        for i in _chosen_layers(each, own, layers)
    ]
    size = max(len(sheet.columns) for sheet in sheets)
    layout = arrange(sheets, width - 2 * GAP, widest_cell=0.16, narrowest=min(NARROWEST, SMALLEST / size))
    return _placed(sheets, layout, width, theme, scale, "map", target=towards(named))


def one_map(
    named: Mapping[str, Explanation],
    width: float,
    theme: Theme,
    *,
    layer: int = -1,
    scale: str = "layer",
    own: bool = False,
) -> Picture:
    """One layer's map, the last if none is named, and under it the readout row."""
    layer, sheets = checked("layer", layer, int), []
    for name, each in named.items():
        (chosen,) = _chosen_layers(each, own, [layer])
        sheet = _map_sheet(f"{name}, layer {chosen}", each, chosen, scale, own)
        found = _stack(each, own)[chosen]
        row = each.readout.row(found)
        label = "mean" if each.position is None else each.pieces[each.position]
        sheets.append(with_row(sheet, intensities(row, each.signed, each.position), label))
    return _placed(
        sheets,
        arrange(sheets, width - 2 * GAP, widest_cell=0.2),
        width,
        theme,
        scale,
        "map or row",
        target=towards(named),
    )


def tokens(named: Mapping[str, Explanation], width: float, theme: Theme, *, special: bool = True) -> Picture:
    """Every method's scores as a row over the tokens; special ones pale, or without `special` left out."""
    first = next(iter(named.values()))
    if any(each.tokens != first.tokens for each in named.values()):
        raise InvalidInput("these explanations are of different tokens; expected one text cut in one way")
    shown = [i for i in range(len(first)) if special or not first.special[i]]
    if not shown:
        raise NotDefined("there is no token to show besides special ones")
    aside = np.array(first.special, dtype=bool)[shown]
    rows = np.stack(
        [intensities(each.scores[shown], each.signed, _own(each, shown), aside.tolist()) for each in named.values()]
    )
    rows[[bool(each.rounding) for each in named.values()]] = 0.0
    rows[:, aside] *= PALE
    signs = [each.signed for each in named.values()]
    sheets = strips([Sheet(rows, list(named), [first.pieces[i] for i in shown], signs)], width - 2 * GAP)
    return _placed(
        sheets,
        arrange(sheets, width - 2 * GAP, ROW * 1.15),
        width,
        theme,
        "row",
        "row",
        labelled=True,
        target=towards(named),
    )


def _layer_sheet(name: str, explanation: Explanation, scale: str, tokens: Any, answer: bool) -> Sheet:
    rows = explanation.readout_rows
    assert rows is not None  # `draw` has left out those that have none
    strength = _scaled(rows[:, None], explanation, scale)[:, 0]
    labels = [str(layer) for layer in range(len(rows))]
    shown = range(len(explanation)) if tokens is None else [explanation._token(token) for token in tokens]
    chosen = [int(token) for token in shown]
    columns = [explanation.pieces[token] for token in chosen]
    sheet = Sheet(strength[::-1][:, chosen], labels[::-1], columns, explanation.signed, name, corner="layer")
    scores = strengths(explanation)[chosen]
    return with_row(sheet, scores, explanation.aggregate or "all") if answer else sheet


def _own(explanation: Explanation, shown: list[int]) -> int | None:
    """Where the readout token stands among those shown, if it does."""
    return shown.index(explanation.position) if explanation.position in shown else None


def _map_sheet(title: str, explanation: Explanation, layer: int, scale: str, own: bool) -> Sheet:
    strength = _scaled(_stack(explanation, own), explanation, scale, rows_of_maps=True)[layer]
    return Sheet(strength, explanation.pieces, explanation.pieces, explanation.signed, title)


def _scaled(stack: Array, explanation: Explanation, scale: str, rows_of_maps: bool = False) -> Array:
    """[L, m, n] for the eye, by the largest entry of each layer, of each row or of all."""
    if scale not in SCALES:
        raise InvalidOption(f"unknown scale {scale!r}; expected {', '.join(SCALES)}")
    signed, own = explanation.signed, None if rows_of_maps else explanation.position
    if scale == "all":
        return intensities(stack, signed, own)
    if scale == "row" and rows_of_maps:
        return np.stack([[intensities(row, signed, i) for i, row in enumerate(map_)] for map_ in stack])
    return np.stack([intensities(layer, signed, own) for layer in stack])


def _stack(explanation: Explanation, own: bool) -> Array:
    stack = explanation.maps if own or explanation.aggregated is None else explanation.aggregated
    if stack is None:
        raise NotDefined(f"'{explanation.method}' has no maps; leave it out, or show its scores (kind='text')")
    return stack


def _chosen_layers(explanation: Explanation, own: bool, layers: Sequence[int] | None) -> list[int]:
    depth = len(_stack(explanation, own))
    chosen = list(range(depth)) if layers is None else list(layers)
    wrong = [layer for layer in chosen if not -depth <= layer < depth]
    if wrong or not chosen:
        raise InvalidOption(f"layer {wrong or chosen} is outside the {depth} layers; they are counted from 0")
    return [layer % depth for layer in chosen]


def alignment(found: Alignment, layer: int = -1, width: str | float | None = None, *, dark: bool = False) -> Picture:
    """Target words downwards, source words across: how much of each comes from each, by the largest of its row."""
    weights = found.weights(layer)
    largest = weights.max(-1, keepdims=True)
    strength = weights / np.where(largest > 0, largest, 1)
    room = inches(width, "column")
    sheets = [Sheet(strength, found.target, found.source, False, found.method)]
    return _placed(sheets, arrange(sheets, room - 2 * GAP), room, theme_of(dark), "row", "row", labelled=True)


def generation(found: Generation, width: str | float | None = None, *, dark: bool = False) -> Picture:
    """Tokens that were said downwards, those before them across: what each comes from, by the largest of its words.

    Special tokens are pale, as in texts: of many methods they have the most.
    """
    strength = np.zeros((len(found), len(found.ids) - 1))
    for step, each in enumerate(found):
        strength[step, : len(each)] = strengths(each)
    room = inches(width, "column" if len(found.ids) <= FEW else "page")
    whole = found.whole
    sheets = [Sheet(strength, found.tokens, whole.pieces[:-1], whole.signed, whole.method)]
    layout = arrange(sheets, room - 2 * GAP)
    return _placed(sheets, layout, room, theme_of(dark), "words", "row's words", labelled=True)


def _placed(
    sheets: Sequence[Sheet],
    layout: Layout,
    width: float,
    theme: Theme,
    scale: str,
    what: str,
    *,
    labelled: bool = False,
    left: float = 0.0,
    target: str = "",
) -> Picture:
    """The sheets on a page that is as high as they need, with the key to their colours."""
    signs = {sign for sheet in sheets for sign in ([sheet.signed] if isinstance(sheet.signed, bool) else sheet.signed)}
    unit = {"all": "largest", "row": "largest of the row"}.get(scale, f"largest of the {what}")
    keys = legend(width, signs, "0", unit, target)
    picture = Picture(width, total_height(sheets, layout, labelled) + legend_height(keys) + 4 * GAP, theme)
    bottom = place(picture, sheets, layout, GAP + left, GAP, labelled)
    draw_legend(picture, bottom + GAP, keys)
    return picture


def _bars_width(words: Sequence[str]) -> float:
    return widest(list(words), SMALL) + 0.75 if words else 0.0


def _probability_bars(
    picture: Picture, explanation: Explanation, words: Sequence[str], left: float, top: float, height: float
) -> None:
    """What the model predicts, as bars: the left side of Abnar & Zuidema's figure 4."""
    unknown = [word for word in words if word not in explanation.probabilities]
    if unknown:
        known = ", ".join(explanation.probabilities)
        raise UnknownName(f"no probability of {', '.join(unknown)} was kept; there are: {known}")
    labels = widest(list(words), SMALL)
    axes = picture.panel(left + labels + GAP / 2, top, 0.4, height)
    axes.set_label("probabilities")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    values = [explanation.probabilities[word] for word in words]
    colour = hexadecimal((128, 128, 128))
    axes.barh(range(len(words)), values, height=0.55, color=colour)
    axes.set_xlim(0, 1.02 * max(values))
    axes.set_ylim(len(words) - 0.5, -0.5)
    for i, (word, value) in enumerate(zip(words, values, strict=True)):
        y = top + (i + 0.5) / len(words) * height
        picture.write(left + labels, y, word, SMALL, ha="right", va="center_baseline")
        below = y + 0.5 * 0.55 * height / len(words) + extent("0", SMALL)[1] + 0.01
        picture.write(left + labels + GAP, below, f"{value:.2f}", SMALL - 1, color=picture.theme.faint, va="baseline")
