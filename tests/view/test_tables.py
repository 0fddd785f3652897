"""Curves, bars and grids: the numbers given are the numbers drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

import wherefrom
from wherefrom.analysis import NormOutliers
from wherefrom.errors import WherefromError
from wherefrom.metric.correlation import summary
from wherefrom.metric.erasure import Curve
from wherefrom.view.colour import AGAINST, DARK, FOR, SERIES, hexadecimal, shade
from wherefrom.view.plot import Picture, Series, bars, curves, erasure, grid, measured, outliers


def written(picture: Picture) -> list[str]:
    return [each.get_text() for each in picture.findobj(Text) if each.get_text()]


def lines(picture: Picture) -> dict[str, Any]:
    return {line.get_label(): line for line in picture.axes[0].lines}


def test_curves_and_their_bands() -> None:
    half = Series([0.1, 0.3, 0.2], [0.01, 0.02, 0.03])
    ends = Series([0.4, 0.5, 0.6], [[0.3, 0.4, 0.5], [0.6, 0.7, 0.9]])
    picture = curves({"$half$": half, "ends": ends, "bare": [0.0, -0.1, 0.9]}, y_label="ρ_1", dark=True)
    drawn = lines(picture)
    assert list(drawn) == ["$half$", "ends", "bare"]
    assert drawn["bare"].get_xdata().tolist() == [0, 1, 2]
    assert drawn["ends"].get_ydata().tolist() == [0.4, 0.5, 0.6]
    assert [to_hex(line.get_color()) for line in drawn.values()] == [hexadecimal(hue) for hue in SERIES[:3]]
    bands = [each.get_paths()[0].vertices for each in picture.axes[0].collections]
    assert len(bands) == 2
    for low, high, band in (([0.09, 0.28, 0.17], [0.11, 0.32, 0.23], bands[0]), (*ends.interval, bands[1])):
        for x, lower, upper in zip((0, 1, 2), low, high, strict=True):
            heights = band[band[:, 0] == x, 1]
            assert (heights.min(), heights.max()) == pytest.approx((lower, upper))
    assert {"$half$", "ends", "bare", "layer", "ρ_1"} <= set(written(picture))
    names = [each for each in picture.findobj(Text) if each.get_text() in ("$half$", "ρ_1")]
    assert not any(each.get_parse_math() for each in names)
    assert to_hex(picture.get_facecolor()) == hexadecimal(DARK)


def test_more_curves_than_hues_stay_apart() -> None:
    drawn = lines(curves({str(i): [0.0, 1.0] for i in range(12)}))
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn.values()}
    assert len(looks) == 12


def test_series_of_summaries() -> None:
    measured = [summary([0.1, 0.2, 0.4]), summary([0.5, 0.5, 0.8])]
    series = Series.of(measured)
    assert series.values == [each.mean for each in measured]
    low, high = series.ends()
    assert high - low == pytest.approx([2 * each.interval for each in measured])


def test_bars_stand_for_their_numbers() -> None:
    picture = bars(
        {"BERT": Series([0.4, -0.2], [0.1, 0.05]), "DistilBERT": [0.3, 0.1]}, ["attcat", "a_1"], written=True
    )
    first, second = (
        list(each) for each in picture.axes[0].containers if not hasattr(each, "has_yerr") or not each.has_yerr
    )
    assert [bar.get_height() for bar in first] == [0.4, -0.2]
    assert [bar.get_height() for bar in second] == [0.3, 0.1]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in (*first, *second)]
    assert centres == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    (whiskers,) = picture.axes[0].collections
    assert [segment[:, 1].tolist() for segment in whiskers.get_segments()] == [
        pytest.approx([0.3, 0.5]),
        pytest.approx([-0.25, -0.15]),
    ]
    assert {"attcat", "a_1", "BERT", "DistilBERT", "0.4", "-0.2"} <= set(written(picture))
    signs = bars({"score": [1.0, -1.0]}, ["a", "b"], signs=True)
    assert [to_hex(bar.get_facecolor()) for bar in signs.axes[0].patches] == [hexadecimal(FOR), hexadecimal(AGAINST)]


def test_grid_cells_are_coloured_by_their_numbers() -> None:
    picture = grid([[0.2, 0.8], [np.nan, 0.4]], ["$m$", "other"], [1, 2])
    colours = np.asarray(picture.axes[0].images[0].get_array())
    expected = [[0.25, 1.0], [0.0, 0.5]]
    assert colours.tolist() == [[list(shade(value, False)) for value in row] for row in expected]
    assert {"$m$", "other", "1", "2", ".20", ".80", ".40", "–", "0"} <= set(written(picture))
    limited = grid([[0.2, 0.8]], ["m"], ["a", "b"], limits=(0.2, 0.5), written=False)
    assert np.asarray(limited.axes[0].images[0].get_array())[0].tolist() == [[255, 255, 255], list(shade(1.0, False))]
    assert ".80" not in written(limited)
    signed = grid([[-1.0, 0.5]], ["m"], ["a", "b"])
    row = np.asarray(signed.axes[0].images[0].get_array())[0].tolist()
    assert row == [list(shade(-1.0, True)), list(shade(0.5, True))]


def test_erasure_curves() -> None:
    steps = np.array([0, 1, 2, 4])
    one = Curve(steps, np.array([0.9, 0.5, 0.2, 0.1]))
    many = [Curve(steps, np.array([0.9, p, p, p])) for p in (0.8, 0.6, 0.7)]
    drawn = lines(erasure({"attcat": one, "random": many}))
    assert drawn["attcat"].get_xdata().tolist() == [0, 0.25, 0.5, 1]
    assert drawn["attcat"].get_ydata().tolist() == one.probabilities.tolist()
    assert drawn["random"].get_ydata() == pytest.approx([0.9, 0.7, 0.7, 0.7])
    with pytest.raises(WherefromError, match="different shares"):
        erasure({"a": one, "b": Curve(np.array([0, 3, 3, 4]), one.probabilities)})
    with pytest.raises(WherefromError, match="expected the same shares"):
        erasure({"a": [one, Curve(steps[:2], one.probabilities[:2])]})


def test_outliers_are_drawn_by_layer() -> None:
    found = [NormOutliers(i, [0, 1], np.array([0.1 * i, 2.0]), np.array([1.0, 0.2]), -0.5 * i) for i in range(3)]
    found.append(NormOutliers(3, [], np.zeros(0), np.zeros(0), float("nan")))
    picture = outliers(found, layer=1)
    left, right = picture.axes
    assert left.lines[0].get_ydata()[:3].tolist() == [0.0, -0.5, -1.0]
    assert left.get_xlim() == (-0.5, 3.5)
    assert right.collections[0].get_offsets().tolist() == [[0.1, 1.0], [2.0, 0.2]]
    assert any("layer 1 (2 outliers)" in text for text in written(picture))
    assert [each.get_text() for each in left.texts] == ["2", "2", "2"]  # of how many points each correlation is


def test_the_shipped_model_is_drawn_by_one_call() -> None:
    assert outliers(wherefrom.norm_outliers()).axes[0].lines[0].get_xdata().tolist() == list(range(10))


def test_what_a_run_measured() -> None:
    texts = ["a deep film .", "not a good film ."]
    run = wherefrom.evaluate(
        texts,
        methods=["raw-attention", "random"],
        metrics=["aopc", "spearman:random@layers", "sufficiency", "aopc(protocol=attcat-code)"],
        progress=False,
    )
    picture = measured(run, "aopc")
    heights = [bar.get_height() for bar in picture.axes[0].patches]
    assert heights == [run.mean("raw-attention", "aopc"), run.mean("random", "aopc")]
    assert {"raw-attention", "random", "aopc"} <= set(written(picture))
    drawn = lines(measured(run, "spearman:random@layers"))
    expected = [run.mean("raw-attention", "spearman:random@layers", layer) for layer in range(10)]
    assert drawn["raw-attention"].get_ydata().tolist() == expected
    assert drawn["raw-attention"].get_xdata().tolist() == list(range(10))
    cells = np.asarray(measured(run, "spearman:random@layers", "grid").axes[0].images[0].get_array())
    assert cells.shape == (2, 10, 3)
    kept = [row["probabilities"] for row in run.table("curves").to_pylist() if row["method"] == "random"]
    gone, left = (lines(measured(run, metric, "curves"))["random"] for metric in ("aopc", "sufficiency"))
    assert gone.get_xdata() == pytest.approx(np.arange(11) / 10)
    assert gone.get_ydata() == pytest.approx(np.mean([each for each in kept if len(each) == 11], axis=0))
    assert left.get_xdata() == pytest.approx([0.01, 0.05, 0.1, 0.2, 0.5])
    for message, metric, kind in (
        ("steps of their own for every length", "aopc(protocol=attcat-code)", "curves"),
        ("no metric 'comfort'; it has: aopc, aopc", "comfort", None),
        ("measured over whole inputs, not over layers", "aopc", "grid"),
        ("measured over layers, not over whole inputs", "spearman:random@layers", "bars"),
        ("unknown kind of picture 'pie'", "aopc", "pie"),
    ):
        with pytest.raises(WherefromError, match=message):
            measured(run, metric, kind)


def test_what_does_not_fit_is_said() -> None:
    for message, call in {
        "2 values for 3 places": lambda: curves({"a": [1.0, 2.0]}, x=[1, 2, 3]),
        "2 values for 1 groups": lambda: bars({"a": [1.0, 2.0]}, ["x"]),
        "nothing to draw": lambda: curves({}),
        "'a' holds what is no number": lambda: curves({"a": ["x"]}),
        "does not fit 2 values": lambda: curves({"a": Series([1.0, 2.0], [0.1])}),
        "2 rows and 1 columns": lambda: grid([[1.0, 2.0]], ["a", "b"], ["c"]),
    }.items():
        with pytest.raises(WherefromError, match=message):
            call()
