"""Scores over the picture that they explain: in figures, files and pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import pictures
import tiny
import wherefrom
from browser import expect
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.model import open_model
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import Patches
from wherefrom.view.colour import AGAINST, FOR, STRENGTH, strengths
from wherefrom.view.overlay import GREYS, LARGE, TINT, overlay
from wherefrom.view.payload import payload

pytest.importorskip("matplotlib")


def drawn(scores: Any, signed: bool, shade: int = 0) -> Explanation:
    """Four patches of one colour."""
    picture = Patches(np.full((8, 8, 3), shade, np.uint8), (2, 2))
    tokens = ["[CLS]", "0,0", "0,1", "1,0", "1,1"]
    return Explanation.from_scores(tokens, [0.5, *scores], picture=picture, special=[True, *[False] * 4], signed=signed)


@pytest.fixture(scope="module")
def compared() -> Comparison:
    model = open_model(pictures.model(), processor=pictures.processor())
    return wherefrom.compare(pictures.photo(), model, methods=["attention-rollout", "gradient-x-input", "alti"])


@pytest.mark.parametrize("shade", [0, 255])
def test_a_patch_is_tinted_as_strongly_as_its_score(shade: int) -> None:
    """On black as on white; without signs the smallest has no tint."""
    grey = GREYS[shade == 255]

    def mixed(hue: Any, share: float) -> Any:
        return np.rint(grey * (1 - share) + np.array(hue) * share)

    found = overlay(drawn([0.0, 2.0, -1.0, 1.0], True, shade))
    half = len(found) // 2
    corners = found[half // 2 :: half, half // 2 :: half]
    np.testing.assert_array_equal(corners[0, 0], [grey] * 3)
    np.testing.assert_array_equal(corners[0, 1], mixed(FOR, TINT))
    np.testing.assert_array_equal(corners[1, 0], mixed(AGAINST, TINT / 2))
    even = overlay(drawn([0.2, 0.3, 0.2, 0.25], False, shade))[half // 2 :: half, half // 2 :: half]
    np.testing.assert_array_equal(even[0, 0], [grey] * 3)
    np.testing.assert_array_equal(even[0, 1], mixed(STRENGTH, TINT))


def test_rounding_errors_have_no_colour_and_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    """A picture that is its own baseline; a method that promises no sum, or parts of a probability, may be as small."""
    model = open_model(pictures.model(), processor=pictures.processor())
    same = pictures.photo() * 0 + 90
    found = wherefrom.explain(same, model, method="deeplift")
    assert found.rounding
    found = replace(found, scores=np.linspace(-1e-7, 1e-7, len(found), dtype=np.float32))
    assert found.rounding == "all zero up to rounding"
    for style in ("heat", "contour"):
        pixels = overlay(found, style)
        assert (pixels == pixels[..., :1]).all()  # grey
    assert not strengths(found).any()
    found.show()
    said = [" ".join(capsys.readouterr().out.split()), found.to_html(), str(payload({"deeplift": found}))]
    said.append(" ".join(text.get_text() for text in found.plot().texts))
    assert all("all zero up to rounding" in each for each in said)
    for other in (replace(found, delta=None), replace(found, options={"of": "probability"})):
        assert not other.rounding
        assert np.abs(strengths(other)).max() == pytest.approx(1)
    assert not wherefrom.explain(pictures.photo(), model, method="deeplift").rounding


def test_small_pictures_are_enlarged_and_smooth_ones_keep_their_extremes() -> None:
    found = overlay(drawn([0, 1, 2, 3], False), smooth=True)
    assert found.shape == (LARGE, LARGE, 3)
    assert len(np.unique(found[..., 2])) > 50
    np.testing.assert_array_equal(found[-1, -1], overlay(drawn([0, 1, 2, 3], False))[-1, -1])


def test_a_contour_is_white_between_black_and_leaves_the_rest() -> None:
    found = overlay(drawn([0, 0, 0, 3], False, 90), "contour", top=0.25)
    half, width = LARGE // 2, LARGE // 200
    row = found[-1, :, 0]
    assert set(row[half - width : half + width]) == {255}
    assert row[half - 2 * width] == row[half + 2 * width - 1] == 0
    assert set(found[: half - 10].ravel()) == {90}


@pytest.mark.parametrize("options", [{"smooth": True}, {"style": "contour", "top": 0.3}])
def test_methods_stand_side_by_side(compared: Comparison, options: Any) -> None:
    figure = compared.plot("image", **options)
    titles = [text.get_text() for text in figure.texts]
    assert set(compared) <= set(titles)
    assert sum(bool(axes.images) for axes in figure.axes) == 4  # the picture itself, too
    assert figure.file("png").startswith(b"\x89PNG")


def test_a_picture_is_saved_as_one(compared: Comparison, tmp_path: Path) -> None:
    one = compared["alti"]
    assert one.save(tmp_path / "x.png").stat().st_size > 1000
    page = one.save(tmp_path / "x.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "<title>a picture" in page


def test_what_cannot_be_drawn_is_refused(compared: Comparison) -> None:
    with pytest.raises(NotDefined, match="no explanation of a picture"):
        wherefrom.explain(tiny.ids(4), tiny.model(), method="alti").plot("image")
    with pytest.raises(InvalidOption, match="style"):
        compared.plot("image", style="rainbow")
    with pytest.raises(InvalidOption, match="share of the patches"):
        compared.plot("image", top=0)


def test_the_page_saves_the_picture_with_its_patches(opened: Any, compared: Comparison, tmp_path: Path) -> None:
    page = opened(compared.to_html())
    for kind in ("SVG", "PNG"):
        page.keyboard.press("e")
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Download {kind}").click()
        waiting.value.save_as(tmp_path / kind)
    assert (tmp_path / "PNG").read_bytes()[:4] == b"\x89PNG"
    drawing = ElementTree.parse(tmp_path / "SVG")
    rects = list(drawing.iter("{http://www.w3.org/2000/svg}rect"))
    first = next(iter(compared.values())).picture.pixels
    light = first.reshape(-1, 3) @ [0.2126, 0.7152, 0.0722]
    greys = [int(each.get("fill")[1:3], 16) for each in rects if each.get("width") == f"{448 / first.shape[1]:.3f}"]
    np.testing.assert_allclose(greys[: light.size], 127.5 + 0.6 * (light - 127.5), atol=1)
    tints = [float(each.get("fill-opacity")) for each in rects if each.get("fill-opacity")]
    assert tints
    assert max(tints) == pytest.approx(0.8)


def test_the_page_shows_patches_over_the_picture(opened: Any, compared: Comparison) -> None:
    page = opened(compared.to_html())
    frames = page.locator(".patches")
    assert frames.count() == 3
    assert frames.first.locator(".token").count() == 9
    assert page.locator(".card").first.locator(".token.special").count() == 1
    frames.first.locator(".token").nth(4).click()
    expect(frames.first.locator(".token[aria-pressed=true]")).to_have_count(1)
