"""What an evaluation measured, as a picture: `plot.measured(run, "spearman:saliency@layers")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.errors import InvalidOption, NotDefined, UnknownName
from wherefrom.metric.correlation import summary as summarised
from wherefrom.view.plot.canvas import Picture
from wherefrom.view.plot.charts import Series, bars, curves, grid

if TYPE_CHECKING:
    from wherefrom.evaluation import Run
    from wherefrom.metric.correlation import Summary

KINDS = ("bars", "curves", "grid")


def measured(run: Run, metric: str, kind: str | None = None, **options: Any) -> Picture:
    """One metric of every method of a run.

    bars: over whole inputs, with 99 % intervals (ALTI, figure 7). curves: over layers, with intervals as bands
    (GlobEnc, figure 3); of a metric of erasure, over the share of the tokens that are gone. grid: methods × layers
    (Value Zeroing, figure 1). Without a kind, bars where the metric has a value for whole inputs. Options as in the
    function of that name.
    """
    from wherefrom.metric.names import metric_of  # loads torch, without which pictures of explanations do

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
        raise UnknownName(f"the run has no metric {metric!r}; it has: {known}")
    kind = kind or ("bars" if whole else "curves")
    if kind not in KINDS:
        raise InvalidOption(f"unknown kind of picture {kind!r}; expected {', '.join(KINDS)}")
    if kind == "curves" and metric_of(metric).way is not None:
        return _erased(run, metric, **options)
    if not (whole if kind == "bars" else layers):
        have, lack = ("layers", "whole inputs") if kind == "bars" else ("whole inputs", "layers")
        raise NotDefined(f"'{metric}' was measured over {have}, not over {lack}")
    name = metric.partition("@")[0]
    if kind == "bars":
        return bars({name: Series.of(whole.values())}, list(whole), **{"y_label": name, **options})
    every = sorted({layer for found in layers.values() for layer in found})
    if kind == "grid":
        means = [[found[i].mean if i in found else np.nan for i in every] for found in layers.values()]
        return grid(means, list(layers), every, **options)
    if any(sorted(found) != every for found in layers.values()):
        raise NotDefined("the methods have values on different layers; draw them as a grid")
    drawn = {method: Series.of(found[i] for i in every) for method, found in layers.items()}
    return curves(drawn, x=every, **{"y_label": name, **options})


def _erased(run: Run, metric: str, **options: Any) -> Picture:
    """The probability after each share of the tokens, mean and interval over the inputs."""
    from wherefrom.metric.names import lookup

    way = lookup(metric).way
    assert way is not None
    table = run.table("curves")
    by_method: dict[str, list[list[float]]] = {}
    for method, how, curve in zip(
        *(table[name].to_pylist() for name in ("method", "way", "probabilities")), strict=True
    ):
        if how == str(way):
            by_method.setdefault(method, []).append(curve)
    shares = list(way.shares if way.shares[0] == 0 else (0.0, *way.shares))
    if any(len(curve) != len(shares) for every in by_method.values() for curve in every):
        raise NotDefined("these curves have steps of their own for every length (attcat-code); draw bars instead")
    begin = int(way.keep)  # the first of a curve is the whole input, which is no share of what was kept
    drawn = {
        method: Series.of(summarised(column) for column in np.array(every).T[begin:])
        for method, every in by_method.items()
    }
    named = {"x_label": f"share of tokens {'kept' if way.keep else 'taken'}", "y_label": "probability of the target"}
    return curves(drawn, x=shares[begin:], **{**named, **options})
