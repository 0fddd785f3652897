"""One captured pass: right for every family, and the model comes back exactly as it was."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AttentionInterface

import pictures
import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import LayerTrace, Reader, collate, open_model, stream
from wherefrom.testing import CheckFailed, awkward, check_family, state


def run(model: Any, on_layer: Any, lengths: tuple[int, ...] = (7, 4)) -> Any:
    opened = open_model(model)
    reader = Reader(None, opened.vocabulary_size, opened.pad_id, opened.max_length)
    sentences, _ = reader.read([tiny.ids(n, seed=n) for n in lengths])
    return stream(opened, collate(sentences, opened.pad_id), on_layer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_every_family_is_followed_exactly(variant: str, dtype: torch.dtype) -> None:
    check_family(tiny.model(variant, dtype=dtype))


@pytest.mark.parametrize("task", tiny.HEADS)
@pytest.mark.parametrize("variant", ["bert", "roberta", "electra", "distilbert", "albert", "gpt2", "gpt2-encoder"])
def test_a_family_is_followed_under_every_head(variant: str, task: str) -> None:
    if (variant.startswith("gpt2") and task == "masked-lm") or (
        task == "causal-lm" and variant in ("distilbert", "albert")
    ):
        with pytest.raises(ValueError, match="Unrecognized configuration class"):  # transformers has no such head
            tiny.model(variant, task)
        return
    check_family(tiny.model(variant, task, dtype=torch.float64))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attention": {"post": "output.LayerNorm"}}, "the output of block 0"),
        ({"attention": {"value": "attention.self.key"}}, "the values of block 0"),
        ({"attention": {"norm": "attention.output.LayerNorm", "post": ""}}, "of block 0"),
        ({"parallel": True}, "the output of block 0"),
        ({"layers": "encoder.layer"}, "its structure is not the one wherefrom knows"),
    ],
)
def test_a_wrong_row_is_found(wrong: dict[str, Any], message: str) -> None:
    opened = open_model(tiny.model(dtype=torch.float64))
    with pytest.raises((CheckFailed, WherefromError), match=message):
        check_family(replace(opened, family=opened.family.but("wrong", **wrong)))


def test_half_precision_would_hide_mistakes() -> None:
    with pytest.raises(WherefromError, match="bfloat16, whose rounding hides mistakes"):
        check_family(tiny.model(dtype=torch.bfloat16))


@pytest.mark.parametrize("variant", ["bert", "distilbert", "albert"])
def test_a_chunked_feed_forward_is_followed(variant: str) -> None:
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


def test_no_keyword_is_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soft-caps, position biases, sinks: the model's own eager function gets all that its attention is given."""
    model = tiny.model("gemma2", "encoder")
    eager = sys.modules[type(model).__module__].eager_attention_forward
    given: list[dict[str, Any]] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        given.append(kwargs)
        return eager(*args, **kwargs)

    open_model(model)
    monkeypatch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", watched)
    wherefrom.capture(tiny.ids(5), model)
    assert len(given) == 6  # three blocks, captured and plain
    assert all(each["softcap"] == 5.0 for each in given)


# The model comes back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_the_model_comes_back_as_it_was(variant: str, implementation: str) -> None:
    model = awkward(tiny.model(variant))
    model.set_attn_implementation(implementation)
    before = state(model)
    run(model, lambda _: None)
    assert state(model) == before


@pytest.mark.parametrize("where", ["on_layer", "inside the model", "before the first block"])
def test_the_model_comes_back_as_it_was_after_an_exception(where: str) -> None:
    model = awkward(tiny.model("bert"))
    opened = open_model(model)  # which proves a model with hooks anew
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
        run(opened, on_layer)
    assert state(model) == before
    assert len(calls) == {"on_layer": 2, "inside the model": 2, "before the first block": 0}[where]
    if where == "on_layer":
        where = "nowhere"
        run(opened, on_layer)
        assert calls == [0, 1, 0, 1, 2]


def test_sub_configs_and_submodels_with_their_own_config_come_back() -> None:
    model = tiny.model("bert")
    inner = transformers.BertConfig(**tiny.SHAPE, attn_implementation="eager")
    model.helper = transformers.BertModel(inner)  # a submodel with a config of its own
    before = state(model)
    assert set(before["attention implementation"]) == {"sdpa", "eager"}
    run(model, lambda _: None)
    assert state(model) == before


def test_a_capture_inside_a_capture_records_its_own_pass() -> None:
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


def test_keys_and_values_are_noted_once_and_given_to_every_head() -> None:
    layer = wherefrom.capture(tiny.ids(5), tiny.model("llama", "encoder")).layers[0]
    heads, groups = layer.heads, layer.block.groups
    assert groups < heads
    for name in ("key", "value"):
        assert layer.raw[name].shape[1] == groups
        assert torch.equal(getattr(layer, name), layer.raw[name].repeat_interleave(heads // groups, 1))


def test_lengths_are_those_of_the_mask() -> None:
    layer = wherefrom.capture([tiny.ids(5), tiny.ids(2, 1)], tiny.model("bert", "encoder")).layers[0]
    assert layer.lengths == layer.mask.sum(1).tolist() == [5, 2]


def test_a_model_of_pictures_is_not_checked_by_tokens() -> None:
    with pytest.raises(WherefromError, match=r"check_family reads one stream of tokens, and .* reads pictures"):
        check_family(pictures.model("vit"))
