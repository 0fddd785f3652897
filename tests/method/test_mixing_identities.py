"""What must hold of context-mixing maps beyond what each claims (test_conformance.py): families, padding, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_conformance import spellings

import tiny
import wherefrom
from oracles import alti, globenc, value_zeroing
from traces import apart, layers, maps
from wherefrom.method import choose, contributions, lookup

NORMS = ("norm", "norm-residual", "norm-residual-ln", "globenc")
# Every registered layer map as it comes and by every choice of its options (tests/method/test_conformance.py).
ALL = [
    (asked.method.name, asked.options)
    for each in wherefrom.methods()
    if each.by_layer
    for asked in map(choose, spellings(each))
]
STOCHASTIC = [
    (name, options) for name, options in ALL if "rows-sum-to-one" in lookup(name)[0].checks or options.get("normalize")
]

pytestmark = pytest.mark.filterwarnings("ignore:alti")  # some rows of random models hold no contribution


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_rows_sum_to_one_and_nothing_is_negative(variant: str) -> None:
    for layer in layers(variant):
        for name, options in STOCHASTIC:
            for found in maps(layer, name, **options):
                assert (found >= 0).all()
                assert apart(found.sum(-1), torch.ones(len(found)).double()) < 1e-12


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize("variant", ["bert", "electra", "gpt2"])
def test_a_sentence_does_not_depend_on_its_batch(variant: str, dtype: torch.dtype, tolerance: float) -> None:
    model = tiny.model(variant, "encoder", dtype=dtype)
    lengths = (3, 9, 5)
    together = layers(lengths=lengths, model=model)
    for row, n in enumerate(lengths):
        alone = wherefrom.capture([tiny.ids(n, row)], model).layers
        for many, one in zip(together, alone, strict=True):
            for name, options in ALL:
                # In float32 the model's own rounding changes with the batch; others take it up where it is largest:
                # ranks that change places, a spread over three tokens, contributions next to the threshold.
                if dtype == torch.float32 and (options or name not in NORMS):
                    continue
                assert apart(maps(many, name, **options)[row], maps(one, name, **options)[0]) < tolerance


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_columns_and_rows_of_padding_are_zero(name: str, options: dict[str, Any]) -> None:
    for layer in layers(lengths=(2, 8)):
        found = lookup(name)[0].run(layer, **options)
        assert found.shape == (2, 8, 8)
        assert found.isfinite().all()
        assert (found[0, :2, 2:] == 0).all()
        if name in ("alti", "value-zeroing", "random"):
            assert (found[0, 2:] == 0).all()


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_contributions_and_biases_add_up_to_what_the_block_makes(variant: str) -> None:
    """ALTI, equation 6: y = Σ_j T_ij + L b_O / s + β."""
    for layer in layers(variant):
        parts = contributions.own(layer) + contributions.others(layer) + layer.x
        bias = layer.block.b_o.expand_as(parts)
        assert apart((parts + bias)[layer.mask], layer.u[layer.mask]) < 1e-12
        norm, view = layer.block.first_norm, contributions.after_attention(layer)
        y = view.linear(parts) / view.scale + view.linear(bias) / view.scale + norm.beta
        assert apart(y[layer.mask], norm(layer.u)[layer.mask]) < 1e-12


def test_globenc_without_ffn_and_second_norm_has_the_ranks_of_the_first() -> None:
    model = tiny.model("bert", "encoder", dtype=torch.float64)
    with torch.no_grad():
        for block in model.encoder.layer:
            block.output.dense.weight.zero_()
            block.output.dense.bias.zero_()
            block.output.LayerNorm.weight.fill_(1)
            block.attention.output.LayerNorm.weight.fill_(1.5)  # even, so that its output has mean zero already
    for layer in layers(model=model):
        for first, whole in zip(maps(layer, "norm-residual-ln"), maps(layer, "globenc"), strict=True):
            scale = whole / first  # one number a row: the ranks are the same
            assert apart(scale, scale[:, :1].expand_as(scale)) < 1e-12
            assert (scale > 0).all()


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_a_pass_that_keeps_gradients_gives_the_same_maps(name: str, options: dict[str, Any]) -> None:
    model = tiny.model("bert", "encoder", dtype=torch.float64)
    plain = wherefrom.capture([tiny.ids(5)], model).layers
    graph = wherefrom.capture([tiny.ids(5)], model, grad=True).layers
    for a, b in zip(plain, graph, strict=True):
        assert apart(maps(b, name, **options)[0].detach(), maps(a, name, **options)[0]) < 1e-12


@given(
    heads=st.integers(1, 4),
    size=st.integers(1, 5),
    units=st.integers(1, 9),
    n=st.integers(1, 6),
    seed=st.integers(0, 5),
)
def test_maps_equal_the_oracles_for_models_of_any_shape(heads: int, size: int, units: int, n: int, seed: int) -> None:
    shape = {"num_attention_heads": heads, "hidden_size": 2 * heads * size, "intermediate_size": units}
    layer = layers("bert", lengths=(n,), seed=seed, num_hidden_layers=1, **shape)[0]
    assert apart(maps(layer, "globenc")[0], globenc.norms(globenc.after_block(layer, 0))) < 1e-10
    assert apart(maps(layer, "alti")[0], alti.alti(layer, 0)) < 1e-8
    moved = value_zeroing.raw(layer, 0, "euclidean")
    if (moved.sum(1) > 1e-6).all():
        assert apart(maps(layer, "value-zeroing", metric="euclidean")[0], moved / moved.sum(1, keepdim=True)) < 1e-8


def test_noise_differs_between_sentences_layers_and_seeds_and_is_otherwise_the_same() -> None:
    first, second = (layers(lengths=(6, 6)), layers(dtype=torch.float32, lengths=(6, 6)))
    one, other = maps(first[0], "random")
    assert not torch.equal(one, other)
    assert not torch.equal(one, maps(first[1], "random")[0])
    assert not torch.equal(one, maps(first[0], "random", seed=1)[0])
    assert apart(maps(second[0], "random")[0], one) < 1e-6
    for seed in (0, 2**40 + 5):
        drawn = np.random.default_rng([seed, 1, *first[1].ids[1].tolist()]).random((6, 6))
        expected = torch.from_numpy(drawn / drawn.sum(1, keepdims=True))
        assert apart(maps(first[1], "random", seed=seed)[1], expected) < 1e-15
    for seed in (-1, 0.5, True):
        with pytest.raises(wherefrom.WherefromError, match=r"seed=.*; expected a whole number"):
            maps(first[0], "random", seed=seed)
