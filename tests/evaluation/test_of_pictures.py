"""Evaluations of pictures: the same numbers as one by one, tables that hold images, and where objects are known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pictures
import wherefrom
from wherefrom.data import pictured, read
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined
from wherefrom.metric import patchwise
from wherefrom.model import open_model
from wherefrom.result.picture import decoded, to_png

pillow = pytest.importorskip("PIL.Image")
METHODS = ["attn-lrp", "saliency"]


@pytest.fixture(scope="module")
def model() -> Any:
    return open_model(pictures.model("vit"), processor=pictures.processor())


@pytest.fixture(scope="module")
def photos() -> list[Any]:
    return [pictures.photo(seed) for seed in range(3)]


def upper(photo: Any) -> Any:
    inside = np.zeros(photo.shape[:2], bool)
    inside[: len(inside) // 2] = True
    return inside


def test_curves_and_masks_give_what_they_give_one_by_one(model: Any, photos: list[Any]) -> None:
    rows = [{"image": each, "region": upper(each), "label": 0} for each in photos]
    metrics = ["deletion(by=blur)", "insertion(by=blur)", "focus", "pointing(tolerance=1)", "segmentation"]
    run = wherefrom.evaluate(rows, model, methods=METHODS, metrics=metrics, target="label", batch_size=2)
    for method in METHODS:
        found: dict[str, list[float]] = {}
        for photo in photos:
            one = wherefrom.explain(photo, model, method=method, target=0)
            curves = patchwise.perturbation(photo, one, model, by="blur")
            inside = np.zeros((12, 12), bool)  # the processor makes 12 × 12 pixels of it
            inside[:6] = True
            scores = one.picture.on_pixels(one.scores)
            values = {
                "deletion(by=blur)": curves.deletion,
                "insertion(by=blur)": curves.insertion,
                "focus": patchwise.focus(one.picture.on_grid(one.scores), [[True] * 3] * 2 + [[False] * 3]),
                "pointing(tolerance=1)": float(patchwise.pointing(scores, inside, 1)),
                "segmentation": patchwise.segmentation([scores], [inside]).mean_iou,
            }
            for name, value in values.items():
                found.setdefault(name, []).append(value)
        for name, each in found.items():
            assert run.mean(method, name) == pytest.approx(np.mean(each), abs=1e-6)


def test_a_region_is_the_labels_and_not_the_predictions(model: Any, photos: list[Any]) -> None:
    rows = [{"image": each, "region": upper(each), "label": 0} for each in photos]
    with pytest.warns(UserWarning, match="focus: a region is where a row's label is"):
        wherefrom.evaluate(rows, model, methods=["saliency"], metrics=["focus"])


def test_metrics_that_delete_from_texts_paint_patches(model: Any, photos: list[Any]) -> None:
    names = ["aopc", "log-odds", "comprehensiveness", "sufficiency", "lds", "top-k-drop"]
    every = [*names, *(f"{name}(by=mean)" for name in names)]
    run = wherefrom.evaluate(photos[:1], model, methods=["saliency"], metrics=every)
    for name in names:
        assert run.mean("saliency", name) == run.mean("saliency", f"{name}(by=mean)")


@pytest.mark.slow
def test_files_arrays_and_tables_are_one_and_the_same(model: Any, photos: list[Any], tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = []
    for number, photo in enumerate(photos):
        pillow.fromarray(photo).save(tmp_path / f"{number}.png")
        files.append({"bytes": (tmp_path / f"{number}.png").read_bytes(), "path": None})
    parquet.write_table(pa.table({"img": files, "label": [0, 1, 2]}), tmp_path / "some.parquet")
    ways: list[Any] = [photos, [tmp_path / f"{number}.png" for number in range(3)], tmp_path / "some.parquet"]
    columns = [None, None, {"image": "img", "label": "label"}]
    runs = [
        wherefrom.evaluate(way, model, methods=["attn-lrp"], metrics=["insertion"], columns=each)
        for way, each in zip(ways, columns, strict=True)
    ]
    assert len({run.mean("attn-lrp", "insertion") for run in runs}) == 1
    assert len({run.manifest["data"]["fingerprint"] for run in runs}) == 3  # a path is not what lies there


def test_what_cannot_be_evaluated_is_said(model: Any, photos: list[Any]) -> None:
    with pytest.raises(NotDefined, match=r"a mask of where its object is \(region\)"):
        wherefrom.evaluate(photos, model, methods=METHODS, metrics=["focus"])
    with pytest.raises(InvalidOption, match="a patch cannot be deleted"):
        wherefrom.evaluate(photos, model, methods=METHODS, metrics=["aopc(by=delete)"])
    with pytest.raises(NotDefined, match="the example is a picture"):
        wherefrom.evaluate(photos, methods=["random"], metrics=["aopc"])
    with pytest.raises(NotDefined, match="there is no file 'a deep film'"):
        wherefrom.evaluate(["a deep film"], model, methods=METHODS, metrics=["insertion"])
    small = [{"image": photos[0], "region": np.ones((10, 10), bool)}]
    with pytest.raises(NotDefined, match=r"a region of \[10, 10\] pixels in a picture of \["):
        wherefrom.evaluate(small, model, methods=METHODS, metrics=["focus"])
    with pytest.raises(InvalidInput, match=r"\(7 bytes\) is no image that Pillow can read"):
        decoded(b"nothing")


# Where the object is known --------------------------------------------------------------------------------


def test_drawn_things_lie_where_their_regions_say() -> None:
    found = [each for each, _ in zip(read("drawn"), range(8), strict=False)]
    assert {each.label for each in found} == set(pictured.SCENES)
    for each in found:
        pixels, inside = decoded(each.image or b"").astype(float), decoded(each.region or b"")[..., 0] > 127
        rows, columns = np.nonzero(inside)
        assert 20 < inside.sum() < 500
        beside = pixels[rows.min(), :, :][~inside[rows.min()]]  # the ground in one row of it
        assert abs(pixels[inside].mean(0) - beside.mean(0)).max() > 15
        assert 3 < np.ptp(columns) < 32
    assert not {each.content for each in found} & {
        each.content for each, _ in zip(read("drawn", split="train"), range(8), strict=False)
    }


def test_of_a_mosaic_one_quarter_shows_the_class() -> None:
    some = read("drawn", limit=30)
    shown = {decoded(each.image or b"").tobytes(): each.label for each in some}
    assert read("mosaics:drawn").name == pictured.mosaics(some).name
    for example in pictured.mosaics(some, count=6):
        whole, inside = decoded(example.image or b""), decoded(example.region or b"")[..., 0] > 127
        corners = [np.s_[i : i + 32, j : j + 32] for i in (0, 32) for j in (0, 32)]
        labels = [shown[np.ascontiguousarray(whole[each]).tobytes()] for each in corners]
        own = [inside[each].all() for each in corners]
        assert inside.sum() == 32 * 32
        assert [label == example.label for label in labels] == own


def test_masks_go_the_way_of_the_picture(model: Any) -> None:
    """Through the processor: resized, cut, and so many pixels in the end as the model reads."""
    inside = np.zeros((30, 40), bool)
    inside[:, :20] = True
    mask = pictured.region_png(inside)
    found = model.preparing.region(mask, mask)
    assert found.shape == (12, 12)
    assert found[:, :5].all()
    assert not found[:, 7:].any()


def test_bytes_are_a_picture(model: Any, photos: list[Any]) -> None:
    one, other = (wherefrom.explain(each, model, method="saliency") for each in (photos[0], to_png(photos[0])))
    np.testing.assert_array_equal(one.scores, other.scores)
    buffer = io.BytesIO()
    pillow.fromarray(photos[0]).save(buffer, "JPEG")
    assert wherefrom.explain(buffer.getvalue(), model, method="saliency").picture is not None


def test_what_masks_texts_hides_patches_behind_the_mean_colour(model: Any, photos: list[Any]) -> None:
    names = [f"{name}{by}" for name in ("masked-accuracy", "prediction-performance") for by in ("", "(by=mean)")]
    rows = [{"image": each, "label": 0} for each in photos]
    run = wherefrom.evaluate(rows, model, methods=["saliency"], metrics=names, target="label")
    plain, painted = ([run.mean("saliency", name) for name in names[i::2]] for i in (0, 1))
    assert plain == painted
