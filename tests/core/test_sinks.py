"""Attention sinks: left out by the definition, said where they are large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.aggregate import aggregate
from wherefrom.errors import WherefromError
from wherefrom.pipeline.sinks import without_sink

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
LLAMA = tiny.model("llama", "causal-lm", **DOUBLE)


def dropped(maps: np.ndarray, first: int = 0) -> np.ndarray:
    """The definition, number by number."""
    result = maps.copy()
    for each in result.reshape(-1, *maps.shape[-2:]):
        for i, row in enumerate(each):
            if i == first:
                continue
            had, row[first] = row.sum(), 0
            left = row.sum()
            if left == 0:
                row[i] = had
            else:
                row *= had / left
    return result


@pytest.mark.parametrize("method", ["attention-rollout", "norm-residual", "alti", "raw-attention", "value-zeroing"])
def test_dropping_the_sink_follows_the_definition(method: str) -> None:
    ids = tiny.ids(6)
    whole, found = (wherefrom.explain(ids, LLAMA, method=method, sink=sink) for sink in ("keep", "drop"))
    assert np.allclose(found.maps, dropped(whole.maps), atol=1e-12)
    assert np.allclose(found.maps.sum(-1), whole.maps.sum(-1), atol=1e-12)
    assert (found.maps[:, 1:, 0] == 0).all()
    assert found.scores[0] == 0
    assert found.options == {"sink": "drop"}
    if whole.aggregate is not None:
        assert np.allclose(found.aggregated, aggregate(whole.aggregate, dropped(whole.maps)), atol=1e-12)


@pytest.mark.parametrize(
    "how", [{"method": "attention-flow"}, {"method": "attention-rollout", "receptive_field": True}]
)
def test_flow_and_the_receptive_field_take_maps_without_the_sink(how: dict[str, Any]) -> None:
    ids = tiny.ids(5)
    maps = dropped(wherefrom.explain(ids, LLAMA, **how).maps)
    found = wherefrom.explain(ids, LLAMA, sink="drop", **how)
    corrected = aggregate(found.aggregate or "", maps, receptive_field="receptive_field" in how)
    assert np.allclose(found.aggregated, corrected, atol=1e-9)


def test_one_head_and_all_heads_are_without_the_sink() -> None:
    ids = tiny.ids(5)
    whole = wherefrom.explain(ids, LLAMA, method="attention", head="all")
    found = wherefrom.explain(ids, LLAMA, method="attention", head="all", sink="drop")
    assert np.allclose(found.head_maps, dropped(whole.head_maps), atol=1e-12)
    one = wherefrom.explain(ids, LLAMA, method="attention", head=2, sink="drop")
    assert np.allclose(one.maps, dropped(whole.head_maps[:, 2]), atol=1e-12)


def test_rows_that_sum_to_less_than_one_keep_their_sums() -> None:
    model = tiny.model("gpt_oss", "causal-lm")
    whole, found = (wherefrom.explain(tiny.ids(5), model, method="attention", sink=sink) for sink in ("keep", "drop"))
    assert (whole.maps.sum(-1) < 0.999).any()
    assert np.allclose(found.maps.sum(-1), whole.maps.sum(-1), atol=1e-6)


def test_a_row_with_nothing_but_the_sink_comes_from_itself() -> None:
    maps = torch.tensor([[[1.0, 0, 0], [0.8, 0, 0], [0.5, 0.25, 0.25]]])
    sentence = wherefrom.model.Sentence([1, 2, 3], ["a", "b", "c"], [False] * 3, [None] * 3, ())
    assert without_sink(maps, [sentence]).allclose(torch.tensor([[[1.0, 0, 0], [0, 0.8, 0], [0, 0.5, 0.5]]]))


@pytest.mark.parametrize("keep", ["maps", "row"])
@pytest.mark.parametrize("hidden", [0, 9], ids=["padding", "a token that is not seen"])
def test_the_sink_is_the_first_token_that_is_seen(hidden: int, keep: Any) -> None:
    text, asked = tiny.ids(5), {"method": "attention-rollout", "sink": "drop", "keep": keep}
    alone = wherefrom.explain(text, LLAMA, **asked)
    padded = {"input_ids": [hidden] * 3 + text, "attention_mask": [0] * 3 + [1] * 5}
    other = {"input_ids": tiny.ids(4, 1), "attention_mask": [1] * 4}
    found, beside = wherefrom.explain([padded, other], LLAMA, **asked)
    assert np.allclose(found.scores[-5:], alone.scores, atol=1e-5)
    assert not found.scores[:-4].any()
    assert beside.scores[0] == 0


def test_a_name_may_drop_the_sink() -> None:
    named = wherefrom.explain(tiny.ids(5), LLAMA, method="alti(sink=drop)")
    assert np.array_equal(named.scores, wherefrom.explain(tiny.ids(5), LLAMA, method="alti", sink="drop").scores)


def test_a_large_sink_is_said_and_a_small_one_is_not() -> None:
    model = tiny.model("gpt2", "causal-lm", n_layer=12)
    said = wherefrom.explain(tiny.ids(6), model, method="attention-rollout")
    share = said.scores[0] / said.scores.sum()
    assert share > 0.5
    assert said.notes == said.remarks
    assert f"{share:.0%} of the scores" in said.notes[0]
    assert "sink='drop'" in said.notes[0]
    assert not wherefrom.explain(tiny.ids(6), model, method="attention-rollout", sink="drop").notes
    assert not wherefrom.explain(tiny.ids(6), model, method="attention-rollout", position=0).notes
    assert not wherefrom.explain(tiny.ids(3), model, method="attention-rollout").notes  # a third of three tokens
    assert not wherefrom.explain(tiny.ids(6), tiny.model(), method="attention-rollout").notes


def test_where_there_is_no_sink_to_drop_it_is_refused() -> None:
    with pytest.raises(WherefromError, match=r"every token of .* sees all; leave sink out"):
        wherefrom.explain(tiny.ids(4), tiny.model(), method="alti", sink="drop")
    with pytest.raises(WherefromError, match="'attcat' has no maps"):
        wherefrom.explain(tiny.ids(4), LLAMA, method="attcat", sink="drop")
    with pytest.raises(WherefromError, match="sink='no'; expected 'keep' or 'drop'"):
        wherefrom.explain(tiny.ids(4), LLAMA, method="alti", sink="no")
