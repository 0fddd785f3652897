"""DecompX and norms through the FFN: an oracle written from the paper, both ways to the scores, every kind of head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from oracles import decompx as oracle
from wherefrom.errors import Unsuited, WherefromError
from wherefrom.method.decomposition import DecompositionRules, decomposed, local
from wherefrom.method.decompx import _through_head
from wherefrom.method.frozen_block import Freeze, experts
from wherefrom.model.head import head

IDS = [7, 12, 30, 5, 21]
# Post-norm, pre-norm, RMS norms with gates and biases, norms on branches, parallel, groups of heads, no norm before.
FAMILIES = ["bert", "gpt2", "llama-biased", "gemma2", "gpt_neox", "falcon-40b", "olmo2"]
RULES: list[dict[str, Any]] = [
    {},
    {"bias": "none"},
    {"bias": "cls"},
    {"bias": "equal"},
    {"bias": "norm", "activation": "linear"},
    {"bias": "abssim", "value_bias": "spread", "gate": "gate"},
    {"ffn": False},
]


def model(variant: str, task: str = "classification", **changes: Any) -> Any:
    size = {"n_layer": 2} if variant == "gpt2" else {"num_hidden_layers": 2}
    return tiny.model(variant, task, dtype=torch.float64, **{**size, **changes})


def apart(ours: Any, theirs: Any) -> float:
    return float(np.abs(np.asarray(ours) - np.asarray(theirs)).max() / np.abs(np.asarray(theirs)).max())


def explained(*given: Any, **options: Any) -> Any:
    return wherefrom.explain(*given, **options)


@pytest.mark.parametrize("variant", FAMILIES)
def test_maps_are_the_oracles(variant: str) -> None:
    opened = wherefrom.open_model(model(variant, "encoder"))
    layers = wherefrom.capture(IDS, opened).layers
    for rules in RULES:
        expected = torch.stack(oracle.decomposed(layers, **rules)).norm(dim=-1)
        found = explained(IDS, opened, method="decompx-map", **rules)
        assert apart(found.maps, expected) < 1e-11, rules


@pytest.mark.parametrize("variant", ["bert", "gpt2", "llama-biased"])
def test_local_maps_start_afresh_in_every_block(variant: str) -> None:
    opened = wherefrom.open_model(model(variant, "encoder"))
    layers = wherefrom.capture(IDS, opened).layers
    for rules in ({}, {"bias": "none"}):
        expected = torch.stack([oracle.decomposed([layer], **rules)[0] for layer in layers]).norm(dim=-1)
        assert apart(explained(IDS, opened, method="decompx-local", **rules).maps, expected) < 1e-11, rules


@pytest.mark.parametrize("variant", FAMILIES)
@pytest.mark.parametrize("bias", ["none", "cls"])
def test_one_vector_back_gives_what_all_vectors_forward_give(variant: str, bias: Any) -> None:
    task = "causal-lm" if variant != "bert" else "masked-lm"
    opened = wherefrom.open_model(model(variant, task))
    found = explained(IDS, opened, method="decompx", bias=bias, target=9, position=3)
    whole = DecompositionRules(bias, Freeze())
    trace = wherefrom.capture(IDS, opened)
    *_, parts = decomposed(trace.layers, 0, len(IDS), whole, causal=opened.causal, last=[3])
    forward = explained(IDS, opened, method="decompx-map", bias=bias).maps[-1, 3]
    assert apart(parts[0].norm(dim=-1), forward) < 1e-12  # a few rows of the last block are those of all
    entries = _through_head(parts, head(trace, torch.tensor([[3]])), 0, bias, "zero-origin")
    assert apart(found.scores, entries[0, :, 9]) < 1e-11


ASKED: dict[str, dict[str, Any]] = {
    "question-answering": {"target": "answer"},
    "classification": {"target": 1, "foil": 0},
}
HEADS = [
    ("bert", "classification"),
    ("bert", "masked-lm"),
    ("bert", "question-answering"),
    ("bert", "token-classification"),
    ("roberta", "classification"),
    ("roberta", "masked-lm"),
    ("distilbert", "classification"),
    ("distilbert", "masked-lm"),
    ("electra", "classification"),
    ("electra", "masked-lm"),
    ("albert", "classification"),
    ("albert", "masked-lm"),
    ("deberta-v2", "classification"),
    ("modernbert", "classification"),
    ("modernbert", "masked-lm"),
    ("gpt2", "classification"),
    ("gpt2", "causal-lm"),
    ("llama-biased", "classification"),
    ("gemma2", "causal-lm"),
    ("granite", "causal-lm"),
    ("cohere", "causal-lm"),
    ("opt", "causal-lm"),
    ("phi", "causal-lm"),
]


@pytest.mark.parametrize(("variant", "task"), HEADS)
def test_scores_add_up_to_the_logit_through_every_head(variant: str, task: str) -> None:
    opened = wherefrom.open_model(tiny.model(variant, task, dtype=torch.float64))
    asked = ASKED.get(task, {"target": 2, "position": 3})
    for bias in ("absdot", "cls"):
        found = explained(IDS, opened, method="decompx", bias=bias, **asked)
        total = float(np.abs(found.scores).sum())
        assert abs(found.delta) < 1e-9 * total
        assert total > 0
    without = explained(IDS, opened, method="decompx", bias="none", **asked)
    assert without.layer_scores is not None
    assert apart(without.layer_scores[0], without.scores) == 0
    assert explained(IDS, opened, method="decompx", bias="token", **asked).delta == pytest.approx(without.delta)


def test_tangents_add_up_too() -> None:
    for variant in ("bert", "llama-biased"):
        opened = wherefrom.open_model(model(variant))
        found = explained(IDS, opened, method="decompx", activation="linear", head_activation="linear", target=1)
        assert abs(found.delta) < 1e-10 * float(np.abs(found.scores).sum())


def test_what_is_hidden_on_either_side_changes_nothing() -> None:
    """Rotary positions: what the others say does not depend on how many hidden tokens stand before them."""
    opened = wherefrom.open_model(model("llama-biased", "causal-lm"))
    for options in ({"bias": "none"}, {"bias": "absdot"}):
        alone = explained(IDS, opened, method="decompx", target=4, position=4, **options)
        padded = {"input_ids": [3, 4, *IDS, 6], "attention_mask": [0, 0, *[1] * len(IDS), 0]}
        among = explained(padded, opened, method="decompx", target=4, position=6, **options)
        assert np.abs(among.scores[2:7] - alone.scores).max() < 1e-5 * np.abs(alone.scores).max()
        assert np.abs(among.scores[[0, 1, 7]]).max() < 1e-12


def test_padding_in_a_batch_changes_nothing_in_single_precision() -> None:
    opened = wherefrom.open_model(tiny.model("bert"))
    texts = [IDS, [*IDS, 8, 14, 33]]
    for options in ({"bias": "none"}, {"bias": "absdot"}):
        for found, ids in zip(explained(texts, opened, method="decompx", target=1, **options), texts, strict=True):
            alone = explained(ids, opened, method="decompx", target=1, **options)
            assert np.abs(found.scores - alone.scores).max() < 1e-5 * np.abs(alone.scores).max()


def test_ways_of_one_model_in_both_precisions() -> None:
    single, double = (wherefrom.open_model(tiny.model("bert", dtype=dtype)) for dtype in (torch.float32, torch.float64))
    for options in ({"bias": "none"}, {"bias": "absdot"}, {"bias": "absdot", "activation": "linear"}):
        ours, exact = (explained(IDS, each, method="decompx", target=1, **options) for each in (single, double))
        assert apart(ours.scores, exact.scores) < 1e-4


def averaged_ffn(block: Any, parts: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The FFN's parts by the plain definition: its slopes on the way of all parts, biases among them, from nothing."""
    linears = [each for each in (block.ffn_gate, block.ffn_in) if each is not None]
    pieces = [parts @ each.weight for each in linears]
    full = [each(whole) for each in linears]

    def units(*z: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = block.activation(z[0]) * (z[1] if len(z) > 1 else 1)
        return found

    hidden = torch.zeros_like(pieces[0])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for node, weight in zip((0.5 + 0.5 * nodes).tolist(), (0.5 * weights).tolist(), strict=True):
        at = [(node * z).requires_grad_() for z in full]
        slopes = torch.autograd.grad(units(*at).sum(), at)
        hidden += weight * sum(piece * slope for piece, slope in zip(pieces, slopes, strict=True))
    found: torch.Tensor = hidden @ block.ffn_out.weight
    return found


def test_half_precision_follows_the_same_head() -> None:
    exact = explained(IDS, tiny.model("bert", dtype=torch.float64), method="decompx", target=1)
    half = explained(IDS, tiny.model("bert", dtype=torch.bfloat16), method="decompx", target=1)
    assert apart(half.scores, exact.scores) < 0.2
    assert np.corrcoef(half.scores, exact.scores)[0, 1] > 0.95


def test_norms_through_the_ffn_are_integrated_gradients() -> None:
    for variant in ("bert", "llama-biased"):
        opened = wherefrom.open_model(model(variant, "encoder"))
        layer = wherefrom.capture(IDS, opened).layers[1]
        block, i = layer.block, 3
        norm = block.post or block.ffn_before
        assert norm is not None
        t = torch.einsum("hj,hjd->jd", layer.attention[0, :, i], layer.f[0])
        t[i] += layer.x[0, i]
        parts = norm.linear(t) / norm.scale(layer.u)[0, i]
        after = averaged_ffn(block, parts, norm(layer.u)[0, i]) + (parts if block.post is not None else t)
        if block.ffn_post is not None:
            after = block.ffn_post.linear(after) / block.ffn_post.scale(layer.w)[0, i]
        assert apart(explained(IDS, opened, method="norm-ffn").maps[1, i], after.norm(dim=-1)) < 1e-9, variant


def through_mixtral(block: Any, t: torch.Tensor, part: torch.Tensor, share: float | None) -> torch.Tensor:
    """A part of what one token's experts read: their weights are constants, `share` of each gate goes to its input.

    Without a share, what integrated gradients from 0 give it.
    """
    router, experts = block.part("mlp.gate"), block.part("mlp.experts")
    chances = (router.weight @ t).softmax(0)
    chosen = chances.topk(router.top_k).indices
    total = torch.zeros_like(t)
    for e in chosen:
        (gate, up), down = experts.gate_up_proj[e].chunk(2), experts.down_proj[e]
        a, b, silu = gate @ t, up @ t, torch.nn.functional.silu
        mean = torch.stack([silu(a * (step + 0.5) / 1000) for step in range(1000)]).mean(0)
        kept = (1 - mean / silu(a)) if share is None else share
        units = kept * (gate @ part) * silu(a) / a * b + (1 - kept) * silu(a) * (up @ part)
        total += chances[e] / chances[chosen].sum() * (down @ units)
    return total


@torch.no_grad()
def test_experts_are_taken_apart_with_their_router_a_constant() -> None:
    opened = wherefrom.open_model(model("mixtral", "causal-lm"))
    for layer in wherefrom.capture(IDS, opened).layers:
        block, generator = layer.block, torch.Generator().manual_seed(0)
        read = block.ffn_before(layer.u)[0]
        parts = torch.randn(*read.shape, generator=generator, dtype=torch.float64)
        for gate, share, near in (("half", 0.5, 1e-12), ("gate", 0.0, 1e-12), ("integrated", None, 1e-6)):
            found = experts(block, read, Freeze(gate=gate)).along(parts)
            expected = [through_mixtral(block, *pair, share) for pair in zip(read, parts, strict=True)]
            assert apart(found, torch.stack(expected)) < near


@pytest.mark.parametrize("variant", ["mixtral", "qwen2_moe", "gpt_oss", "granitemoeshared", "llama4_text"])
def test_decompx_of_experts_adds_up_either_way(variant: str) -> None:
    opened = wherefrom.open_model(model(variant, "causal-lm"))
    whole = explained(IDS, opened, method="decompx")
    assert abs(whole.delta) < 1e-10
    back, forward = (explained(IDS, opened, method=f"decompx(bias={bias})") for bias in ("token", "token-absdot"))
    assert forward.delta == pytest.approx(0, abs=1e-10)
    if variant not in ("gpt_oss", "qwen2_moe"):  # which have biases to share out in the end
        assert apart(forward.scores, back.scores) < 1e-10
    for layer in wherefrom.capture(IDS, opened).layers:
        rows = [parts.sum(1) for _, parts in local(layer, 0, len(IDS), DecompositionRules("absdot"))]
        assert apart(torch.cat(rows).detach(), layer.output[0].detach()) < 1e-10
    with pytest.raises(Unsuited, match="a rule for hidden units"):
        explained(IDS, opened, method="decompx(activation=linear)")


def test_several_targets_go_back_through_experts_together() -> None:
    opened = wherefrom.open_model(model("mixtral", "causal-lm", eos_token_id=None))
    said = wherefrom.generate(IDS, opened, method="decompx(bias=none)", max_new_tokens=2, do_sample=False)
    for one in said:
        assert apart(one.scores, explained(model=opened, **one.arguments).scores) < 1e-10


def test_heads_of_another_kind_are_refused() -> None:
    mean = tiny.model("modernbert", dtype=torch.float64, classifier_pooling="mean")
    with pytest.raises(WherefromError, match="a head that reads several"):
        explained(IDS, mean, method="decompx", target=1)
    other = tiny.model("bert", dtype=torch.float64)
    other.bert.pooler.activation = torch.nn.Softplus()
    with pytest.raises(Unsuited, match=r"a head that is a chain of linear layers, .* this model has another one"):
        explained(IDS, other, method="decompx", target=1)
