"""Encoders with a decoder: opened and proved by their rows, both streams on one axis."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pairs
import tiny
import wherefrom
from wherefrom.errors import InvalidTarget, Unsuited, UnsupportedModel
from wherefrom.model import Model, collate
from wherefrom.model.capture import capture

MAPS = ["attention", "attention-rollout", "attention-flow", "norm", "norm-fixed-residual", "norm-residual"]
MAPS += ["norm-residual-ln", "globenc", "attention-residual", "alti", "information-flow", "random"]


@lru_cache
def opened(layout: str) -> Model:
    return pairs.opened(layout)


@lru_cache
def read(layout: str) -> list[Any]:
    """Two pairs; each is the longer one in one stream."""
    both = [(tiny.ids(4), tiny.ids(5, seed=1)), (tiny.ids(7, seed=2), tiny.ids(3, seed=3))]
    return [pairs.pair(opened(layout), *each) for each in both]


@pytest.mark.parametrize("layout", pairs.CONFIGS)
def test_every_step_is_rebuilt_from_its_parts(layout: str) -> None:
    model = opened(layout)
    assert model.proof.holds
    assert model.proof.worst.size < (1e-6 if "t5" in layout else 1e-12)  # T5 has norms in float32
    assert model.depth == len(model.blocks) == 2 + 2 * 1


def test_a_changed_model_is_refused() -> None:
    changed = pairs.model("bart")
    cross = changed.model.decoder.layers[0].encoder_attn
    cross.out_proj.register_forward_hook(lambda _module, _args, output: 1.1 * output)
    changed.model.decoder.layers[0].fc2.register_forward_hook(lambda _module, _args, output: 1.1 * output)
    with pytest.raises(UnsupportedModel, match="does not give the model's own numbers"):
        wherefrom.open_model(changed)


@pytest.mark.parametrize("layout", ["bart", "m2m_100", "flan-t5"])
def test_what_tokens_give_adds_up_across_the_streams(layout: str) -> None:
    """Σ_j t_ij + b_O = u_i in every step, each step's input being the one before it gave."""
    batch = collate(read(layout), 0)
    trace = capture(opened(layout), batch)
    for layer in trace.layers:
        assert layer.step is not None
        given = torch.einsum("bhij,bhjd->bijd", layer.attention, layer.f)
        given += torch.diag_embed(layer.x.transpose(1, 2)).permute(0, 2, 3, 1)
        u = given.sum(2) + layer.block.b_o
        written = layer.mask if not layer.step.crosses else torch.zeros_like(layer.mask)
        if layer.step.crosses:
            for row, sentence in enumerate(batch.sentences):
                written[row, [i for i, name in enumerate(sentence.segments) if name == "target"]] = True
        torch.testing.assert_close(u[written], layer.u[written], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", MAPS)
@pytest.mark.parametrize("layout", ["bart", "m2m_100", "t5"])
def test_a_pair_alone_has_the_numbers_it_has_among_others(layout: str, method: str) -> None:
    together = wherefrom.explain(read(layout), opened(layout), method=method)
    for sentence, found in zip(read(layout), together, strict=True):
        alone = wherefrom.explain(sentence, opened(layout), method=method)
        np.testing.assert_allclose(found.scores, alone.scores, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.maps, alone.maps, rtol=0, atol=1e-9)
        assert found.segments == sentence.segments
        rows = wherefrom.explain(sentence, opened(layout), method=method, keep="scores")
        np.testing.assert_allclose(found.scores, rows.scores, rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", ["bart", "t5"])
def test_a_step_writes_its_rows_and_leaves_the_others(layout: str) -> None:
    sentence = read(layout)[0]
    found = wherefrom.explain(sentence, opened(layout), method="alti")
    assert found.maps is not None
    assert found.aggregated is not None
    np.testing.assert_allclose(found.maps.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(found.aggregated.sum(-1), 1, atol=1e-12)
    source = np.array([name == "source" for name in sentence.segments])
    identity = np.eye(len(sentence))
    for index, layer in enumerate(found.maps):
        written = source if index < 2 else ~source
        np.testing.assert_array_equal(layer[~written], identity[~written])
        if index == 2:  # the decoder to itself: nothing of the source, nothing of what comes later
            assert not layer[np.ix_(~source, source)].any()
            np.testing.assert_array_equal(np.triu(layer[np.ix_(~source, ~source)], 1), 0)
        if index == 3:  # to the source: of the target only the token itself
            own = layer[np.ix_(~source, ~source)]
            np.testing.assert_array_equal(own, np.diag(np.diag(own)))


def test_a_text_and_its_target() -> None:
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.explain("a good film", model, tokenizer, target="the film is good")
    assert found.method == "alti"
    said = tokenizer("the film is good")["input_ids"]
    assert found.measured.tokens == tuple(said)
    assert found.segments == ["source"] * 5 + ["target"] * len(said)
    several = wherefrom.explain(["a dog", "a cat"], model, tokenizer, target=["the dog", "the very good cat"])
    assert [len(each) for each in several if each is not None] == [4 + 4, 4 + 6]


def test_refusals_say_what_to_do() -> None:
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    with pytest.raises(InvalidTarget, match=r"give that text \(target='…'\), or let the model write it"):
        wherefrom.explain("a good film", model, tokenizer)
    with pytest.raises(Unsuited, match="it needs one stream of tokens, and this model has two"):
        wherefrom.explain("a good film", model, tokenizer, target="a film", method="attcat")
    config = transformers.AutoConfig.for_model("bart", **pairs.BART)
    with pytest.raises(UnsupportedModel, match="of these wherefrom opens those that write text"):
        wherefrom.open_model(transformers.AutoModelForSequenceClassification.from_config(config))
    with pytest.raises(UnsupportedModel, match="of these wherefrom opens those that write text"):
        wherefrom.open_model(transformers.AutoModel.from_config(config))
