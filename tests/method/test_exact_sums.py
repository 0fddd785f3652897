"""Sums that a method promises to be exact: met to rounding, or refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import Unsuited
from wherefrom.method.exact_sum import misses_sum


@pytest.fixture(scope="module")
def minimax() -> Any:
    """Experts of the form (up + 1) · glu, without a bias among their weights."""
    if "minimax_m3_vl_text" not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no type minimax_m3_vl_text")
    more = {**tiny.ROUTED, "shared_intermediate_size": 20, "dense_intermediate_size": 40, "rotary_dim": 4}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("minimax_m3_vl_text", **more)
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    drawn = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=drawn)
            weight.copy_(1 + 0.5 * noise if "norm" in name else 0.3 * noise)
    model.set_experts_implementation("eager")  # the others refuse float64
    return wherefrom.open_model(model)


@pytest.mark.parametrize("how", [{}, {"bias": "norm"}, {"bias": "cls"}, {"gate": "gate"}], ids=str)
def test_constants_inside_experts_are_shared_out(minimax: Any, how: dict[str, Any]) -> None:
    ids = tiny.ids(6)
    with torch.no_grad():
        logit = float(minimax.model(torch.tensor([ids])).logits[0, -1].max())
    found = wherefrom.explain(ids, minimax, method="decompx", **how)
    assert found.scores.sum() == pytest.approx(logit, rel=1e-6)  # transformers takes some sums in float32
    assert found.delta == pytest.approx(0, abs=1e-6 * abs(logit))


def test_parts_without_biases_promise_no_sum(minimax: Any) -> None:
    found = wherefrom.explain(tiny.ids(6), minimax, method="decompx", bias="none")
    assert abs(found.delta) > 0.01 * abs(found.scores.sum())


@pytest.mark.parametrize("layout", ["bert", "llama"])
def test_a_decomposition_that_misses_is_refused(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's vectors are taken forward, as it has biases; Llama's are taken back."""
    module, ids = sys.modules["wherefrom.method.decompx"], tiny.ids(5)
    model = tiny.model(layout, "causal-lm" if layout == "llama" else "classification")
    forward, taken = module._through_head, module._taken_back
    monkeypatch.setattr(module, "_through_head", lambda *given: 1.01 * forward(*given))
    monkeypatch.setattr(module, "_taken_back", lambda *given, **how: [1.01 * each for each in taken(*given, **how)])
    with pytest.raises(Unsuited):
        wherefrom.explain(ids, model, method="decompx")
    assert len(wherefrom.explain(ids, model, method="decompx", bias="none")) == 5  # which promises nothing
    half = wherefrom.explain(ids, model.to(torch.bfloat16), method="decompx")
    assert len(half) == 5


@pytest.mark.parametrize(
    ("dtype", "off", "misses"),
    [
        (torch.float32, 0.9e-3, False),
        (torch.float32, 1.1e-3, True),
        (torch.bfloat16, 1.9e-2, False),
        (torch.float16, 2.1e-2, True),
        (torch.float64, float("nan"), True),
    ],
)
def test_the_tolerance_is_a_share_of_the_largest_number(dtype: torch.dtype, off: float, misses: bool) -> None:
    none = torch.zeros(1)
    assert misses_sum(torch.tensor([[0.5, 0.5 + off]]), torch.ones(1), none, dtype).tolist() == [misses]
    large = torch.tensor([[100.0, -100.0 + 100 * off]])
    assert misses_sum(large, none, none, dtype).tolist() == [misses]
    assert misses_sum(torch.tensor([[100 * off]]), none, torch.tensor([100.0]), dtype).tolist() == [misses]
