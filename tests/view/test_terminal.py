"""The terminal steps down: 24-bit colour, 256, 16, none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.color import ColorSystem
from rich.console import Console

from whence.explanation import Explanation
from whence.view.colour import nearest_of_256
from whence.view.terminal import dark, show, style

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
    assert "\x1b[1;97;44mgood" in shown(UNSIGNED, "standard")  # white on blue
    assert shown(SIGNED, "standard", layers=True).count("\x1b[1;30;42m") > 2 * 16  # and so the cells of the maps


def test_the_nearest_of_256_is_itself_where_it_is_one_and_stays_in_its_hue() -> None:
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
def test_for_against_and_strength_never_look_alike(system: ColorSystem, strength: float) -> None:
    depth = {ColorSystem.EIGHT_BIT: "256", ColorSystem.STANDARD: "standard"}[system]
    grounds = [
        style(v, signed, depth).bgcolor for v, signed in ((strength, True), (-strength, True), (strength, False))
    ]
    assert len({colour.downgrade(system).number for colour in grounds}) == 3


def test_without_colour_the_scores_are_printed() -> None:
    for plain in (shown(SIGNED, None, layers=True), shown(SIGNED, "truecolor", layers=True, NO_COLOR="1")):
        assert "good +1" in plain
        assert "bad -0.9" in plain
        assert not any(f"\x1b[{code}" in plain for code in ("3", "4", "9", "10"))  # no colour of any kind


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


@pytest.mark.parametrize(("said", "is_dark"), [("15;0", True), ("15;default;0", True), ("0;15", False), ("", False)])
def test_weak_is_dark_where_the_terminal_is(said: str, is_dark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", said)
    colours = [style(strength, signed=False).bgcolor for strength in (0.1, 0.5, 1.0)]
    light = [sum(colour.get_truecolor()) for colour in colours if colour is not None]
    assert light == sorted(light, reverse=not is_dark)
    assert dark() == is_dark
