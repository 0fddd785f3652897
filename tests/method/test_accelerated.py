"""The sums as an accelerator takes them, on a CPU: the same numbers, whatever the tiles."""

from __future__ import annotations

import pytest
import torch

import tiny
import traces
import wherefrom
from wherefrom.method import accelerated
from wherefrom.method.contributions import _VIEWS, lengths, own
from wherefrom.method.tiling import DEVICE_BYTES


@pytest.mark.parametrize("budget", [1, 10_000, DEVICE_BYTES])
@pytest.mark.parametrize("variant", ["llama", "gemma2", "phi", "bert", "gpt2"])
def test_norms_by_whole_batches_are_those_by_sentences(
    variant: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerated, "DEVICE_BYTES", budget)
    layer, same = (traces.layers(variant)[1] for _ in range(2))
    assert layer.causal == (variant != "bert")
    for name, view in _VIEWS.items():
        seen = view(layer)
        found, expected = accelerated.lengths(layer, seen), lengths(same, name)
        mine, its = accelerated.own_seen(layer, seen, own), seen.linear(own(same))
        for row, n in enumerate(traces.LENGTHS):
            assert traces.apart(found[row, :n, :n], expected[row, :n, :n]) <= 1e-12
            assert traces.apart(mine[row, :n], its[row, :n]) <= 1e-12


def test_half_precision_moves_norms_no_further_than_its_own_rounding() -> None:
    model = tiny.model("llama", "encoder", dtype=torch.bfloat16)
    layer, same = (wherefrom.capture(tiny.ids(9), model).layers[1] for _ in range(2))
    for name, view in _VIEWS.items():
        found = accelerated.lengths(layer, view(layer))
        assert traces.apart(found, lengths(same, name)) <= 2**-8


def test_copies_of_half_precision_weights_are_not_kept() -> None:
    halves, whole = (tiny.model("llama", "encoder", dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    for model, kept in ((halves, False), (whole, True)):
        block = wherefrom.capture(tiny.ids(3), model).layers[0].block
        names = ("w_q", "w_o", "w_c", "ffn_in", "ffn_gate", "ffn_out")
        assert all(getattr(block, name) is not None for name in names)
        assert all((name in vars(block)) == kept for name in names)
        assert block.w_o.dtype == torch.float32
