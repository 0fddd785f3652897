"""Every family of the table, on tiny random models: blocks, capture, padding, maps, and the model that comes back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import Unsuited, UnsupportedModel
from wherefrom.model import LayerTrace, open_model
from wherefrom.model.families import FAMILIES
from wherefrom.model.proof import prove
from wherefrom.testing import state

LONG, SHORT = tiny.ids(9), tiny.ids(5, seed=1)
MAPS = ("attention", "norm", "norm-residual", "norm-residual-ln", "globenc", "alti", "value-zeroing")
SINKS = ("flint", "gpt_oss", "mimo_v2_flash")  # they take a share of the attention
pytestmark = pytest.mark.usefixtures("no_grad")
layouts = pytest.mark.parametrize("layout", tiny.LAYOUTS)
# The first layout of every row, its name aside, and all that differ from their type's own configuration.
ROWS = {replace(row, name=""): name for name, (kind, _) in reversed(tiny.LAYOUTS.items()) for row in FAMILIES[kind]}
DISTINCT = sorted({*ROWS.values(), *(layout for layout, (_, changes) in tiny.LAYOUTS.items() if changes)})
shapes = pytest.mark.parametrize("layout", DISTINCT)


@pytest.fixture
def no_grad() -> Any:
    with torch.no_grad():
        yield


def encoder(layout: str, dtype: torch.dtype = torch.float64) -> Any:
    return tiny.model(layout, "encoder", dtype=dtype, **tiny.odd(layout))


def headed(layout: str) -> Any:
    """With a head that gives a number to explain: the next word, or a class."""
    config = type(tiny.config(layout))
    tasks = ("causal-lm", "classification") if FAMILIES[config.model_type][0].causal else ("classification",)
    task = next(task for task in tasks if config in tiny.HEADS[task]._model_mapping)
    return tiny.model(layout, task, dtype=torch.float64, pad_token_id=0, **tiny.odd(layout))


def layers(layout: str) -> list[LayerTrace]:
    return wherefrom.capture([LONG, SHORT], encoder(layout)).layers


def gap(ours: torch.Tensor, theirs: torch.Tensor, mask: torch.Tensor) -> float:
    return float((ours - theirs)[mask].abs().max() / theirs[mask].abs().max())


def test_there_are_sixty_types_and_each_has_a_tiny_model() -> None:
    assert len(FAMILIES) >= 60
    assert {*tiny.CONFIGS, *tiny.OTHERS} == set(FAMILIES)


@layouts
def test_blocks_put_together_again_are_the_models_own(layout: str) -> None:
    """Also beside padding, in windows and among experts; the proof itself looks at one short sentence."""
    model = encoder(layout)
    trace = wherefrom.capture([LONG, SHORT], model)
    assert prove(open_model(model)).holds
    for layer in trace.layers:
        block = layer.block
        u = block.mix(layer.x, layer.attention, layer.value)
        assert gap(u, layer.u, trace.mask) <= 1e-6
        assert gap(block.finish(layer.u, layer.x), layer.output, trace.mask) <= 1e-6


@layouts
def test_the_output_under_capture_is_the_models_own(layout: str) -> None:
    model = encoder(layout, torch.float32)
    before = state(model)
    trace = wherefrom.capture(LONG, model)
    assert state(model) == before
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")  # the others want sizes that are multiples of 16 bytes
    with torch.no_grad():
        own = model(torch.tensor([LONG])).last_hidden_state
    torch.testing.assert_close(trace.output.last_hidden_state, own, rtol=1e-5, atol=1e-5)


@shapes
def test_what_tokens_give_adds_up_to_what_attention_makes(layout: str) -> None:
    """Σ_j t_ij and what belongs to no token are u, through the norm on the branch where there is one."""
    for layer in layers(layout):
        block, bias = layer.block, layer.block.b_o
        if block.after is not None:
            bias = block.after.linear(bias) / layer.branch_scale + block.after.beta
        given = torch.einsum("bhij,bhjd->bid", layer.weights, layer.f)
        assert gap(layer.x + given + bias, layer.u, layer.mask) <= 1e-6
        assert gap(given, layer.mixed, layer.mask) <= 1e-6


@shapes
def test_value_zeroing_is_the_block_run_again_without_a_value(layout: str) -> None:
    model = encoder(layout)
    found = wherefrom.explain(SHORT, model, method="value-zeroing(metric=euclidean)", aggregate=None).maps
    for layer in wherefrom.capture(SHORT, model).layers:
        block, n = layer.block, len(SHORT)
        moved = torch.zeros(n, n, dtype=torch.float64)
        for j in range(n):
            value = layer.value.clone()
            value[:, :, j] = 0
            o = block.finish(block.mix(layer.x, layer.attention, value), layer.x)
            own = block.finish(block.mix(layer.x, layer.attention, layer.value), layer.x)
            moved[:, j] = (o - own)[0].norm(dim=-1)
        expected = (moved / moved.sum(-1, keepdim=True)).numpy()
        # Outside of a pass of ours, routers take their softmax in float32.
        np.testing.assert_allclose(found[layer.index], expected, atol=1e-6 if block.opaque else 1e-8)


@pytest.mark.filterwarnings("ignore:alti")  # some rows of these random models hold no contribution
@layouts
def test_a_batch_and_padding_change_nothing(layout: str) -> None:
    """Maps, gradients and texts changed and read again; in float64, because a router's ties are no test of padding."""
    model, methods = (
        headed(layout),
        [*(MAPS if layout in DISTINCT else ("alti",)), "gradient-x-input", "ablation(by=4)"],
    )
    alone = wherefrom.compare(SHORT, model, methods=methods)
    padding = [0] * (len(LONG) - len(SHORT))
    for row in ([*padding, *SHORT], [*SHORT, *padding]):
        mask = [[int(token > 0) for token in each] for each in (row, LONG)]
        padded = wherefrom.compare({"input_ids": [row, LONG], "attention_mask": mask}, model, methods=methods)[0]
        for name, single in alone.items():
            for ours, theirs in ((padded[name].scores, single.scores), (padded[name].maps, single.maps)):
                if theirs is not None:
                    np.testing.assert_allclose(ours, theirs, atol=1e-7 * np.abs(theirs).max(), err_msg=name)
    for name in {"attention", "alti", "value-zeroing"} & {*methods}:
        assert np.allclose(alone[name].maps.sum(-1), 1, atol=1e-5) or layout in SINKS


@pytest.mark.parametrize("layout", ["llama", "gemma2", "phi", "gpt_neox", "qwen3", "opt", "bloom", "falcon", "mixtral"])
def test_decoders_with_heads(layout: str) -> None:
    """The next word and a class, by every method that has rules for such blocks; the others refuse by name."""
    for task, target in (("causal-lm", 7), ("classification", 1)):
        model = tiny.model(layout, task, pad_token_id=0, dtype=torch.float64)  # a router's ties are no test of padding
        for method in ("attcat", "gradient-x-input", "saliency", "alti", "attention-gradients", "cat"):
            seen = {"target": target} if method != "alti" else {}
            both = wherefrom.explain([LONG, SHORT], model, method=method, **seen)
            alone = wherefrom.explain(SHORT, model, method=method, **seen)
            scale = np.abs(alone.scores).max()
            np.testing.assert_allclose(both[1].scores, alone.scores, atol=1e-9 * scale, err_msg=f"{task} {method}")
        if layout in ("llama", "gemma2"):
            with pytest.raises(Unsuited, match=r"is not defined on .*: it needs .*, and this model has"):
                wherefrom.explain(SHORT, model, method="full-lrp")


class Unheard(transformers.LlamaConfig):
    model_type = "unheard-of"


def test_a_shape_without_a_row_is_opened_by_proof() -> None:
    """A type that nobody has heard of, with Llama's parts; the decoder of BART alone."""
    torch.manual_seed(0)
    unheard = transformers.LlamaForCausalLM(Unheard(**tiny.GROUPED)).eval()
    bart = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(
            "bart", d_model=24, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=40, vocab_size=60
        )
    )
    for model in (unheard, bart.eval()):
        found = open_model(model)
        assert (found.family.name, found.family.mapped) == (model.config.model_type, True)
        assert wherefrom.explain(SHORT, model, method="alti").maps.shape[1:] == (5, 5)
    assert not open_model(tiny.shared("bitnet")).family.mapped  # a norm inside of its attention


def test_smollm2_opens_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """SmolLM2-135M's configuration, two of its thirty blocks and a short vocabulary; no row for "llama"."""
    monkeypatch.delitem(FAMILIES, "llama")
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    config = transformers.LlamaConfig(
        **shape, num_hidden_layers=2, vocab_size=64, tie_word_embeddings=True, rope_theta=100000.0, rms_norm_eps=1e-5
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    found = open_model(model)
    assert found.proof.holds
    assert (found.family.mapped, found.family.causal, found.blocks[0].heads) == (True, True, 9)
    assert wherefrom.explain(SHORT, found, method="alti-logit").scores.shape == (5,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["llama", "gemma2", "mixtral", "bloom", "deberta-v2", "modernbert", "deepseek_v3"])
def test_half_precision_is_opened_too(layout: str, dtype: torch.dtype) -> None:
    found = open_model(encoder(layout, dtype))
    assert found.family.mapped
    assert found.proof.tolerance > 1e-2


def test_a_model_that_is_not_what_its_row_says_is_refused_with_the_gap() -> None:
    model = encoder("llama", torch.float32)
    model.layers[1].mlp.act_fn = torch.nn.Tanh()
    open_model(model)  # another activation is a part like any other
    model = tiny.model("llama", "encoder", seed=3)
    own = model.layers[1].mlp.forward
    model.layers[1].mlp.forward = lambda h: 1.1 * own(h)
    with pytest.raises(UnsupportedModel, match=r"block 1 rebuilt .*; FFN: off by"):
        open_model(model)


def test_a_model_that_changes_when_it_is_followed_is_refused() -> None:
    """Falcon's eager attention adds ALiBi twice (transformers 5.22)."""
    with pytest.raises(UnsupportedModel, match="output changes while it is followed: by"):
        open_model(tiny.model("falcon-sequential", "encoder", alibi=True))


def test_the_documentation_lists_every_type_and_its_row_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "models.md"
    if not page.exists():
        pytest.skip("docs/models.md is not beside the tests")
    text = page.read_text(encoding="utf-8")
    listed = re.search(r"<!-- families.*?-->(.*?)<!-- end of families -->", text, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`([^`]+)`", listed.group(1)) == sorted(FAMILIES)
    assert f"These {len(FAMILIES)} types" in text
    monkeypatch.setitem(FAMILIES, "nanochat", ())  # put back afterwards
    (block,) = (each for each in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "FAMILIES" in each)
    exec(compile(block, "docs/models.md", "exec"), {})
