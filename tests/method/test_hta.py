"""HTA in closed form against the Jacobian of the model's own blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import golden
import tiny
import traces
import wherefrom
from oracles import hta as oracle
from wherefrom.method.hta import hta_to_embeddings

METHODS = ("hta", "hta-x-input")


def expected(layer: wherefrom.LayerTrace, name: str, row: int = 0) -> torch.Tensor:
    x = layer.x[row].detach() if name == "hta-x-input" else None
    return oracle.hta(oracle.jacobian(layer, row), x)


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_equals_the_blocks_own_jacobian(variant: str) -> None:
    """Every family, post-norm and pre-norm, causal or not; also with tiles of one token."""
    model = tiny.model(variant, "encoder", dtype=torch.float64)
    for layer in wherefrom.capture(tiny.ids(5), model, grad=True).layers[:2]:
        jacobian = oracle.jacobian(layer)
        for name in METHODS:
            truth = oracle.hta(jacobian, layer.x[0].detach() if name == "hta-x-input" else None)
            for budget in (None, 1, 40_000):
                (found,) = traces.maps(layer, name, budget=budget)
                assert traces.apart(found.detach(), truth) <= 1e-12


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_padding_and_hidden_tokens_equal_the_jacobian(variant: str, name: str) -> None:
    model = tiny.model(variant, "encoder", dtype=torch.float64)
    batch = {
        "input_ids": [tiny.ids(6, 1), [*tiny.ids(3, 2), 0, 0, 0], tiny.ids(6, 3)],
        "attention_mask": [[1] * 6, [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 1]],
    }
    layer = wherefrom.capture(batch, model, grad=True).layers[1]
    found = traces.maps(layer, name)
    for row in range(3):
        assert traces.apart(found[row].detach(), expected(layer, name, row)) <= 1e-12
    assert (found[2][[0, 2, 3, 4, 5], 1] == 0).all()  # a token that nobody sees moves nobody
    alone = wherefrom.capture(tiny.ids(3, 2), model).layers[1]
    assert traces.apart(found[1].detach(), traces.maps(alone, name)[0]) <= 1e-12
    whole = wherefrom.explain(batch, model, method=name, aggregate=None)[1]
    assert whole.maps.shape == (3, 3, 3)


@pytest.mark.parametrize("changes", [{"scale_attn_by_inverse_layer_idx": True}, {"activation_function": "relu"}])
def test_other_scalings_and_activations_equal_the_jacobian(changes: dict[str, object]) -> None:
    model = tiny.model("gpt2", "encoder", dtype=torch.float64, **changes)
    layer = wherefrom.capture(tiny.ids(5), model, grad=True).layers[2]
    for name in METHODS:
        assert traces.apart(traces.maps(layer, name)[0].detach(), expected(layer, name)) <= 1e-12


def test_a_single_token_equals_the_jacobian() -> None:
    layer = wherefrom.capture(tiny.ids(1), tiny.model("bert", "encoder", dtype=torch.float64), grad=True).layers[0]
    for name in METHODS:
        assert traces.apart(traces.maps(layer, name)[0].detach(), expected(layer, name)) <= 1e-12


def test_float32_stays_close_with_outliers() -> None:
    model = traces.with_outliers(torch.float64)
    exact = traces.layers(model=model, lengths=(12,))
    rough = traces.layers(model=traces.with_outliers(torch.float32), lengths=(12,))
    for wide, narrow in zip(exact, rough, strict=True):
        for name in METHODS:
            assert traces.apart(traces.maps(narrow, name)[0], traces.maps(wide, name)[0]) <= 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_models_give_finite_maps(dtype: torch.dtype) -> None:
    model = tiny.model(dtype=dtype)
    found = wherefrom.explain(tiny.ids(6), model, method="hta-x-input")
    assert found.maps.dtype == np.float32
    assert (found.maps > 0).all()


CASES = [
    (case, key) for case in golden.having("paper_gradients") for key in case.keys("paper_gradients") if "HTA" in key
]


@pytest.mark.parametrize(("case", "key"), CASES, ids=lambda each: getattr(each, "name", each))
def test_hta_equals_the_golden_numbers(case: golden.Golden, key: str) -> None:
    sentence, kind = key.split("_")
    name = {"HTA": "hta", "HTAxInput": "hta-x-input"}[kind]
    truth = case["paper_gradients", key]
    found = wherefrom.explain(case.ids(sentence), case.model(), method=name, aggregate=None).maps
    assert found.shape == truth.shape
    assert np.abs(found - truth).max() / truth.max() <= 1e-9


@pytest.mark.parametrize("variant", ["bert", "electra", "gpt2"])
def test_from_a_layer_to_the_embeddings(variant: str) -> None:
    """Across one block it is that block's HTA; across two, by the definition."""
    model = tiny.model(variant, "encoder", dtype=torch.float64)
    trace = wherefrom.capture([tiny.ids(4, 1), tiny.ids(3, 2)], model, grad=True)
    for row, n in enumerate((4, 3)):
        truth = torch.empty(n, n, dtype=torch.float64)
        for i in range(n):
            rows = [
                torch.autograd.grad(trace.layers[1].raw["output"][row, i, k], trace.embeddings, retain_graph=True)[0]
                for k in range(24)
            ]
            jacobian = torch.stack(rows)[:, row, :n]
            truth[i] = (jacobian * trace.embeddings[row, :n]).square().sum((0, 2)).sqrt().detach()
        found = hta_to_embeddings(trace, 1)[row, :n, :n]
        assert traces.apart(found, truth) <= 1e-12
    if variant != "electra":  # whose embeddings are projected before they reach the first block
        for name, flag in (("hta", False), ("hta-x-input", True)):
            for row, n in enumerate((4, 3)):
                near = hta_to_embeddings(trace, 0, x_input=flag)[row, :n, :n]
                assert traces.apart(near, traces.maps(trace.layers[0], name)[row].detach()) <= 1e-12


def test_to_the_embeddings_is_refused_without_gradients() -> None:
    model = tiny.model("bert", "encoder")
    with pytest.raises(wherefrom.WherefromError, match="grad=True"):
        hta_to_embeddings(wherefrom.capture(tiny.ids(3), model), 0)
    with pytest.raises(wherefrom.WherefromError, match="outside"):
        hta_to_embeddings(wherefrom.capture(tiny.ids(3), model, grad=True), 3)
