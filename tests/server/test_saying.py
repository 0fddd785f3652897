"""What a language model says over HTTP: what Python gives, streamed, and why not another word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import pairs
import tiny
import wherefrom
from server.conftest import client_of
from wherefrom.model import Model, open_model
from wherefrom.result.comparison import Comparison
from wherefrom.result.generation import Generation
from wherefrom.server.limits import Limits

PROMPT = "the cat is not very good . the dog"
TEMPLATE = "{% for turn in messages %}[CLS] {{ turn['content'] }} [SEP] {% endfor %}"


@pytest.fixture(scope="module")
def lm() -> Model:
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.chat_template = TEMPLATE
    model = tiny.model("llama", "causal-lm", dtype=torch.float64, num_hidden_layers=1, eos_token_id=None)
    return open_model(model, tokenizer)


@pytest.fixture(scope="module")
def speaking(lm: Model) -> Iterator[Any]:
    with client_of({"tiny": open_model(tiny.model(), tiny.tokenizer()), "lm": lm}, limits=Limits(said=20)) as found:
        yield found


def test_generate_is_pythons(speaking: Any, lm: Model) -> None:
    answer = speaking.post("/api/generate", json={"prompt": PROMPT, "max_new_tokens": 3, "alternatives": 1})
    assert answer.status_code == 200, answer.text
    found = Generation.from_dict(answer.json())
    expected = wherefrom.generate(PROMPT, lm, max_new_tokens=3, do_sample=False, alternatives=1)
    assert found.ids == expected.ids
    assert np.allclose(found.scores, expected.scores)
    assert found.steps == expected.steps
    cards = speaking.get("/api/models").json()["models"]
    assert [(each["says"], each["chat"]) for each in cards] == [(False, False), (True, True)]


def test_the_answer_is_streamed_as_it_is_said(speaking: Any, lm: Model) -> None:
    chat = [{"role": "user", "content": "a good film"}]
    asked = {"chat": chat, "max_new_tokens": 4, "temperature": 1.5, "seed": 3, "form": "viewer"}
    answer = speaking.post("/api/generate", json=asked, headers={"accept": "application/x-ndjson"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    told = [each for each in events if each["event"] != "waiting"]
    said = [each["text"] for each in told if each["event"] == "said"]
    assert [each["event"] for each in told][len(said) :] == ["progress", "generation", "done"]
    expected = wherefrom.generate(chat, lm, max_new_tokens=4, do_sample=True, temperature=1.5, seed=3)
    assert "".join(said) == expected.text
    assert len(said) > 1
    assert told[-2]["payload"]["ids"] == expected.ids


def test_why_not_another_word(speaking: Any, lm: Model) -> None:
    found = wherefrom.generate(PROMPT, lm, max_new_tokens=2, do_sample=False, alternatives=2)
    foil = found.steps[1].foils[1]
    asked = {"ids": found.ids[: found.start + 1], "target": found.ids[found.start + 1], "foil": foil.foil}
    answer = speaking.post("/api/why-not", json=asked).json()
    assert (answer["token"], answer["name"]) == (foil.foil, foil.foil_label)
    assert np.allclose(answer["scores"], found.why_not(1, str(foil.foil_label)).scores)
    assert answer["probability"] == pytest.approx(found.steps[1].probabilities[str(foil.foil_label)])
    word = speaking.post("/api/why-not", json={**asked, "foil": "very"}).json()
    assert word["name"] == "very"


@pytest.fixture(scope="module")
def translator() -> Model:
    return open_model(pairs.model("marian", num_beams=3), tiny.tokenizer())  # whose own way is a beam


@pytest.fixture(scope="module")
def translating(translator: Model) -> Iterator[Any]:
    tasks = {"tiny": open_model(tiny.model(), tiny.tokenizer()), "marian": translator}
    with client_of(tasks, limits=Limits(said=20, tokens=24)) as found:
        yield found


def test_a_translator_writes_or_is_given_its_target(translating: Any, translator: Model) -> None:
    answer = translating.post("/api/generate", json={"prompt": "a good film", "max_new_tokens": 4})
    assert answer.status_code == 200, answer.text
    found = Generation.from_dict(answer.json())
    expected = wherefrom.generate("a good film", translator, max_new_tokens=4, do_sample=False)
    assert found.ids == expected.ids
    assert found.whole.method == "alti"
    assert np.allclose(found.scores, expected.scores)
    asked = {"prompt": "a good film", "max_new_tokens": 4, "form": "viewer"}
    streamed = translating.post("/api/generate", json=asked, headers={"accept": "application/x-ndjson"})
    events = [json.loads(line) for line in streamed.text.splitlines()]
    payload = next(each["payload"] for each in events if each["event"] == "generation")
    greedy = wherefrom.generate("a good film", translator, max_new_tokens=4, num_beams=1)
    assert payload["ids"] == greedy.ids
    assert "".join(each["text"] for each in events if each["event"] == "said") == greedy.text
    assert payload["source"] == len(tiny.tokenizer()("a good film")["input_ids"])
    assert [(each["says"], each["translates"]) for each in translating.get("/api/models").json()["models"]] == [
        (False, False),
        (True, True),
    ]


def test_why_a_translator_did_not_write_another_word(translating: Any, translator: Model) -> None:
    asked = {"prompt": "a dog", "target": "the good film", "method": "gradient-x-input", "alternatives": 1}
    found = Generation.from_dict(translating.post("/api/generate", json=asked).json())
    expected = wherefrom.generate(
        "a dog", translator, method="gradient-x-input", target="the good film", alternatives=1
    )
    assert np.allclose(found.scores, expected.scores)
    foil, given = found.steps[1].foils[0], found[1].given
    why = {
        "ids": given["input_ids"],
        "decoder_ids": given["decoder_input_ids"],
        "target": found.ids[found.start + 1],
        "foil": foil.foil,
        "method": "gradient-x-input",
    }
    answer = translating.post("/api/why-not", json=why).json()
    assert np.allclose(answer["scores"], found.why_not(1, foil.foil).scores)
    assert "alti says what" in translating.post("/api/why-not", json={**why, "method": "auto"}).json()["detail"]


def test_targets_of_a_translator_are_compared(translating: Any, translator: Model) -> None:
    asked = {"inputs": "a dog", "model": "marian", "target": "the good film", "methods": ["alti", "attn-lrp"]}
    answer = translating.post("/api/compare", json=asked)
    assert answer.status_code == 200, answer.text
    found = Comparison.from_dict(answer.json())
    expected = wherefrom.compare("a dog", translator, target="the good film", methods=asked["methods"])
    for name, each in expected.items():
        assert np.allclose(found[name].scores, each.scores)
    assert answer.json()["agreement"]["over"] == "words of the source"
    foil = {**asked, "foil": "the bad film", "methods": ["attn-lrp"]}
    streamed = translating.post("/api/compare", json=foil, headers={"accept": "application/x-ndjson"})
    events = [json.loads(line) for line in streamed.text.splitlines()]
    told = next(each["explanation"] for each in events if each["event"] == "explanation")
    one = wherefrom.explain("a dog", translator, method="attn-lrp", target="the good film", foil="the bad film")
    assert np.allclose(told["scores"], one.scores)
    long = translating.post("/api/compare", json={**asked, "target": "a film " * 15})
    assert long.json()["code"] == "over-limit"
    without = translating.post("/api/explain", json={"inputs": "a dog", "model": "marian"})
    assert without.json()["code"] == "invalid-target"


@pytest.mark.parametrize(
    ("path", "asked", "status", "code"),
    [
        ("generate", {}, 400, "invalid-input"),
        ("generate", {"prompt": "a", "chat": []}, 400, "invalid-input"),
        ("generate", {"prompt": "a", "max_new_tokens": 21}, 400, "over-limit"),
        ("generate", {"prompt": "a " * 6000}, 400, "over-limit"),
        ("generate", {"prompt": "a " * 35, "max_new_tokens": 8}, 400, "too-long"),  # for the model
        ("generate", {"prompt": "a", "model": "tiny", "max_new_tokens": 2}, 422, "invalid-option"),
        ("generate", {"prompt": "a", "model": "nobody"}, 404, "unknown-name"),
        ("generate", {"prompt": "a", "method": "guess"}, 404, "unknown-name"),
        ("generate", {"prompt": "a", "top": 3}, 422, "invalid-request"),
        ("generate", {"prompt": "a", "seed": 3}, 422, "invalid-option"),
        ("generate", {"prompt": "a", "target": "b", "temperature": 1}, 422, "invalid-option"),
        ("generate", {"chat": [{"role": "robot", "content": "a"}]}, 422, "invalid-request"),
        ("generate", {"prompt": "a", "method": "integrated-gradients(n_steps=100000)"}, 422, "invalid-option"),
        ("why-not", {"ids": [5, 99999], "target": 1, "foil": 2}, 400, "invalid-input"),
        ("why-not", {"ids": [5, 6], "target": 1, "foil": "no such word"}, 422, "invalid-target"),
        (
            "why-not",
            {"ids": [5, 6], "target": 1, "foil": 0, "model": "tiny", "method": "saliency"},
            422,
            "invalid-option",
        ),
        ("why-not", {"ids": [5] * 600, "target": 1, "foil": 2}, 400, "over-limit"),
        ("why-not", {"ids": [5, 6], "target": 7, "foil": 8, "method": "alti"}, 422, "invalid-target"),
    ],
)
def test_what_cannot_be_said_is_refused(
    speaking: Any, path: str, asked: dict[str, Any], status: int, code: str
) -> None:
    answer = speaking.post(f"/api/{path}", json=asked)
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
