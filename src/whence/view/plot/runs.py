"""What an evaluation measured, as a picture: `plot.measured(run, "spearman:saliency@layers")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import WhenceError
from whence.view.plot.canvas import Picture
from whence.view.plot.tables import Series, bars, curves, grid

if TYPE_CHECKING:
    from whence.evidence.correlation import Summary
    from whence.run import Run

KINDS = ("bars", "curves", "grid")


def measured(run: Run, metric: str, kind: str | None = None, **options: Any) -> Picture:
    """One measure of every method of a run.

    bars: over whole inputs, with 99 % intervals (ALTI, figure 7). curves: over layers, with intervals as bands
    (GlobEnc, figure 3). grid: methods × layers (Value Zeroing, figure 1). Without a kind, bars where the measure has
    a value for whole inputs. Options as in the function of that name.
    """
    whole: dict[str, Summary] = {}
    layers: dict[str, dict[int, Summary]] = {}
    for key, summary in run.summary.items():
        if key.metric != metric:
            continue
        if key.layer is None:
            whole[key.method] = summary
        else:
            layers.setdefault(key.method, {})[key.layer] = summary
    if not whole and not layers:
        known = ", ".join(sorted({key.metric for key in run.summary}))
        raise WhenceError(f"the run has no measure {metric!r}; it has: {known}")
    kind = kind or ("bars" if whole else "curves")
    if kind not in KINDS:
        raise WhenceError(f"unknown kind of picture {kind!r}; expected {', '.join(KINDS)}")
    if not (whole if kind == "bars" else layers):
        have, lack = ("layers", "whole inputs") if kind == "bars" else ("whole inputs", "layers")
        raise WhenceError(f"'{metric}' was measured over {have}, not over {lack}")
    name = metric.partition("@")[0]
    if kind == "bars":
        return bars({name: Series.of(whole.values())}, list(whole), **{"y_label": name, **options})
    every = sorted({layer for found in layers.values() for layer in found})
    columns = [layer + 1 for layer in every]
    if kind == "grid":
        means = [[found[i].mean if i in found else np.nan for i in every] for found in layers.values()]
        return grid(means, list(layers), columns, **options)
    if any(sorted(found) != every for found in layers.values()):
        raise WhenceError("the methods have values on different layers; draw them as a grid")
    drawn = {method: Series.of(found[i] for i in every) for method, found in layers.items()}
    return curves(drawn, x=columns, **{"y_label": name, **options})
