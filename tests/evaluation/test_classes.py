"""The gold class of a model whose classes are not called as the dataset's labels."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.data import Example
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.evaluation.gold import gold_classes
from wherefrom.metric.erasure import NINE, erasure
from wherefrom.papers.samples import own

POLARITY = ("negative", "positive")


def saved(folder: Path, *labels: str) -> str:
    """A tiny model whose classes have these names, by id."""
    names = dict(enumerate(labels))
    tiny.model(num_labels=len(names), id2label=names, label2id={name: i for i, name in names.items()}).save_pretrained(
        folder
    )
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def targets(model: str, **options: Any) -> list[tuple[str, str]]:
    run = wherefrom.evaluate(
        own(), model, methods="saliency", metrics="special-rank", target="label", limit=4, **options
    )
    return [(row["label"], row["target"]) for row in run.table("examples").to_pylist()]


def test_labels_of_the_models_own_are_taken_as_they_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gold_classes({0: "Negative", 1: "POSITIVE"}, POLARITY, POLARITY) == {}
        assert gold_classes({0: "a", 1: "b"}, [0, 1]) == gold_classes({0: "a", 1: "b"}, ["0", "1"]) == {}
        assert gold_classes({0: "a", 1: "b"}, ["a", "c"]) == {}  # "c" fails where it occurs
        assert gold_classes({0: "a", 1: "b"}, []) == {}


@pytest.mark.parametrize("classes", [("NEG", "POS"), ("POS", "NEG")])
def test_shorter_forms_are_recognised_whatever_their_order(classes: tuple[str, str]) -> None:
    found = gold_classes(dict(enumerate(classes)), POLARITY, POLARITY)
    assert {classes[index] for label, index in found.items() if label == "positive"} == {"POS"}
    assert sorted(found) == ["negative", "positive"]


def test_names_without_meaning_are_taken_by_their_ids(tmp_path: Path) -> None:
    model = saved(tmp_path, "LABEL_0", "LABEL_1")
    with pytest.warns(
        WherefromWarning, match=r"0 \('LABEL_0'\) = negative, 1 \('LABEL_1'\) = positive; where that is wro"
    ):
        found = targets(model)
    assert set(found) == {("negative", "LABEL_0"), ("positive", "LABEL_1")}


def test_the_caller_says_which_is_which(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LABEL_0", "LABEL_1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = targets(model, names={"LABEL_0": "positive", 1: "negative"}, out=tmp_path / "run")
    assert set(found) == {("negative", "LABEL_1"), ("positive", "LABEL_0")}
    with pytest.raises(WherefromError, match=r"holds another run .*classes"):
        targets(model, names={0: "negative", 1: "positive"}, out=tmp_path / "run")


def test_what_cannot_be_known_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    model = saved(tmp_path, *(f"LABEL_{i}" for i in range(3)))  # for two labels
    with pytest.raises(WherefromError, match=r"'negative', 'positive' are none of the model's classes"):
        targets(model)
    with pytest.raises(WherefromError, match="unknown class 7"):
        targets(model, names={7: "positive"})
    with pytest.raises(WherefromError, match="only target='label'"):
        wherefrom.evaluate(["a good film"], model, methods="saliency", names={0: "positive"})


def test_confidence_takes_the_gold_class_too(tmp_path: Path) -> None:
    model = saved(tmp_path, "NEG", "POS")
    run = wherefrom.evaluate(own(), model, methods="saliency", metrics="confidence", target="label", limit=2)
    assert {row["target"] for row in run.table("examples").to_pylist()} == {"NEG", "POS"}


def test_accuracy_is_that_of_the_gold_class(tmp_path: Path) -> None:
    """The prediction is explained; what is counted is the dataset's class, whatever the model calls it."""
    model = saved(tmp_path, "LABEL_0", "LABEL_1")
    metrics = ["masked-accuracy", "prediction-performance"]
    asked = {"methods": "gradient-x-input", "metrics": metrics, "limit": 6}
    one, other = (
        wherefrom.evaluate(own(), model, names=dict(enumerate(each)), **asked)
        for each in (("negative", "positive"), ("positive", "negative"))
    )
    mine, swapped = (run.mean("gradient-x-input", "masked-accuracy") for run in (one, other))
    assert mine + swapped == pytest.approx(1)  # of two classes one is right
    opened = wherefrom.open_model(model)
    rows = {row["example"]: row for row in one.table("records").to_pylist() if row["metric"] == "masked-accuracy"}
    for example in list(own())[:6]:
        found = wherefrom.explain(example.text, opened, method="gradient-x-input")
        curve = erasure(example.text, found, opened, by="mask", shares=NINE)
        assert rows[example.id]["value"] == pytest.approx(curve.accuracy(("negative", "positive").index(example.label)))
    missing = [Example("a", "a good film ."), Example("b", "a bad film .")]
    with pytest.raises(WherefromError, match="gold label"):
        wherefrom.evaluate(missing, model, **asked)
    with pytest.raises(WherefromError, match="accuracy of a classifier"):
        wherefrom.evaluate(own(), "wherefrom/mlm", **asked)


def test_recipes_take_such_models(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LABEL_0", "LABEL_1")
    data = tmp_path / "mine.jsonl"
    rows = [{"text": "a good film .", "label": "good"}, {"text": "a bad film .", "label": "bad"}]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    asked = ["reproduce", "globenc/table1", "--model", model, "--data", str(data)]
    refused = CliRunner().invoke(app, asked)
    assert "say what a class is" in str(refused.exception)
    done = CliRunner().invoke(app, [*asked, "--name", "0=bad", "--name", "1=good"])
    assert done.exit_code == 0, done.output
    with pytest.warns(WherefromWarning, match="in the order of their ids"):
        assert wherefrom.reproduce("globenc/table1", model=model, limit=3).table.ours["N", "own"].count == 3


def test_a_recipe_takes_no_object_for_a_model() -> None:
    with pytest.raises(WherefromError, match="model is a BertForSequenceClassification; expected a shipped model"):
        wherefrom.reproduce("globenc/table1", model=tiny.model(), limit=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [[1, 2], ["1", "2"], [1, 2, 3, 4, 5], [0, 1, 2]])
def test_numbers_that_count_otherwise_are_not_taken_for_ids(labels: list[Any]) -> None:
    """Of two classes: 1 is not the second where there is a 2, too."""
    with pytest.raises(WherefromError, match=r"are not the ids of the model's classes .* would be taken for '[ab]'"):
        gold_classes({0: "a", 1: "b"}, labels)
    assert gold_classes({0: "a", 1: "b"}, [1, 2], names={0: "1", 1: "2"}) == {"1": 0, "2": 1}
    assert gold_classes({0: "a", 1: "b"}, [0, 1, -1]) == {}  # as tests without labels have it: such rows fail
    assert gold_classes({0: "1", 1: "2"}, labels[:2]) == {}


def test_a_name_the_wrong_way_round_is_told_the_right_one() -> None:
    with pytest.raises(WherefromError, match=r"no class '2', but it has 'positive': .* --name positive=2"):
        gold_classes(dict(enumerate(POLARITY)), ["1", "2"], names={"1": "negative", "2": "positive"})
    assert gold_classes({0: "a", 1: "b"}, ["0", "1"], names={"0": "1", "1": "0"}) == {"1": 0, "0": 1}  # as documented
