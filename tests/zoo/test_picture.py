"""The shipped vision transformer: things drawn by nobody it has seen, and the number on its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import wherefrom
from wherefrom import zoo
from wherefrom.data.pictured import SCENES, drawn_scene

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
