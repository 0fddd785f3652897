"""`name(option=value)` works wherever a method is named, and gives what the option gives beside the name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.method.base import method
from wherefrom.method.citations import Paper
from wherefrom.metric.base import METRICS, Part, metric
from wherefrom.metric.names import metrics
from wherefrom.model import Model, open_model

TEXT = "the film is good"
PLAIN, OTHER = "random(seed=1)", "random(seed=2)"  # their scores show which of them was run
LAYERS = "alti(layers=[0, 1], aggregate=sum)"  # what `explain` takes beside a method's own options


@pytest.fixture(scope="module")
def opened() -> Model:
    return open_model(tiny.model(), tiny.tokenizer())


def _wanted(opened: Model) -> Iterator[tuple[str, NDArray[Any]]]:
    for seed, name in enumerate((PLAIN, OTHER), 1):
        yield name, wherefrom.explain(TEXT, opened, method="random", seed=seed).scores
    yield LAYERS, wherefrom.explain(TEXT, opened, method="alti", layers=(0, 1), aggregate="sum").scores


def test_explain_takes_options_in_the_name(opened: Model) -> None:
    for name, scores in _wanted(opened):
        assert np.allclose(wherefrom.explain(TEXT, opened, method=name).scores, scores)
        (streamed,) = wherefrom.explain_stream([TEXT], opened, method=name)
        assert np.allclose(streamed.scores, scores)


def test_compare_takes_options_for_each_method(opened: Model) -> None:
    wanted = dict(_wanted(opened))
    found = wherefrom.compare(TEXT, opened, methods=list(wanted))
    assert list(found) == list(wanted)
    for name, scores in wanted.items():
        assert np.allclose(found[name].scores, scores)


def test_a_name_may_correct_for_the_receptive_field() -> None:
    causal = open_model(tiny.model("gpt2", "causal-lm"), tiny.tokenizer())
    named, plain = "attention-rollout(receptive_field=true)", "attention-rollout"
    found = wherefrom.compare(TEXT, causal, methods=[named, plain])
    beside = wherefrom.explain(TEXT, causal, method=plain, receptive_field=True)
    assert np.allclose(found[named].scores, beside.scores)
    assert not np.allclose(found[plain].scores, beside.scores)


def test_estimate_counts_the_options_in_the_name(opened: Model) -> None:
    named = wherefrom.estimate(TEXT, opened, method="integrated-gradients(n_steps=200)")
    beside = wherefrom.estimate(TEXT, opened, method="integrated-gradients", n_steps=200)
    few = wherefrom.estimate(TEXT, opened, method="integrated-gradients(n_steps=2)")
    assert named.seconds == pytest.approx(beside.seconds)
    assert named.seconds > few.seconds


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (1.0, r"gives 1\.0; expected parts, as in `yield Part\(layer, value\)`"),
        (None, "gives None; expected parts"),
        ([1.0], r"gives 1\.0; expected parts"),
        ([Part(None, "x")], "expected parts"),
        ([Part("x", 1.0)], "expected parts"),
        ([Part(None, np.zeros(2))], "expected parts"),
    ],
)
def test_what_a_metric_of_ones_own_gives_is_looked_at(gives: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="runs need the extra `eval`")
    assert metrics()  # ours are there, before one is added that goes again
    for kept in ("_entries", "_names"):
        monkeypatch.setattr(METRICS, kept, dict(getattr(METRICS, kept)))
    metric("own")(lambda *_: gives)
    with pytest.raises(InvalidOption, match=f"the metric 'own' .*{said}"):
        wherefrom.evaluate([TEXT], tiny.model(), tiny.tokenizer(), ["attention"], ["own"])


def test_an_error_in_a_metric_of_ones_own_names_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="runs need the extra `eval`")
    assert metrics()
    for kept in ("_entries", "_names"):
        monkeypatch.setattr(METRICS, kept, dict(getattr(METRICS, kept)))
    metric("own")(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        wherefrom.evaluate([TEXT], tiny.model(), tiny.tokenizer(), ["attention"], ["own"])
    assert caught.value.__notes__ == ["raised by the metric 'own'"]


def test_what_a_metric_of_ones_own_says_of_itself_is_looked_at() -> None:
    for name, known, run, said in (
        ("x@y", {}, lambda *_: [], "a metric cannot be called 'x@y'; expected a text without any of .* : @"),
        ("x", {"better": "up"}, lambda *_: [], "better 'up'; expected 'higher', 'lower'"),
        ("x", {"needs": ("bogus",)}, lambda *_: [], "needs 'bogus'; expected words of cues, rationale"),
        ("x", {}, 5, r"'x' is 5; expected a function, def x\(case, asked\)"),
        ("x", {}, lambda _: [], r"called with \(case, asked\) .* does not take: too many positional arguments"),
    ):
        with pytest.raises(InvalidOption, match=said):
            metric(name, **known)(run)
    assert "x" not in METRICS


def test_a_method_of_ones_own_must_be_callable_by_its_name() -> None:
    def register(name: str, run: Any) -> None:
        method(name, idea="one's own", paper=Paper("A B", 2026, "C", "D"), needs=set(), checks=set())(run)

    def open_option(layer: Any, *, q: int) -> Any: ...
    def two(layer: Any, other: Any) -> Any: ...

    for name, run, said in (
        ("own", open_option, "has options without a default: q"),
        ("own", two, r"called with \(layer\) .* does not take: missing a required argument: 'other'"),
        ("Auto", lambda layer: layer, "a method cannot be called 'Auto', which stands for the one that suits"),
    ):
        with pytest.raises(InvalidOption, match=said):
            register(name, run)


def test_evaluate_measures_methods_with_options_side_by_side() -> None:
    pytest.importorskip("pyarrow", reason="runs need the extra `eval`")
    names = [PLAIN, OTHER, LAYERS]
    run = wherefrom.evaluate([TEXT, "the dog was bad"], tiny.model(), tiny.tokenizer(), names, [f"spearman:{PLAIN}"])
    assert run.mean(PLAIN, f"spearman:{PLAIN}") == pytest.approx(1)
    assert {key.method for key in run.summary} == set(names)


def test_commands_take_options_in_the_name(folder: str, opened: Model) -> None:
    wanted = dict(_wanted(opened))

    def called(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*arguments, "--model", folder, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    assert np.allclose(called("explain", TEXT, "-M", OTHER)["scores"], wanted[OTHER])
    both = called("compare", TEXT, "-M", f"{PLAIN}, {LAYERS}")["explanations"]
    assert np.allclose(both[LAYERS]["scores"], wanted[LAYERS], atol=1e-5)
    assert called("estimate", TEXT, "-M", LAYERS)["method"] == "alti"


def test_the_page_takes_options_in_the_name(opened: Model) -> None:
    pytest.importorskip("fastapi", reason="the page needs the extra `serve`")
    pytest.importorskip("httpx", reason="the tests of the page need httpx")
    from starlette.testclient import TestClient

    from wherefrom.server.app import guarded

    wanted = dict(_wanted(opened))
    with TestClient(guarded({"tiny": opened}, None, None), base_url="http://127.0.0.1:8000") as client:
        one = client.post("/api/explain", json={"inputs": TEXT, "method": OTHER}).json()
        both = client.post("/api/compare", json={"inputs": TEXT, "methods": [PLAIN, LAYERS]}).json()
    assert np.allclose(one["scores"], wanted[OTHER])
    assert np.allclose(both["explanations"][LAYERS]["scores"], wanted[LAYERS])


def test_a_result_has_the_methods_own_name() -> None:
    """However it was written; a preset keeps its own. A comparison is asked by the names that were given."""
    model = tiny.model()
    for written, name in (("N_Enc", "globenc"), ("GlobEnc", "globenc"), ("Rollout", "attention-rollout")):
        assert wherefrom.explain([5, 6, 7], model, method=written).method == name
    found = wherefrom.compare([5, 6, 7], model, methods=["N_Enc", "random(seed=1)", "random(seed=2)"])
    assert {name: each.method for name, each in found.items()} == {
        "N_Enc": "globenc",
        "random(seed=1)": "random",
        "random(seed=2)": "random",
    }


def test_options_that_no_call_could_set_are_refused_at_registration() -> None:
    def loose(given: object, power: float = 2.0) -> object:
        """Nothing."""
        return given if power else None

    said = r"'loose' has options without a \* before them \(power\), .*def loose\(…, \*, power: .*= 2.0\)"
    paper = Paper("Author", 2030, "Title", "https://example.org")
    with pytest.raises(InvalidOption, match=said):
        method("loose", idea="none", paper=paper, needs=set(), checks=set())(loose)
    with pytest.raises(InvalidOption, match=said):
        metric("loose")(loose)
    assert "loose" not in {each.name for each in (*wherefrom.methods(), *wherefrom.metrics())}


def test_a_method_of_the_list_is_taken_for_its_name(opened: Model) -> None:
    listed = {each.name: each for each in (*wherefrom.methods(), *wherefrom.presets())}
    for name in ("attcat", "attention-rollout"):
        assert wherefrom.explain(TEXT, opened, method=listed[name]).method == name
    found = wherefrom.compare(TEXT, opened, methods=[listed["attcat"], listed["attention-rollout"], "alti"])
    assert list(found) == ["attcat", "attention-rollout", "alti"]
    run = wherefrom.evaluate([TEXT], opened, methods=listed["attcat"], metrics="aopc")
    assert np.isfinite(run.mean("attcat", "aopc"))


def test_a_delta_that_is_no_number_is_refused(opened: Model) -> None:
    fields = vars(wherefrom.explain(TEXT, opened, method="integrated-gradients"))
    with pytest.raises(InvalidInput, match="delta contain NaN"):
        wherefrom.Explanation(**{**fields, "delta": float("nan")})
