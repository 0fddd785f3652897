"""One captured pass: right for every family, and the model comes back exactly as it was."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import LayerTrace, Reader, collate, open_model, stream
from wherefrom.model.families import FAMILIES
from wherefrom.model.undo import configs

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def run(model: Any, on_layer: Any, lengths: tuple[int, ...] = (7, 4)) -> Any:
    opened = open_model(model)
    reader = Reader(None, opened.vocabulary_size, opened.pad_id, opened.max_length)
    sentences, _ = reader.read([tiny.ids(n, seed=n) for n in lengths])
    return stream(opened, collate(sentences, opened.pad_id), on_layer)


def test_every_family_has_a_tiny_model() -> None:
    assert set(tiny.CONFIGS) == set(FAMILIES)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_blocks_put_together_again_give_the_models_own_hidden_states(variant: str, dtype: torch.dtype) -> None:
    model = tiny.model(variant, dtype=dtype)
    trace = wherefrom.capture([tiny.ids(9), tiny.ids(5, seed=1)], model)
    inputs = {"input_ids": trace.batch.ids, "attention_mask": trace.batch.attention_mask}
    with torch.no_grad():
        hidden = model(**inputs, output_hidden_states=True).hidden_states
    real = trace.mask
    assert len(trace.layers) == len(hidden) - 1
    # Pre-norm models norm their last hidden state once more.
    closing = [module for module in model.base_model.children() if isinstance(module, nn.LayerNorm)]
    last_norm = closing[0] if closing else nn.Identity()
    for i, layer in enumerate(trace.layers):
        output = layer.block.finish(layer.block.mix(layer.x, layer.attention, layer.value))
        if i == len(trace.layers) - 1:
            output = last_norm(output)
        assert (hidden[i] - layer.x)[real].abs().max() <= TOLERANCE[dtype]
        assert (hidden[i + 1] - output)[real].abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_the_recorded_parts_fit_each_other(variant: str) -> None:
    trace = wherefrom.capture([tiny.ids(8)], tiny.model(variant, dtype=torch.float64))
    for layer in trace.layers:
        block = layer.block
        logits = layer.query @ layer.key.transpose(2, 3) * layer.scaling
        if trace.opened.causal:
            logits = logits + torch.full((8, 8), -torch.inf).triu(1)
        assert torch.allclose(logits.softmax(-1), layer.attention, atol=1e-12)
        source = block.norm1(layer.x) if block.norm_first else layer.x
        value = block.part(block.family.value)(source)
        value = value.chunk(3, -1)[2] if block.family.fused_qkv else value
        assert torch.allclose(value.unflatten(-1, (layer.heads, -1)).transpose(1, 2), layer.value, atol=1e-12)
        summed = torch.einsum("bhij,bhjd->bid", layer.attention, layer.f) + block.b_o + layer.x
        assert torch.allclose(summed, layer.u, atol=1e-12)
        y = layer.u if block.norm_first else block.norm1(layer.u)
        w = y + block.ffn(block.norm2(y) if block.norm_first else y)
        assert torch.allclose(w, layer.w, atol=1e-12)
        assert torch.allclose(layer.attention.sum(-1), torch.ones(1, layer.heads, 8, dtype=torch.float64))


@pytest.mark.parametrize("task", tiny.HEADS)
@pytest.mark.parametrize("variant", ["bert", "roberta", "electra", "distilbert", "albert", "gpt2", "gpt2-encoder"])
def test_the_output_under_capture_is_that_of_eager_attention(variant: str, task: str) -> None:
    if (variant.startswith("gpt2") and task == "masked-lm") or (
        task == "causal-lm" and variant in ("distilbert", "albert")
    ):
        with pytest.raises(ValueError, match="Unrecognized configuration class"):  # transformers has no such head
            tiny.model(variant, task)
        return
    model = tiny.model(variant, task, dtype=torch.float64)
    trace = wherefrom.capture([tiny.ids(9), tiny.ids(5, seed=1)], model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(input_ids=trace.batch.ids, attention_mask=trace.batch.attention_mask)
    compared = [name for name in ("logits", "start_logits", "end_logits", "last_hidden_state") if name in eager]
    assert compared
    for name in compared:
        torch.testing.assert_close(trace.output[name], eager[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["bert", "distilbert", "albert"])
def test_feed_forward_in_chunks(variant: str) -> None:
    """Some configs feed the tokens to the FFN in pieces, which changes nothing but the calls."""
    whole = wherefrom.capture(tiny.ids(6), tiny.model(variant, dtype=torch.float64))
    pieces = wherefrom.capture(tiny.ids(6), tiny.model(variant, dtype=torch.float64, chunk_size_feed_forward=2))
    for a, b in zip(whole.layers, pieces.layers, strict=True):
        assert torch.allclose(a.u, b.u, atol=1e-12)
        assert torch.allclose(a.w, b.w, atol=1e-12)
        assert torch.allclose(a.output, b.output, atol=1e-12)


def test_gpt2_upcast_attention_is_followed() -> None:
    model = tiny.model("gpt2", dtype=torch.bfloat16, reorder_and_upcast_attn=True)
    trace = wherefrom.capture(tiny.ids(9), model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.equal(model(trace.batch.ids, use_cache=False).logits, trace.output.logits)


def test_a_bidirectional_gpt2_sees_what_comes_later() -> None:
    causal, encoder = (
        wherefrom.capture(tiny.ids(6), tiny.model(v)).layers[0].attention for v in ("gpt2", "gpt2-encoder")
    )
    later = torch.ones(6, 6).triu(1).bool()
    assert (causal[..., later] == 0).all()
    assert (encoder[..., later] > 0).all()


def test_bfloat16_comes_out_as_float32() -> None:
    model = tiny.model("bert", dtype=torch.bfloat16)
    layer = wherefrom.capture(tiny.ids(6), model).layers[1]
    assert layer.raw["attention"].dtype == torch.bfloat16
    for t in (layer.x, layer.attention, layer.value, layer.u, layer.w, layer.output, layer.f, layer.block.norm1.gamma):
        assert t.dtype == torch.float32
    exact = wherefrom.explain(tiny.ids(6), tiny.model("bert"), method="attention")
    coarse = wherefrom.explain(tiny.ids(6), model, method="attention")
    assert abs(exact.scores - coarse.scores).max() < 0.05


@pytest.mark.parametrize(
    "keyword", ["softcap", "position_bias", "s_aux", "sliding_window", "cu_seq_lens_q", "unheard_of"]
)
def test_a_keyword_that_changes_attention_is_refused_by_name(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soft-capping, position bias, sinks, windows: dropped, they would give wrong numbers without an error."""
    model = tiny.model("bert")
    inner = model.bert.encoder.layer[1].attention.self
    forward = inner.forward
    monkeypatch.setattr(inner, "forward", lambda *args, **kwargs: forward(*args, **{**kwargs, keyword: 1.0}))
    before = state(model)
    with pytest.raises(
        WherefromError, match=f"BertSelfAttention is computed with {keyword}, which wherefrom does not follow"
    ):
        wherefrom.capture(tiny.ids(5), model)
    assert state(model) == before
    monkeypatch.setattr(inner, "forward", lambda *args, **kwargs: forward(*args, **{**kwargs, keyword: None}))
    wherefrom.capture(tiny.ids(5), model)


# The model comes back -------------------------------------------------------------------------------------


def state(model: nn.Module) -> dict[str, Any]:
    """Everything that must be as it was, except the weights themselves."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "implementations": [(id(c), c._attn_implementation_internal) for c in configs(model)],
        "hooks": [[dict(getattr(m, kind)) for kind in kinds] for m in model.modules()],
        "training": [m.training for m in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [p.grad is None or float(p.grad.sum()) for p in model.parameters()],
        "registries": [sorted(r._global_mapping) for r in (AttentionInterface, AttentionMaskInterface)],
    }


def awkward(variant: str, **changes: Any) -> Any:
    """A model in a state that a careless library would spoil."""
    model = tiny.model(variant, **changes)
    model.train()
    model.get_input_embeddings().eval()
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 2 == 0)
        if i % 4 == 0:
            parameter.grad = torch.full_like(parameter, 0.5)
    next(iter(model.base_model.children())).register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_the_model_comes_back_as_it_was(variant: str, implementation: str) -> None:
    model = awkward(variant)
    model.set_attn_implementation(implementation)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    before = state(model)
    run(model, lambda _: None)
    assert state(model) == before
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("where", ["on_layer", "inside the model", "before the first block"])
def test_also_after_an_exception(where: str) -> None:
    model = awkward("bert")
    calls = []

    def on_layer(layer: LayerTrace) -> None:
        calls.append(layer.index)
        if where == "on_layer" and layer.index == 1:
            raise KeyboardInterrupt

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    if where != "on_layer":
        part = model.bert.encoder.layer[2].output.dense if where == "inside the model" else model.bert.embeddings
        part.register_forward_pre_hook(fail)
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        run(model, on_layer)
    assert state(model) == before
    assert len(calls) == {"on_layer": 2, "inside the model": 2, "before the first block": 0}[where]
    if where == "on_layer":
        where = "nowhere"
        run(model, on_layer)
        assert calls == [0, 1, 0, 1, 2]


def test_sub_configs_and_submodels_with_their_own_config_come_back() -> None:
    model = tiny.model("bert")
    inner = transformers.BertConfig(**tiny.SHAPE, attn_implementation="eager")
    model.helper = transformers.BertModel(inner)  # a submodel with a config of its own
    before = state(model)
    assert {name for _, name in before["implementations"]} == {"sdpa", "eager"}
    run(model, lambda _: None)
    assert state(model) == before


def test_a_capture_inside_a_capture() -> None:
    outer, inner = tiny.model("bert"), tiny.model("gpt2")
    seen: list[Any] = []
    run(outer, lambda layer: seen.append((layer.index, len(wherefrom.capture(tiny.ids(5), inner).layers))))
    assert seen == [(0, 3), (1, 3), (2, 3)]
    assert "wherefrom" not in AttentionInterface._global_mapping


def test_threads_with_one_model_do_not_mix() -> None:
    model = tiny.model("bert")
    inputs = [tiny.ids(4 + i % 5, seed=i) for i in range(12)]
    expected = [wherefrom.explain(each, model, method="attention") for each in inputs]
    before = state(model)
    found: dict[int, Any] = {}
    start = threading.Barrier(4)

    def work(k: int) -> None:
        start.wait()
        for i in range(k, 12, 4):
            found[i] = wherefrom.explain(inputs[i], model, method="attention")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    for i, each in enumerate(expected):
        assert np.allclose(found[i].maps, each.maps, atol=1e-6)
    assert state(model) == before


def test_another_thread_may_run_the_model_meanwhile() -> None:
    """A plain forward pass from another thread is right and is not taken down."""
    model = tiny.model("bert")
    inputs = torch.tensor([tiny.ids(6)])
    with torch.no_grad():
        expected = model(inputs).logits
    seen, results = [], []

    def on_layer(layer: LayerTrace) -> None:
        seen.append(layer.index)
        if layer.index == 1:
            thread = threading.Thread(target=lambda: results.append(model(inputs).logits))
            thread.start()
            thread.join()

    run(model, on_layer)
    assert seen == [0, 1, 2]
    assert torch.allclose(results[0], expected, atol=1e-5)


def test_gradients_flow_when_asked_for() -> None:
    model = tiny.model("bert")
    trace = wherefrom.capture(tiny.ids(6), model, grad=True)
    gradient = torch.autograd.grad(trace.output.logits[0, 1], [layer.raw["attention"] for layer in trace.layers])
    assert all(float(g.abs().sum()) > 0 for g in gradient)
    assert all(p.grad is None for p in model.parameters())
    assert not wherefrom.capture(tiny.ids(6), model).output.logits.requires_grad
