"""The norm family against its equations, one vector at a time."""

from __future__ import annotations

import pytest
import torch

import tiny
from oracles import globenc
from traces import apart, layers, maps
from wherefrom.method import norms

EXACT = 1e-12


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_every_map_and_ratio_is_that_of_the_paper(variant: str) -> None:
    for layer in layers(variant):
        ratios = norms.mixing_ratios(layer)
        for symbol, vectors in globenc.VECTORS.items():
            found = maps(layer, symbol)
            for row, n in enumerate(layer.mask.sum(1).tolist()):
                expected = vectors(layer, row)
                assert apart(found[row], globenc.norms(expected)) < EXACT
                assert apart(ratios[symbol][row, :n], globenc.ratio(expected)) < EXACT
        for symbol, oracle in (("N_FixedRes", globenc.fixed_residual), ("W_Res", globenc.attention_residual)):
            for row, found_one in enumerate(maps(layer, symbol)):
                assert apart(found_one, oracle(layer, row)) < EXACT


@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_the_norm_of_each_head(variant: str) -> None:
    for layer in layers(variant):
        found = norms.head_norms(layer)
        f = layer.f.norm(dim=-1)  # [B, H, n]
        for h in range(layer.heads):
            for j in range(layer.attention.shape[-1]):
                expected = layer.attention[:, h, :, j] * f[:, h, j, None]
                assert apart(found[:, h, :, j][layer.mask], expected[layer.mask]) < EXACT or not expected.any()
        halves = norms.head_norms_fixed_residual(layer)[0]
        assert torch.allclose(halves.sum(-1), torch.ones_like(halves[..., 0]))
        assert (halves.diagonal(dim1=1, dim2=2) >= 0.5).all()


@pytest.mark.parametrize("name", ["norm", "norm-residual", "norm-residual-ln", "globenc"])
def test_normalised_rows_sum_to_one_and_keep_their_proportions(name: str) -> None:
    for layer in layers():
        for as_it_is, normalised in zip(maps(layer, name), maps(layer, name, normalize=True), strict=True):
            assert apart(normalised.sum(-1), torch.ones(len(normalised)).double()) < EXACT
            assert apart(normalised * as_it_is.sum(-1, keepdim=True), as_it_is) < EXACT


@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_a_token_that_sees_only_itself_keeps_itself(variant: str) -> None:
    """W_Res divides by the attention to others, which is zero here."""
    for layer in layers(variant, lengths=(1, 3)):
        found = maps(layer, "attention-residual")
        assert found[0].tolist() == [[1.0]]
        assert not found[1].isnan().any()
        for ratio in norms.mixing_ratios(layer).values():
            assert ratio[0, 0] == 0
    if variant == "gpt2":  # causal: so does the first token of any sentence
        assert found[1][0].tolist() == [1.0, 0.0, 0.0]


def test_a_model_without_values_has_norms_of_zero_and_no_nan() -> None:
    model = tiny.model("bert", "encoder", dtype=torch.float64)
    with torch.no_grad():
        for block in model.encoder.layer:
            block.attention.self.value.weight.zero_()
            block.attention.self.value.bias.zero_()
    for layer in layers(model=model):
        assert not any(found.any() for found in maps(layer, "norm"))
        for name in ("norm-fixed-residual", "norm-residual", "norm-residual-ln", "globenc", "attention-residual"):
            for found in maps(layer, name):
                assert found.isfinite().all()
                assert (found - found.diagonal().diag() == 0).all()
        assert all((ratio == 0).all() for ratio in norms.mixing_ratios(layer).values())
