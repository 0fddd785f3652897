"""Rollout of a batch in one product a layer is rollout of each sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.aggregate import AGGREGATIONS, aggregate
from wherefrom.pipeline import execution
from wherefrom.pipeline.fetching import Fetching, Stack
from wherefrom.pipeline.joint_maps import JointMaps

LENGTHS = (6, 4)


def maps(size: float, depth: int = 5) -> list[torch.Tensor]:
    """Random ones, with NaN where a batch is padded."""
    found = [size * torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(layer)) for layer in range(depth)]
    for each in found:
        each[1, 4:] = torch.nan
        each[1, :, 4:] = torch.nan
    return found


def joined(layers: list[torch.Tensor], name: str = "rollout", below: list[torch.Tensor] | None = None) -> JointMaps:
    step = AGGREGATIONS[name].step
    assert step is not None
    joint = JointMaps(Stack(LENGTHS, len(layers), Fetching()), step)
    for layer, each in enumerate(layers):
        joint.add(each, None if below is None else below[layer])
    return joint


@pytest.mark.parametrize("name", ["rollout", "sum", "mean"])
@pytest.mark.parametrize("one_head", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_joined_as_each_of_its_sentences(dtype: torch.dtype, one_head: bool, name: str) -> None:
    layers, others = ([each.to(dtype) for each in maps(size)] for size in (0.3, 0.2))
    joint = joined(layers, name, others if one_head else None)
    for row, n in enumerate(LENGTHS):
        own, under = (np.stack([each[row, :n, :n].numpy() for each in of]) for of in (layers, others))
        expected = aggregate(name, own, under if one_head else None)
        found = joint.of(row)
        assert found is not None
        assert found.dtype == expected.dtype
        assert np.abs(found - expected).max() <= 1e-6 * expected.max()


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_what_leaves_the_range_is_left_to_the_host(size: float) -> None:
    assert joined(maps(size)).of(0) is None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_left_to_the_host_which_says_so(bad: float) -> None:
    layers = maps(0.3)
    layers[2][1, 3, 0] = bad
    joint = joined(layers)
    assert joint.of(0) is not None
    assert joint.of(1) is None


def test_a_row_of_zeros_is_in_range() -> None:
    found = joined([torch.zeros(2, 6, 6)]).of(1)
    assert found is not None
    assert not found.any()


@pytest.mark.parametrize("asked", [{}, {"head": 1}, {"layers": (1, 3)}, {"position": "mean"}], ids=str)
@pytest.mark.parametrize("name", ["rollout", "sum", "mean"])
def test_an_explanation_is_what_each_sentence_by_itself_has(
    name: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch on its way, against the same maps joined afterwards, sentence by sentence."""
    model, ids = tiny.model("bert"), [tiny.ids(7), tiny.ids(4, 1)]
    asked = {"method": "attention", "aggregate": name, **asked}
    added = []
    add = JointMaps.add
    monkeypatch.setattr(JointMaps, "add", lambda self, *given: added.append(len(given)) or add(self, *given))
    on_the_way = wherefrom.explain(ids, model, **asked)
    assert len(added) == len(on_the_way[0].maps)
    monkeypatch.setattr(execution, "joining", lambda *_: None)
    for a, b in zip(on_the_way, wherefrom.explain(ids, model, **asked), strict=True):
        assert np.array_equal(a.maps, b.maps)
        assert np.abs(a.aggregated - b.aggregated).max() <= 1e-6 * np.abs(a.aggregated).max()
        assert np.abs(a.scores - b.scores).max() <= 1e-6 * np.abs(a.scores).max()


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_a_sentence_out_of_range_is_done_over(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are right where three layers leave float32's range, and a warning says what they are."""
    model, ids = tiny.model("bert"), [tiny.ids(7), tiny.ids(4, 1)]
    exact = wherefrom.explain(ids, model, method="attention")
    own = execution.layer_map
    monkeypatch.setattr(execution, "layer_map", lambda *given: size**1.1 * own(*given))
    with pytest.warns(wherefrom.WherefromWarning, match="read them as shares"):
        found = wherefrom.explain(ids, model, method="attention")
    for a, b in zip(found, exact, strict=True):
        shares = a.aggregated[-1] / a.aggregated[-1].sum(-1, keepdims=True, dtype=np.float64)
        assert np.abs(shares - b.aggregated[-1]).max() <= 1e-6
