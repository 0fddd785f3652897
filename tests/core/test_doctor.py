"""`wherefrom doctor` and `wherefrom methods --model`: what they say is what opening and the pipeline do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

import pairs
import pictures
import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.diagnosis import VERDICTS, suits
from wherefrom.errors import WherefromError
from wherefrom.method import choose
from wherefrom.model import open_model
from wherefrom.pipeline.resolution import resolve_job

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
PLAIN = {"parallel": False, "scaled": False, "softcap": None, "sinks": False, "causal": True, "windows": [None] * 3}
RMS = {**PLAIN, "norm": "RMS norm", "key_heads": 2, "keys": "turned"}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {**PLAIN, "norms": ["after"], "norm": "LayerNorm", "ffn": "plain", "keys": "linear", "causal": False},
    "gpt2": {**PLAIN, "norms": ["before"], "norm": "LayerNorm", "ffn": "plain", "key_heads": 4},
    "llama": {**RMS, "norms": ["before"], "ffn": "gated"},
    "gemma2": {**RMS, "norms": ["before", "on"], "softcap": 5.0, "windows": [4, None, 4]},
    "olmo2": {**RMS, "norms": ["on"]},
    "granite": {**RMS, "scaled": True},
    "gpt_oss": {**RMS, "ffn": "experts", "sinks": True, "windows": [4, None, 4]},
    "mistral": {**RMS, "windows": [4, 4, 4]},
    "gpt_neo": {**PLAIN, "windows": [None, 3, None], "keys": "hidden"},
    "gpt_neox": {**PLAIN, "parallel": True, "norm": "LayerNorm"},
    "modernbert": {**PLAIN, "ffn": "gated", "windows": [None, 2, None], "causal": False},
}


def changed() -> Any:
    model = tiny.model("llama", "encoder")
    own = model.layers[1].mlp.forward
    model.layers[1].mlp.forward = lambda h: 1.1 * own(h)
    return model


@pytest.mark.parametrize("layout", SHAPES)
def test_the_shape(layout: str) -> None:
    found = wherefrom.doctor(tiny.model(layout, "encoder"))
    assert {name: found.shape[name] for name in SHAPES[layout]} == SHAPES[layout]
    assert (found.shape["blocks"], found.shape["width"], found.shape["heads"]) == (3, 24, 4)
    assert (found.opens, found.family) == (True, layout)


def test_the_head() -> None:
    assert wherefrom.doctor(tiny.model()).shape["reads"] == "first"
    assert wherefrom.doctor(tiny.model("llama")).shape["reads"] == "last"
    assert wherefrom.doctor(tiny.model("llama", "causal-lm")).shape["task"] == "causal-lm"


def test_the_proof_block_by_block() -> None:
    found = wherefrom.doctor(tiny.model("llama", "encoder")).to_dict()["proof"]
    assert found["holds"]
    assert found["worst"]["gap"] <= found["allowed"]
    parts = ["FFN", "attention", "block", "values"]
    later = sorted([*parts, "input"])  # which the first block has from no other
    assert [sorted(each) for each in found["gaps"]] == [parts, later, later, ["block", "output"]]


def test_a_model_that_does_not_open_is_told_where() -> None:
    found = wherefrom.doctor(changed())
    assert not found.opens
    assert re.search("block 1 rebuilt .* FFN: off by", str(found.why_not))
    proof = json.loads(found.to_json())["proof"]
    assert (proof["worst"]["block"], proof["worst"]["part"], found.methods) == (1, "FFN", ())
    assert proof["gaps"][0]["FFN"] < proof["allowed"] < proof["gaps"][1]["FFN"]
    assert "does not open" in str(found)
    several = wherefrom.doctor(tiny.model("falcon-sequential", "encoder", alibi=True))  # none of whose rows holds
    assert not several.opens
    assert "output changes" in str(several)


@pytest.mark.parametrize("layout", ["bert", "llama", "gemma2", "gpt_oss", "bloom"])
def test_verdicts_are_what_the_pipeline_says(layout: str) -> None:
    opened = open_model(tiny.model(layout), tiny.tokenizer())
    for each in wherefrom.doctor(opened).methods:
        if each.verdict == "not defined here":
            with pytest.raises(WherefromError, match=re.escape(str(each.why))):
                resolve_job(opened, choose(each.method))
        else:
            resolve_job(opened, choose(each.method))


QUICK = ("llama", "opt", "gpt_oss", "ctrl")
RUN = [
    each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in (*tiny.VARIANTS, *tiny.LAYOUTS)
]


def headed(layout: str) -> Any:
    """A classifier, or where transformers has none for this type a language model."""
    try:
        return tiny.model(layout, "classification", dtype=torch.float64, pad_token_id=0)
    except ValueError:
        return tiny.model(layout, "causal-lm", dtype=torch.float64, pad_token_id=0)


@pytest.mark.filterwarnings("ignore::wherefrom.WherefromWarning")
@pytest.mark.parametrize("layout", RUN)
def test_what_is_called_defined_runs(layout: str) -> None:
    """Up to checks of a method's own, which float64 passes."""
    opened = open_model(headed(layout), tiny.tokenizer())
    for each in wherefrom.doctor(opened).methods:
        if each.verdict != "not defined here":
            assert np.isfinite(wherefrom.explain("a good film", opened, method=each.method).scores).all(), each.method


def test_slower_ones_and_those_that_must_be_told_something() -> None:
    by_name = {each.method: each for each in wherefrom.doctor(tiny.model("gpt_oss", "causal-lm")).methods}
    slower = by_name["value-zeroing"]
    assert (slower.verdict, by_name["alti"].verdict) == VERDICTS[1::-1]
    assert slower.why == "it is fast with the matrices of its FFN, and this model has an FFN of experts"
    assert "needs baseline=" in str(by_name["integrated-gradients"].note)
    encoder = {each.method: each for each in wherefrom.doctor(tiny.model(task="encoder")).methods}
    assert "needs a target" in str(encoder["attcat"].note)


def test_a_model_whose_blocks_are_not_known() -> None:
    found = wherefrom.doctor(tiny.shared("bitnet"))
    assert found.opens
    assert found.proof is not None
    assert (found.proof.holds, found.proof.worst[:2]) == (False, (0, "attention"))  # as far as the nearest shape goes
    rows = [line.split() for line in str(found).splitlines()]
    sizes = dict(zip(rows[4][1:], map(float, rows[5][1:]), strict=False))
    assert sizes["attention"] == max(sizes.values()) > 1e4 * sizes["values"]
    assert "taken for the shape that comes nearest: block 0 rebuilt" in str(found)
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
    convolved = transformers.AutoModel.from_config(transformers.AutoConfig.for_model("convbert", **sizes))
    assert wherefrom.doctor(convolved.eval()).proof is None
    assert {each.method for each in found.methods if each.verdict != "not defined here"} >= {"saliency", "ablation"}
    assert all("does not know" in str(each.why) for each in found.methods if each.method in ("alti", "attcat"))
    assert "not known" in str(found)
    assert str(found).splitlines()[0].endswith("('bitnet') opens by its embeddings and output alone")


def test_json_is_as_documented() -> None:
    if not DOCS.is_file():
        pytest.skip("docs/models.md is not beside the tests")
    said = DOCS.read_text(encoding="utf-8").partition("## Can it open mine?")[2]
    found = json.loads(wherefrom.doctor(tiny.model("gpt_oss", "causal-lm")).to_json())
    keys = {*found, *found["proof"], *found["proof"]["worst"], *found["shape"], *found["methods"][0]}
    assert not [key for key in keys if f"`{key}`" not in said]
    assert not [verdict for verdict in VERDICTS if verdict not in said]


# The command line ------------------------------------------------------------------------------------------------


def command(*arguments: str, columns: int = 100) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)})


def test_the_command_says_by_its_status_whether_it_opens(tmp_path: Path) -> None:
    found = command("doctor", "wherefrom/agreement", columns=80)
    assert found.exit_code == 0
    assert max(map(len, found.output.splitlines())) <= 80
    assert "8 heads, each token sees all" in found.output
    tiny.model("falcon-sequential", "causal-lm", alibi=True).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    refused = command("doctor", str(tmp_path), "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.output)["opens"] is False


def test_methods_on_a_model() -> None:
    found = command("methods", "--model", "wherefrom/agreement", columns=80)
    assert found.exit_code == 0
    assert "exact and fast" in found.output
    assert max(map(len, found.output.splitlines())) <= 80
    one = command("methods", "HTA", "--model", "wherefrom/agreement").output
    assert "hta " in one
    assert "alti" not in one


def test_of_a_pair_nothing_is_claimed_that_was_not_looked_at() -> None:
    found = wherefrom.doctor(pairs.model("marian"))
    assert found.shape["keys"] is None
    assert "queries and keys" not in str(found).partition("FFN  ")[0].partition("shape")[2]
    assert "one of the target the source and those before it" in " ".join(str(found).split())


def test_a_reason_of_many_methods_is_said_once() -> None:
    said = str(wherefrom.doctor("wherefrom/translate"))
    assert said.count("it needs one stream of tokens") == 1
    assert "attcat, partial-lrp" in said


def test_notes_say_what_a_method_must_be_told_and_then_it_answers() -> None:
    """Every method that is said to be exact answers, once it is told what its note asks for."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=60, bos_token_id=2, eos_token_id=3)
    told: dict[str, tuple[str, Any]] = {
        "a target": ("target", 3),
        "baseline=": ("baseline", 4),
        "by=": ("by", 4),
        "of=logit": ("of", "logit"),
    }
    unmapped = transformers.MambaConfig(vocab_size=60, hidden_size=24, num_hidden_layers=2, state_size=4)
    models = (
        transformers.GPT2Model(config),
        tiny.model(num_labels=1),
        tiny.model(task="encoder"),
        transformers.MambaForCausalLM(unmapped),
    )
    for model in models:
        opened = wherefrom.open_model(model.eval())
        for suit in suits(opened):
            if suit.verdict == "not defined here":
                continue
            parts = [] if suit.note is None else suit.note.removeprefix("needs ").split("; and ")
            asked = dict(told[part.partition(":")[0]] for part in parts)
            found = wherefrom.explain([5, 6, 7, 8, 9, 10], opened, method=suit.method, **asked)
            assert np.isfinite(found.scores).all(), (suit, found)


def test_what_looks_at_one_token_wants_to_know_which_of_several() -> None:
    """SigLIP's embedding of an image is read at all of its patches."""
    model, processor = pictures.model("siglip-both"), pictures.processor()
    (found,) = (each for each in wherefrom.doctor(model, processor).methods if each.method == "grad-eclip")
    assert found.note is not None
    assert "position=: its embedding is read at several tokens" in found.note
    told = {"method": "grad-eclip", "target": 3, "position": "first"}
    assert wherefrom.explain(pictures.photo(), model, processor, **told).method == "grad-eclip"
