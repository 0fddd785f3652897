"""The terminal steps down: 24-bit colour, 256, 16, none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.color import ColorSystem
from rich.console import Console

from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import nearest_of_256
from wherefrom.view.terminal import arrival, ground, plain, show, style

SIGNED = Explanation.from_scores(["good", "and", "bad", "dull"], [1.0, 0.0, -0.9, -0.2], maps=np.ones((2, 4, 4)))
UNSIGNED = Explanation.from_scores(["good", "and", "bad", "dull"], [1.0, 0.0, 0.5, 0.2])


def shown(found: Explanation, system: str | None, *, layers: bool = False, **environment: str) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=system, width=100, _environ=environment)
    show([found], layers=layers, console=console)
    return out.getvalue()


def test_every_depth_uses_its_own_colours() -> None:
    assert "\x1b[38;2;" in shown(SIGNED, "truecolor")
    assert "\x1b[38;5;" in (eight := shown(SIGNED, "256"))
    assert "38;2;" not in eight
    sixteen = shown(SIGNED, "standard")
    assert "38;" not in sixteen
    assert "\x1b[1;30;42mgood" in sixteen  # bold black on green
    assert "\x1b[1;97;41mbad" in sixteen  # bold white on red
    assert "\x1b[31mdull" in sixteen  # red ink for a weak one
    assert "\x1b[1;4;94mbad" in shown(UNSIGNED, "standard")  # bold and underlined for a middling one
    assert "\x1b[1;97;44mgood" in shown(UNSIGNED, "standard")  # white on blue
    assert shown(SIGNED, "standard", layers=True).count("\x1b[1;30;42m") > 2 * 16  # and so the cells of the maps


def test_nothing_weak_shines_where_the_ground_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A light ground behind weak scores is the brightest thing on a dark terminal: only strong ones have a ground."""
    monkeypatch.delenv("COLORFGBG", raising=False)
    for depth in ("truecolor", "256", "standard"):
        for signed in (False, True):
            looks = [style(strength, signed, depth) for strength in (0.2, 0.5, 0.9)]
            assert [look.bgcolor is not None for look in looks] == [False, False, True]
            assert [bool(look.bold) for look in looks] == [False, True, True]
            assert [look.color is not None for look in looks] == [True, True, True]


def test_special_tokens_are_pale_and_set_no_scale() -> None:
    found = Explanation.from_scores(["[CLS]", "good", "bad"], [9.0, 1.0, 0.4], special=[True, False, False])
    text = shown(found, "standard")
    assert "\x1b[2m[CLS]" in text
    assert "\x1b[1;97;44mgood" in text


def test_token_and_score_stay_on_one_line() -> None:
    words = [f"word{i}" for i in range(40)]
    text = plain(Explanation.from_scores(words, np.linspace(0.1, 1, 40)), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.replace("\n", "  ").split("  ") == [part for line in text.splitlines() for part in line.split("  ")]
    assert all(len(part.split()) == 2 for line in text.splitlines() for part in line.split("  "))


def test_scores_without_signs_are_shown_as_shares() -> None:
    found = Explanation.from_scores(["a", "b"], [3e12, 1e12], layer_scores=np.array([[1e7, 1e7], [3e12, 1e12]]))
    text = shown(found, None, layers=True)
    assert "a 0.75  b 0.25" in text
    assert "e+" not in text
    assert "×" not in text
    assert found.scores.tolist() == [3e12, 1e12]


def test_a_tiny_probability_is_not_shown_as_none() -> None:
    def heading(p: float) -> str:
        scores = [1.0, 0.5, 0.2]
        found = Explanation.from_scores(["a", "b", "c"], scores, prediction="<0x91>", probabilities={"<0x91>": p})
        return shown(found, None).splitlines()[0]

    assert heading(0.0004).startswith("predicts <0x91> (< 0.001)")
    assert heading(0.0006).startswith("predicts <0x91> (0.001)")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (0.98, "sums to 98% of the output"),
        (0.0, "sums to 0% of the output"),
        (3.0, "sums to 300% of the output"),
        (-2.0, "sums to +1.5 where the output is -0.75"),  # near zero, and a percentage alarms
        (30.0, "sums to +1.5 where the output is +0.05"),
        (None, ""),
    ],
)
def test_a_sum_is_a_part_of_the_output_unless_that_is_near_zero(part: float | None, said: str) -> None:
    found = Explanation.from_scores(["a", "b"], [2.0, -0.5], arrived=part)
    assert arrival(found) == said
    assert said in shown(found, None)
    html = found.to_html()  # once for the viewer and once for a reader without scripts
    assert html.count("sums to") == 2 * bool(said)
    assert html.count(said or "sums to") == 2 * bool(said)


def test_shares_are_called_so() -> None:
    assert str(Explanation.from_scores(["a", "b"], [3.0, 1.0])) == "shares:  a 0.75  b 0.25"
    assert str(Explanation.from_scores(["a", "b"], [0.75, 0.25])) == "a 0.75  b 0.25"
    assert str(Explanation.from_scores(["a", "b"], [3.0, -1.0])) == "a +3  b -1"
    tokens = Explanation.from_scores(["a", "##b", "c"], [0.2, 0.2, 0.6], word_ids=[0, 0, 1])
    assert "given  shares\nab 0.25  c 0.75" in shown(tokens, None)  # joined by the mean, they sum to 0.8


@pytest.mark.parametrize("width", [40, 80, 160])
def test_layers_use_the_width_there_is(width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(24, 2)) / 1000
    found = Explanation.from_scores(["overlong", "a"], rows.sum(0), layer_scores=rows)
    out = io.StringIO()
    show([found], layers=True, console=Console(file=out, width=width))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert text.count("×") == 1  # the unit is said once
    lines = [line.split() for line in text.splitlines() if line.split()[:1] == ["layer"]]
    assert [int(layer) for line in lines for layer in line[1:]] == list(range(24))
    assert max(map(len, lines)) - min(map(len, lines)) <= len(lines) - 1  # shared out, no last table of one column
    cells = [line.split() for line in text.splitlines() if line.strip().startswith("overlong ") and "+" not in line]
    assert sum(len(cell) - 1 for cell in cells if cell[1] not in ("+", "-")) >= 24


def test_the_nearest_of_256_is_itself_where_it_is_one_and_stays_in_its_hue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert [nearest_of_256(colour) for colour in ((0, 95, 175), (255, 255, 255), (215, 95, 0), (118, 118, 118))] == [
        25,
        231,
        166,
        243,
    ]
    for signed, hue in ((False, lambda r, g, b: b >= g >= r), (True, lambda r, g, b: g >= b >= r)):
        for strength in np.linspace(0.05, 1, 20):
            found = style(float(strength), signed, "256").bgcolor.get_truecolor()
            assert hue(*found), found


@pytest.mark.parametrize("system", [ColorSystem.EIGHT_BIT, ColorSystem.STANDARD])
@pytest.mark.parametrize("strength", [0.4, 0.7, 1.0])
def test_for_against_and_strength_never_look_alike(
    system: ColorSystem, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    depth = {ColorSystem.EIGHT_BIT: "256", ColorSystem.STANDARD: "standard"}[system]
    looks = [style(v, signed, depth) for v, signed in ((strength, True), (-strength, True), (strength, False))]
    hues = [look.bgcolor or look.color for look in looks]
    assert len({colour.downgrade(system).number for colour in hues if colour is not None}) == 3


def test_without_colour_the_scores_are_printed() -> None:
    for text in (shown(SIGNED, None, layers=True), shown(SIGNED, "truecolor", layers=True, NO_COLOR="1")):
        assert "good +1" in text
        assert "bad -0.9" in text
        assert not any(f"\x1b[{code}" in text for code in ("3", "4", "9", "10"))  # no colour of any kind


def test_pipes_get_plain_text() -> None:
    out = io.StringIO()
    show([SIGNED], layers=True, console=Console(file=out, width=100, _environ={"COLORTERM": "truecolor"}))
    assert "\x1b" not in out.getvalue()
    assert "bad -0.9" in out.getvalue()


def test_maps_say_their_unit_and_keep_their_signs_and_columns() -> None:
    maps = np.array([[[1.0, -0.5, 0.0], [0.25, 1.0, 0.0], [-1.0, 0.0, 0.5]]])
    found = Explanation.from_scores(["good", "你好", "bad"], [1.0, 0.5, -0.9], maps=maps)
    assert found.signed
    lines = shown(found, None, layers=True).splitlines()
    (unit,) = [place for place, line in enumerate(lines) if "99 is a map's largest entry" in line]
    assert [line.rstrip() for line in lines[unit + 3 : unit + 6]] == [
        "good  0  99-50",
        "你好  1  25 99",  # two letters as wide as four
        " bad  2 -99    50",
    ]


@pytest.mark.parametrize(("said", "is_dark"), [("15;0", True), ("15;default;0", True), ("0;15", False), ("", None)])
def test_weak_fades_into_the_ground_that_the_terminal_names(
    said: str, is_dark: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", said)
    behind = ground()
    assert (behind is None) == (is_dark is None)
    if behind is None:
        return
    assert (sum(behind) < 384) == is_dark
    colours = [style(strength, signed=False).bgcolor for strength in (0.1, 0.5, 1.0)]
    light = [sum(colour.get_truecolor()) for colour in colours if colour is not None]
    assert light == sorted(light, reverse=not is_dark)
