"""What methods need and models have: a refusal comes by name and reason, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

import tiny
import wherefrom
from wherefrom.errors import Unsuited
from wherefrom.method import choose, methods
from wherefrom.method.needs import IN_THE_WAY, NEEDS, PLAIN_BLOCKS, lacking, undefined
from wherefrom.model import open_model
from wherefrom.pipeline.resolution import resolve_job

# Of one family each, what stands in the way of a method with rules for BERT's and GPT-2's blocks alone.
EXPECTED: dict[str, set[str]] = {
    "bert": set(),
    "gpt2": set(),
    "distilbert": set(),
    "albert": set(),
    "opt": {"linear-keys"},  # whose queries are scaled before they are shown
    "llama": {"plain-ffn", "layer-norms", "own-keys", "linear-keys"},
    "gpt_neox": {"sequential", "linear-keys"},
    "olmo2": {"plain-ffn", "layer-norms", "own-keys", "linear-keys", "bare-branches", "two-norms"},
    "gemma2": {"plain-ffn", "layer-norms", "own-keys", "linear-keys", "bare-branches", "plain-softmax"},
    "granite": {"plain-ffn", "layer-norms", "own-keys", "linear-keys", "unscaled"},
    "gpt_oss": {"ffn-matrices", "layer-norms", "own-keys", "linear-keys", "plain-softmax"},
    "bloom": {"queries-keys", "linear-keys", "plain-softmax"},
    "modernbert": {"plain-ffn", "linear-keys", "two-norms"},
}


def encoder(layout: str) -> Any:
    return open_model(tiny.model(layout, "encoder"))


@pytest.mark.parametrize("layout", EXPECTED)
def test_what_stands_in_the_way(layout: str) -> None:
    opened = encoder(layout)
    assert {word for word in PLAIN_BLOCKS if undefined({word}, opened)} == EXPECTED[layout]
    assert opened.traits.sinks is (layout == "gpt_oss")


def test_words_are_known_and_methods_of_unmapped_models_too() -> None:
    assert set(IN_THE_WAY) <= set(NEEDS)
    unmapped = open_model(tiny.shared("bitnet"))
    there = {each.name for each in methods() if undefined(each.needs, unmapped) is None}
    assert there == {each.name for each in methods() if not each.blocks}
    assert "does not know for 'bitnet'" in next(lacking({"attention"}, unmapped))


def test_a_refusal_comes_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = encoder("llama")
    monkeypatch.setattr("wherefrom.pipeline.execution.stream", None)
    with pytest.raises(Unsuited, match=r"'partial-lrp' is not defined on .*: it needs .*, and this model has .*attcat"):
        wherefrom.explain(tiny.ids(4), opened, method="partial-lrp")
    with pytest.raises(Unsuited, match="not defined on"):
        wherefrom.explain(tiny.ids(4), opened, method="partial-lrp", estimate=True)


def test_a_comparison_goes_on_without_it_and_says_why() -> None:
    with pytest.warns(wherefrom.WherefromWarning, match="partial-lrp is missing .*: 'partial-lrp' is not defined on"):
        found = wherefrom.compare(tiny.ids(4), tiny.model("llama", "causal-lm"), methods=["partial-lrp", "attcat"])
    assert list(found) == ["attcat"]
    assert "it needs" in found.failed["partial-lrp"]


@pytest.mark.filterwarnings("error::wherefrom.WherefromWarning")
@pytest.mark.parametrize(
    "layout", ["llama", "gemma2", "gpt_oss", "gpt_neox", "bloom", "modernbert", "eurobert", "deberta"]
)
def test_the_default_answers_without_a_warning(layout: str) -> None:
    model = tiny.model(layout, "classification", pad_token_id=0)
    for tokenizer, text in ((tiny.tokenizer(), "a good film"), (None, tiny.ids(4))):
        found = wherefrom.explain(text, model, tokenizer)
        compared = wherefrom.compare(text, model, tokenizer)
        assert found.method in compared
        assert not compared.failed
        assert {"alti", "attention-rollout"} <= set(compared)
    assert wherefrom.explain(tiny.ids(4), tiny.model(layout, "encoder")).method == "alti"


def test_an_evaluation_is_refused_before_it_begins(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="runs need the extra `eval`")
    model, out = tiny.model("llama"), tmp_path / "run"
    with pytest.raises(Unsuited, match="'partial-lrp' is not defined on"):
        wherefrom.evaluate(["a good film"], model, tiny.tokenizer(), methods="attcat,partial-lrp", out=out)
    assert not out.exists()


def test_every_method_that_is_defined_can_be_resolved() -> None:
    opened = encoder("llama")
    for each in methods():
        if undefined(each.needs, opened) is None:
            resolve_job(opened, choose(each.name))


@pytest.mark.parametrize(
    ("layout", "method"),
    [
        ("qwen3", "deeplift"),
        ("falcon", "deeplift"),
        ("mixtral", "alti-logit"),
        ("deberta-v2", "attcat"),
        ("deepseek_v3", "alti-logit"),
    ],
)
def test_the_default_is_the_first_of_its_list_that_is_defined(layout: str, method: str) -> None:
    model = tiny.model(layout)
    assert wherefrom.explain("a good film", model, tiny.tokenizer()).method == method
    assert next(iter(wherefrom.compare("a good film", model, tiny.tokenizer()))) == method


def test_a_target_that_nobody_looks_at_brings_up_only_methods_that_are_defined() -> None:
    with pytest.raises(wherefrom.WherefromError, match="looks at them: ") as refused:
        wherefrom.explain("a good film", tiny.model("mixtral"), tiny.tokenizer(), method="alti", target=0)
    advised = str(refused.value).partition("looks at them: ")[2].split(", ")
    assert "attcat" in advised
    assert "deeplift" not in advised


def test_bigbird_is_explained_by_deeplift() -> None:
    """Its positions are absolute: nothing about its keys stands in the way."""
    config = transformers.AutoConfig.for_model("big_bird", **tiny.SHAPE)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    assert abs(wherefrom.explain("a good film", model, tiny.tokenizer(), method="deeplift").delta) <= 1e-4
