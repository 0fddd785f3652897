"""A vision transformer from scratch: pictures are read and changed as they should be, and a run learns and resumes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training import images, loop, replay, teacher

pillow = pytest.importorskip("PIL.Image")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
SHAPE = images.VisionShape(layers=1, width=16, heads=2, patch=4)


def bright(count: int, seed: int = 0, side: int = 8) -> tuple[Any, list[int]]:
    """Pictures that are light above or light below."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    pixels = rng.integers(0, 60, (count, side, side, 3))
    for each, label in zip(pixels, labels, strict=True):
        each[: side // 2] += 150 * (1 - label)
        each[side // 2 :] += 150 * label
    return pixels.astype(np.uint8), labels.tolist()


def table(path: Path, count: int, seed: int = 0, names: str = "above,below") -> Path:
    pixels, labels = bright(count, seed)
    files = []
    for each in pixels:
        buffer = io.BytesIO()
        pillow.fromarray(each).save(buffer, "PNG")
        files.append(buffer.getvalue())
    made = pa.table({"image": files, "label": labels})
    parquet.write_table(made.replace_schema_metadata({"names": names} if names else {}), path)
    return path


def schedule(out: Path, **changed: Any) -> loop.Schedule:
    usual = {"epochs": 10, "batch": 16, "learning_rate": 3e-3, "device": "cpu", "progress": False, "patience": 0}
    return loop.Schedule(out, **{**usual, **changed})


def test_tables_are_read_with_the_names_of_their_labels(tmp_path: Path) -> None:
    pixels, labels = bright(5)
    seen = images.read([table(tmp_path / "a.parquet", 5)], images.ImageColumns())
    np.testing.assert_array_equal(seen.pixels, pixels)
    assert seen.labels.tolist() == labels
    assert seen.names == ["above", "below"]
    plain = images.read([table(tmp_path / "b.parquet", 5, names="")], images.ImageColumns())
    assert plain.names == sorted({str(label) for label in labels})


def test_every_change_keeps_pictures_what_they_are() -> None:
    pixels, drawn = (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) for shape in ((6, 3, 8, 8), (6, 7)))
    for change, size in ((images.moved, 7), (images.coloured, 3)):
        found = change(pixels, drawn[:, :size])
        assert found.shape == pixels.shape
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
        assert not torch.equal(found, pixels)
    still = images.moved(torch.full((6, 3, 8, 8), 0.3), drawn)
    torch.testing.assert_close(still, torch.full((6, 3, 8, 8), 0.3))
    middle = torch.full((6, 7), 0.5)  # neither bent nor mirrored nor shifted, colours as they are
    torch.testing.assert_close(images.moved(pixels, middle), pixels)
    torch.testing.assert_close(images.coloured(pixels, middle[:, :3]), pixels)
    assert 1 <= int((images.hidden(pixels + 1, drawn[:, :2]) == 0).all(1).sum()) <= 6 * 4


def test_a_square_of_another_picture_counts_by_its_area() -> None:
    pixels = torch.arange(6.0)[:, None, None, None].expand(6, 3, 8, 8)
    drawn = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    found = images.mixed(pixels, torch.arange(6), drawn)
    own = (found.pixels == pixels).float().mean((1, 2, 3))
    torch.testing.assert_close(found.share, own)
    assert found.others.tolist() == [5, 0, 1, 2, 3, 4]
    assert ((found.share == 1) == (drawn[:, 0] >= 0.5)).all()


def test_batches_follow_from_the_seed_and_the_place_alone(tmp_path: Path) -> None:
    seen = images.read([table(tmp_path / "a.parquet", 20)], images.ImageColumns())
    prepared = images.processor(seen)
    shown = images.Shown.of(seen, prepared, "cpu")
    rows, drawn = images.drawn_batches(20, 8, 0, 0, 5)
    assert sorted(rows.flatten()[:20].tolist()) == sorted(rows.flatten()[20:].tolist()) == list(range(20))
    again = [
        torch.cat(each) for each in zip(*(images.drawn_batches(20, 8, 0, i, i + 1) for i in range(5)), strict=True)
    ]
    assert torch.equal(again[0], rows)
    assert torch.equal(again[1], drawn)
    assert not torch.equal(images.drawn_batches(20, 8, 1, 0, 5)[1], drawn)
    assert not torch.equal(shown.changed(rows[0], drawn[0]).pixels, shown.plain(rows[0]))
    expected = prepared([seen.pixels[3], seen.pixels[4]], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(shown.plain(torch.tensor([3, 4])), expected, rtol=1e-5, atol=1e-5)


def test_the_rate_rises_and_falls(tmp_path: Path) -> None:
    run = schedule(tmp_path, warmup=0.2, learning_rate=1.0)
    rates = [replay.learning_rate(run, step, 10) for step in range(10)]
    np.testing.assert_allclose(rates, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])


@pytest.mark.slow
def test_a_run_learns_and_its_folder_explains_pictures(tmp_path: Path) -> None:
    data, out = table(tmp_path / "a.parquet", 320), tmp_path / "out"
    outcome = images.train([data], schedule(out, epochs=20), shape=SHAPE, held_out=0.2)
    assert outcome.metrics["accuracy"] > 0.8
    report = json.loads((out / "training.json").read_text())
    assert (report["train_rows"], report["valid_rows"]) == (256, 64)
    score = images.measure(str(out), table(tmp_path / "t.parquet", 40, seed=1), images.ImageColumns())
    assert score.accuracy > 0.8
    found = wherefrom.explain(bright(1)[0][0], str(out), method="attn-lrp", target="above")
    assert found.tokens == ["[CLS]", "0,0", "0,1", "1,0", "1,1"]
    assert found.target.label == "above"


def test_the_loss_with_a_teacher_is_as_its_formula_says() -> None:
    student, taught = (
        torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (0, 1)
    )
    answered, wanted = (torch.softmax(each / 2, -1) for each in (student, taught))
    apart = sum((w * (w / a).log()).sum() for a, w in zip(answered, wanted, strict=True)) / 5
    found = teacher.distilled(torch.tensor(0.7), student, taught)
    assert float(found) == pytest.approx(0.2 * 0.7 + 0.8 * 4 * float(apart), rel=1e-5)
    assert float(teacher.distilled(torch.tensor(0.0), student, student)) == pytest.approx(0, abs=1e-6)


def test_no_mask_is_made_for_attention_while_a_step_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, labels = bright(2)
    made = images.vit(SHAPE, images.Labelled(pixels, np.array(labels), ["above", "below"]))
    network = images.new(made)
    masks = []

    def seen(_: Any, args: Any) -> None:
        masks.append(args[1:])

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    network.vit.layers[0].register_forward_pre_hook(seen)
    found = network(pixel_values=torch.ones(2, 3, 8, 8)).logits
    assert masks == [(None,)]
    network.set_attn_implementation("eager")
    torch.testing.assert_close(network(pixel_values=torch.ones(2, 3, 8, 8)).logits, found)


@pytest.mark.slow
@pytest.mark.parametrize("taught", [0, 2])
def test_a_run_that_was_killed_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taught: int
) -> None:
    data = table(tmp_path / "a.parquet", 40)

    def train(out: str) -> loop.Trained:
        return images.train([data], schedule(tmp_path / out, epochs=4), shape=SHAPE, held_out=0.2, taught=taught)

    whole = train("whole")
    own = replay.refuse_infinite

    def killed(kind: str, loss: float, step: int, rate: float) -> None:
        own(kind, loss, step, rate)
        if step >= 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replay, "refuse_infinite", killed)
        with pytest.raises(KeyboardInterrupt):
            train("killed")
    again = train("killed")
    assert again.resumed
    assert again.steps == whole.steps
    assert again.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-4)
    reports = [json.loads((tmp_path / out / "training.json").read_text()) for out in ("whole", "killed")]
    assert [set(each.get("teacher", {})) for each in reports] == [{"accuracy", "loss"} if taught else set()] * 2


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    data = table(tmp_path / "a.parquet", 10)
    with pytest.raises(InvalidOption, match="patches of 3"):
        images.train([data], schedule(tmp_path / "out"), shape=images.VisionShape(patch=3))
    one = parquet.read_table(data)
    one = one.set_column(1, "label", pa.array([1] * 10))
    parquet.write_table(one, tmp_path / "one.parquet")
    with pytest.raises(InvalidInput, match="only one label, 'below', occurs in the training rows; there must be two"):
        images.train([tmp_path / "one.parquet"], schedule(tmp_path / "out"), shape=SHAPE)
    parquet.write_table(pa.table({"image": [b"no image"], "label": [0]}), tmp_path / "bad.parquet")
    with pytest.raises(InvalidInput, match="no image that Pillow can read"):
        images.read([tmp_path / "bad.parquet"], images.ImageColumns())
    with pytest.raises(InvalidInput, match=r"no class called 'below'; its classes are above: .*--name below=CLASS"):
        images.read([data], images.ImageColumns(), names=["above"])
