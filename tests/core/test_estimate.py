"""What an explanation will cost: counted rightly, said clearly; measured in the slow test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom import cost
from wherefrom.cli import app
from wherefrom.cost import Estimate, Rates
from wherefrom.errors import InvalidOption
from wherefrom.method import base, methods
from wherefrom.work import BatchShape, forward


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose speed does not vary, and on which calls cost next to nothing beside arithmetic."""
    monkeypatch.setattr(cost, "_rates", lambda *_: Rates(1e10, 5e10, 1e10, 1e9, 1e7, 1e12, 5e3, 1e8))


def forget() -> None:
    """What was measured of this machine."""
    for measured in (cost._thin, cost._machine):
        measured.cache_clear()


def within_a_factor_of_two(explain: Callable[[], object], estimate: Callable[[], Estimate], rounds: int = 5) -> None:
    """A machine whose pace changes between the two measurements, as others' work fills its caches, is asked again."""
    found = []
    while len(found) < rounds:
        seconds: list[float] = []
        while len(seconds) < 5 and sum(seconds) < 5:  # the fastest counts, as in the estimate's own measurement
            begin = time.process_time()
            explain()
            seconds.append(time.process_time() - begin)
        found.append(estimate().seconds / min(seconds))
        if 0.5 <= found[-1] <= 2:
            return
        forget()
    pytest.fail(f"estimates are off by factors of {found}")


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time is what this process has had, on one thread, and rates are measured by it: others' work takes none of it."""

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=time.process_time))
    forget()
    yield
    forget()
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("name", [each.name for each in methods() if each.by_layer])
def test_more_costs_more(name: str) -> None:
    model = tiny.model()
    small, large = (wherefrom.estimate(tokens=n, model=model, method=name) for n in (8, 32))
    assert 0 < small.seconds < large.seconds
    assert 0 < small.memory < large.memory
    assert small.seconds == pytest.approx(sum(small.parts.values()))
    part = wherefrom.estimate(tokens=8, model=model, method=name, layers=(1, 2))
    assert part.parts[name] == pytest.approx(small.parts[name] / 3)
    many = wherefrom.estimate([tiny.ids(8)] * 40, model, method=name)
    assert many.inputs == 40
    assert many.seconds > 3 * small.seconds  # three batches
    assert many.memory == wherefrom.estimate([tiny.ids(8)] * 16, model, method=name).memory  # batch by batch


def test_a_method_that_states_no_cost_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = replace(base.METHODS.find("alti"), cost=None)
    monkeypatch.setitem(base.METHODS._entries, "alti", silent)
    with pytest.raises(wherefrom.WherefromError, match="the cost of 'alti' is not known: it states none"):
        wherefrom.estimate(tokens=8, model=tiny.model(), method="alti")


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("method", ["auto", "alti", "gradient-x-input"])
def test_what_follows_the_text_is_read_too(method: str) -> None:
    model, phrase = tiny.model("gpt2", "causal-lm"), "film is good"

    def longest(**asked: Any) -> int:
        found = wherefrom.estimate("the", model, tiny.tokenizer(), method, **asked)
        same = wherefrom.explain("the", model, tiny.tokenizer(), method=method, estimate=True, **asked)
        assert (found.inputs, found.longest) == (same.inputs, same.longest)
        return found.longest

    alone = longest()
    assert longest(target=phrase) == alone + 2  # all but its last word
    assert wherefrom.estimate(tokens=5, model=model, tokenizer=tiny.tokenizer(), target=phrase).longest == 7
    both = wherefrom.estimate("the", model, tiny.tokenizer(), method, target="good", foil=phrase)
    assert (both.inputs, both.longest) == (2, alone + 2)  # a foil of several words is another text


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("name", [each.name for each in tiny.methods() if not each.by_layer])
def test_a_method_of_one_output_costs_passes(name: str) -> None:
    model = tiny.model()
    small, large = (wherefrom.estimate(tokens=n, model=model, method=name) for n in (8, 32))
    assert 1 < small.parts[name] / small.parts["forward pass"] < 150
    assert small.seconds < large.seconds
    assert small.memory < large.memory


@pytest.mark.usefixtures("steady")
def test_steps_and_tokens_cost() -> None:
    def parts(**asked: Any) -> float:
        found = wherefrom.estimate(model=tiny.model(), **asked).parts
        return found[asked["method"]] / found["forward pass"]

    assert parts(tokens=9, method="integrated-gradients", n_steps=20) == pytest.approx(28, rel=1e-3)
    assert parts(tokens=9, method="integrated-gradients") == pytest.approx(56, rel=1e-3)
    assert parts(tokens=30, method="ablation") == pytest.approx(18, rel=1e-3)
    ranks = parts(tokens=30, method="value-zeroing", metric="spearman") - parts(tokens=30, method="value-zeroing")
    passed = wherefrom.estimate(model=tiny.model(), tokens=30).parts["forward pass"]
    assert ranks * passed == pytest.approx(3 * 30 * 30 * 24 / 1e7)  # every dimension of every pair, in three layers


def test_a_model_in_float64_is_measured_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []
    for name, found in (("_thin", 1e10), ("_machine", (1e10,) * 7)):
        monkeypatch.setattr(cost, name, lambda _, dtype, *__, found=found: measured.append(dtype) or found)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        wherefrom.estimate(tokens=5, model=tiny.model(dtype=dtype))
    assert measured == [torch.float64] * 2 + [torch.float32] * 4


def test_a_pass_is_counted_from_its_matrices() -> None:
    shape = BatchShape(lengths=(10, 4), depth=12, heads=12, width=768, units=3072, bytes=4)
    # Four d×d projections and two d×4d ones for each of 20 rows, q·k and α·v for each of 200 pairs.
    assert forward(shape).thin == 20 * 2 * (4 * 768**2 + 2 * 768 * 3072) + 200 * 4 * 768


@pytest.mark.usefixtures("steady")
def test_what_is_asked_changes_the_cost() -> None:
    model, ids = tiny.model("gpt2", "causal-lm"), tiny.ids(30)
    whole = wherefrom.explain(ids, model, method="attention-flow", estimate=True)
    assert isinstance(whole, wherefrom.Estimate)
    row = wherefrom.explain(ids, model, method="attention-flow", rows="readout", estimate=True)
    assert row.parts["flow"] < whole.parts["flow"] / 10
    rolled = wherefrom.estimate(ids, model, method="attention-rollout")
    assert rolled.seconds < row.seconds
    field = wherefrom.estimate(ids, model, method="attention-rollout", receptive_field=True)
    assert field.parts["rollout"] == pytest.approx(2 * rolled.parts["rollout"])
    bare = wherefrom.estimate(ids, tiny.model("gpt2", "encoder"), method="attention-rollout")
    assert bare.parts["forward pass"] < rolled.parts["forward pass"]  # the vocabulary costs, too
    raw = wherefrom.estimate(ids, model, method="raw-attention")
    assert raw.parts.keys() == {"reading and results", "forward pass", "attention"}
    assert rolled.model_memory == sum(p.numel() * 4 for p in model.parameters())


def test_an_estimate_reads_as_a_sentence() -> None:
    found = wherefrom.Estimate(200.0, 3_000_000, 2_000_000_000, {"flow": 0.02, "alti": 1.5}, "alti", 2, 30)
    assert str(found) == (
        "alti of 2 inputs of up to 30 tokens: about 3 min (flow 20 ms, alti 1.5 s) and 3 MB beyond the model's 2.0 GB"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "either inputs"),
        ({"inputs": [5, 6], "tokens": 2}, "either inputs"),
        ({"tokens": 0}, "tokens=0"),
        ({"tokens": True}, "tokens=True"),
        ({"tokens": 9, "method": "globeng"}, "globenc"),
        ({"tokens": 99}, "at most"),
    ],
)
def test_estimates_of_nothing_or_of_two_things_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(wherefrom.WherefromError, match=message):
        wherefrom.estimate(model=tiny.model(), **wrong)


def test_a_misspelt_method_is_said_before_a_model_is_opened() -> None:
    with pytest.raises(wherefrom.WherefromError, match="globenc"):
        wherefrom.estimate(tokens=9, model="no such model", method="globeng")


@pytest.mark.usefixtures("steady")
def test_the_command_prints_an_estimate(tmp_path: Any) -> None:
    tiny.model().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    text = CliRunner().invoke(app, ["estimate", "a good film", "--model", str(tmp_path), "-M", "alti"])
    assert text.exit_code == 0
    assert "alti of 1 input of up to 5 tokens" in text.output
    length = CliRunner().invoke(app, ["estimate", "--tokens", "12", "--model", str(tmp_path), "--json"])
    assert json.loads(length.output)["longest"] == 12
    few, many = (
        json.loads(CliRunner().invoke(app, [*asked, "-O", f"n_steps={steps}"]).output)["seconds"]
        for asked in [["estimate", "--tokens", "9", "-M", "IG", "--model", str(tmp_path), "--json"]]
        for steps in (10, 100)
    )
    assert many > 5 * few
    wrong = CliRunner().invoke(app, ["estimate", "--tokens", "9", "-M", "alti", "--model", str(tmp_path), "-O", "x=1"])
    assert wrong.exit_code != 0


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
@pytest.mark.parametrize("n", [32, 128])
@pytest.mark.parametrize(
    "name",
    [
        "attention-rollout",
        "globenc",
        "alti",
        "value-zeroing",
        "attcat",
        "transformer-attribution",
        "deeplift",
        "ablation",
    ],
)
def test_estimates_are_right_within_a_factor_of_two(name: str, n: int) -> None:
    """On a random BERT-base."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig()).eval()
    ids = torch.randint(1000, 20_000, (n,)).tolist()
    options: dict[str, Any] = {"ablation": {"by": 103}, "deeplift": {"baseline": [103] * n}}.get(name, {})
    within_a_factor_of_two(
        lambda: wherefrom.explain(ids, model, method=name, **options),
        lambda: wherefrom.estimate(ids, model, method=name, **options),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
@pytest.mark.parametrize(
    "name", ["attention-rollout", "globenc", "alti", "gradient-x-input", "cp-lrp", "deeplift", "integrated-gradients"]
)
def test_and_of_a_short_text_in_a_small_model(name: str) -> None:
    """Where the tensors are the smaller part."""
    text = "a deep and meaningful film ."
    within_a_factor_of_two(lambda: wherefrom.explain(text, method=name), lambda: wherefrom.estimate(text, method=name))


def test_more_tokens_than_the_model_reads_are_refused_as_such() -> None:
    with pytest.raises(InvalidOption, match=r"tokens=5000 is more than the model reads, which is 128; .* for the text"):
        wherefrom.estimate(tokens=5000, truncate=True)
    text = "film " * 600
    assert wherefrom.estimate(text, truncate=True).longest == 128  # as it was advised
    assert wherefrom.estimate(text, long="windows").longest == 128
