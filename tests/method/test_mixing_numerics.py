"""float32 and bfloat16, on a model with outliers in γ: near to float64 where differences would cancel."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from oracles import alti, globenc, value_zeroing
from traces import apart, layers, maps, with_outliers
from wherefrom import LayerTrace
from wherefrom.method import norms

LENGTHS = (9, 6)

pytestmark = pytest.mark.filterwarnings("ignore:alti")  # some rows hold no contribution


@cache
def outliers(dtype: torch.dtype) -> list[LayerTrace]:
    return layers(model=with_outliers(dtype), lengths=LENGTHS)


def exactly(layer: LayerTrace, row: int, name: str, options: dict[str, Any]) -> Tensor:
    if name in globenc.VECTORS:
        return globenc.norms(globenc.VECTORS[name](layer, row))
    if name == "W_Res":
        return globenc.attention_residual(layer, row)
    if name == "alti":
        return alti.alti(layer, row, **options)
    return value_zeroing.value_zeroing(layer, row, **options)


CASES: list[tuple[str, dict[str, Any]]] = [
    *((symbol, {}) for symbol in (*globenc.VECTORS, "W_Res")),
    *(("alti", {"metric": metric, "at": at}) for metric in ("l1", "l2", "cosine") for at in ("norm", "output")),
    *(("value-zeroing", {"metric": metric}) for metric in ("cosine", "euclidean", "spearman")),
    ("value-zeroing", {"standardise": True}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_float32_is_within_a_ten_thousandth_of_float64(name: str, options: dict[str, Any]) -> None:
    for low, high in zip(outliers(torch.float32), outliers(torch.float64), strict=True):
        for row, found in enumerate(maps(low, name, **options)):
            assert apart(found, exactly(high, row, name, options)) < 1e-4


def test_float32_ratios() -> None:
    for low, high in zip(outliers(torch.float32), outliers(torch.float64), strict=True):
        for symbol, ratio in norms.mixing_ratios(low).items():
            for row, n in enumerate(LENGTHS):
                expected = globenc.ratio(globenc.VECTORS[symbol](high, row))
                assert apart(ratio[row, :n].double(), expected) < 1e-5


def test_tiny_effects_do_not_drown_in_float32() -> None:
    """Values a thousand times smaller move outputs by 1e-3 and less, which 1 − cos in float32 cannot see."""
    found = []
    for dtype in (torch.float32, torch.float64):
        model = tiny.model("bert", "encoder", dtype=dtype)
        with torch.no_grad():
            for block in model.encoder.layer:
                block.attention.output.dense.weight.mul_(1e-3)
        found.append(layers(model=model))
    for low, high in zip(*found, strict=True):
        assert value_zeroing.raw(high, 0).max() < 1e-5
        for row, one in enumerate(maps(low, "value-zeroing")):
            assert apart(one, value_zeroing.value_zeroing(high, row)) < 5e-4


@pytest.mark.parametrize("at", ["norm", "output"])
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_faint_rows_of_alti_do_not_drown_in_float32(variant: str, at: str) -> None:
    """β ten thousand times as large: ‖y‖ and ‖y − T‖, whose difference counts, share all of float32's digits."""
    found = []
    for dtype in (torch.float32, torch.float64):
        model = tiny.model(variant, "encoder", dtype=dtype)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith(("output.LayerNorm.bias", "ln_2.bias")):
                    weight.mul_(1e4)
        found.append(layers(model=model))
    for low, high in zip(*found, strict=True):
        for row, one in enumerate(maps(low, "alti", at=at)):
            # The oracle reads the same float32 tensors in float64: what is left is the fast path's own rounding.
            assert apart(one, alti.alti(low, row, at=at)) < 1e-4
            assert low.index > 0 or apart(one, alti.alti(high, row, at=at)) < 1e-4


def test_a_direction_does_not_vanish_with_its_attention() -> None:
    """The square of an attention of 1e-25 is 0 in float32, the cosine of what it carries is as good as any other."""
    model = tiny.model("bert", "encoder")
    with torch.no_grad():
        for block in model.encoder.layer:
            block.attention.self.query.weight.mul_(20)
            block.attention.self.query.bias.mul_(20)
    found = layers(model=model)
    assert 0 < found[0].attention.amax(1)[found[0].attention.amax(1) > 0].min() < 1e-23  # over heads
    for layer in found:
        for row, one in enumerate(maps(layer, "alti", metric="cosine")):
            assert apart(one, alti.alti(layer, row, "cosine")) < 1e-4


@pytest.mark.parametrize("name", ["N", "N_Res", "N_ResLN", "N_Enc", "W_Res", "alti", "value-zeroing"])
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_bfloat16_models_give_finite_float32_maps_near_the_truth(variant: str, name: str) -> None:
    low = layers(variant, torch.bfloat16)
    for layer in low:
        for row, found in enumerate(maps(layer, name)):
            # The oracle reads the same bfloat16 tensors, so what is left is float32's share and the rounding of u.
            assert apart(found, exactly(layer, row, name, {})) < 0.05
