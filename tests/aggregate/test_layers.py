"""Sum, mean and last; from any layer to any layer; batches and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from oracles import flow as oracle
from wherefrom.aggregate import AGGREGATIONS
from wherefrom.errors import InvalidOption


def test_sum_mean_and_last_by_hand() -> None:
    maps, below = np.random.default_rng(0).random((2, 3, 4, 4))
    for under in (None, below):
        lower = maps if under is None else under
        assert np.allclose(AGGREGATIONS["sum"].run(maps, under)[2], lower[0] + lower[1] + maps[2])
        assert np.allclose(AGGREGATIONS["sum"].run(maps, under)[0], maps[0])
        assert np.allclose(AGGREGATIONS["mean"].run(maps, under)[1], (lower[0] + maps[1]) / 2)
        assert (AGGREGATIONS["last"].run(maps, under) == maps).all()


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation_begins_with_the_first_map(name: str) -> None:
    maps = np.random.default_rng(1).dirichlet(np.ones(5), size=(3, 5))
    found = AGGREGATIONS[name].run(maps)
    assert np.allclose(found[0], maps[0])
    # Up to any layer: what lies above changes nothing.
    assert np.allclose(AGGREGATIONS[name].run(maps[:2]), found[:2])


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_a_range_of_layers_aggregates_those_layers_alone(name: str) -> None:
    model, ids = tiny.model(), tiny.ids(6)
    whole = wherefrom.explain(ids, model, method="attention-fixed-residual", aggregate=name)
    for start, end in ((0, 3), (0, 1), (1, 3), (2, 3), (0, 2)):
        part = wherefrom.explain(ids, model, method="attention-fixed-residual", aggregate=name, layers=(start, end))
        assert (part.maps == whole.maps[start:end]).all()
        assert np.allclose(part.aggregated, AGGREGATIONS[name].run(whole.maps[start:end]))
        assert np.allclose(part.scores, part.aggregated[-1, 0])
        assert part.options == ({} if (start, end) == (0, 3) else {"layers": [start, end]})


@pytest.mark.parametrize(("negative", "positive"), [((-2, None), (1, 3)), ((-3, None), (0, 3)), ((0, -1), (0, 2))])
def test_negative_layers_count_from_the_end(negative: tuple[int, int | None], positive: tuple[int, int]) -> None:
    model, ids = tiny.model(), tiny.ids(5)
    from_end, plain = (
        wherefrom.explain(ids, model, method="attention", layers=layers) for layers in (negative, positive)
    )
    assert (from_end.aggregated == plain.aggregated).all()
    assert from_end.options == plain.options
    for outside in ((-4, None), (0, -3), (-1, -2)):
        with pytest.raises(InvalidOption):
            wherefrom.explain(ids, model, method="attention", layers=outside)


def test_equation_one_by_hand() -> None:
    """A(l_i) A(l_{i-1}) … A(l_j), and the flow from l_i to the input of l_j."""
    model, ids = tiny.model(), tiny.ids(5)
    maps = wherefrom.explain(ids, model, method="attention", aggregate=None).maps.astype(np.float64)
    rolled = wherefrom.explain(ids, model, method="attention", layers=(1, None))
    assert np.allclose(rolled.aggregated[1], maps[2] @ maps[1], atol=1e-6)
    values = oracle.flow_values(maps[1:])
    flowed = wherefrom.explain(ids, model, method="attention", aggregate="flow", layers=(1, None))
    assert np.allclose(flowed.aggregated, values / values.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_one_head_over_part_of_the_layers(name: str) -> None:
    model, ids = tiny.model(), tiny.ids(6)
    every = wherefrom.explain(ids, model, method="attention", head="all")
    one = wherefrom.explain(ids, model, method="attention", aggregate=name, head=2, layers=(1, 3))
    expected = AGGREGATIONS[name].run(every.head_maps[1:, 2], every.maps[1:])
    assert np.allclose(one.aggregated, expected, atol=1e-6)


@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_a_sentence_does_not_see_its_neighbours(variant: str, name: str) -> None:
    model = tiny.model(variant, "encoder")
    sentences = [tiny.ids(n, n) for n in (9, 3, 6)]
    how: dict[str, Any] = {"method": "attention-fixed-residual", "aggregate": name}
    together = wherefrom.explain(sentences, model, **how)
    for each, ids in zip(together, sentences, strict=True):
        alone = wherefrom.explain(ids, model, **how)
        assert np.abs(each.aggregated - alone.aggregated).max() <= 1e-5
        assert np.abs(each.scores - alone.scores).max() <= 1e-5


@pytest.mark.parametrize(
    "layers", [(0, 4), (2, 2), (-1, 2), (0,), 3, (True, 2), (0, 2.0), ("0", "2"), (3, None)], ids=str
)
def test_wrong_layers_are_refused(layers: Any) -> None:
    with pytest.raises(wherefrom.WherefromError, match="layers is"):
        wherefrom.explain(tiny.ids(4), tiny.model(), layers=layers)


def test_wrong_rows_and_aggregations_are_refused() -> None:
    with pytest.raises(wherefrom.WherefromError, match="expected 'all' or 'readout'"):
        wherefrom.explain(tiny.ids(4), tiny.model(), rows="last")
    with pytest.raises(wherefrom.WherefromError, match="rollout, flow, sum, mean, last"):
        wherefrom.explain(tiny.ids(4), tiny.model(), aggregate="product")
