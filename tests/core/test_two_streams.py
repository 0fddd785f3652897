"""Encoders with a decoder: opened and proved by their rows, both streams on one axis."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pairs
import tiny
import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption, InvalidTarget, NotDefined, TooLong, Unsuited, UnsupportedModel
from wherefrom.model import Model, collate
from wherefrom.model.capture import capture
from wherefrom.view.terminal import gaps


def some(quick: str, others: str) -> list[Any]:
    """Methods, most of them among the slow tests."""
    return [*quick.split(), *(pytest.param(name, marks=pytest.mark.slow) for name in others.split())]


MAPS = some(
    "alti attention-rollout value-zeroing",
    "attention attention-flow norm norm-fixed-residual norm-residual norm-residual-ln globenc attention-residual "
    "information-flow random",
)


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
@pytest.mark.parametrize("layout", ["bart", "t5"])
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


# Towards the output ---------------------------------------------------------------------------------------

SCORES = some(
    "generic-attention gradient-x-input attn-lrp ablation(by=attention)",
    "saliency gradient-x-input(at=word) integrated-gradients(baseline=zero,n_steps=3) cp-lrp ablation(by=9) "
    "ablation(by=delete)",
)


@pytest.mark.filterwarnings("ignore:integrated gradients have not converged")
@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("layout", ["bart", "flan-t5"])
def test_scores_of_a_pair_alone_and_among_others(layout: str, method: str) -> None:
    together = wherefrom.explain(read(layout), opened(layout), method=method)
    for sentence, found in zip(read(layout), together, strict=True):
        alone = wherefrom.explain(sentence, opened(layout), method=method)
        np.testing.assert_allclose(found.scores, alone.scores, rtol=0, atol=1e-8)
        assert found.target.kind == "phrase"
        assert np.abs(found.scores).max() > 1e-6


def own_number(model: Any, sentence: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Σ_s log p(a_s), from embeddings, by the model alone."""
    logits = model(inputs_embeds=source, decoder_inputs_embeds=target, use_cache=False).logits[0]
    said = torch.tensor(sentence.said)
    found: torch.Tensor = logits.log_softmax(-1)[range(len(said)), said].sum()
    return found


@pytest.mark.parametrize("layout", ["bart", "t5"])
def test_gradients_are_those_of_two_leaves(layout: str) -> None:
    sentence, model = read(layout)[0], opened(layout).model
    s = sentence.segments.count("source")
    embed = opened(layout).embedders
    both = [embed[i](torch.tensor([ids])).detach() for i, ids in enumerate((sentence.ids[:s], sentence.ids[s:]))]
    both = [each.requires_grad_() for each in both]
    gradients = torch.autograd.grad(own_number(model, sentence, *both), both)
    wanted = torch.cat([(g * e).sum(-1)[0] for g, e in zip(gradients, both, strict=True)]).detach()
    found = wherefrom.explain(sentence, opened(layout), method="gradient-x-input(at=word)")
    tolerance = 1e-5 if "t5" in layout else 1e-10  # T5 alone has its norms in float32
    np.testing.assert_allclose(found.scores, wanted, rtol=0, atol=tolerance)


@torch.no_grad()
def test_integrated_gradients_add_up() -> None:
    sentence = read("bart")[1]
    found = wherefrom.explain(sentence, opened("bart"), method="integrated-gradients(baseline=9)")
    model, s = opened("bart").model, sentence.segments.count("source")
    numbers = []
    for ids in (sentence.ids, [9] * len(sentence)):
        given = {"input_ids": torch.tensor([ids[:s]]), "decoder_input_ids": torch.tensor([ids[s:]])}
        logits = model(**given, use_cache=False).logits[0].log_softmax(-1)
        numbers.append(float(logits[range(len(sentence.said)), list(sentence.said)].sum()))
    assert found.scores.sum() == pytest.approx(numbers[0] - numbers[1], rel=0.02)


def test_ablation_is_what_the_model_loses() -> None:
    sentence = read("m2m_100")[0]
    model, s = opened("m2m_100").model, sentence.segments.count("source")

    @torch.no_grad()
    def number(ids: list[int]) -> float:
        given = {"input_ids": torch.tensor([ids[:s]]), "decoder_input_ids": torch.tensor([ids[s:]])}
        logits = model(**given, use_cache=False).logits[0].log_softmax(-1)
        return float(logits[range(len(sentence.said)), list(sentence.said)].sum())

    found = wherefrom.explain(sentence, opened("m2m_100"), method="ablation(by=9)")
    wanted = [
        number(sentence.ids) - number([*sentence.ids[:i], 9, *sentence.ids[i + 1 :]]) for i in range(len(sentence))
    ]
    np.testing.assert_allclose(found.scores, wanted, rtol=0, atol=1e-10)


def test_cp_lrp_adds_up_where_there_are_no_biases() -> None:
    """T5 has none; but for a factor on the logits all of it arrives."""
    found = wherefrom.explain(read("t5")[0], opened("t5"), method="cp-lrp")
    assert found.arrived == pytest.approx(1, abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("layout", ["bart", "m2m_100"])
def test_value_zeroing_is_what_the_model_does_without_a_value(layout: str) -> None:
    """The decoder has one block: with a value zeroed inside of it, the model's own output is the block's."""
    sentence, model = read(layout)[0], opened(layout).model
    s = sentence.segments.count("source")
    given = {"input_ids": torch.tensor([sentence.ids[:s]]), "decoder_input_ids": torch.tensor([sentence.ids[s:]])}

    def states(module: Any = None, j: int = 0) -> torch.Tensor:
        def zero(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
            return output.index_fill(1, torch.tensor([j]), 0.0)

        handle = None if module is None else module.register_forward_hook(zero)
        found: torch.Tensor = model.model(**given, use_cache=False).last_hidden_state[0]
        if handle is not None:
            handle.remove()
        return found

    found = wherefrom.explain(sentence, opened(layout), method="value-zeroing")
    assert found.aggregate is None
    assert found.maps is not None
    block, o = model.model.decoder.layers[0], states()
    for index, module, columns in ((2, block.self_attn, range(s, len(sentence))), (3, block.encoder_attn, range(s))):
        changed = torch.stack([states(module.v_proj, j) for j in range(len(columns))])
        apart = 1 - torch.cosine_similarity(changed, o, dim=-1).T
        wanted = apart / apart.sum(-1, keepdim=True)
        np.testing.assert_allclose(found.maps[index][s:, list(columns)], wanted, rtol=0, atol=1e-8)
    with pytest.raises(InvalidOption, match="does not say how much of a token stays"):
        wherefrom.explain(sentence, opened(layout), method="value-zeroing", aggregate="rollout")


def test_sound_is_a_source() -> None:
    """A batch of recordings: frames named by their seconds, and what is written of them."""
    torch.manual_seed(0)
    shape = {name: value for name, value in pairs.BART.items() if name not in ("max_position_embeddings",)}
    config = transformers.WhisperConfig(
        **{**shape, "num_mel_bins": 4, "max_source_positions": 6, "max_target_positions": 20, "vocab_size": 60}
    )
    model = wherefrom.open_model(transformers.WhisperForConditionalGeneration(config).double().eval())
    assert model.proof.holds
    given = {"input_features": torch.randn(2, 4, 12), "decoder_input_ids": [[2, 8, 9], [2, 7, 0]]}
    one = {"input_features": given["input_features"][1], "decoder_input_ids": [2, 7]}
    for method in ("alti", "value-zeroing", "generic-attention", "gradient-x-input"):
        both = wherefrom.explain(given, model, method=method)
        assert [len(each) for each in both] == [9, 8]
        assert both[1].tokens[:2] == ["0.00s", "0.02s"]
        np.testing.assert_allclose(wherefrom.explain(one, model, method=method).scores, both[1].scores, atol=1e-9)
    written = wherefrom.generate({"input_features": one["input_features"]}, model, max_new_tokens=3)
    assert written.scores.shape == (len(written), 6 + 1 + len(written))
    with pytest.raises(Unsuited, match="nothing can stand in for a frame"):
        wherefrom.explain(one, model, method="integrated-gradients(baseline=zero)")
    with pytest.raises(InvalidInput, match="expected an encoding with input_features"):
        wherefrom.explain({"input_ids": [5, 6], "decoder_input_ids": [2]}, model, method="alti")


# What is written ------------------------------------------------------------------------------------------


def test_every_token_that_is_written_is_explained() -> None:
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.generate("a good film", model, tokenizer, max_new_tokens=4)
    assert found.whole.method == "alti"
    source = tokenizer("a good film")["input_ids"]
    own = model.generate(torch.tensor([source]), max_new_tokens=4)[0].tolist()
    assert found.ids == [*source, *own]
    assert found.whole.segments == ["source"] * len(source) + ["target"] * len(own)
    np.testing.assert_allclose(found.scores.sum(1), 1, rtol=1e-5)
    shares = found.source_contribution
    np.testing.assert_allclose(shares, found.scores[:, : len(source)].sum(1), rtol=1e-5)
    assert shares.shape == (len(found),)
    assert np.isnan(replace(found, scores=np.zeros_like(found.scores)).source_contribution).all()
    one = found[2]
    assert one.given == {"input_ids": source, "decoder_input_ids": own[:3]}
    again = wherefrom.explain(model=model, tokenizer=tokenizer, **one.arguments)
    np.testing.assert_allclose(again.scores, one.scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["gradient-x-input", "ablation(by=9)", "attn-lrp"])
def test_the_tokens_of_a_given_target_add_up_to_it(method: str) -> None:
    model, tokenizer = pairs.model("m2m_100"), tiny.tokenizer()
    found = wherefrom.generate("a dog", model, tokenizer, method, target="the very good film")
    whole = wherefrom.explain("a dog", model, tokenizer, method=method, target="the very good film")
    assert found.text == "the very good film [SEP]" or len(found) == len(whole.measured.tokens)
    if method != "attn-lrp":  # of which a phrase is the sum of its logits
        np.testing.assert_allclose(found.scores.sum(0)[:-1], whole.scores, rtol=0, atol=1e-9)
    foil = wherefrom.explain(
        "a dog", model, tokenizer, method=method, target="the very good film", foil="the very bad film"
    )
    assert foil.segments[-3:] == ["foil"] * 3


def test_one_token_after_a_prefix() -> None:
    """An encoding with decoder_input_ids: the token that comes next."""
    model = opened("bart")
    given = {"input_ids": [tiny.ids(4)], "decoder_input_ids": [[2, 8, 9]]}
    (found,) = wherefrom.explain(given, model, method="gradient-x-input", target=11)
    assert found.segments == ["source"] * 4 + ["target"] * 3
    with torch.no_grad():
        logits = model.model(**{name: torch.tensor(ids) for name, ids in given.items()}).logits[0, -1]
    assert found.prediction == str(int(logits.argmax()))
    assert found.target.index == 11
    assert found.readout.position == 6
    own = wherefrom.explain({name: ids[0] for name, ids in given.items()}, model, method="alti", position=1)
    assert own.prediction is None  # at a token of the source nothing is
    assert own.probabilities == {}
    for asked in ({"method": "saliency"}, {"target": 11}, {"method": "saliency", "target": 11}):
        with pytest.raises(NotDefined, match=r"at a token of the source .* predicts nothing"):
            wherefrom.explain({name: ids[0] for name, ids in given.items()}, model, position=1, **asked)


def test_what_was_asked_can_be_asked_again() -> None:
    """Of every method that is defined there, by the result's own arguments."""
    model, tokenizer, repeated = pairs.model("bart", dtype=torch.float64), tiny.tokenizer(), []
    for each in (*wherefrom.methods(), *wherefrom.presets()):
        try:
            found = wherefrom.explain("a good film", model, tokenizer, target="a film", method=each.name)
        except NotDefined:
            continue
        again = wherefrom.explain(model=model, tokenizer=tokenizer, **found.arguments)
        np.testing.assert_allclose(again.scores, found.scores, rtol=1e-9, atol=1e-12, err_msg=each.name)
        repeated.append(each.name)
    assert {"generic-attention", "alti", "value-zeroing", "cp-lrp", "context-cite"} <= set(repeated)


def test_each_stream_has_room_of_its_own() -> None:
    """A model of 40 positions reads 30 tokens and writes 30; more of either is too long."""
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.explain(" ".join(["film"] * 28), model, tokenizer, target=" ".join(["good"] * 28))
    assert len(found) == 60
    for source, target in ((50, 3), (3, 50)):
        with pytest.raises(TooLong):
            wherefrom.explain(" ".join(["film"] * source), model, tokenizer, target=" ".join(["good"] * target))
    with pytest.raises(InvalidOption, match="is for one stream"):
        wherefrom.explain("a film", model, tokenizer, target="a film", long="windows")


def test_what_does_not_go_over_two_streams_says_so() -> None:
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    with pytest.raises(InvalidTarget, match="was given no target"):
        wherefrom.capture("a good film", model, tokenizer)
    with pytest.raises(InvalidInput, match="one stream of tokens"):
        wherefrom.explain({"input_ids": [5, 6], "decoder_input_ids": [2]}, tiny.model(), tokenizer)
    with pytest.raises(InvalidTarget, match=r"leave position out, or call `generate` with this target"):
        wherefrom.explain("a good film", model, tokenizer, target="film", position=5)
    with pytest.raises(Unsuited, match="the logit lens"):
        wherefrom.logit_lens("a good film", model, tokenizer, target="a film")
    with pytest.raises(InvalidOption, match="unlike numbers of heads"):
        wherefrom.explain("a good film", model, tokenizer, target="a film", method="attention", head="all")


def test_the_streams_stand_apart_in_the_terminal() -> None:
    model, tokenizer = pairs.model("bart", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.explain("a good film", model, tokenizer, target="the film")
    first, second = str(found).split("\n")
    assert "good" in first
    assert "the" in second
    assert "good" not in second
    assert gaps(found)[found.segments.index("target")] == "\n"  # as in the viewer, whose text keeps its lines
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    from wherefrom.view.plot.text import flow

    lines = [piece.line for piece in flow(found, 100.0)]
    assert lines == [int(name == "target") for name in found.segments]
