"""Models of pictures: rows that are proved, images in, patches out, what is taken away, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pictures
import tiny
import wherefrom
from wherefrom.errors import (
    InvalidInput,
    InvalidOption,
    InvalidTarget,
    NotDefined,
    TooLong,
    Unsuited,
    UnsupportedModel,
)
from wherefrom.model import collate, open_model
from wherefrom.model.pictures import PAINTS, painted, pixels_of
from wherefrom.model.vision import VISION
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import BLACK, colours, decoded, from_png, to_png

LAYOUTS = pytest.mark.parametrize("layout", pictures.LAYOUTS)
CLASSIFIERS = pytest.mark.parametrize("layout", pictures.CLASSIFIERS)


def opened(layout: str = "vit", **kwargs: Any) -> Any:
    return open_model(pictures.model(layout), processor=pictures.processor(), **kwargs)


def test_every_row_has_a_tiny_model() -> None:
    kinds = {open_model(pictures.model(layout)).family.name for layout in pictures.LAYOUTS}
    assert kinds | {"siglip_vision_model"} == set(VISION)


@LAYOUTS
def test_blocks_put_together_again_are_the_models_own(layout: str) -> None:
    model = open_model(pictures.model(layout))
    assert model.proof.holds
    assert model.proof.worst.size <= 1e-6  # BEiT takes its softmax in float32
    trace = wherefrom.capture([pictures.pixels(0), pictures.pixels(1)], model)
    for layer in trace.layers:
        given = torch.einsum("bhij,bhjd->bid", layer.weights, layer.f)
        torch.testing.assert_close(layer.x + given + layer.block.b_o, layer.u, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(layer.block.finish(layer.u), layer.output, rtol=1e-6, atol=1e-6)


@CLASSIFIERS
def test_the_output_under_capture_is_the_models_own(layout: str) -> None:
    model, given = pictures.model(layout), pictures.pixels()
    own = model(pixel_values=given["pixel_values"][None]).logits
    torch.testing.assert_close(wherefrom.capture(given, model).output.logits, own, rtol=1e-6, atol=1e-6)


@CLASSIFIERS
def test_tokens_are_patches_after_the_models_own(layout: str) -> None:
    found = wherefrom.explain(pictures.pixels(), pictures.model(layout), method="saliency")
    special = {"deit": 2, "deit-teacher": 2, "registers": 3, "siglip": 0}.get(layout, 1)
    grid = [f"{row},{column}" for row in range(3) for column in range(3)]
    assert found.tokens == [*["[CLS]", "[DIST]" if "deit" in layout else "[REG0]", "[REG1]"][:special], *grid]
    assert found.special == [True] * special + [False] * 9
    assert found.picture.grid == (3, 3)
    assert found.picture.first == special
    np.testing.assert_array_equal(found.picture.on_grid(found.scores), found.scores[special:].reshape(3, 3))
    with pytest.raises(InvalidInput, match="expected one for each of the picture's tokens"):
        found.picture.on_grid(found.scores[:3])


@pytest.mark.parametrize(
    ("layout", "why", "rows"),
    [
        ("vit", "first token", ()),
        ("deit-teacher", "class token and distillation token", (0, 1)),
        ("beit", "mean of the patches", tuple(range(1, 10))),
        ("beit-class-token", "first token", ()),
        ("clip", "mean of the patches", tuple(range(1, 10))),
        ("siglip", "mean", ()),
        ("dinov2", "class token; the head reads the mean of the patches beside it", ()),
    ],
)
def test_maps_are_read_where_the_head_reads(layout: str, why: str, rows: tuple[int, ...]) -> None:
    found = wherefrom.explain(pictures.pixels(), pictures.model(layout), method="attention-rollout")
    assert (found.readout.why, found.readout.rows) == (why, rows)
    maps = found.aggregated[-1]
    expected = maps[list(rows)].mean(0) if rows else maps.mean(0) if why == "mean" else maps[0]
    np.testing.assert_allclose(found.scores, expected)
    np.testing.assert_allclose(found.scores.sum(), 1)


# Ways in --------------------------------------------------------------------------------------------------


def test_a_file_an_image_an_array_and_pixels_give_the_same(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    photo, model = pictures.photo(), opened()
    image.fromarray(photo).save(tmp_path / "photo.png")
    prepared = pictures.processor()(images=photo, return_tensors="pt")["pixel_values"][0]
    ways: list[Any] = [photo, photo / 255, torch.tensor(photo).permute(2, 0, 1), image.fromarray(photo)]
    ways += [tmp_path / "photo.png", str(tmp_path / "photo.png"), {"image": photo}, {"pixel_values": prepared}]
    found = [wherefrom.explain(way, model, method="gradient-x-input") for way in ways]
    for each in found[1:]:
        np.testing.assert_allclose(each.scores, found[0].scores)
    again = wherefrom.explain(model=model, **found[5].arguments)
    np.testing.assert_array_equal(again.scores, found[5].scores)
    again = wherefrom.explain(photo, model=model, **found[0].arguments)  # an array is not kept, and given again
    np.testing.assert_array_equal(again.scores, found[0].scores)
    shown = found[0].picture.pixels.astype(int)
    own = np.asarray(image.fromarray(photo).resize((12, 12), image.Resampling.BILINEAR)).astype(int)
    assert np.abs(shown - own).max() <= 1  # the normalisation is undone


def test_several_images_and_a_batch() -> None:
    model, photos = opened(), [pictures.photo(seed) for seed in range(3)]
    found = wherefrom.explain(photos, model, method="saliency")
    stacked = wherefrom.explain(np.stack(photos), model, method="saliency")
    for one, other in zip(found, stacked, strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)


def test_gray_images_are_read() -> None:
    gray = pictures.photo()[..., 0]
    one, other = (
        wherefrom.explain(each, opened(), method="saliency") for each in (gray, np.repeat(gray[..., None], 3, -1))
    )
    np.testing.assert_array_equal(one.scores, other.scores)


def test_a_photograph_that_was_stored_sideways_is_read_upright(tmp_path: Path) -> None:
    image, ops = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageOps")
    for orientation in range(1, 9):
        exif = image.Exif()
        exif[0x0112] = orientation
        image.fromarray(pictures.photo()).save(tmp_path / "photo.png", exif=exif)
        with image.open(tmp_path / "photo.png") as stored:
            own = np.asarray(ops.exif_transpose(stored))
            np.testing.assert_array_equal(colours(stored), own)
        np.testing.assert_array_equal(decoded(tmp_path / "photo.png"), own)


def test_transparent_images_lie_on_white_and_masks_on_black() -> None:
    image = pytest.importorskip("PIL.Image")
    clear = np.concatenate([pictures.photo(), pictures.photo()[..., :1]], -1)
    clear[:3, :, 3], clear[3:6, :, 3] = 0, 255
    drawn = image.fromarray(clear)
    own = np.asarray(image.alpha_composite(image.new("RGBA", drawn.size, "white"), drawn))[..., :3].astype(int)
    for found in (pixels_of(drawn), pixels_of(clear), pixels_of(clear / 255), pixels_of(torch.tensor(clear))):
        assert np.abs(found.astype(int) - own).max() <= 1
        np.testing.assert_array_equal(found[:6], own[:6])
    file = io.BytesIO()
    drawn.save(file, "PNG")
    assert not decoded(file.getvalue(), ground=BLACK)[:3].any()
    indexed = drawn.convert("RGB").quantize(8)
    indexed.info["transparency"] = 0
    where = np.asarray(indexed) == 0
    assert (pixels_of(indexed)[where] == 255).all()


def test_sixteen_bits_of_grey_are_eight() -> None:
    image = pytest.importorskip("PIL.Image")
    gray = pictures.photo()[..., 0]
    deep, file = image.fromarray(gray.astype(np.uint16) * 257), io.BytesIO()
    deep.save(file, "PNG")
    for found in (pixels_of(deep), decoded(file.getvalue())):
        np.testing.assert_array_equal(found, np.repeat(gray[..., None], 3, -1))
    with pytest.raises(InvalidInput, match="an image of mode 'F', whose numbers have no largest"):
        pixels_of(image.fromarray(gray.astype(np.float32)))


@pytest.mark.parametrize("height", [1, 3])
def test_low_pictures_have_their_colours_last(height: int) -> None:
    """A processor that is left to guess takes the rows for colours."""
    low = np.repeat(pictures.photo()[:1], height, 0)
    (found,), _ = opened().reader().read(low)
    (higher,), _ = opened().reader().read(np.repeat(low[:1], 12, 0))
    torch.testing.assert_close(found.pixels, higher.pixels)


@pytest.mark.parametrize("layout", ["vit", "registers", "siglip"])
@pytest.mark.parametrize("method", ["alti", "gradient-x-input", "attn-lrp", "ablation"])
def test_a_batch_gives_what_single_pictures_give(layout: str, method: str) -> None:
    """Also pictures of another size beside them, and of another shape with as many patches."""
    model = pictures.model(layout)
    given = [pictures.pixels(0), pictures.pixels(1, 12, 12), pictures.pixels(2, 8, 16), pictures.pixels(3, 16, 8)]
    for each, alone in zip(wherefrom.explain(given, model, method=method), given, strict=True):
        single = wherefrom.explain(alone, model, method=method)
        assert each.tokens == single.tokens
        np.testing.assert_allclose(each.scores, single.scores, atol=1e-6)


def test_an_explanation_of_a_picture_is_stored_whole(tmp_path: Path) -> None:
    found = wherefrom.explain(pictures.photo(), opened(), method="alti")
    for name in ("x.json", "x.npz"):
        back = Explanation.load(found.save(tmp_path / name))
        np.testing.assert_array_equal(back.picture.pixels, found.picture.pixels)
        assert (back.picture.grid, back.picture.first) == ((3, 3), 1)
    np.testing.assert_array_equal(from_png(to_png(pictures.photo())), pictures.photo())


# Patches that are taken away ------------------------------------------------------------------------------


@pytest.mark.parametrize("paint", PAINTS)
def test_a_patch_is_painted_over_and_no_other(paint: str) -> None:
    model = opened()
    (sentence,), _ = model.reader().read(pictures.photo())
    changed = painted(sentence.blanked([1, 6], PAINTS[paint]))  # patch 0,0 and patch 1,2
    same = (changed == sentence.pixels).all(0)
    gone = torch.zeros(12, 12, dtype=torch.bool)
    gone[:4, :4] = gone[4:8, 8:] = True
    assert bool(same[~gone].all())
    assert not bool(same[gone].any())
    if paint == "black":
        torch.testing.assert_close(
            changed[:, 0, 0].double(), torch.tensor([-1.0, -1.6, -1.5]).double(), atol=1e-6, rtol=0
        )
    if paint == "mean":
        torch.testing.assert_close(changed[:, 0, 0], sentence.pixels.mean((1, 2)))


def test_a_blur_leaves_an_even_picture_as_it_is() -> None:
    model = opened()
    (sentence,), _ = model.reader().read(np.full((12, 12, 3), 90, np.uint8))
    torch.testing.assert_close(painted(sentence.blanked(range(10), PAINTS["blur"])), sentence.pixels)


@pytest.mark.parametrize("by", ["mean", "black", "blur"])
def test_ablation_is_what_the_class_loses_without_a_patch(by: str) -> None:
    model = opened()
    found = wherefrom.explain(pictures.photo(), model, method="ablation", by=by, target=1)
    (sentence,), _ = model.reader().read(pictures.photo())

    def p(*gone: int) -> float:
        with torch.no_grad():
            batch = collate([sentence.blanked(gone, PAINTS[by])], None)
            return float(model.model(batch.pixels.double()).logits.softmax(-1)[0, 1])

    np.testing.assert_allclose(found.scores, [p() - p(patch) for patch in range(10)], atol=1e-8)
    assert found.scores[0] == 0  # the class token has no pixels


def test_a_patch_that_attention_does_not_see_is_a_patch_left_out() -> None:
    """The embeddings without the patch, through the model's own blocks."""
    model = opened()
    found = wherefrom.explain(pictures.photo(), model, method="ablation", by="attention", target=1)
    (sentence,), _ = model.reader().read(pictures.photo())
    vit, head = model.model.vit, model.model.classifier
    with torch.no_grad():
        whole = vit.embeddings(sentence.pixels[None].double())

        def p(states: torch.Tensor) -> float:
            for block in vit.layers:
                states = block(states)
            return float(head(vit.layernorm(states)[:, 0]).softmax(-1)[0, 1])

        losses = [p(whole) - p(torch.cat([whole[:, :i], whole[:, i + 1 :]], 1)) for i in range(1, 10)]
    np.testing.assert_allclose(found.scores[1:], losses, atol=1e-12)


def test_context_cite_paints_patches_with_the_mean_colour() -> None:
    one, other = (
        wherefrom.explain(pictures.photo(), opened(), method="context-cite", **by) for by in ({}, {"by": "mean"})
    )
    np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.parametrize("baseline", ["mean", "black", "blur", "zero"])
def test_integrated_gradients_add_up_to_the_change(baseline: str) -> None:
    model = opened()
    found = wherefrom.explain(
        pictures.photo(), model, method="integrated-gradients", baseline=baseline, target=1, tolerance=1e-4
    )
    if baseline == "zero":
        return
    (sentence,), _ = model.reader().read(pictures.photo())
    with torch.no_grad():
        both = [sentence, sentence.blanked(range(10), PAINTS[baseline])]
        logits = model.model(collate(both, None).pixels.double()).logits[:, 1]
    np.testing.assert_allclose(found.scores.sum(), float(logits[0] - logits[1]), rtol=1e-3)


@pytest.mark.slow
@CLASSIFIERS
@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
def test_every_method_gives_the_same_alone_or_says_why_it_cannot(layout: str) -> None:
    model, both = open_model(pictures.model(layout)), [pictures.pixels(0), pictures.pixels(1)]
    refused = set()
    for method in wherefrom.methods():
        try:
            found = wherefrom.explain(both, model, method=method.name)[1]
        except (Unsuited, InvalidOption, NotDefined):
            refused.add(method.name)
            continue
        np.testing.assert_allclose(
            found.scores, wherefrom.explain(both[1], model, method=method.name).scores, atol=1e-6, err_msg=method.name
        )
    heads = {"partial-lrp", "transformer-attribution", "full-lrp", "decompx", "alti-logit", "grad-eclip"}
    biased = {"deeplift", "hta", "hta-x-input"} if layout == "beit" else set()  # a softmax with positions in it
    assert refused <= biased | (set() if layout in ("vit", "deit") else heads)


# Images and texts -----------------------------------------------------------------------------------------


class Words:
    """A tokenizer of three words."""

    def __call__(self, text: str, **_: Any) -> Any:
        ids = [1, *({"a": 5, "cat": 6, "dog": 7}[word] for word in text.split()), 2]
        return {"input_ids": torch.tensor([ids])}

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        return ids


def test_grad_eclip_is_of_one_token_that_is_read() -> None:
    asked = {"method": "grad-eclip", "target": wherefrom.similarity("a cat")}
    clip, siglip = (open_model(pictures.model(each), Words()) for each in ("clip-both", "siglip-both"))
    assert wherefrom.explain(pictures.pixels(), clip, **asked).scores[0] == 0
    with pytest.raises(NotDefined, match=r"here several are \(mean"):
        wherefrom.explain(pictures.pixels(), siglip, **asked)


@pytest.mark.parametrize("layout", ["clip-both", "siglip-both"])
def test_the_similarity_to_a_text_is_the_models_own_logit(layout: str) -> None:
    whole = pictures.model(layout)
    model = open_model(whole, Words(), processor=pictures.processor())
    given, read = pictures.pixels(), Words()("a cat")["input_ids"]
    found = wherefrom.explain(given, model, method="gradient-x-input", target=wherefrom.similarity("a cat"))
    bias = float(getattr(whole, "logit_bias", torch.zeros(1)).detach())
    with torch.no_grad():
        own = whole(input_ids=read, pixel_values=given["pixel_values"][None]).logits_per_image
    assert float(found.prediction) == pytest.approx(float(own) - bias, rel=1e-3)
    against = wherefrom.explain(
        given,
        model,
        method="gradient-x-input",
        target=wherefrom.similarity("a cat"),
        foil=wherefrom.similarity("a dog"),
    )
    other = wherefrom.explain(given, model, method="gradient-x-input", target=wherefrom.similarity("a dog"))
    np.testing.assert_allclose(against.scores, found.scores - other.scores, atol=1e-9)
    assert str(found.target) == "similarity to 'a cat'"


# Refusals -------------------------------------------------------------------------------------------------


def test_a_text_beside_a_picture_is_not_cut() -> None:
    model = open_model(pictures.model("clip-both"), Words(), processor=pictures.processor())
    most = model.both.config.text_config.max_position_embeddings
    for long in ("cat " * (most - 1), "a " * (most - 1)):
        with pytest.raises(TooLong, match=f"has {most + 1} tokens but the model reads at most {most}; shorten it"):
            wherefrom.explain(pictures.pixels(), model, target=wherefrom.similarity(long))
    wherefrom.explain(pictures.pixels(), model, target=wherefrom.similarity("cat " * (most - 2)))
    with pytest.raises(InvalidInput, match=r"reads images: there is no file 'a cat'.*target=wherefrom.similarity"):
        wherefrom.explain("a cat", model)


@pytest.mark.parametrize("given", [pictures.photo(), pictures.pixels(), {"image": pictures.photo()}])
def test_a_model_of_texts_is_given_an_image(given: Any) -> None:
    with pytest.raises(InvalidInput, match="reads text, and an image was given"):
        wherefrom.explain(given, tiny.model(), method="saliency")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a deep film", "reads images, and no text: there is no file 'a deep film'"),
        ("cat.png", "reads images: there is no file 'cat.png'"),
        ({"input_ids": [1, 2]}, "reads images, and what was given has input_ids"),
        ([], "the list of inputs is empty"),
        (["a", "b"], "2 of 2 inputs cannot be read: input 0: ViTForImageClassification reads images, and no text"),
        (np.zeros((5, 5, 7), np.uint8), "an array of shape .* is no image"),
        (np.full((5, 5, 3), 7.0), "floats outside of 0 to 1"),
        (np.zeros((5, 5, 3), np.int64), "an image of int64"),
        ({"pixel_values": torch.zeros(3, 12, 12, dtype=torch.long)}, "expected finite floats"),
        ({"pixel_values": torch.zeros(3, 3, 3)}, "smaller than one patch"),
        (7, "was given to a model of images"),
        (np.zeros((0, 5, 3)), "has no pixels"),
    ],
)
def test_a_model_of_images_is_given_something_else(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        wherefrom.explain(given, opened(), method="saliency")


def test_what_is_no_image_file_is_said(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "x.png").write_text("no image")
    with pytest.raises(InvalidInput, match="no image that Pillow can read"):
        wherefrom.explain(tmp_path / "x.png", opened(), method="saliency")


def test_without_a_processor_pixels_are_wanted() -> None:
    with pytest.raises(InvalidOption, match="without an image processor"):
        wherefrom.explain(pictures.photo(), pictures.model(), method="saliency")
    with pytest.raises(InvalidOption, match="known to the model's image processor alone"):
        wherefrom.explain(pictures.pixels(), pictures.model(), method="ablation", by="black")


@pytest.mark.parametrize("baseline", ["mask", 5, [5, 6]])
def test_a_baseline_of_texts_is_refused_with_those_of_pictures(baseline: Any) -> None:
    with pytest.raises((InvalidOption, Unsuited), match=r"pass baseline= 'mean', 'black' or 'blur'$"):
        wherefrom.explain(pictures.photo(), opened(), method="deeplift", baseline=baseline)


def test_ways_of_texts_are_refused_of_pictures_and_the_other_way_round() -> None:
    with pytest.raises(InvalidOption, match="painted over"):
        wherefrom.explain(pictures.pixels(), opened(), method="ablation", by="unknown")
    with pytest.raises(InvalidOption, match="cannot be deleted from a picture"):
        wherefrom.explain(pictures.pixels(), opened(), method="ablation", by="delete")
    with pytest.raises(InvalidOption, match="no token to blank out by 'blur'"):
        wherefrom.explain(tiny.ids(5), tiny.model(), method="ablation", by="blur")
    with pytest.raises(InvalidTarget, match="reads images alone"):
        wherefrom.explain(
            pictures.pixels(), pictures.model("vit-encoder"), method="saliency", target=wherefrom.similarity("a")
        )


def test_what_can_be_asked_of_a_picture_is_named() -> None:
    with pytest.raises(NotDefined, match=r"one dimension of what represents the picture \(target=0\)"):
        wherefrom.explain(pictures.pixels(), pictures.model("vit-encoder"), method="saliency")
    with pytest.raises(NotDefined, match="how similar the picture is to a text"):
        wherefrom.explain(pictures.pixels(), pictures.model("clip-both"), method="saliency")
    with pytest.raises(
        InvalidOption, match=r"no argument 'processor'; pass it as tokenizer=, .*open_model\(model, proc"
    ):
        wherefrom.explain(pictures.pixels(), pictures.model(), processor=None)
    with pytest.raises(InvalidOption, match="reads text, and by='mean' paints over patches of a picture"):
        wherefrom.evaluate(["the cat"], tiny.model(), tiny.tokenizer(), methods=["saliency"], metrics=["deletion"])


def test_other_models_of_pictures_are_refused_by_name() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.YolosConfig(**pictures.TINY | {"image_size": [12, 12]}, num_detection_tokens=2)
    with pytest.raises(UnsupportedModel, match=r"'yolos'.*reads pictures"):
        open_model(transformers.YolosModel(config))


@pytest.mark.parametrize("layout", ["clip-both", "clip-vision", "vit"])
def test_a_changed_layer_is_to_blame_and_not_the_forward_pass(layout: str) -> None:
    """A layer with other heads than the configuration's runs, but not by the formulas of its row."""
    model = pictures.model(layout)
    side = getattr(model, "vision_model", model)
    last = [each for each in side.modules() if hasattr(each, "num_attention_heads") or hasattr(each, "num_heads")][-1]
    for name in ("num_heads", "num_attention_heads"):
        if hasattr(last, name):
            setattr(last, name, 1)
    for name in ("head_dim", "attention_head_size"):
        if hasattr(last, name):
            setattr(last, name, 16)
    assert torch.isfinite(side(pixel_values=pictures.pixels()["pixel_values"][None])[0]).all()
    with pytest.raises(UnsupportedModel) as error:
        open_model(model, processor=pictures.processor())
    assert "own forward pass fails" not in str(error.value)


def test_a_folder_is_opened_with_its_processor(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pictures.model("vit", torch.float32).save_pretrained(tmp_path)
    pictures.processor().save_pretrained(tmp_path)
    found = wherefrom.explain(pictures.photo(), str(tmp_path), method="saliency")
    assert len(found) == 10
    assert found.prediction in ("LABEL_0", "LABEL_1", "LABEL_2")


def test_grad_eclip_says_first_that_there_is_no_number() -> None:
    with pytest.raises(NotDefined, match="there is no number to explain"):
        wherefrom.explain(pictures.pixels(), pictures.model("siglip-both"), method="grad-eclip")


def test_what_black_is_can_be_told_as_the_sentence_says() -> None:
    asked = {"inputs": pictures.pixels(), "model": pictures.model("vit"), "method": "ablation", "by": "black"}
    with pytest.raises(InvalidOption, match="give it as tokenizer=, or choose 'mean' or 'blur'"):
        wherefrom.explain(**asked)
    assert np.isfinite(wherefrom.explain(**asked, tokenizer=pictures.processor()).scores).all()
