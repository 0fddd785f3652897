"""Evidence for pictures: patches taken away in order, mosaics, pointing and segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import golden
import pictures
import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined
from wherefrom.metric import patchwise
from wherefrom.model import collate, open_model
from wherefrom.model.pictures import PAINTS


@pytest.mark.parametrize("by", ["mean", "black", "blur"])
def test_curves_are_the_model_without_patches_in_order(by: Any) -> None:
    model = open_model(pictures.model(), processor=pictures.processor())
    photo = pictures.photo()
    explained = wherefrom.explain(photo, model, method="gradient-x-input", target=1)
    found = patchwise.perturbation(photo, explained, model, by=by, shares=[1 / 3, 2 / 3, 1])
    (sentence,), _ = model.reader().read(photo)

    def p(gone: Any) -> float:
        with torch.no_grad():
            pixels = collate([sentence.blanked(gone, PAINTS[by])], None).pixels
            return float(model.model(pixels.double()).logits.softmax(-1)[0, 1])

    order = 1 + np.argsort(-explained.scores[1:], kind="stable")
    for curve, walk in ((found.positive, order), (found.negative, order[::-1])):
        np.testing.assert_allclose(curve.probabilities, [p(walk[:k].tolist()) for k in (0, 3, 6, 9)], atol=1e-8)
    thirds = np.trapezoid(found.positive.probabilities, [0, 1 / 3, 2 / 3, 1])
    assert found.deletion == pytest.approx(thirds)
    # What is left after the lowest went is the top share, inserted into the painted picture.
    assert found.insertion == pytest.approx(np.trapezoid(found.negative.probabilities, [0, 1 / 3, 2 / 3, 1]))
    with pytest.raises(InvalidOption, match="cannot be deleted"):
        patchwise.perturbation(photo, explained, model, by="delete")
    with pytest.raises(InvalidInput, match="of another picture than the input"):
        patchwise.perturbation(pictures.photo(1), explained, model)


def test_a_patch_that_attention_does_not_see_is_gone_too() -> None:
    model = open_model(pictures.model())
    given = pictures.pixels()
    explained = wherefrom.explain(given, model, method="saliency", target=1)
    found = patchwise.perturbation(given, explained, model, by="attention", shares=[1.0])
    assert found.positive.probabilities[-1] == pytest.approx(found.negative.probabilities[-1])


def test_focus_is_the_share_of_what_speaks_for_it() -> None:
    assert patchwise.focus([[1, -2], [3, 0]], [[1, 0], [0, 0]]) == pytest.approx(0.25)
    with pytest.raises(NotDefined, match="no score is positive"):
        patchwise.focus([-1, 0], [1, 0])
    with pytest.raises(InvalidInput, match="expected the same"):
        patchwise.focus([1, 2], [True])


def test_a_mosaic_and_its_quarters() -> None:
    parts = [np.full((4, 6, 3), number, np.uint8) for number in range(4)]
    whole = patchwise.mosaic(parts)
    assert whole.shape == (8, 12, 3)
    for number in range(4):
        inside = patchwise.quarter((4, 6), number).repeat(2, 0).repeat(2, 1)
        assert set(whole[inside].ravel()) == {number}
        assert inside.sum() == 24
    assert patchwise.quarter((3, 3), 3).tolist() == [[False] * 3, [False] * 3, [False, False, True]]
    with pytest.raises(InvalidOption, match="quarter 4; expected 0"):
        patchwise.quarter((8, 8), 4)
    with pytest.raises(InvalidInput, match="four pictures"):
        patchwise.mosaic(parts[:3])


def test_pointing_beside_the_object() -> None:
    scores, mask = np.zeros((30, 30)), np.zeros((30, 30), bool)
    scores[5, 5], mask[5, 15] = 1, True
    assert patchwise.pointing(scores, mask)
    assert patchwise.pointing(scores, mask, tolerance=10)
    assert not patchwise.pointing(scores, mask, tolerance=9)
    with pytest.raises(NotDefined, match="no object"):
        patchwise.pointing(scores, mask & False)


def test_segmentation_is_the_authors() -> None:
    inputs, expected = (golden.load_arrays(golden.BEYOND, "vit_seg_metrics", file) for file in ("inputs", "seg"))
    maps, labels = inputs["maps"], inputs["labels"]
    for each, label, row in zip(maps, labels, expected["rows"], strict=True):
        found = patchwise.covered(each, label)
        assert (found.correct, found.labelled) == (row[0], row[1])
        np.testing.assert_array_equal(found.both, row[2:4])
        np.testing.assert_array_equal(found.either, row[4:6])
        assert found.average_precision == pytest.approx(row[6], abs=1e-6)
    whole = patchwise.segmentation(maps, labels)
    assert whole.pixel_accuracy == pytest.approx(float(expected["pixel_accuracy"]), abs=1e-9)
    np.testing.assert_allclose([whole.ground_iou, whole.object_iou], expected["iou"], atol=1e-9)
    assert whole.mean_iou == pytest.approx(float(expected["miou"]), abs=1e-9)
    assert whole.mean_average_precision == pytest.approx(float(expected["map"]), abs=1e-6)


def test_scores_between_patches_are_torchs_bilinear() -> None:
    found = wherefrom.explain(pictures.pixels(), pictures.model(), method="saliency")
    grid = torch.tensor(found.picture.on_grid(found.scores))[None, None]
    expected = F.interpolate(grid, size=(12, 12), mode="bilinear", align_corners=False)[0, 0]
    np.testing.assert_allclose(found.picture.on_pixels(found.scores), expected.numpy(), atol=1e-12)
    whole = found.picture.on_pixels(found.scores, smooth=False)
    np.testing.assert_array_equal(whole[::4, ::4], found.picture.on_grid(found.scores))
