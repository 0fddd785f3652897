"""The layers of a sentence as a batch: the same maps as one by one, and the same explanations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
import traces
import wherefrom
from wherefrom.method import accelerated
from wherefrom.model.side_by_side import one_layer
from wherefrom.pipeline import execution, layers_together

TOGETHER = [each for each in wherefrom.methods() if each.side_by_side]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an accelerator is given to do, done here."""
    monkeypatch.setattr(accelerated, "on_accelerator", lambda _: True)
    monkeypatch.setattr(layers_together, "_accelerated", lambda _: True)


@pytest.mark.parametrize("variant", ["bert", "gpt2", "llama", "qwen2"])
def test_all_layers_at_once_are_each_by_itself(variant: str) -> None:
    model = wherefrom.open_model(tiny.model(variant, "encoder", dtype=torch.float64))
    layers = traces.layers(model=model, lengths=(7,))
    assert model.side_by_side is not None
    for method in TOGETHER:
        found = method.run(one_layer(layers, model.side_by_side))
        assert traces.apart(found, torch.cat([method.run(layer) for layer in layers])) <= 1e-12


@pytest.mark.parametrize("variant", ["albert", "gemma2", "phi"])
def test_blocks_that_are_shared_scaled_or_parallel_stay_apart(variant: str) -> None:
    assert wherefrom.open_model(tiny.model(variant, "encoder")).side_by_side is None


def test_half_precision_stays_the_models_own() -> None:
    block = wherefrom.open_model(tiny.model("llama", "encoder", dtype=torch.bfloat16)).side_by_side
    assert block is not None
    assert block.w_c_in(torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("method", ["attention-rollout", "globenc", "raw-attention"])
def test_an_explanation_is_the_same_whether_layers_wait_or_not(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wherefrom.open_model(tiny.model("bert"))
    waited = []
    work = execution.work
    monkeypatch.setattr(execution, "work", lambda *given: waited.append(given) or work(*given))
    found = wherefrom.explain(tiny.ids(7), model, method=method)
    assert len(waited) == 1
    monkeypatch.setattr(layers_together, "_accelerated", lambda _: False)
    alone = wherefrom.explain(tiny.ids(7), model, method=method)
    assert len(waited) == 1
    for name in ("maps", "aggregated", "scores"):
        one, other = getattr(found, name), getattr(alone, name)
        assert (one is None) == (other is None)
        assert one is None or np.abs(one - other).max() <= 1e-6 * np.abs(other).max()


def test_weights_that_were_changed_are_seen() -> None:
    module = tiny.model("bert")
    model = wherefrom.open_model(module)
    before = wherefrom.explain(tiny.ids(7), model, method="globenc")
    with torch.no_grad():
        module.bert.encoder.layer[1].attention.output.dense.weight.mul_(2)
    after = wherefrom.explain(tiny.ids(7), model, method="globenc")
    fresh = wherefrom.explain(tiny.ids(7), module, method="globenc")
    assert not np.allclose(before.maps[1], after.maps[1])
    assert np.allclose(after.maps, fresh.maps, rtol=1e-5)


@pytest.mark.parametrize("asked", [{"layers": (0, 2)}, {"head": 1}, {"keep": "row"}])
def test_what_wants_less_than_all_layers_goes_one_by_one(asked: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "work", None)  # not called
    assert wherefrom.explain(tiny.ids(7), tiny.model("bert"), method="attention-rollout", **asked).scores.any()
