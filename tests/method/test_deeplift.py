"""DeepLift: its scores add up to the change of the output, on every family and on trained weights."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import Unsuited
from wherefrom.model import open_model

TOKENIZER = tiny.tokenizer()
UNKNOWN_SCORES = {"deberta", "deberta-v2", "llama4_text"}  # more parts than queries and keys, or a rule of their own
TEXTS = ["the film is deep and meaningful", "a cat", "the keys to the cabinets are not good !"]


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_deeplift_adds_up(variant: str) -> None:
    model = tiny.model(variant, dtype=torch.float64)
    tolerance = 1e-3 if variant == "distilbert" else 1e-9  # its head has a kink (ReLU) that quadrature meets
    for layer in (None, 1):
        for found in wherefrom.explain(TEXTS, model, TOKENIZER, method="deeplift", layer=layer, target=1):
            assert abs(found.delta) <= tolerance


@pytest.mark.parametrize("name", ["wherefrom/mlm", "wherefrom/sentiment"])
def test_deeplift_adds_up_on_trained_weights(name: str) -> None:
    """Trained attention is sharp, where rules that cancel lose everything."""
    asked = {"target": "is", "foil": "are"} if name == "wherefrom/mlm" else {}
    text = "the plot of these films [MASK] dull ." if name == "wherefrom/mlm" else "unflinchingly bleak and desperate"
    found = wherefrom.explain(text, model=name, method="deeplift", **asked)
    assert abs(found.delta) <= 1e-2
    assert np.abs(found.scores).max() <= 50


@pytest.mark.parametrize("sharpness", [1, 8, 40])
def test_deeplift_with_sharp_attention(sharpness: float) -> None:
    model = tiny.model(dtype=torch.float64)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.self.query.weight.mul_(sharpness)
    assert abs(wherefrom.explain(TEXTS[0], model, TOKENIZER, method="deeplift").delta) <= 1e-6


def test_deeplift_refuses_what_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["wherefrom.method.deeplift"]
    monkeypatch.setattr(module, "through_block", lambda _now, _then, multiplier: 100 * multiplier)
    with pytest.raises(Unsuited):
        wherefrom.explain(TEXTS[0], tiny.model(), TOKENIZER, method="deeplift")


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_miss_is_judged_by_the_scale_of_the_output(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same miss of a thousandth or a thousand times the logits has the same verdict."""
    module = sys.modules["wherefrom.method.deeplift"]
    exact = module.through_block
    model = tiny.model(dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter.mul_(size)

    def explained(off: float) -> Any:
        monkeypatch.setattr(module, "through_block", lambda now, then, multiplier: off * exact(now, then, multiplier))
        return wherefrom.explain(TEXTS[0], model, TOKENIZER, method="deeplift")

    assert abs(explained(1.0001).delta) < 1e-3 * size
    with pytest.raises(Unsuited):
        explained(1.02)


def test_deeplift_adds_up_where_captums_does_not() -> None:
    """captum's DeepLift on the same embeddings, baseline and logit."""
    captum = pytest.importorskip("captum.attr", reason="captum is not installed (it comes with the extra dev)")
    model = tiny.model(dtype=torch.float64)
    model.set_attn_implementation("eager")
    ids = TOKENIZER(TEXTS[0])["input_ids"]
    blank = [i if i in TOKENIZER.all_special_ids else TOKENIZER.mask_token_id for i in ids]

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, e: Any) -> Any:
            handle = model.bert.embeddings.register_forward_hook(lambda *_: e)
            logits = model(torch.tensor([ids] * len(e))).logits
            handle.remove()
            return logits[:, 1]

    with torch.no_grad():
        e, e0 = (model.bert.embeddings(torch.tensor([each])) for each in (ids, blank))
        change = float(Whole()(e) - Whole()(e0))
    with pytest.warns(UserWarning, match="hooks"):
        theirs = captum.DeepLift(Whole()).attribute(e, e0)
    ours = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="deeplift", target=1)
    assert abs(float(theirs.sum()) - change) > 0.2 * abs(change)
    assert abs(float(ours.scores.sum()) - change) <= 1e-9


@pytest.mark.parametrize("variant", ["bert", "gpt2", "albert", "distilbert"])
def test_blocks_below_are_not_run_again(variant: str) -> None:
    """DeepLift's head is averaged over 16 points, integrated gradients of layer 2 over some: from there on alone."""
    model = tiny.model(variant, dtype=torch.float64)
    opened, calls = open_model(model, TOKENIZER), []
    for block in opened.blocks:
        block.part(block.family.attention.output).register_forward_hook(lambda *_: calls.append(1))
    asked = {"method": "deeplift", "target": 1}
    wherefrom.capture(TEXTS[1], opened)  # compares with a plain pass
    calls.clear()
    wherefrom.explain(TEXTS[1], opened, **asked)
    assert len(calls) == 3 * opened.depth  # the captured pass, and input and baseline
    calls.clear()
    wherefrom.explain(TEXTS[1], opened, method="IG", layer=2, n_steps=64)
    assert len(calls) == opened.depth + 2 * 2 + 3 * (opened.depth - 2)  # 65 points, 32 at once


@pytest.mark.parametrize("layout", [*tiny.CONFIGS, *tiny.LAYOUTS])
def test_a_block_is_linear_in_differences(layout: str) -> None:
    """difference(now, then, x − x') is exactly o − o', in every family that it is defined on."""
    from wherefrom.method import lookup
    from wherefrom.method.deeplift import difference
    from wherefrom.method.needs import undefined

    opened = open_model(tiny.model(layout, "encoder", dtype=torch.float64))
    refused = undefined(lookup("deeplift")[0].needs, opened)
    chosen = opened.traits.experts or opened.traits.latent  # which expert a token meets jumps
    assert (refused is not None) is (chosen or layout in UNKNOWN_SCORES)
    if refused is not None:
        return
    now, then = (wherefrom.capture(tiny.ids(6, seed=s), opened).layers for s in (1, 2))
    tolerance = 1e-6 if layout in ("gptj", "codegen", "roformer") else 1e-10  # whose tables of sines are float32
    for a, b in zip(now, then, strict=True):
        assert torch.allclose(difference(a, b, a.x - b.x), a.output - b.output, atol=tolerance)


@pytest.mark.parametrize("layout", ["llama", "qwen3", "gemma2", "olmo2", "phi", "gpt_neox", "bloom"])
def test_decoders_add_up(layout: str) -> None:
    """The next token and a class; beside padding and alone."""
    for task, target in (("causal-lm", 7), ("classification", 1)):
        model = tiny.model(layout, task, pad_token_id=0, dtype=torch.float64)
        texts = [tiny.ids(9), tiny.ids(5, seed=1)]
        both = wherefrom.explain(texts, model, method="deeplift", baseline=4, target=target)
        assert all(abs(found.delta) <= 1e-6 for found in both)  # the closing norm is integrated, by 16 points
        alone = wherefrom.explain(texts[1], model, method="deeplift", baseline=4, target=target)
        np.testing.assert_allclose(both[1].scores, alone.scores, atol=1e-9)


@pytest.mark.parametrize("of", ["logit", "probability"])
def test_a_head_with_kinks_adds_up(of: str) -> None:
    """DistilBERT's classifier has a ReLU, which 16 fixed points do not integrate."""
    for seed in (3, 11, 18):
        model = tiny.model("distilbert", seed=seed)
        many = [tiny.ids(6, seed=128), tiny.ids(9, seed=4)]
        for ids, found in zip(many, wherefrom.explain(many, model, method="deeplift", baseline=4, of=of), strict=True):
            assert abs(found.delta) <= 0.01 * max(np.abs(found.scores).sum(), 1e-3), seed
            alone = wherefrom.explain(ids, model, method="deeplift", baseline=4, of=of)
            np.testing.assert_allclose(alone.scores, found.scores, atol=1e-5)
