"""An error of one example is recorded as its failure; an error of the call stops the run, where possible at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
import wherefrom
from wherefrom import errors
from wherefrom.data import Example
from wherefrom.evaluation.worker import Worker
from wherefrom.metric.base import Case
from wherefrom.metric.names import lookup

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()
TEXTS = ["a good film", "a bad film is not good"]


def evaluate(data: Any, methods: Any, metrics: Any = "aopc", **options: Any) -> wherefrom.Run:
    return wherefrom.evaluate(data, MODEL, TOKENIZER, methods, metrics, threads=1, **options)


def failures(run: wherefrom.Run) -> dict[str, str]:
    return {row["example"]: row["failure"] for row in run.table("examples").to_pylist() if row["failure"]}


def test_an_option_that_the_model_cannot_have_stops_before_the_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "begin", lambda *_: pytest.fail("a shard was computed"))
        with pytest.raises(errors.InvalidOption, match="layer is 99"):
            evaluate(TEXTS, "integrated-gradients(layer=99)", out=tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert not failures(evaluate(TEXTS, "integrated-gradients(layer=0)", out=tmp_path / "run"))


def test_what_a_worker_process_refuses_keeps_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "try_out", lambda _: True)  # so that only the worker beside finds out
    with pytest.raises(errors.InvalidOption, match="layer is 99"):
        evaluate(TEXTS, "integrated-gradients(layer=99)", out=tmp_path, workers=2)
    assert not list((tmp_path / "shards").glob("*.parquet"))


@pytest.mark.parametrize("kind", [errors.OutOfMemory, errors.UnsupportedModel, errors.MissingExtra])
def test_an_error_of_the_call_is_not_recorded_of_an_example(
    kind: type[errors.WherefromError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "try_out", lambda _: True)
    monkeypatch.setattr(Worker, "_explain", _raises(kind("no")))
    with pytest.raises(kind, match="no"):
        evaluate(TEXTS, "globenc")


@pytest.mark.parametrize("kind", [errors.InvalidInput, errors.TooLong, errors.NotDefined, errors.Unsuited])
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_an_error_of_an_example_leaves_the_others(
    kind: type[errors.WherefromError], monkeypatch: pytest.MonkeyPatch
) -> None:
    explain = Worker._explain

    def some(worker: Worker, sentences: list[Any], questions: list[Any]) -> Any:
        if any("bad" in sentence.tokens for sentence in sentences):
            raise kind("not this one")
        return explain(worker, sentences, questions)

    monkeypatch.setattr(Worker, "_explain", some)
    data = [Example("one", "a good film"), Example("two", "a bad film")]
    assert failures(evaluate(data, "globenc")) == {"two": "not this one"}


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_target_is_the_fault_of_the_row_that_names_it_or_of_the_call() -> None:
    model = tiny.model(task="masked-lm")
    data = [Example("one", "a [MASK] film", target="good"), Example("two", "a [MASK] film", target="good film")]
    run = wherefrom.evaluate(data, model, TOKENIZER, "attcat", "aopc(by=mask)", threads=1)
    assert failures(run).keys() == {"two"}
    with pytest.raises(errors.InvalidTarget, match="not one token"):
        wherefrom.evaluate(data, model, TOKENIZER, "attcat", "aopc(by=mask)", threads=1, target="good film")


def test_a_metric_without_a_value_says_why_and_one_asked_wrongly_is_an_error() -> None:
    found = wherefrom.explain("a good film", MODEL, TOKENIZER, method="globenc")
    case = Case(Example("one", "a good film"), found)
    asked = lookup("precision@2")
    assert "the example lacks" in str(asked.measure(case)[0].why)
    wrong = replace(asked, metric=replace(asked.metric, needs=(), run=_raises(errors.InvalidOption("no such K"))))
    with pytest.raises(errors.InvalidOption, match="no such K"):
        wrong.measure(case)


def test_skipping_inputs_does_not_skip_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def refused(_: Any, sentences: list[Any], *__: Any) -> Any:
        seen.append(len(sentences))
        raise errors.InvalidOption("no such head")

    monkeypatch.setattr("wherefrom.pipeline.bulk.run_whole", refused)
    with pytest.raises(errors.InvalidOption, match="no such head"):
        wherefrom.explain(TEXTS * 4, MODEL, TOKENIZER, method="alti", on_error="skip")
    assert seen == [8]


def _raises(error: Exception) -> Any:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    return run
