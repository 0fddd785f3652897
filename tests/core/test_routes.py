"""Routes of information flow: what is left of the graph above a threshold, walked edge by edge."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import InvalidInput, NotDefined

IDS = tiny.ids(7)


def test_edges_are_those_that_lead_to_the_token_that_is_read() -> None:
    model = tiny.model("llama", "causal-lm")
    found = wherefrom.routes(IDS, model, threshold=0.05)
    whole = found.attention.sum((1, 3)) + found.residual
    assert np.allclose(whole, 1, atol=1e-5)
    assert np.allclose(found.ffn + found.ffn_residual, 1, atol=1e-5)
    assert min(each.weight for each in found.edges) > 0.05
    wanted, seen = {6}, set()
    for layer in (2, 1, 0):
        below = set()
        for edge in (each for each in found.edges if each.layer == layer):
            assert edge.to in wanted
            seen.add((edge.layer, edge.part))
            below |= {edge.source} if edge.part in ("attention", "residual") else set()
        assert {each.to for each in found.edges if each.layer == layer} == wanted
        wanted = below
        assert set(np.flatnonzero(found.reached[layer])) == wanted
    assert {part for _, part in seen} == {"attention", "residual", "ffn", "ffn-residual"}
    everything = wherefrom.routes(IDS, model, threshold=0.0)
    plain = wherefrom.explain(IDS, model, method="information-flow", aggregate=None)
    assert np.allclose(everything.flow.maps, plain.maps)
    assert everything.reached.any(0).all()
    assert len(everything.edges) > len(found.edges)


def test_an_encoders_routes_as_data_and_as_a_picture() -> None:
    found = wherefrom.routes("a deep and meaningful film .")
    assert (found.flow.position, found.threshold) == (0, 0.04)
    assert json.loads(json.dumps(found.to_dict()))["position"] == 0
    assert "Routes above 0.04" in repr(found)
    with pytest.raises(InvalidInput, match="2 inputs"):
        wherefrom.routes([IDS, IDS], tiny.model("llama", "causal-lm"))
    with pytest.raises(NotDefined, match="routes lead to one token"):
        _ = wherefrom.routes(IDS, tiny.model("bert", "encoder"), position="mean").edges
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    picture = found.plot(width=5)
    squares = picture.axes[0].collections[-1].get_offsets()
    assert {tuple(map(int, place)) for place in squares} == {
        (edge.layer + 1, edge.to) for edge in found.edges if edge.part == "ffn"
    }
    pytest.importorskip("pandas", reason="tables need the extra `pandas`")
    assert list(found.to_dataframe().columns) == ["layer", "part", "to", "source", "head", "weight"]
