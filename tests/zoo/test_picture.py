"""The shipped vision transformer: things drawn by nobody it has seen, and the number on its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import wherefrom
from wherefrom import zoo
from wherefrom.cli import app
from wherefrom.data.pictured import SCENES, drawn_scene
from wherefrom.errors import InvalidOption
from wherefrom.result.picture import to_png

pytest.importorskip("PIL.Image")
SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


def test_drawn_things_are_recognised_and_explained_on_their_patches() -> None:
    model = wherefrom.open_model("wherefrom/picture")
    found = wherefrom.explain([drawn_scene(each, 64)[0] for each in SCENES.values()], model, method="attn-lrp")
    assert [each.prediction for each in found].count("ship") >= 1
    assert sum(each.prediction == name for each, name in zip(found, SCENES, strict=True)) >= 3
    assert all(each.picture is not None and each.picture.grid == (8, 8) for each in found)
    assert all(np.isfinite(each.scores).all() for each in found)


@pytest.mark.slow
def test_cifar10_is_as_the_card_says() -> None:
    pytest.importorskip("pyarrow")
    if not SHARED.exists():
        pytest.skip("CIFAR-10 lies in ../shared/data, which is not here")
    from wherefrom.training import images

    score = images.measure("wherefrom/picture", SHARED / "cifar10" / "test.parquet", images.ImageColumns())
    assert score.accuracy >= 0.88
    assert score.accuracy == pytest.approx(zoo.card("wherefrom/picture").measured["CIFAR-10 test accuracy"], abs=0.002)


def test_a_picture_s_file_is_no_text(tmp_path: Path) -> None:
    ship = tmp_path / "ship.png"
    asked = [str(ship), "--method", "gradient-x-input"]
    assert "predicts" in CliRunner().invoke(app, ["explain", *asked]).output  # there is no such file: it is a text
    ship.write_bytes(to_png(np.full((32, 32, 3), 90, np.uint8)))
    for command in (["explain", *asked], ["compare", str(ship)]):
        refused = CliRunner().invoke(app, command).exception
        assert isinstance(refused, InvalidOption)
        assert "is a picture's file, and wherefrom/sentiment reads texts; " in str(refused)
        assert str(refused).endswith("--model wherefrom/picture")
    for more in ([], ["--check"]):
        found = CliRunner().invoke(app, ["explain", *asked, "--model", "wherefrom/picture", *more])
        assert "wherefrom/picture" in found.output, found.exception
