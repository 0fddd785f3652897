"""No method builds more than it says: every tensor made on the way is looked at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tiny
import wherefrom
from traces import maps

N, D, HEADS, UNITS = 40, 24, 4, 40
SIZE = 8  # bytes of a float64


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operation brings into being."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, torch.Tensor):
                self.bytes = max(self.bytes, each.numel() * each.element_size())
        return result


def largest(name: str, **options: Any) -> int:
    layer = wherefrom.capture([tiny.ids(N)], tiny.model("bert", "encoder", dtype=torch.float64)).layers[1]
    with Largest() as seen:
        maps(layer, name, **options)
    return seen.bytes


@pytest.mark.parametrize("name", ["norm", "norm-residual", "norm-residual-ln", "globenc", "attention-residual"])
def test_the_norm_family_never_builds_n_by_n_by_d(name: str) -> None:
    assert largest(name) <= N * N * HEADS * SIZE < N * N * D * SIZE


@pytest.mark.filterwarnings("ignore:alti")
@pytest.mark.parametrize("metric", ["l1", "l2", "cosine"])
def test_alti_stays_under_its_budget(metric: str) -> None:
    budget = 2 * N * D * SIZE
    attention = N * N * HEADS * SIZE
    assert largest("alti", metric=metric, budget=budget) <= max(attention, budget)
    assert largest("alti", metric="l1", budget=10**9) >= N * N * D * SIZE  # without one it takes what it gets


def test_value_zeroing_stays_under_its_budget() -> None:
    budget = 3 * N * (UNITS + D) * SIZE
    weights = HEADS * (D // HEADS) * UNITS * SIZE
    attention = N * N * HEADS * SIZE
    assert largest("value-zeroing", budget=budget) <= max(attention, budget, weights)
    assert largest("value-zeroing", budget=10**9) >= N * N * UNITS * SIZE
