"""The captured pass gives the model's own output, also in texts longer than sparse attention reads whole."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

import pairs
import tiny
import wherefrom
from wherefrom.errors import UnsupportedModel
from wherefrom.model import capture, collate, open_model, proof, undo
from wherefrom.model.narrow import NARROW, with_narrow_windows
from wherefrom.model.plain_pass import compare_with_plain_pass, output_gap, plain_output
from wherefrom.model.proof import LENGTH, probe_of
from wherefrom.pipeline.remarks import UNPROVED

SHORT, LONG = 6, 13  # tokens; LONG is more than twice SHORT
THRESHOLD = 8  # of tokens, from which on the attention below computes another thing


def changing_attention(module: Any, query: torch.Tensor, *args: Any, **more: Any) -> Any:
    """SDPA in short texts, and twice that in long ones."""
    output, weights = sdpa_attention_forward(module, query, *args, **more)
    return (2 * output if query.shape[2] > THRESHOLD else output), weights


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a model whose own attention is not its eager one in long texts."""
    monkeypatch.setitem(AttentionInterface._global_mapping, "changing", changing_attention)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "changing", sdpa_mask)

    def make(model: Any) -> Any:
        for config in undo.configs(model):
            config._attn_implementation_internal = "changing"
        return model

    return make


class Calls:
    """Count the forward passes of an open model."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        model.register_forward_hook(self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1

    def of(self, call: Callable[[], Any]) -> int:
        before = self.count
        call()
        return self.count - before


# Sparse attention -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", tiny.SPARSE)
def test_sparse_attention_is_captured_as_the_model_runs_it(variant: str) -> None:
    model = tiny.model(variant, "causal-lm", dtype=torch.float64)
    model.set_experts_implementation("eager")  # the others refuse float64
    token_ids = tiny.ids(3 * tiny.INDEX_TOPK)
    with torch.no_grad():
        observed = model(torch.tensor([token_ids]), use_cache=False).logits
    opened = open_model(model)
    batch = collate(opened.reader().read(token_ids)[0], opened.pad_id)
    captured = capture(opened, batch).output
    assert (captured.logits - observed).abs().max() < 1e-5 * observed.abs().max()  # transformers has norms in float32
    assert output_gap(opened, batch, captured, plain_output(opened, batch)) < 1e-9


@pytest.mark.parametrize("variant", ["deepseek_v32", "minimax_m3_vl_text"])
def test_attention_of_a_sparse_model_reads_what_the_indexer_chose(variant: str) -> None:
    trace = wherefrom.capture(tiny.ids(3 * tiny.INDEX_TOPK), tiny.model(variant, "causal-lm", dtype=torch.float64))
    sources = (trace.layers[-1].attention[0] > 0).sum(-1)
    assert int(sources.max()) <= tiny.INDEX_TOPK
    assert (trace.layers[-1].attention.sum(-1) - 1).abs().max() < 1e-9


# The probe -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["mistral", "gemma2", "gpt_oss", "modernbert", "llama4_text"])
def test_windows_are_narrow_in_a_twin_and_the_model_stays_as_it_was(variant: str) -> None:
    limit = {"modernbert": "local_attention", "llama4_text": "attention_chunk_size"}.get(variant, "sliding_window")
    model = tiny.model(variant, "causal-lm" if variant != "modernbert" else "masked-lm", **{limit: 64})
    opened = open_model(model)
    narrowed = with_narrow_windows(opened, LENGTH)
    assert narrowed is not None
    assert getattr(narrowed.config, limit) == NARROW
    assert getattr(model.config, limit) == 64
    assert all(ours is own for ours, own in zip(narrowed.model.parameters(), model.parameters(), strict=True))
    probe = probe_of(opened)
    plain = plain_output(narrowed, probe)
    assert output_gap(opened, probe, plain, plain_output(opened, probe)) > 1e-3  # the windows hide something
    assert output_gap(opened, probe, capture(narrowed, probe).output, plain) < 1e-4


def test_a_model_without_windows_has_no_twin() -> None:
    assert with_narrow_windows(open_model(tiny.model("bert")), LENGTH) is None


def test_the_proof_sees_that_sparse_attention_is_captured_as_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another name than "eager" DeepSeek-V3.2 leaves the choice of its indexer to the implementation."""
    model = tiny.model("deepseek_v32", "causal-lm", index_topk=2 * LENGTH)
    own = undo.computing_attention_by
    file = sys.modules[type(model).__module__]

    def dense(*args: Any, **more: Any) -> Any:
        return vars(file)[undo.EAGER](*args, **more)

    monkeypatch.setitem(AttentionInterface._global_mapping, "dense", dense)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "dense", eager_mask)
    assert open_model(model).family.mapped
    monkeypatch.setattr(proof, "_BY_MODEL", WeakKeyDictionary())
    monkeypatch.setattr(undo, "computing_attention_by", lambda model, _name, parts=None: own(model, "dense", parts))
    opened = open_model(model)
    assert not opened.family.mapped
    assert opened.nearest is not None
    assert opened.nearest.worst.part == "output"


# The user's own input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_another_output_in_long_texts_is_refused(changing: Callable[..., Any], dtype: torch.dtype) -> None:
    opened = open_model(changing(tiny.model(dtype=dtype)))
    wherefrom.explain(tiny.ids(SHORT), opened, method="attention-rollout")
    with pytest.raises(UnsupportedModel, match=r"differ by \d"):
        wherefrom.explain(tiny.ids(LONG), opened, method="attention-rollout")


@pytest.mark.parametrize(
    "call",
    [
        lambda model, ids: wherefrom.explain(ids, model, method="alti"),
        lambda model, ids: wherefrom.explain(ids, model, method="gradient-x-input"),
        lambda model, ids: wherefrom.explain(ids, model, method="attn-lrp"),
        lambda model, ids: wherefrom.explain(ids, model, method="ablation"),
        lambda model, ids: wherefrom.explain([ids, ids[:SHORT]], model, method="alti"),
        lambda model, ids: wherefrom.compare(ids, model, methods=["alti", "globenc"]),
        lambda model, ids: wherefrom.generate(ids, model, max_new_tokens=2, method="alti"),
        lambda model, ids: wherefrom.logit_lens(ids, model),
        lambda model, ids: wherefrom.mixing_ratios([ids], model),
        lambda model, ids: wherefrom.capture(ids, model),
    ],
)
def test_every_way_in_compares(changing: Callable[..., Any], call: Callable[[Any, list[int]], Any]) -> None:
    model = open_model(changing(tiny.model("llama", "causal-lm")))
    with pytest.raises(UnsupportedModel, match="captured pass"):
        call(model, tiny.ids(LONG))


def test_an_alignment_compares(changing: Callable[..., Any]) -> None:
    model = changing(pairs.model("marian", dtype=torch.float32))
    with pytest.raises(UnsupportedModel, match="captured pass"):
        wherefrom.align("the deep film is not very good and", "the cat was bad", model, tiny.tokenizer())


def test_an_evaluation_compares(changing: Callable[..., Any]) -> None:
    model = changing(tiny.model())
    data = [{"text": "the deep film is not very good and the cat was bad", "label": 0}] * 2
    with pytest.raises(UnsupportedModel, match="captured pass"):
        wherefrom.evaluate(data, model, tokenizer=tiny.tokenizer(), methods=["alti"], metrics=["comprehensiveness"])


def test_without_a_proof_nothing_is_compared_and_notes_say_so(changing: Callable[..., Any]) -> None:
    model = changing(tiny.model("llama", "causal-lm"))
    calls = Calls(model)
    opened = open_model(model, prove=False)
    assert calls.of(lambda: wherefrom.explain(tiny.ids(LONG), opened, method="alti")) == 1
    assert UNPROVED in wherefrom.explain(tiny.ids(LONG), opened, method="alti").notes
    answer = wherefrom.generate(tiny.ids(SHORT), opened, max_new_tokens=3, method="alti")
    assert UNPROVED in answer.whole.notes
    assert UNPROVED in answer[1].notes
    assert UNPROVED not in wherefrom.explain(tiny.ids(SHORT), tiny.model(), method="alti").notes


def test_a_length_that_is_covered_is_not_compared_again() -> None:
    model = tiny.model()
    calls, opened = Calls(model), open_model(model)

    def explain(n: int, opened: Any = opened) -> int:
        return calls.of(lambda: wherefrom.explain(tiny.ids(n), opened, method="attention-rollout"))

    assert explain(SHORT) == 2
    assert explain(SHORT) == explain(2 * SHORT) == explain(3) == 1
    assert explain(2 * SHORT + 1) == 2
    assert explain(4 * SHORT) == 1
    assert calls.of(lambda: wherefrom.explain([tiny.ids(9), tiny.ids(5)], opened, method="attention-rollout")) == 1
    assert explain(4 * SHORT, open_model(model)) == 1
    other = tiny.model()
    of_other = Calls(other)
    again = open_model(other)
    assert of_other.of(lambda: wherefrom.explain(tiny.ids(SHORT), again, method="attention-rollout")) == 2


def test_a_model_that_was_compared_is_not_kept() -> None:
    model = tiny.model()
    wherefrom.explain(tiny.ids(SHORT), model, method="attention-rollout")
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", ["bert", "gpt2", "llama", "mixtral"])
def test_rounding_in_half_precision_is_no_gap(variant: str, dtype: torch.dtype) -> None:
    task = "classification" if variant == "bert" else "causal-lm"
    model = tiny.model(variant, task, dtype=dtype)
    model.set_attn_implementation("sdpa")
    found = wherefrom.explain(tiny.ids(30), model, method="attention-rollout")
    assert np.isfinite(found.scores).all()


def test_what_padding_gives_is_not_compared() -> None:
    """Eager attention and SDPA give other numbers in rows that nothing is read from."""
    model = tiny.model("gpt2", "causal-lm", dtype=torch.float64)
    model.set_attn_implementation("sdpa")
    left = {"input_ids": torch.tensor([tiny.ids(9)]), "attention_mask": torch.tensor([[0] * 3 + [1] * 6])}
    for inputs in (left, [tiny.ids(9), tiny.ids(4)]):
        wherefrom.explain(inputs, open_model(model), method="attention-rollout")


@pytest.mark.parametrize("task", ["question-answering", "token-classification", "encoder", "masked-lm"])
def test_every_kind_of_output_is_compared(changing: Callable[..., Any], task: str) -> None:
    opened = open_model(changing(tiny.model("bert", task)))
    batch = collate(opened.reader().read([tiny.ids(LONG), tiny.ids(LONG - 3)])[0], opened.pad_id)
    captured = capture(replace(opened, prove=False), batch).output
    plain = plain_output(opened, batch)
    assert output_gap(opened, batch, plain, plain) == 0
    gaps = [
        float((captured[name] - own).abs()[batch.mask].max() / own[batch.mask].abs().max())
        for name, own in plain.items()
        if own.shape[:2] == batch.mask.shape
    ]
    assert output_gap(opened, batch, captured, plain) == pytest.approx(max(gaps), rel=1e-6)
    assert max(gaps) > 1e-2


def test_a_classifier_in_half_precision_whose_logits_are_close_to_0_is_not_refused() -> None:
    """Rounding is then a large share of them: it is a share of the probe's largest logit."""
    model = tiny.model("bert", dtype=torch.bfloat16)
    opened = open_model(model)
    batch = collate(opened.reader().read(tiny.ids(SHORT))[0], opened.pad_id)
    with torch.no_grad():
        model.classifier.bias -= opened.forward(batch).logits[0]
    plain = plain_output(opened, batch)
    assert plain.logits.abs().max() < 0.1
    captured = type(plain)(logits=plain.logits + 0.02)
    assert output_gap(opened, batch, captured, plain) > 2e-2
    compare_with_plain_pass(opened, batch, captured)
    with pytest.raises(UnsupportedModel):
        compare_with_plain_pass(
            open_model(tiny.model(dtype=torch.bfloat16)), batch, type(plain)(logits=plain.logits + 2)
        )
