"""Pictures over HTTP: what Python gives of them, their evidence, refusals, and a file dropped on the page."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pictures
import wherefrom
from browser import chromium, expect, window
from server.conftest import client_of, listening
from wherefrom.metric.spotcheck import checks
from wherefrom.model import Model, open_model
from wherefrom.result.explanation import Explanation
from wherefrom.result.picture import to_png
from wherefrom.server.limits import Limits

pillow = pytest.importorskip("PIL.Image")
PHOTO = pictures.photo()
SENT = {"image": base64.b64encode(to_png(PHOTO)).decode()}


@pytest.fixture(scope="module")
def model() -> Model:
    return open_model(pictures.model("vit"), processor=pictures.processor())


@pytest.fixture(scope="module")
def served(model: Model) -> Iterator[Any]:
    with client_of({"vit": model}) as client:
        yield client


def test_an_image_is_explained_as_python_explains_it(served: Any, model: Model) -> None:
    assert served.get("/api/models").json()["models"][0]["images"] is True
    expected = wherefrom.explain(PHOTO, model, method="attn-lrp")
    jpeg = io.BytesIO()
    pillow.fromarray(PHOTO).save(jpeg, "JPEG")
    link = f"data:image/png;base64,{SENT['image']}"
    for image in (SENT["image"], link):
        answer = served.post("/api/explain", json={"inputs": {"image": image}, "method": "attn-lrp"}).json()
        np.testing.assert_allclose(Explanation.from_dict(answer).scores, expected.scores, atol=1e-6)
    both = [SENT, {"image": base64.b64encode(jpeg.getvalue()).decode()}]
    first, second = served.post("/api/explain", json={"inputs": both, "method": "saliency", "maps": False}).json()
    assert first["tokens"] == second["tokens"]


def test_evidence_of_a_picture_goes_by_patches(served: Any, model: Model) -> None:
    asked = {"inputs": SENT, "methods": ["attn-lrp"], "evidence": True, "form": "viewer"}
    events = [
        json.loads(line)
        for line in served.post(
            "/api/compare", json=asked, headers={"accept": "application/x-ndjson"}
        ).text.splitlines()
    ]
    (found,) = (each for each in events if each["event"] == "evidence")
    (expected,) = checks(
        [wherefrom.explain(PHOTO, model, method="attn-lrp")], model, sentence=model.reader().read(PHOTO)[0][0]
    )
    assert found["sentence"] == str(expected)
    assert "patches the probability" in found["sentence"]
    assert found["by"] == "mean"
    assert {each["over"] for each in events if each["event"] in ("evidence", "agreement")} == {"patches"}
    assert set(found["words"]) == {f"{row},{column}" for row in range(3) for column in range(3)}


def test_no_file_of_the_server_is_read(served: Any, tmp_path: Path) -> None:
    pillow.fromarray(PHOTO).save(tmp_path / "secret.png")
    answer = served.post("/api/explain", json={"inputs": str(tmp_path / "secret.png")})
    assert answer.status_code == 400
    assert "reads images, and no text" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("%%%", "not in base64"),
        (base64.b64encode(b"hello").decode(), "no image that Pillow can read: its kind is not known"),
    ],
)
def test_what_is_no_image_is_refused(served: Any, image: str, said: str) -> None:
    answer = served.post("/api/explain", json={"inputs": {"image": image}})
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


def test_a_large_image_and_one_for_a_model_of_texts_are_refused(model: Model, models: dict[str, Model]) -> None:
    with client_of({"vit": model}, limits=Limits(pixels=100)) as client:
        answer = client.post("/api/explain", json={"inputs": SENT})
        assert (answer.status_code, answer.json()["code"]) == (400, "over-limit")
    with client_of(models) as client:
        answer = client.post("/api/explain", json={"inputs": SENT})
        assert answer.status_code == 400
        assert "image" in answer.json()["detail"]


@pytest.mark.parametrize("prompt", ["there.png", "text.png", "nowhere.png"])
def test_a_prompt_is_no_path_to_a_model_of_pictures(served: Any, tmp_path: Path, prompt: str) -> None:
    """Nobody learns over HTTP which files there are."""
    pillow.fromarray(PHOTO).save(tmp_path / "there.png")
    (tmp_path / "text.png").write_text("no image")
    answer = served.post("/api/generate", json={"prompt": str(tmp_path / prompt), "model": "vit"})
    assert answer.status_code == 422
    assert "is for classification and says nothing" in answer.json()["detail"]


@pytest.mark.slow
def test_a_file_is_dropped_on_the_page(model: Model, tmp_path: Path) -> None:
    pillow.fromarray(PHOTO).save(tmp_path / "photo.png")
    (tmp_path / "text.png").write_text("no image")
    with listening({"vit": model}) as address, chromium() as browser:
        page = window(browser).new_page()
        page.goto(address)
        expect(page.locator("html[data-ready]")).to_be_attached()
        expect(page.locator("#text-field")).to_be_hidden()
        page.click("#explain")
        expect(page.locator("#error")).to_contain_text("There is no picture yet")
        page.set_input_files("#image", tmp_path / "text.png")
        expect(page.locator("#error")).to_contain_text("no image that this browser can read")
        page.set_input_files("#image", tmp_path / "photo.png")
        expect(page.locator("#preview")).to_be_visible()
        page.click("#explain")
        expect(page.locator("#status")).to_contain_text("Done")
        expect(page.locator("#error")).to_be_hidden()
        expect(page.locator("#history")).to_contain_text("photo.png")
        noise = np.random.default_rng(0).integers(0, 256, (512, 512, 3), dtype=np.uint8)  # which no file makes small
        pillow.fromarray(noise).save(tmp_path / "noise.png")
        page.set_input_files("#image", tmp_path / "noise.png")
        expect(page.locator("#drop-hint")).to_have_text("noise.png")
        page.click("#explain")
        expect(page.locator("#history")).to_contain_text("noise.png")
        expect(page.locator("#error")).to_be_hidden()
        page.set_input_files("#image", tmp_path / "text.png")  # after which there is no picture
        expect(page.locator("#error")).to_contain_text("no image that this browser can read")
        expect(page.locator("#preview")).to_be_hidden()
        page.click("#explain")
        expect(page.locator("#error")).to_contain_text("There is no picture yet")
