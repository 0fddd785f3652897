"""Requests of odd values: an answer or a sentence with a status of 4xx, never 500."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

TEXT = "the cat sat on a mat"
NDJSON = {"accept": "application/x-ndjson"}
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 10**6, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf")),
    *(
        "",
        " ",
        "a",
        "all",
        "auto",
        "none",
        "1",
        "no",
        "\x00",
        "\ud800",
        "🙂",
        "x" * 300,
        "random(seed=1)",
        "random(",
        "a(b=c)",
    ),
    *([], {}, [[]], [None], [0, 1], [1.5, None], ["a", "a"], ["alti", "attcat"], ["auto"], {"a": 1}, {"": None}),
    *({"seed": "1"}, {"method": "alti"}, {"target": 1}, {"n_steps": -1}, {"of": ["logit"]}, {"truncate": True}),
    *([["a", "b"]], [["a"]], [TEXT, ""], ["\ud800"], "attention(layers=[0,9])", "attention(head=99)", "alti(head=0)"),
]
FIELDS = [
    *(
        "inputs",
        "pair",
        "model",
        "aggregate",
        "target",
        "foil",
        "position",
        "head",
        "layers",
        "receptive_field",
        "rows",
    ),
    *("drop_self", "truncate", "maps", "evidence", "method", "methods", "options", "form", "heads", "unheard_of"),
]
MODELS = ("tiny", "tiny-mlm", "tiny-encoder")


def ask(client: Any, rng: random.Random) -> None:
    path = rng.choice(["/api/explain", "/api/compare"])
    usual = {"method": "alti"} if path.endswith("explain") else {"methods": ["alti", "saliency"]}
    odd = {name: rng.choice(VALUES) for name in rng.sample(FIELDS, rng.choice([1, 1, 2, 3]))}
    asked = {"inputs": TEXT, "model": rng.choice(MODELS), **(usual if rng.random() < 0.7 else {}), **odd}
    headers = {"content-type": "application/json", **(NDJSON if rng.random() < 0.4 else {})}
    response = client.post(path, content=json.dumps(asked), headers=headers)
    assert response.status_code < 500, (asked, response.text)
    if response.status_code >= 400:
        assert response.json()["detail"], asked
    elif "ndjson" in response.headers["content-type"]:
        events = [json.loads(line) for line in response.text.splitlines()]
        assert all(each["status"] < 500 for each in events if each["event"] == "error"), (asked, events[-1])


@pytest.mark.parametrize("inputs", [{"text": "a film"}, {}])
def test_an_object_that_is_no_image_is_said_to_be_none(client: Any, inputs: Any) -> None:
    answer = client.post("/api/explain", json={"inputs": inputs})
    assert answer.status_code == 422
    assert "inputs: an object without 'image'" in answer.json()["detail"]


@pytest.mark.parametrize("inputs", [5, None, [["a cat"]], [["a", "b", "c"]], [1, 2], {"image": 3}])
def test_inputs_of_a_wrong_kind_are_told_every_right_one(client: Any, inputs: Any) -> None:
    answer = client.post("/api/explain", json={"inputs": inputs})
    assert answer.status_code == 422
    assert "inputs: expected a text, an image" in answer.json()["detail"]


def test_odd_bodies_give_a_sentence_or_a_result(client: Any) -> None:
    rng = random.Random(0)
    for _ in range(150):
        ask(client, rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_odd_bodies_give_a_sentence_or_a_result(client: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(800):
        ask(client, rng)


@pytest.mark.parametrize("name", ["target", "foil", "position"])
def test_true_is_no_class(client: Any, name: str) -> None:
    answer = client.post("/api/explain", json={"inputs": TEXT, "model": "tiny", "method": "saliency", name: True})
    assert answer.status_code == 422
    assert name in answer.json()["detail"]
