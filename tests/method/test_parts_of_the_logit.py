"""ALTI-Logit and information flow against their definitions, by loops over layers, tokens and heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
import wherefrom
from wherefrom.errors import Unsuited
from wherefrom.model import LayerTrace

PRE_NORM = ("gpt2", "llama", "gemma2", "gpt_neox", "mixtral", "granite", "opt", "bloom")
layouts = pytest.mark.parametrize("layout", PRE_NORM)
NORM = 1e-6  # the closing norm is called here as it is, and transformers computes RMS norms in float32
IDS, SHORT = tiny.ids(6), tiny.ids(4, seed=1)


def decoder(layout: str) -> Any:
    return tiny.model(layout, "causal-lm", dtype=torch.float64, pad_token_id=0)


def parts(layer: LayerTrace) -> Tensor:
    """What each head brings of each token, as vectors: [H, n, n, d]."""
    block, n = layer.block, layer.x.shape[1]
    found = torch.stack([
        torch.stack([
            torch.stack([layer.attention[0, h, i, j] * (layer.value[0, h, j] @ block.w_o[h]) for j in range(n)])
            for i in range(n)
        ])
        for h in range(layer.heads)
    ])  # fmt: skip
    if block.after is None:
        return found
    scale = block.after.scale(block.attended(layer.attention, layer.value))[0]  # [n, 1]
    return block.after.linear(found) / scale[:, None]


def nearness(u: Tensor, part: Tensor) -> Tensor:
    return u.abs().sum(-1) - (u - part).abs().sum(-1)


def alti_maps(layer: LayerTrace) -> Tensor:
    given = parts(layer).sum(0) + torch.diag_embed(layer.x[0].T, dim1=0, dim2=1)  # [n, n, d]
    near = nearness(layer.u[0][:, None], given).clamp(min=0)
    return near / near.sum(-1, keepdim=True)


def reading(model: Any, trace: Any, token: int) -> Tensor:
    """ρ from the closing norm's own module: with its scale held, it takes t to c(t) ⊙ (N(w) − N(0)) / c(w)."""
    last = trace.layers[-1].output[0, -1]
    closing = trace.after[0][0]
    zero = closing(torch.zeros_like(last))
    head = model.get_output_embeddings()
    centred = last - last.mean() if isinstance(closing, torch.nn.LayerNorm) else last
    slope = (closing(last) - zero) / centred
    found = head.weight[token] * slope / getattr(model.config, "logits_scaling", 1.0)
    return found - found.mean() if isinstance(closing, torch.nn.LayerNorm) else found


@layouts
def test_alti_logit_is_its_formula(layout: str) -> None:
    model = decoder(layout)
    with torch.no_grad():
        trace = wherefrom.capture(IDS, model)
        rho = reading(model, trace, 7)
        given = torch.stack([parts(layer).sum(0)[-1] @ rho for layer in trace.layers])  # Δ: [L, n]
        below, expected = torch.eye(len(IDS), dtype=torch.float64), []
        for layer, delta in zip(trace.layers, given, strict=True):
            expected.append(delta @ below)
            below = alti_maps(layer) @ below
    found = wherefrom.explain(IDS, model, method="alti-logit", target=7)
    assert np.abs(found.layer_scores - torch.stack(expected).numpy()).max() < NORM
    assert np.abs(found.scores - torch.stack(expected).sum(0).numpy()).max() < NORM
    logit = float(trace.output.logits[0, -1, 7])
    if layout != "gemma2":  # whose logit is capped later
        assert found.arrived == pytest.approx(found.scores.sum() / logit, rel=1e-4)
    plain = wherefrom.explain(IDS, model, method="alti-logit(mixing=none)", target=7)
    assert np.abs(plain.layer_scores - given.numpy()).max() < NORM


@layouts
def test_information_flow_is_its_formula(layout: str) -> None:
    model = decoder(layout)
    maps = wherefrom.explain(IDS, model, method="information-flow", aggregate=None).maps
    kept = wherefrom.explain(IDS, model, method="information-flow(threshold=0.1)", aggregate=None).maps
    with torch.no_grad():
        layers = wherefrom.capture(IDS, model).layers
    for layer, found, above in zip(layers, maps, kept, strict=True):
        by_head = nearness(layer.u[0][None, :, None], parts(layer)).clamp(min=1e-5) * (layer.attention[0] > 0)
        residual = nearness(layer.u[0], layer.x[0]).clamp(min=1e-5)
        for least, expected in ((0.0, found), (0.1, above)):
            total = by_head.sum((0, 2)) + residual
            by_head, residual = by_head / total[:, None], residual / total
            by_head, residual = by_head * (by_head > least), residual * (residual > least)
            edges = by_head.sum(0) + torch.diag(residual)
            assert np.abs(expected - (edges / edges.sum(-1, keepdim=True)).numpy()).max() < 1e-10


@layouts
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_gives_what_one_sentence_gives(layout: str, side: str) -> None:
    model = decoder(layout)
    pad = [0] * (len(IDS) - len(SHORT))
    ids, mask = ([*pad, *SHORT], [0] * len(pad) + [1] * len(SHORT)) if side == "left" else (
        [*SHORT, *pad], [1] * len(SHORT) + [0] * len(pad))  # fmt: skip
    for method in ("alti-logit", "information-flow"):
        target = {"target": 7} if method == "alti-logit" else {}
        together = wherefrom.explain([IDS, SHORT], model, method=method, **target)
        alone = wherefrom.explain(SHORT, model, method=method, **target)
        assert np.abs(together[1].scores - alone.scores).max() < 1e-9
        padded = wherefrom.explain({"input_ids": ids, "attention_mask": mask}, model, method=method, **target)
        assert np.abs(padded.scores - alone.scores).max() < 1e-9


def test_models_with_norms_on_the_stream_and_heads_with_activations_are_refused() -> None:
    with pytest.raises(Unsuited, match=r"alti-logit' is not defined .* norms on its stream"):
        wherefrom.explain(tiny.ids(5), tiny.model(), method="alti-logit")


def test_a_decoders_classifier_is_explained_too() -> None:
    model = tiny.model("llama", "classification", dtype=torch.float64, pad_token_id=0)
    found = wherefrom.explain(IDS, model, method="alti-logit", target=0, foil=1)
    other = wherefrom.explain(IDS, model, method="alti-logit", target=1, foil=0)
    assert found.arrived is not None
    assert np.abs(found.scores + other.scores).max() < 1e-12
