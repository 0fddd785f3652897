"""What an explanation records makes it again: `wherefrom.explain(model=…, **explanation.arguments)`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.method import methods, presets
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation

TEXT = "the cat is good and the film was not"
TOKENIZER = tiny.tokenizer()
LONG = "the cat is good and the dog was bad , not a film of keys to the cabinets ! " * 6
pytestmark = pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")


def same(found: Explanation, model: Any, **more: Any) -> Explanation:
    """Made again from what a file holds of it."""
    read = Explanation.from_dict(json.loads(json.dumps(found.to_dict())))
    again: Explanation = wherefrom.explain(model=model, tokenizer=TOKENIZER, **{**read.arguments, **more})
    assert again.arguments == found.arguments
    assert again.tokens == found.tokens
    assert (again.target, again.readout, again.aggregate) == (found.target, found.readout, found.aggregate)
    ours, theirs = found._arrays(), again._arrays()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(theirs[name], array, rtol=1e-5, atol=1e-6)
    return again


def check(inputs: Any, task: str = "classification", family: str = "bert", **more: Any) -> Any:
    model = tiny.model(family, task)
    found = wherefrom.explain(inputs, model, TOKENIZER, **more)
    for each in found.values() if isinstance(found, Comparison) else found if isinstance(found, list) else [found]:
        same(each, model)
    return found


@pytest.mark.parametrize("name", [each.name for each in (*tiny.methods(), *presets())])
def test_every_method_is_made_again(name: str) -> None:
    looks = next((each.class_specific for each in methods() if each.name == name), False)
    check(TEXT, method=name, **({"target": "LABEL_2", "foil": 0} if looks else {}))


@pytest.mark.parametrize(
    "more",
    [
        {"method": "attention", "aggregate": "flow", "layers": (1, 3)},
        {"method": "attention", "aggregate": None},
        {"method": "attention-rollout", "aggregate": "mean"},
        {"method": "attention(aggregate=sum, head=1)"},
        {"method": "alti", "position": "film"},
        {"method": "alti", "position": "mean", "rows": "readout"},
        {"method": "alti", "position": -1, "keep": "scores"},
        {"method": "alti", "rows": "readout", "keep": "maps"},
        {"method": "attention", "head": "all"},
        {"method": "attention", "drop_self": True},
        {"method": "integrated-gradients(n_steps=5)", "of": "probability"},
        {"method": "random(seed=3)"},
        {"method": "auto"},
        {"method": "attcat", "target": "all"},
        {"method": "attcat", "target": 1},
    ],
    ids=str,
)
def test_arguments_repeat_whatever_the_caller_chose(more: dict[str, Any]) -> None:
    check(TEXT, **more)


def test_arguments_repeat_the_receptive_field() -> None:
    check(TEXT, "causal-lm", "gpt2", method="attention-rollout", receptive_field=True)
    check(TEXT, "causal-lm", "gpt2", method="attcat", target="cat", foil="dog")


@pytest.mark.parametrize("method", ["attcat", "alti"])
def test_arguments_repeat_answers_and_masks(method: str) -> None:
    pair = ("is the cat good ?", "the cat is very good and the film is not")
    for target in (None, "start", "end", "answer", "all"):
        check(pair, "question-answering", method=method, target=target)
    check("the [MASK] film", "masked-lm", method=method)
    check(TEXT, "token-classification", method=method, position=2)


@pytest.mark.parametrize("method", ["attcat", "alti"])
def test_arguments_repeat_windows_and_truncation(method: str) -> None:
    assert check(LONG, method=method, long="windows").options == {"long": "windows", "overlap": 9}
    assert check(LONG, method=method, long="windows", overlap=3).options == {"long": "windows", "overlap": 3}
    assert check(LONG, method=method, truncate=True).options == {"long": "truncate"}
    assert check(TEXT, method=method, long="windows").options == {}
    if method == "attcat":
        assert check(LONG, method=method, long="windows", target=0).options["target"] == 0


def test_arguments_repeat_ids_encodings_and_words() -> None:
    ids = TOKENIZER(TEXT)["input_ids"]
    found = check(ids, method="alti")
    assert (found.given, found.options) == ({"input_ids": ids}, {})
    hidden = {"input_ids": ids, "attention_mask": [1, 1, 0, *[1] * (len(ids) - 3)]}
    check(hidden, method="alti")
    words = {"tokenizer_kwargs": {"is_split_into_words": True}}
    check([TEXT.split()], method="alti", **words)
    check(TEXT, method="alti", tokenizer_kwargs={"add_special_tokens": False})
    check([TEXT, "the film"], method="attcat", target=[0, "LABEL_1"])


def test_each_explanation_of_a_comparison_can_be_repeated() -> None:
    model = tiny.model()
    found = wherefrom.compare(TEXT, model, TOKENIZER, ["attcat", "alti", "random(seed=2)"], target=1)
    for each in found.values():
        same(each, model)


def test_a_title_says_the_method_and_its_options_alone() -> None:
    from wherefrom.view.terminal import title

    found = check(TEXT, method="integrated-gradients", n_steps=5, target=1)
    assert title(found) == "integrated-gradients · n_steps=5"
    assert found.options == {"n_steps": 5, "target": 1}
