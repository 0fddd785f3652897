"""Pictures: what they show is the numbers, where it stands is where it belongs, and nothing is clipped."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text

from wherefrom.aggregate import rollout
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.result.answer import Target
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import DARK, WHITE, hexadecimal, intensities, shade, shades, strengths
from wherefrom.view.plot import KINDS, Picture, draw, save
from wherefrom.view.plot.canvas import SMALL
from wherefrom.view.plot.graph import edge_weights, relative
from wherefrom.view.plot.text import flow

OF_TEXTS = [kind for kind in KINDS if kind != "image"]
TOKENS = ["[CLS]", "$x_1$", "a_b^2", "film", "\\frac{1}", "[SEP]"]
# Scripts that DejaVu Sans has, and some that no font of a bare machine may have; controls; the long; the empty word.
STRANGE = [
    "中文",
    "مرحبا",
    "हिन्दी",
    "\U0001f642",
    "\n",
    "a\tb",
    "<b>&",
    "%d",
    "U\u202eRTL",
    "\ud800",
    "x" * 60,
    "\u200b",
    "Ω",
]


def example(tokens: list[str] = TOKENS, *, signed: bool = False, depth: int = 3, seed: int = 0) -> Explanation:
    """Row-stochastic maps with their rollout; the first token answers."""
    random = np.random.default_rng(seed)
    n = len(tokens)
    maps = random.random((depth, n, n)) ** 3
    maps /= maps.sum(-1, keepdims=True)
    if signed:
        maps *= random.choice([-1.0, 1.0], maps.shape)
    aggregated = rollout(maps)
    position = 0
    return Explanation(
        tokens=list(tokens),
        scores=aggregated[-1, position],
        method="made",
        maps=maps,
        aggregated=aggregated,
        aggregate="rollout",
        signed=signed,
        special=[token.startswith("[") for token in tokens],
        readout=replace(Explanation.from_scores(["a"], [1.0]).readout, position=position, why="first token"),
        probabilities={"good": 0.75, "bad": 0.25},
    )


def texts(picture: Picture) -> list[Text]:
    return [each for each in picture.findobj(Text) if each.get_text()]


def written(picture: Picture) -> list[str]:
    return [each.get_text() for each in texts(picture)]


def cells(picture: Picture, title: str) -> np.ndarray[Any, Any]:
    """The colours of the panel of that title, [rows, columns, 3]."""
    (axes,) = [each for each in picture.axes if each.get_label() == title]
    return np.asarray(axes.images[0].get_array())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_layers_are_coloured_by_their_scores_the_first_at_the_bottom(signed: bool, dark: bool) -> None:
    found = example(signed=signed)
    picture = found.plot("layers", dark=dark)
    colours = cells(picture, "made · rollout")
    ground = DARK if dark else WHITE
    assert colours.shape == (3, len(TOKENS), 3)
    for layer in range(3):
        strength = intensities(found.aggregated[layer, 0], signed, 0)
        expected = [shade(float(value), signed, ground) for value in strength]
        assert colours[2 - layer].tolist() == [list(colour) for colour in expected]
    labels = [each for each in texts(picture) if each.get_text() in ("0", "1", "2")]
    heights = {each.get_text(): each.get_position()[1] for each in labels}
    assert heights["0"] < heights["1"] < heights["2"]


def test_one_scale_for_all_layers_keeps_their_sizes_apart() -> None:
    found = replace(example(), layer_scores=np.array([[1.0] * 6, [2.0] * 6, [4.0] * 6]))
    alone, together = (cells(found.plot("layers", scale=scale), "made · rollout") for scale in ("layer", "all"))
    assert alone[0].tolist() == alone[2].tolist()
    assert together[::-1, 3].tolist() == [list(shade(value, False)) for value in (0.25, 0.5, 1.0)]


def test_labels_are_the_tokens_and_never_mathematics() -> None:
    found = example()
    for kind in OF_TEXTS:
        picture = found.plot(kind)
        for token in TOKENS:
            assert token in written(picture), kind
        for each in texts(picture):
            if each.get_text() in TOKENS:
                assert not each.get_parse_math(), kind
                assert not each.get_usetex(), kind


def test_columns_stand_in_the_order_of_the_tokens() -> None:
    picture = example().plot("layers")
    places = {each.get_text(): each.get_position()[0] for each in texts(picture)}
    assert [places[token] for token in TOKENS] == sorted(places[token] for token in TOKENS)


@pytest.mark.parametrize("signed", [False, True])
def test_every_piece_of_text_stands_on_its_colour(signed: bool) -> None:
    found = example(signed=signed)
    picture = found.plot("text", legend=False)
    strength = strengths(found)
    pieces = [each for each in texts(picture) if each.get_text() in TOKENS]
    boxes = list(picture.artists)
    grounds = [to_hex(box.get_facecolor()) for box in boxes]
    coloured = [i for i, value in enumerate(strength) if abs(value) >= 0.02]
    assert grounds == [hexadecimal(shade(float(strength[i]), signed)) for i in coloured]
    assert [piece.get_text() for piece in pieces] == TOKENS
    renderer = picture.canvas.get_renderer()
    for box, i in zip(boxes, coloured, strict=True):
        inside, around = pieces[i].get_window_extent(renderer), box.get_window_extent(renderer)
        assert around.x0 <= inside.x0 + 1
        assert inside.x1 <= around.x1 + 1
        assert around.y0 <= inside.y0 + 1
        assert inside.y1 <= around.y1 + 1


def test_a_word_stays_together_and_a_line_is_not_overrun() -> None:
    text = "meaningful " * 12
    spans = [span for start in range(0, len(text), 11) for span in ((0, start, start + 7), (0, start + 7, start + 10))]
    tokens = ["meaning", "##ful"] * 12
    found = Explanation.from_scores(tokens, np.arange(24.0), texts=(text,), spans=spans)
    placed = flow(found, room=2.0)
    assert [piece.text for piece in placed] == ["meaning", "ful"] * 12
    assert max(piece.line for piece in placed) > 1
    assert all(first.line == second.line for first, second in zip(placed[::2], placed[1::2], strict=True))
    assert all(
        second.x == pytest.approx(first.x + first.width)
        for first, second in zip(placed[::2], placed[1::2], strict=True)
    )
    assert all(piece.x + piece.width <= 2.0 + 1e-9 for piece in placed)
    long = flow(Explanation.from_scores(["x" * 500], [1.0]), room=2.0)
    assert "".join(piece.text for piece in long) == "x" * 500
    assert all(piece.width <= 2.0 for piece in long)


def test_a_text_written_from_the_right_runs_from_the_right() -> None:
    words = ["كان", "الفيلم", "جميلا"]
    picture = Explanation.from_scores(words, [1.0, 2.0, 3.0]).plot("text")
    places = [each.get_position()[0] for each in texts(picture) if each.get_text() in words]
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("kind", ["maps", "map"])
def test_maps_show_the_aggregated_or_the_own_map(kind: str) -> None:
    found = example()
    for own, stack in ((False, found.aggregated), (True, found.maps)):
        picture = found.plot(kind, own=own)
        shown = [np.asarray(axes.images[0].get_array()) for axes in picture.axes if axes.get_label() != "key"]
        expected = [shades(intensities(layer, False), False) for layer in stack]
        if kind == "map":
            row = shades(intensities(stack[-1, 0], False, 0), False)[None]
            expected = [expected[-1], row]
        assert len(shown) == len(expected)
        assert all((a == b).all() for a, b in zip(shown, expected, strict=True))
    titles = [text for text in written(found.plot("maps")) if text.startswith("layer")]
    assert titles == ["layer 0", "layer 1", "layer 2"]
    one = written(found.plot("map", layer=1))
    assert any(text.endswith(", layer 1") for text in one)
    assert "largest of the map or row" in one  # the row beneath has a scale of its own


def edges(picture: Picture, title: str) -> dict[tuple[int, int, int], float]:
    """(layer, token built, token drawn on) -> width."""
    (axes,) = [each for each in picture.axes if each.get_label() == title]
    (lines,) = [each for each in axes.collections if isinstance(each, LineCollection)]
    found = {}
    for ((x0, y0), (x1, y1)), width in zip(lines.get_segments(), lines.get_linewidths(), strict=True):
        assert x1 == x0 + 1
        found[int(x0), int(y1), int(y0)] = float(width)
    return found


@pytest.mark.parametrize("signed", [False, True])
def test_edges_are_as_wide_as_the_weights(signed: bool) -> None:
    found = example(signed=signed)
    for own, stack in ((False, found.aggregated), (True, found.maps)):
        widths = edges(found.plot("graph", own=own), "made" if own else "made · rollout")
        others = {key: width for key, width in widths.items() if key[1] != key[2]}
        ratios = [width / abs(stack[key]) for key, width in others.items()]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))
        missing = {key for key in np.ndindex(stack.shape) if key not in widths}
        largest = max(abs(stack[key]) for key in np.ndindex(stack.shape) if key[1] != key[2])
        assert all(abs(stack[key]) < 0.01 * largest for key in missing)
        # A token's own edge never sets the scale, and never grows beyond the thickest.
        assert max(widths.values()) == pytest.approx(max(others.values()))


def test_the_strongest_edge_is_drawn_last() -> None:
    picture = example().plot("graph")
    lines = next(each for each in picture.axes[0].collections if isinstance(each, LineCollection))
    assert (np.diff(lines.get_linewidths()) >= -1e-12).all()


def test_edges_of_the_answer_of_its_paths_and_the_strongest() -> None:
    found = example()
    assert {key[1] for key in edges(found.plot("graph", edges="answer"), "made · rollout")} == {0}
    paths = edge_weights(found, "paths")
    assert (paths[-1, 1:] == 0).all()
    np.testing.assert_allclose(paths[-1, 0], found.maps[-1, 0])
    np.testing.assert_allclose(paths[0].sum(0), found.aggregated[-1, 0])  # all paths together are rollout
    np.testing.assert_allclose(paths.sum((1, 2)), 1)  # what leaves a layer enters the next
    top = edge_weights(found, top=2)
    assert ((top > 0).sum(-1) == 2).all()
    assert (top.max(-1) == found.aggregated.max(-1)).all()
    mean = replace(found, readout=replace(found.readout, position=None))
    np.testing.assert_allclose(edge_weights(mean, "paths")[0].sum(0), found.aggregated[-1].mean(0))


def test_relative_weights_of_zero_maps_are_zero() -> None:
    assert (relative(np.zeros((1, 2, 2))) == 0).all()
    assert relative(np.ones((1, 1, 1))).tolist() == [[[1.0]]]


@pytest.mark.parametrize("kind", ["text", "tokens", "layers", "maps", "map"])
def test_the_key_says_what_scores_are_for(kind: str) -> None:
    one = replace(example(signed=True), target=Target("class", 0, "good"))
    assert {"against", "for class 'good'"} <= set(written(one.plot(kind)))
    other = replace(one, target=Target("class", 1, "bad", foil=0, foil_label="good"))
    assert "for class 'bad' rather than 'good'" in written(other.plot(kind))
    assert "for" in written(Comparison({"one": one, "other": other}).plot(kind))


def test_methods_under_and_beside_each_other() -> None:
    compared = Comparison({"first": example(), "second": example(signed=True, seed=1), "third": example(seed=2)})
    picture = compared.plot("tokens")
    colours = np.asarray(picture.axes[0].images[0].get_array())
    for row, each in enumerate(compared.values()):
        assert (colours[row] == shades(strengths(each), each.signed)).all()
    names = {each.get_text(): each.get_position()[1] for each in texts(compared.plot("text"))}
    assert names["first"] > names["second"] > names["third"]
    assert {"less", "more", "against", "for"} <= set(names)
    for kind in OF_TEXTS:
        assert {"first", "second", "third"} <= {text.split(", layer")[0] for text in written(compared.plot(kind))}, kind
    other = Comparison({"a": example(), "b": example(TOKENS[:-1])})
    for kind in ("tokens", "bars"):
        with pytest.raises(WherefromError, match="different tokens"):
            other.plot(kind)


def test_special_tokens_set_no_scale() -> None:
    """[CLS] and [SEP] often have the largest scores, and are no part of the text."""
    found = replace(example(), scores=np.array([9.0, 1.0, 0.5, 0.25, 0.0, 9.0]))
    assert [i for i, special in enumerate(found.special) if special] == [0, 5]
    assert strengths(found)[1:5].tolist() == [1.0, 0.5, 0.25, 0.0]
    assert (strengths(found)[[0, 5]] < 0.5).all()
    assert found.plot("bars").axes[0].get_ylim()[1] < 1.2


def test_methods_without_layers_are_left_out_by_name() -> None:
    bare = replace(example(), maps=None, aggregated=None)
    both = Comparison({"whole": example(), "bare": bare})
    for kind in ("layers", "maps", "map", "graph"):
        with pytest.warns(WherefromWarning, match="bare: .*(layers|maps), so left out of the picture"):
            drawn = both.plot(kind)
        assert drawn.axes
        assert not any("bare" in text for text in written(drawn))


def test_without_special_tokens() -> None:
    for kind in ("tokens", "bars"):
        shown = written(example().plot(kind, special=False))
        assert "[CLS]" not in shown
        assert "film" in shown


def test_chosen_tokens_and_probabilities_beside_the_layers() -> None:
    found = example()
    picture = found.plot("layers", tokens=["film", 1], probabilities=["bad", "good"], answer=True)
    blocks = [axes for axes in picture.axes if axes.get_label() == "made · rollout"]
    assert [np.asarray(axes.images[0].get_array()).shape for axes in blocks] == [(3, 2, 3), (1, 2, 3)]
    answer = shades(strengths(found)[[3, 1]], False)
    assert (np.asarray(blocks[1].images[0].get_array())[0] == answer).all()
    (bars,) = [axes for axes in picture.axes if axes.get_label() == "probabilities"]
    assert [bar.get_width() for bar in bars.patches] == [0.25, 0.75]
    assert {"bad", "good", "0.25", "0.75", "rollout"} <= set(written(picture))
    with pytest.raises(WherefromError, match="no probability of ugly"):
        found.plot("layers", probabilities=["ugly"])


def hidden(picture: Picture) -> list[str]:
    """Texts that reach over the edge of the figure."""
    renderer = picture.canvas.get_renderer()
    frame = picture.bbox
    found = []
    unseen = {
        id(tick.label1)
        for axes in picture.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    for each in texts(picture):
        if id(each) in unseen:
            continue
        box = each.get_window_extent(renderer)
        if box.x0 < -1 or box.y0 < -1 or box.x1 > frame.x1 + 1 or box.y1 > frame.y1 + 1:
            found.append(each.get_text())
    return found


@pytest.mark.filterwarnings("error")  # matplotlib warns of letters that it cannot draw
@pytest.mark.parametrize("kind", OF_TEXTS)
@pytest.mark.parametrize(
    "tokens", [["one"], TOKENS, STRANGE, [f"t{i}" for i in range(50)]], ids=["1", "6", "strange", "50"]
)
def test_nothing_is_clipped(kind: str, tokens: list[str]) -> None:
    picture = example(tokens, depth=2).plot(kind, width="column")
    picture.draw_without_rendering()
    assert hidden(picture) == []
    assert picture.get_size_inches()[0] == 3.3


def test_labels_do_not_run_into_each_other() -> None:
    for kind in ("layers", "map", "maps", "graph", "tokens"):
        picture = example([f"token{i}" for i in range(25)], depth=2).plot(kind)
        renderer = picture.canvas.get_renderer()
        boxes = [(each.get_text(), each.get_window_extent(renderer)) for each in texts(picture)]
        for i, (name, box) in enumerate(boxes):
            for other, second in boxes[i + 1 :]:
                across = min(box.x1, second.x1) - max(box.x0, second.x0)
                down = min(box.y1, second.y1) - max(box.y0, second.y0)
                assert across < 1.5 or down < 1.5, (kind, name, other)


def test_letters_that_no_font_has_are_written_as_escapes() -> None:
    shown = written(
        Explanation.from_scores(["\U000f0000", "\n", "\ud800", "ok\u202e"], [1.0, 2.0, 3.0, 4.0]).plot("text")
    )
    assert {"\\U000f0000", "\\n", "\\ud800", "ok\\u202e"} <= set(shown)


def test_pictures_are_saved_reproducibly(tmp_path: Path) -> None:
    found = example(["<script>alert(1)</script>", "--><b>", *TOKENS])
    for suffix in ("png", "svg", "pdf"):
        path = found.save(tmp_path / f"x.{suffix}", kind="layers", width="column")
        assert path.read_bytes() == found.plot("layers", width="column").file(suffix), "the same picture, the same file"
    svg = ElementTree.parse(tmp_path / "x.svg").getroot()
    names = {each.tag.rpartition("}")[2] for each in svg.iter()}
    assert "path" in names
    assert not names & {"text", "script", "b"}  # letters are outlines: no font is asked for
    assert svg.get("width") == f"{3.3 * 72:g}pt"
    pdf = (tmp_path / "x.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert matplotlib.image.imread(tmp_path / "x.png").shape[1] == 990  # 3.3 inches at 300 dots
    compared = Comparison({"made": found})
    assert compared.save(tmp_path / "y.svg", kind="layers", width="column").exists()
    with pytest.raises(WherefromError, match=r"\.png, \.svg, \.pdf"):
        found.save(tmp_path / "x.gif")
    with pytest.raises(WherefromError, match=r"\.png, \.svg, \.pdf"):
        compared.save(tmp_path / "x.gif")
    with pytest.raises(WherefromError, match="cannot write"):
        save(found.plot(), tmp_path / "missing" / "x.png")
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


def test_the_users_settings_stay_and_do_not_reach_in() -> None:
    with mpl.rc_context({"text.usetex": True, "pdf.fonttype": 3, "savefig.bbox": "tight", "figure.autolayout": True}):
        before = dict(mpl.rcParams)
        for kind in ("text", "layers", "graph"):
            picture = example().plot(kind)
            assert b"/Type3" not in picture.file("pdf")
        width = ElementTree.fromstring(picture.file("svg")).get("width")
        assert width == f"{6.9 * 72:g}pt"
        assert dict(mpl.rcParams) == before


def test_threads_draw_side_by_side() -> None:
    found = [example(seed=seed) for seed in range(3)]
    alone = [each.plot("layers").file("svg") for each in found]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda each: each.plot("layers").file("svg"), found)) == alone


def test_no_pyplot_and_a_clear_word_without_matplotlib() -> None:
    code = """
import sys
from wherefrom.result.explanation import Explanation
found = Explanation.from_scores(["a"], [1.0])
{block}
try:
    found.plot("text").file("svg")
except Exception as error:
    print(type(error).__name__, error)
print("matplotlib.pyplot" in sys.modules)
"""
    for block, expected in (
        ("", "False"),
        ("sys.modules['matplotlib'] = None", "MissingExtra this needs the package"),
    ):
        run = subprocess.run(
            [sys.executable, "-c", code.format(block=block)], capture_output=True, text=True, check=True
        )
        assert run.stdout.startswith(expected), run.stdout
        if block:
            assert "pip install -e '.[plot]'" in run.stdout


def test_what_cannot_be_drawn_is_said() -> None:
    found = example()
    bare = Explanation.from_scores(["a", "b"], [1.0, 2.0])
    for message, call in {
        "unknown kind of picture 'pie'": lambda: found.plot("pie"),
        "takes no colour; it takes width, dark": lambda: found.plot("maps", colour="red"),
        "unknown width 'poster'": lambda: found.plot(width="poster"),
        "cannot be 0.1 inches": lambda: found.plot(width=0.1),
        "unknown scale 'log'": lambda: found.plot("maps", scale="log"),
        "unknown edges 'all'": lambda: found.plot("graph", edges="all"),
        "outside the 3 layers": lambda: found.plot("map", layer=3),
        "there are no maps; choose another": lambda: bare.plot("graph"),
        "there are no maps": lambda: bare.plot("maps"),
        "nothing is known about layers": lambda: bare.plot("layers"),
        "nothing to draw": lambda: draw({}),
        "no token to show": lambda: Explanation.from_scores(["a"], [1.0], special=[True]).plot("tokens", special=False),
    }.items():
        with pytest.raises(WherefromError, match=message):
            call()


@pytest.mark.parametrize("kind", ["tokens", "text"])
@pytest.mark.parametrize("dpi", [72, 90, 110, 300])
def test_keys_stay_inside_and_apart(kind: str, dpi: int) -> None:
    """Numbers with and without signs in one column; at few pixels letters are wider than measured."""
    scores = np.linspace(-1, 1, 5)
    target = Target(kind="class", index=1, label="negative")
    named = {
        "attcat": Explanation.from_scores(list("abcde"), scores, "attcat", signed=True, target=target),
        "raw-attention": Explanation.from_scores(list("abcde"), np.abs(scores), "raw-attention"),
    }
    picture = draw(named, kind, width="column")
    picture.set_dpi(dpi)
    ramps = [axes.get_window_extent() for axes in picture.axes if axes.get_label() == "key"]
    assert len(ramps) == 2
    words = [text.get_window_extent() for text in picture.texts if text.get_fontsize() == SMALL]
    assert all(box.x0 >= 0 and box.x1 <= picture.bbox.width for box in [*ramps, *words])
    assert not any(ramp.overlaps(word) for ramp in ramps for word in words)


def test_a_layer_that_is_no_number_is_refused() -> None:
    with pytest.raises(WherefromError, match="layer='x'"):
        example().plot("map", layer="x")
