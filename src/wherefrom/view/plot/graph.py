"""The attention graph: tokens in columns of layers, edges as wide as what flows along them.

Abnar & Zuidema's figure 1. The input stands at the left; an edge from token j of one column to token i of the next is
the entry (i, j) of that layer's map: the method's own map, or for an aggregated one what token i of that layer holds of
input j. `edges="paths"` shows how much of the answer takes each edge on its way to the input (ALTI's figure 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from matplotlib.collections import LineCollection

from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.result.explanation import Array, Explanation
from wherefrom.result.routes import Routes
from wherefrom.view.colour import hexadecimal, shade, shades
from wherefrom.view.plot.along_edges import through
from wherefrom.view.plot.canvas import GAP, SIZE, SMALL, Picture, Theme, inches, theme
from wherefrom.view.plot.heat import label_size, label_step
from wherefrom.view.plot.lettering import extent, short, widest

PITCH = 0.135  # inches from token to token,
TALLEST = 8.0  # and of the whole graph
CLOSEST = 0.17  # inches from layer to layer
THICKEST = 2.6  # points, of at most
MOST = 6000  # edges drawn of one graph, the thickest
FAINTEST = 0.01  # of the thickest: not seen, and not drawn
LARGEST = 22.0  # points², of a square
EDGES = ("weight", "answer", "paths")


def graph(
    named: Mapping[str, Explanation],
    width: float,
    theme: Theme,
    *,
    edges: str = "weight",
    own: bool = False,
    top: int | None = None,
) -> Picture:
    """One graph for every explanation.

    edges: all of them ("weight"), those of the readout token at every layer ("answer"), or as wide as what of the
    answer goes along them ("paths"). own: the method's own maps where there are aggregated ones too. top: only the
    strongest so many edges of every token.
    """
    if edges not in EDGES:
        raise InvalidOption(f"unknown edges {edges!r}; expected {', '.join(EDGES)}")
    weights = {name: edge_weights(each, edges, own, top) for name, each in named.items()}
    depth = max(len(each) for each in weights.values())
    tokens = max(len(each) for each in named.values())
    labels = widest([short(piece) for each in named.values() for piece in each.pieces], SIZE) + 1.5 * GAP
    room = width - 2 * GAP
    across = min(len(named), max(1, int(room / (labels + depth * CLOSEST + GAP))))
    each_width = room / across - labels - GAP
    height = min(PITCH * tokens, TALLEST)
    title, axis = extent("Ag", SIZE)[1] + GAP, extent("1", SMALL)[1] + 2 * GAP
    rows = -(-len(named) // across)
    picture = Picture(width, 2 * GAP + rows * (title + height + axis), theme)
    for number, (name, explanation) in enumerate(named.items()):
        left = GAP + labels + (number % across) * (room / across)
        start = GAP + title + (number // across) * (title + height + axis)
        picture.write(left, start - GAP * 0.8, name, va="baseline")
        _draw(picture, explanation, weights[name], left, start, each_width, height, name)
    return picture


def routes(found: Routes, width: str | float | None = None, *, dark: bool = False) -> Picture:
    """The routes of information flow alone; a square where the FFN brings its share, as large as that."""
    reached, flow = found.reached, found.flow
    assert flow.maps is not None
    kept = replace(flow, maps=flow.maps * reached[1:, :, None])
    picture = graph({f"routes above {found.threshold:g}": kept}, inches(width, "page"), theme(dark), own=True)
    layers, tokens = np.nonzero(reached[1:] & (found.ffn > 0))
    colour = hexadecimal(shade(0.8, True, picture.theme.ground))
    (axes,) = picture.axes
    axes.scatter(
        layers + 1, tokens, s=LARGEST * found.ffn[layers, tokens], color=colour, marker="s", linewidths=0, zorder=5
    )
    return picture


def edge_weights(explanation: Explanation, edges: str = "weight", own: bool = False, top: int | None = None) -> Array:
    """[L, n, n]: how wide the edge from token j below to token i above is drawn."""
    aggregated = None if own or edges == "paths" else explanation.aggregated
    maps = explanation.maps if aggregated is None else aggregated
    if maps is None:
        raise NotDefined(
            f"'{explanation.method}' has no maps to draw as a graph; leave it out, or show its scores (kind='text')"
        )
    if edges == "paths":
        maps = through(maps, explanation.position)
    if edges == "answer" and explanation.position is not None:
        maps = np.where(np.arange(maps.shape[-1])[:, None] == explanation.position, maps, 0)
    if top is not None:
        order = np.argsort(np.argsort(-np.abs(maps), axis=-1, kind="stable"), axis=-1)
        maps = np.where(order < top, maps, 0)
    return maps


def thickest(n: int) -> float:
    """Points of the widest edge: among many tokens lines are thinner, or they cover each other."""
    return THICKEST * min(1.0, 8 / n) + 0.2


def relative(weights: Array) -> Array:
    """In [-1, 1] by the largest entry that is not a token's own: a residual connection must not flatten the rest."""
    n = weights.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 0.0, np.abs(weights))
    largest = float(others.max(initial=0.0)) or float(np.abs(weights).max(initial=0.0)) or 1.0
    share: Array = np.clip(weights / largest, -1, 1)
    return share


def _draw(
    picture: Picture,
    explanation: Explanation,
    weights: Array,
    left: float,
    top: float,
    width: float,
    height: float,
    name: str,
) -> None:
    depth, n = len(weights), len(explanation)
    axes = picture.panel(left, top, width, height)
    axes.set_label(name)
    axes.set_axis_off()
    axes.set_xlim(-0.15, depth + 0.15)
    axes.set_ylim(n - 0.5, -0.5)
    share = relative(weights)
    strong = np.argwhere(np.abs(share) >= FAINTEST)
    order = np.argsort(np.abs(share[tuple(strong.T)]), kind="stable")[-MOST:]  # the thickest last, on top
    chosen = strong[order]
    value = share[tuple(chosen.T)]
    lines = [((layer, j), (layer + 1, i)) for layer, i, j in chosen.tolist()]
    least = 0.3 if picture.theme.dark else 0.12  # dark grounds swallow thin lines
    strength = np.sign(value) * (least + (1 - least) * np.abs(value) ** 1.5)
    colours = shades(strength, explanation.signed, picture.theme.ground) / 255
    axes.add_collection(LineCollection(lines, linewidths=thickest(n) * np.abs(value), colors=colours, capstyle="butt"))
    places = np.stack(np.meshgrid(np.arange(depth + 1), np.arange(n)), -1).reshape(-1, 2)
    axes.scatter(places[:, 0], places[:, 1], s=1.6, color=picture.theme.faint, linewidths=0, zorder=3)
    if explanation.position is not None:
        mark = hexadecimal(shade(1.0, explanation.signed, picture.theme.ground))
        axes.scatter(depth, explanation.position, s=11, color=mark, linewidths=0, zorder=4)
    cell = height / n
    for token in range(0, n, label_step(cell)):
        text = short(explanation.pieces[token])
        y = top + (token + 0.5) * cell
        picture.write(left - GAP / 2, y, text, label_size(cell), ha="right", va="center_baseline")
    step = max(1, int(np.ceil(0.16 / (width / (depth + 0.3)))))
    for layer in range(0, depth + 1, step):
        x = left + (layer + 0.15) / (depth + 0.3) * width
        text = "in" if layer == 0 else str(layer - 1)
        picture.write(x, top + height + GAP, text, SMALL, color=picture.theme.faint, ha="center", va="top")
