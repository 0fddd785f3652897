"""Value Zeroing against the block run once more for every token."""

from __future__ import annotations

import pytest
import torch

import tiny
from oracles import value_zeroing as oracle
from traces import apart, layers, maps
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.method.products import halves, product

EXACT = 1e-10


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_every_metric_is_that_of_the_paper(variant: str, standardise: bool) -> None:
    for layer in layers(variant):
        for metric in ("cosine", "euclidean", "spearman"):
            found = maps(layer, "value-zeroing", metric=metric, standardise=standardise)
            for row, one in enumerate(found):
                assert apart(one, oracle.value_zeroing(layer, row, metric, standardise)) < EXACT


@pytest.mark.parametrize("budget", [1, 3_000, 40_000, 10**9])
@pytest.mark.parametrize("variant", ["bert", "gpt2", "llama", "gemma2", "olmo2", "phi", "mixtral"])
def test_the_budget_changes_nothing_but_the_tiles(variant: str, budget: int) -> None:
    for layer in layers(variant):
        for found, tiled in zip(maps(layer, "value-zeroing"), maps(layer, "value-zeroing", budget=budget), strict=True):
            assert apart(tiled, found) < EXACT


def test_both_orders_of_multiplication_agree() -> None:
    """Few tokens go through W_O and then W_1, many through their product."""
    few, many = layers(lengths=(7,))[0], layers(lengths=(7, 7, 6))[0]
    assert 7 * (few.heads - 1) < few.x.shape[-1] <= 20 * (many.heads - 1)
    assert apart(maps(few, "value-zeroing")[0], maps(many, "value-zeroing")[0]) < EXACT


def test_ties_share_their_mean_rank() -> None:
    model = tiny.model("bert", "encoder", dtype=torch.float64)
    with torch.no_grad():
        for block in model.encoder.layer:  # a third of the dimensions says nothing
            block.output.LayerNorm.weight[:8] = 0
            block.output.LayerNorm.bias[:8] = 0.1
    for layer in layers(model=model):
        for row, found in enumerate(maps(layer, "value-zeroing", metric="spearman")):
            assert apart(found, oracle.value_zeroing(layer, row, "spearman")) < EXACT


def test_a_value_that_no_head_attends_to_moves_nothing() -> None:
    for layer in layers("gpt2"):
        for found in maps(layer, "value-zeroing"):
            assert (found.triu(1) == 0).all()
            assert (found[torch.ones_like(found).tril() == 1] > 0).all()


def test_a_model_without_values_falls_back_to_the_tokens_themselves() -> None:
    model = tiny.model("bert", "encoder", dtype=torch.float64)
    with torch.no_grad():
        for block in model.encoder.layer:
            block.attention.self.value.weight.zero_()
            block.attention.self.value.bias.zero_()
    layer = layers(model=model)[1]
    for metric in ("cosine", "euclidean", "spearman"):
        with pytest.warns(WherefromWarning, match="value-zeroing: 11 of 11 rows of layer 1"):
            found = maps(layer, "value-zeroing", metric=metric)
        assert all((one == torch.eye(len(one))).all() for one in found)


def test_a_sentence_of_one_token() -> None:
    for layer in layers(lengths=(1, 3)):
        for metric in ("cosine", "euclidean", "spearman"):
            assert maps(layer, "value-zeroing", metric=metric)[0].tolist() == [[1.0]]


@pytest.mark.filterwarnings("ignore:value-zeroing:wherefrom.errors.WherefromWarning")
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "spearman"])
def test_a_sentence_of_one_token_standardised(metric: str) -> None:
    """A single token has variance 0, not an undefined one: the variance is over the tokens, with no degree less.

    Only here can the two be told apart: longer sentences scale by one factor, which the sum of each row takes out.
    """
    for layer in layers(lengths=(1, 3)):
        assert maps(layer, "value-zeroing", metric=metric, standardise=True)[0].tolist() == [[1.0]]


@pytest.mark.parametrize("variant", ["bert", "llama"])
@pytest.mark.parametrize(("precision", "digits"), [("split", 1e-5), ("fast", 2e-2)])
def test_fewer_digits_cost_what_they_are_said_to(variant: str, precision: str, digits: float) -> None:
    for layer in layers(variant, torch.float32):
        for found, exact in zip(
            maps(layer, "value-zeroing", precision=precision), maps(layer, "value-zeroing"), strict=True
        ):
            assert 0 < apart(found, exact) <= digits


def test_a_split_product_leaves_out_a_product_of_rests() -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=random, dtype=torch.float64) for size in ((3, 5, 40), (40, 6)))
    (first, second), (whole, rest) = ([part.double() for part in halves(t)] for t in (x, weight))
    assert apart(product(x, weight, "split"), first @ whole + first @ rest + second @ whole) < 1e-14
    assert apart(product(x, weight, "fast"), first @ whole) < 1e-14
    assert product(x, weight, "exact").equal(x @ weight)


def test_wrong_options_are_refused() -> None:
    layer = layers()[0]
    with pytest.raises(WherefromError, match="metric='manhattan'; expected 'cosine', 'eu"):
        maps(layer, "value-zeroing", metric="manhattan")
    with pytest.raises(WherefromError, match="budget=-1; expected a whole number, at least 1, or None"):
        maps(layer, "value-zeroing", budget=-1)
