"""The JSON API: what Python gives, under Python's names; sentences where it cannot."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoConfig, AutoModelForSequenceClassification

import tiny
import wherefrom
from server.conftest import client_of
from wherefrom.errors import RunConflict, WherefromError
from wherefrom.metric.spotcheck import checks
from wherefrom.model import Model, open_model
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.server import refusals
from wherefrom.server.catalog import examples

TEXT = "the cat sat on a mat and slept"


def lines(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


def stream(client: Any, **asked: Any) -> list[dict[str, Any]]:
    return lines(client.post("/api/compare", json=asked, headers={"accept": "application/x-ndjson"}))


def test_explain_is_pythons(client: Any, models: dict[str, Model]) -> None:
    answer = client.post("/api/explain", json={"inputs": TEXT, "method": "ablation-pairs", "target": 1}).json()
    found = Explanation.from_dict(answer)
    expected = wherefrom.explain(TEXT, models["tiny"], method="ablation-pairs", target=1)
    assert found.tokens == expected.tokens
    assert found.target == expected.target
    assert np.allclose(found.scores, expected.scores, atol=1e-6)
    assert np.allclose(found.maps, expected.maps, atol=1e-6)


def test_a_model_is_begun_with_the_methods_that_are_defined_on_it() -> None:
    opened = open_model(tiny.model("llama"), tiny.tokenizer())
    with client_of({"llama": opened}) as client:
        (card,) = client.get("/api/models").json()["models"]
        assert "it needs" in card["undefined"]["partial-lrp"]
        assert not card["undefined"].keys() & {"alti", "attention-rollout", *card["compared"]}
        found = Comparison.from_dict(client.post("/api/compare", json={"inputs": "a good film"}).json())
        assert (list(found), found.failed) == (card["compared"], {})


def test_options_of_a_model_whose_blocks_are_not_known() -> None:
    words = tiny.tokenizer()
    sizes = {"hidden_size": 24, "embedding_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model("convbert", vocab_size=len(words), intermediate_size=32, num_labels=2, **sizes)
    opened = open_model(AutoModelForSequenceClassification.from_config(config).eval(), words)
    with client_of({"convbert": opened}) as client:
        answer = client.post("/api/explain", json={"inputs": TEXT, "options": {"n_steps": 5}})
    assert answer.status_code == 200, answer.text
    found, expected = Explanation.from_dict(answer.json()), wherefrom.explain(TEXT, opened, n_steps=5)
    assert found.method == expected.method == "integrated-gradients"
    assert np.allclose(found.scores, expected.scores, atol=1e-6)


def test_a_list_of_texts_and_pairs(client: Any, models: dict[str, Model]) -> None:
    asked = {"inputs": [TEXT, ["a cat", "a mat"]], "method": "integrated-gradients", "options": {"n_steps": 5}}
    first, second = (Explanation.from_dict(each) for each in client.post("/api/explain", json=asked).json())
    expected = wherefrom.explain([TEXT, ("a cat", "a mat")], models["tiny"], method="integrated-gradients", n_steps=5)
    assert np.allclose(first.scores, expected[0].scores, atol=1e-6)
    assert second.texts == ("a cat", "a mat")
    alone = client.post("/api/explain", json={"inputs": "a cat", "pair": "a mat", "maps": False}).json()
    assert alone["texts"] == ["a cat", "a mat"]
    assert alone["maps"] is None


def test_compare_with_agreement_and_evidence(client: Any, models: dict[str, Model]) -> None:
    asked = {"inputs": TEXT, "methods": ["attcat", "globenc", "saliency"], "evidence": True}
    answer = client.post("/api/compare", json=asked).json()
    found = Comparison.from_dict(answer)
    assert list(found) == asked["methods"]
    assert np.shape(answer["agreement"]["spearman"]) == (3, 3)
    assert answer["agreement"]["by_magnitude"] == ["globenc", "saliency"]
    for name, check in zip(found, checks(list(found.values()), models["tiny"]), strict=True):
        written = answer["evidence"][name]
        assert written["sentence"] == str(check)
        assert written["verdict"] == check.verdict
        assert np.allclose(written["random"], check.random.mean(0), atol=1e-6)


def test_explanations_arrive_one_by_one(client: Any, models: dict[str, Model]) -> None:
    found = stream(client, inputs=TEXT, methods=["attcat", "globenc"], evidence=True)
    kinds = [each["event"] for each in found if each["event"] != "progress"]
    assert kinds == ["explanation", "explanation", "agreement", "evidence", "evidence", "done"]
    first = Explanation.from_dict(next(each for each in found if each["event"] == "explanation")["explanation"])
    assert np.allclose(first.scores, wherefrom.explain(TEXT, models["tiny"], method="attcat").scores, atol=1e-6)
    steps = [each for each in found if each["event"] == "progress"]
    assert [each["done"] for each in steps] == sorted(each["done"] for each in steps)
    assert steps[-1]["done"] == steps[-1]["of"]


def test_the_viewers_payload_and_heads(client: Any) -> None:
    found = stream(client, inputs=TEXT, methods=["attention", "alti"], form="viewer", heads=True)
    shown = [each["payload"] for each in found if each["event"] == "explanation"]
    assert [each["explanations"][0]["name"] for each in shown] == ["attention", "alti"]
    assert "head_maps" in shown[0]["explanations"][0]
    assert "head_maps" not in shown[1]["explanations"][0]  # ALTI has no heads, and that is no failure


def test_options_stand_in_names(client: Any, models: dict[str, Model]) -> None:
    names = ["random(seed=1)", "random(seed=2)", "attcat(of=probability)"]
    found = {
        each["name"]: each for each in stream(client, inputs=TEXT, methods=names) if each["event"] == "explanation"
    }
    assert list(found) == names
    expected = wherefrom.compare(TEXT, models["tiny"], methods=names)
    for name in names:
        assert np.allclose(found[name]["explanation"]["scores"], expected[name].scores, atol=1e-6)
    answer = client.post("/api/compare", json={"inputs": TEXT, "methods": names}).json()
    assert list(answer["explanations"]) == names


def test_one_pass_and_one_reading_for_all_methods(client: Any, models: dict[str, Model]) -> None:
    """As often as the first block is run, by methods that need no pass of their own."""
    opened = models["tiny"]
    stream(client, inputs=TEXT, methods=["alti"])  # the first use compares with a plain pass
    passes, readings = [], []
    genuine = type(opened.tokenizer).__call__

    def counted(self: Any, *given: Any, **named: Any) -> Any:
        readings.append(given)
        return genuine(self, *given, **named)

    handle = opened.blocks[0].module.register_forward_pre_hook(lambda *_: passes.append(1))
    names = ["attention-rollout", "globenc", "alti", "attcat", "saliency"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(opened.tokenizer), "__call__", counted)
        stream(client, inputs=TEXT, methods=names)
        assert (len(passes), len(readings)) == (1, 1)
        stream(client, inputs=TEXT, methods=names, evidence=True)
        assert len(readings) == 2
        client.post("/api/compare", json={"inputs": TEXT, "methods": names, "evidence": True})
        assert len(readings) == 3
    handle.remove()


def test_progress_goes_by_layers_and_then_by_methods(client: Any, models: dict[str, Model]) -> None:
    found = stream(client, inputs=TEXT, methods=["alti", "attcat"], evidence=True)
    steps = [each for each in found if each["event"] == "progress"]
    depth = models["tiny"].depth
    assert [each["doing"] for each in steps[: depth + 2]] == [
        "the text",
        *(f"layer {layer + 1} of {depth}" for layer in range(depth)),
        "attcat",
    ]
    assert steps[-1]["done"] == steps[-1]["of"] == depth + 4


def test_every_error_has_a_code(client: Any) -> None:
    answer = client.post("/api/explain", json={"inputs": "cat " * 400})
    assert answer.json()["code"] == "too-long"
    last = stream(client, inputs="cat " * 400, methods=["attcat"])[-1]
    assert (last["event"], last["code"]) == ("error", "too-long")
    unknown = client.post("/api/explain", json={"inputs": TEXT, "model": "none"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-name")
    target = client.post("/api/explain", json={"inputs": TEXT, "target": "furious"})
    assert (target.status_code, target.json()["code"]) == (422, "invalid-target")
    assert client.get("/api/nothing").json()["code"] == "not-found"
    told = stream(client, inputs=TEXT, methods=["alti", "saliency"], layers=[0, 1])
    assert [(each["name"], each["code"]) for each in told if each["event"] == "failed"] == [
        ("saliency", "invalid-option")
    ]


def test_the_documentation_lists_every_code_with_its_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    listed = {(code, int(status)) for code, status in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE)}
    kinds = [WherefromError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {(kind.code, refusals.status_of(kind)) for kind in kinds[1:] if kind is not RunConflict}  # it has no runs
    server = {(code, status) for status, code in refusals.OWN.items()} | {("closing", 503)}
    assert listed == ours | server


def test_a_text_longer_than_the_model_in_windows(client: Any, models: dict[str, Model]) -> None:
    """What the error about a long text advises, the server takes."""
    text = "the cat is good and the dog was bad . " * 8
    asked = {"inputs": text, "long": "windows"}
    assert "long='windows'" in client.post("/api/explain", json={"inputs": text}).json()["detail"]
    expected = wherefrom.explain(text, models["tiny"], method="attcat", long="windows")
    answer = client.post("/api/explain", json={**asked, "method": "attcat", "evidence": True}).json()
    assert answer["notes"] == expected.notes
    assert "in windows" in answer["evidence"]["detail"]
    assert np.allclose(Explanation.from_dict(answer).scores, expected.scores, atol=1e-5)
    both = ["attcat", "alti"]
    compared = client.post("/api/compare", json={**asked, "methods": both}).json()
    assert np.allclose(Comparison.from_dict(compared)["attcat"].scores, expected.scores, atol=1e-5)
    told = stream(client, **asked, methods=both, heads=True, evidence=True, form="viewer")
    assert [each["name"] for each in told if each["event"] == "explanation"] == both
    assert {each["event"] for each in told if each["event"] in ("failed", "error")} == set()
    none = stream(client, **asked, methods=["attcat"], aggregate="flow")  # which has no maps
    assert [each["event"] for each in none if each["event"] != "progress"] == ["failed", "done"]
    refused = client.post("/api/explain", json={**asked, "model": "tiny-mlm", "inputs": f"{text} [MASK]"})
    assert (refused.status_code, "classifiers" in refused.json()["detail"]) == (422, True)


def test_windows_share_what_was_asked_for_up_to_half(client: Any, models: dict[str, Model]) -> None:
    text = "the cat is good and the dog was bad . " * 8
    asked = {"inputs": text, "long": "windows", "overlap": 3, "methods": ["attcat"]}
    expected = wherefrom.explain(text, models["tiny"], method="attcat", long="windows", overlap=3)
    compared = Comparison.from_dict(client.post("/api/compare", json=asked).json())
    assert compared["attcat"].notes == expected.notes
    assert np.allclose(compared["attcat"].scores, expected.scores, atol=1e-5)
    alone = client.post("/api/compare", json={**asked, "inputs": "a cat", "long": "error"})
    assert (alone.status_code, alone.json()["code"]) == (422, "invalid-option")
    refused = client.post("/api/compare", json={**asked, "overlap": 1000})
    assert "at most half" in refused.json()["detail"]


def test_what_one_method_cannot_the_others_can(client: Any) -> None:
    found = stream(client, inputs=TEXT, model="tiny-encoder", methods=["attcat", "globenc"], evidence=True)
    by_kind = {each["event"]: each for each in found}
    assert by_kind["failed"]["name"] == "attcat"
    assert "no number to explain" in by_kind["failed"]["detail"]
    assert by_kind["explanation"]["name"] == "globenc"
    assert by_kind["evidence"]["sentence"] is None
    assert "nothing is predicted" in by_kind["evidence"]["detail"]


def test_a_masked_word_against_a_foil(client: Any) -> None:
    asked = {"inputs": "the keys of the cat [MASK] good .", "model": "tiny-mlm", "target": "are", "foil": "is"}
    answer = client.post("/api/explain", json={**asked, "evidence": True}).json()
    assert answer["target"]["foil_label"] == "is"
    assert answer["evidence"]["by"] == "mask"


def test_every_class_at_once(client: Any) -> None:
    found = stream(client, inputs=TEXT, methods=["attcat"], target="all")
    names = [each["name"] for each in found if each["event"] == "explanation"]
    assert len(names) > 1
    assert all(name.startswith("attcat: ") for name in names)


def test_models_methods_and_examples_are_listed(client: Any, models: dict[str, Model]) -> None:
    cards = client.get("/api/models").json()["models"]
    assert [card["name"] for card in cards] == list(models)
    assert cards[0]["labels"] == list(models["tiny"].labels.values())
    assert cards[1]["mask"] == "[MASK]"
    named = {each["name"]: each for each in client.get("/api/methods").json()["methods"]}
    assert {each.name for each in wherefrom.methods()} < set(named)
    assert named["attention-rollout"]["aggregate"] == "rollout"
    health = client.get("/api/health").json()
    assert health["status"] == "ok"
    assert health["version"] == wherefrom.__version__
    sentences = client.get("/api/examples").json()["examples"]
    for each in sentences:
        asked = {"inputs": each["inputs"], "model": each["model"], "maps": False, "truncate": True}
        assert client.post("/api/explain", json=asked).status_code == 200, each


def test_the_schema_describes_every_field(client: Any) -> None:
    described = client.get("/api/openapi.json").json()
    assert {"/api/explain", "/api/compare", "/api/methods", "/api/models", "/api/health"} <= set(described["paths"])
    fields = described["components"]["schemas"]["ExplainBody"]["properties"]
    every = inspect.signature(wherefrom.explain).parameters.values()
    python = {each.name for each in every if each.kind is each.KEYWORD_ONLY} - {
        *("estimate", "batch_size", "task", "device", "dtype", "prove", "model_kwargs", "tokenizer_kwargs"),
        *("chat", "tools", "keep", "overlap", "on_error", "progress"),  # `maps` says what a page needs of them
    }
    assert python <= set(fields)  # what Python calls aggregate, target, … is called so here
    assert client.get("/docs").status_code == 404


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"inputs": TEXT, "method": "globbenc"}, 404, "did you mean"),
        ({"inputs": TEXT, "method": "attcat", "options": {"depth": 3}}, 422, "'attcat' has no option 'depth'"),
        ({"inputs": TEXT, "method": "attcat", "options": {"method": "alti"}}, 422, "has no option 'method'"),
        (
            {"inputs": TEXT, "method": "attcat", "options": {"target": 1, "truncate": True}},
            422,
            "has no option 'target'",
        ),
        (
            {"inputs": TEXT, "options": {"method": "alti"}},
            422,
            "no method that wherefrom chooses has an option 'method'",
        ),
        ({"inputs": TEXT, "options": {"n_steps": 5}}, 422, "no method was named, so it is deeplift: 'deeplift' has no"),
        ({"inputs": TEXT, "options": {"baseline": "noise"}}, 422, "it is deeplift: 'deeplift' cannot have baseline"),
        (
            {"inputs": TEXT, "method": "TransAtt", "options": {"start_layer": "1"}},
            422,
            "start_layer='1'; expected a whole",
        ),
        ({"inputs": TEXT, "method": "globenc(normalize=no)"}, 422, "normalize='no'; expected True or False"),
        ({"inputs": TEXT, "method": "random(seed=1)", "options": {"seed": 2}}, 422, "given twice"),
        ({"inputs": TEXT, "method": "random(seed=100000)"}, 422, "numbers up to 1000"),
        ({"inputs": TEXT, "method": "random(seed=1"}, 422, "cannot read"),
        ({"inputs": "   "}, 400, "the text is empty"),
        ({"inputs": []}, 400, "nothing to explain"),
        ({"inputs": [TEXT] * 17}, 400, "at most 16"),
        ({"inputs": TEXT, "target": "furious"}, 422, "unknown target"),
        ({"inputs": TEXT, "pair": TEXT, "position": 99}, 400, "outside the sentence"),
        ({"inputs": [TEXT], "pair": TEXT}, 400, "single text"),
        ({"inputs": "cat " * 3000}, 400, "at most 10,000"),
        ({"inputs": "cat " * 400}, 400, "at most"),
        ({"inputs": "half \ud800 a pair"}, 422, "unicode"),
        ({"inputs": TEXT, "layers": [3, 1]}, 422, "layers"),
        ({"inputs": TEXT, "options": {"n_steps": 10**9}}, 422, "options: n_steps: input should be less than"),
        ({"inputs": TEXT, "depth": 3}, 422, "unknown field 'depth'"),
        ({"inputs": 3}, 422, "inputs"),
        ({"method": "attcat"}, 422, "inputs"),
        ([], 422, "request"),
    ],
)
def test_a_bad_request_gets_a_sentence(client: Any, asked: Any, status: int, says: str) -> None:
    body = json.dumps(asked)
    response = client.post("/api/explain", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    assert {*response.json()} == {"detail", "code"}
    assert says in response.json()["detail"]
    assert "Traceback" not in response.text


def test_the_wrong_way_to_ask_gets_a_sentence_too(client: Any) -> None:
    response = client.get("/api/explain")
    assert response.status_code == 405
    assert response.json() == {
        "detail": "/api/explain does not answer GET; send POST",
        "code": "method-not-allowed",
    }


@pytest.mark.parametrize("body", ["", "{", "[" * 100_000, '{"inputs": NaN}', '{"inputs": 1e999}', "\x00\xff", "null"])
def test_what_is_no_request_at_all(client: Any, body: str) -> None:
    response = client.post("/api/compare", content=body.encode(), headers={"content-type": "application/json"})
    assert 400 <= response.status_code < 500, response.text
    assert list(response.json()) == ["detail", "code"]
    assert response.json()["code"] in ("bad-request", "invalid-request")


def test_what_breaks_inside_is_not_shown(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret path")

    monkeypatch.setattr("wherefrom.server.handlers.explain", broken)
    monkeypatch.setattr("wherefrom.server.handlers.attempt", broken)
    response = client.post("/api/explain", json={"inputs": TEXT})
    assert response.status_code == 500
    assert "secret" not in response.text
    last = stream(client, inputs=TEXT, methods=["attcat"])[-1]
    assert (last["event"], last["status"]) == ("error", 500)
    assert "secret" not in last["detail"]
    assert client.get("/api/health").json()["status"] == "ok"


def test_the_models_come_back_as_they_were(client: Any, models: dict[str, Model]) -> None:
    stream(client, inputs=TEXT, methods=["attcat", "value-zeroing"], evidence=True)
    client.post("/api/explain", json={"inputs": TEXT, "position": 99})
    assert all(not module._forward_pre_hooks for module in models["tiny"].model.modules())


def test_examples_suit_their_models(models: dict[str, Model]) -> None:
    """A film review is nothing for a model that tells singular from plural."""
    named = {"tones": ("negative", "positive"), "numbers": ("singular", "plural"), "topics": ("sport", "war")}
    tiny_ones = {
        name: open_model(tiny.model(num_labels=2, id2label=dict(enumerate(labels))), tiny.tokenizer())
        for name, labels in named.items()
    }
    found = examples({**tiny_ones, "mlm": models["tiny-mlm"]})
    by_model = {name: [each["inputs"] for each in found if each["model"] == name] for name in (*named, "mlm")}
    assert by_model["tones"][0] == "a clever blend of fact and fiction ."
    assert by_model["numbers"][0] == "the key to the cabinets"
    assert by_model["topics"] == []
    assert not {*by_model["tones"]} & {*by_model["numbers"]}
    assert all("[MASK]" in text for text in by_model["mlm"])


def test_methods_are_ranked_over_the_words_that_can_be_erased(client: Any) -> None:
    asked = {"model": "tiny-mlm", "methods": ["saliency", "gradient-x-input"], "maps": False}
    answer = client.post("/api/compare", json={"inputs": "the [MASK] sat on a mat", **asked})
    assert answer.json()["agreement"]["over"] == "words that can be erased"
    answer = client.post("/api/compare", json={"inputs": "the cat sat on a mat", **asked, "model": "tiny"})
    assert answer.json()["agreement"]["over"] == "words"
