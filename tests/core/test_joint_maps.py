"""Rollout of a batch in one product a layer is rollout of each sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.aggregate import rollout
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


def joined(layers: list[torch.Tensor]) -> JointMaps:
    joint = JointMaps(Stack(LENGTHS, len(layers), Fetching()))
    for each in layers:
        joint.add(each)
    return joint


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_joined_as_each_of_its_sentences(dtype: torch.dtype) -> None:
    layers = [each.to(dtype) for each in maps(0.3)]
    joint = joined(layers)
    for row, n in enumerate(LENGTHS):
        expected = rollout(np.stack([each[row, :n, :n].numpy() for each in layers]))
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


def test_an_explanation_is_the_same_whichever_side_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny.model("bert"), [tiny.ids(7), tiny.ids(4, 1)]
    here = wherefrom.explain(ids, model, method="globenc")
    joins = execution.joining
    monkeypatch.setattr(execution, "joining", lambda *given: joins(*given[:-1], torch.device("cuda")))
    for a, b in zip(here, wherefrom.explain(ids, model, method="globenc"), strict=True):
        assert np.array_equal(a.maps, b.maps)
        assert np.abs(a.aggregated - b.aggregated).max() <= 1e-6 * np.abs(a.aggregated).max()
        assert np.abs(a.scores - b.scores).max() <= 1e-6 * np.abs(a.scores).max()
