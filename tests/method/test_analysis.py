"""What is measured of a model itself, against its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import golden
import tiny
import wherefrom
from oracles import alti, globenc
from traces import with_outliers
from wherefrom import analysis
from wherefrom.errors import InvalidOption

LENGTHS = (6, 3, 4)


@pytest.mark.parametrize("case", golden.having("globenc"), ids=lambda case: case.name)
def test_mixing_ratios_are_the_authors(case: golden.Golden) -> None:
    sentences = case.sentences("globenc")
    found = analysis.mixing_ratios([case.ids(sentence) for sentence in sentences], case.model(), batch_size=2)
    for sentence, ratios in zip(sentences, found, strict=True):
        for symbol in ("N", "N_Res", "N_ResLN", "N_Enc"):
            expected = case["globenc", f"{sentence}_ratio_{symbol}"]
            assert np.abs(ratios[symbol] - expected).max() < 1e-10
    single = analysis.mixing_ratios(case.ids(sentences[0]), case.model())
    assert np.abs(single["N_Enc"] - found[0]["N_Enc"]).max() < 1e-12


def mean_cosine(vectors: list[torch.Tensor]) -> float:
    pairs = itertools.combinations(vectors, 2)
    return float(np.mean([float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs]))


def vectors_of(layer: wherefrom.LayerTrace, row: int) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
    """Outputs y_i of a sentence, and for every i the parts T_ij that are not zero."""
    parts = [[t for t in line if t.any()] for line in globenc.after_attention(layer, row)]
    return alti.result(layer, row, "norm"), parts


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_anisotropy_over_all_pairs(variant: str, batch_size: int) -> None:
    model = tiny.model(variant, "encoder", dtype=torch.float64, num_hidden_layers=2, n_layer=2)
    ids = [tiny.ids(n, n) for n in LENGTHS]
    found = analysis.anisotropy(ids, model, pairs="all", batch_size=batch_size)
    for layer in wherefrom.capture(ids, model).layers:
        every = [vectors_of(layer, row) for row in range(len(ids))]
        outputs = mean_cosine([y for ys, _ in every for y in ys])
        parts = mean_cosine([t for _, lines in every for line in lines for t in line])
        assert abs(found.outputs[layer.index] - outputs) < 1e-10
        assert abs(found.transformed[layer.index] - parts) < 1e-10
    assert found.outputs_by_input is None


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_anisotropy_within_a_sentence(variant: str, batch_size: int) -> None:
    """Expected value of ALTI's code, which draws one pair (j, k) per sentence and pairs T_ij with T_ik for every i."""
    model = tiny.model(variant, "encoder", dtype=torch.float64, num_hidden_layers=2, n_layer=2)
    ids = [tiny.ids(n, n) for n in LENGTHS]
    found = analysis.anisotropy(ids, model, batch_size=batch_size)
    assert found.pairs == "sentence"
    assert found.outputs_by_input is not None
    assert found.transformed_by_input is not None
    for layer in wherefrom.capture(ids, model).layers:
        every = [vectors_of(layer, row) for row in range(len(ids))]
        outputs = [mean_cosine(ys) for ys, _ in every]
        rows = [[mean_cosine(line) for line in lines if len(line) > 1] for _, lines in every]
        assert np.abs(found.outputs_by_input[:, layer.index] - outputs).max() < 1e-10
        assert np.abs(found.transformed_by_input[:, layer.index] - [np.mean(each) for each in rows]).max() < 1e-10
        assert abs(found.outputs[layer.index] - np.mean(outputs)) < 1e-10
        assert abs(found.transformed[layer.index] - np.mean(np.concatenate(rows))) < 1e-10


@pytest.mark.parametrize("pairs", ["sentence", "all"])
def test_one_vector_alone_has_no_anisotropy(pairs: analysis.Pairs) -> None:
    assert np.isnan(analysis.anisotropy([7], tiny.model("bert", "encoder"), pairs=pairs).outputs).all()


def test_anisotropy_refuses_unknown_pairs() -> None:
    with pytest.raises(InvalidOption):
        analysis.anisotropy([7, 8], tiny.model("bert", "encoder"), pairs="layer")  # type: ignore[arg-type]


def test_outliers_of_the_norms_and_their_correlation() -> None:
    found = analysis.norm_outliers(with_outliers(torch.float32))
    assert [each.layer for each in found] == [0, 1, 2]
    for each in found:
        assert each.dimensions == [3, 8, 17, 40, 60]
        assert np.allclose(each.first[[0, 2, 3]], [25, 21, -22])
        assert np.allclose(each.second[[0, 1, 2, 4]], [0.05, 24, 0.05, 20])
        assert each.correlation == pytest.approx(np.corrcoef(each.first, each.second)[0, 1])
    fewer = analysis.norm_outliers(with_outliers(torch.float32), deviations=100)
    assert [each.dimensions for each in fewer] == [[], [], []]
    assert all(np.isnan(each.correlation) for each in fewer)


def test_even_weights_have_no_outliers() -> None:
    model = tiny.model("gpt2", "encoder")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".ln_" in name and name.endswith("weight"):
                weight.fill_(1)
    assert all(each.dimensions == [] for each in analysis.norm_outliers(model))
