"""The randomisation test against a model changed by hand, and a user's model that nothing happens to."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.method import choose
from wherefrom.metric import correlation, sanity
from wherefrom.metric.sanity import randomisation, stability
from wherefrom.model import collate, open_model
from wherefrom.model.inputs import Reader
from wherefrom.model.variants import parts, randomised
from wherefrom.pipeline.resolution import Question, Wanted, resolve_job

TOKENIZER = tiny.tokenizer()
TEXTS = ["the film is not very meaningful and not good !", "a good cat", "the keys to the cabinets are here"]
TOP_DOWN = ("head", "block 2", "block 1", "block 0", "embeddings")


def opened_and_batch(model: nn.Module, text: Any = TEXTS[0]) -> tuple[Any, Any]:
    opened = open_model(model, TOKENIZER)
    sentences, _ = Reader(TOKENIZER, opened.vocabulary_size, opened.pad_id, None).read(text)
    return opened, collate(sentences, opened.pad_id)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def part_of(name: str) -> str:
    """Where a parameter of a tiny BERT classifier belongs, by its name."""
    if ".layer." in name:
        return f"block {name.split('.layer.')[1].split('.')[0]}"
    return "embeddings" if ".embeddings." in name else "head"


@pytest.mark.parametrize("way", ["initial", "shuffled"])
@pytest.mark.parametrize("independent", [False, True])
def test_exactly_the_parts_named_are_random(independent: bool, way: str) -> None:
    # In half precision a block keeps a copy of what it has read, which the next part must not see.
    model = tiny.model(dtype=torch.bfloat16 if way == "shuffled" else torch.float32)
    opened, batch = opened_and_batch(model)
    before = weights(model)
    names = []
    for name, changed in randomised(opened, batch, independent=independent, way=way):
        names.append(name)
        random = {name} if independent else set(names)
        for key, weight in changed.model.named_parameters():
            assert torch.equal(weight, before[key]) != (part_of(key) in random), key
            if way == "shuffled":
                assert torch.equal(weight.flatten().sort().values, before[key].flatten().sort().values)
        assert torch.equal(
            changed.blocks[1].norm1.gamma, changed.model.bert.encoder.layer[1].attention.output.LayerNorm.weight.float()
        )
    assert tuple(names) == TOP_DOWN
    if way == "initial" and not independent:
        norm, linear = changed.model.bert.encoder.layer[0].output.LayerNorm, changed.model.classifier
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()
        assert (linear.bias == 0).all()
        assert changed.model.bert.embeddings.word_embeddings.weight.std().item() == pytest.approx(0.02, rel=0.1)
        first, second = (changed.model.bert.encoder.layer[i].output.dense.weight for i in (0, 1))
        assert not torch.equal(first, second)  # each part is drawn for itself
    assert all(torch.equal(weight, before[key]) for key, weight in model.named_parameters())


@pytest.mark.parametrize("variant", list(tiny.VARIANTS))
def test_every_family_falls_into_parts(variant: str) -> None:
    model = tiny.model(variant)
    opened, batch = opened_and_batch(model)
    found = parts(opened, batch)
    assert next(iter(found)) == "head"
    assert list(found)[-1] == "embeddings"
    assert len(found) == len(opened.blocks) + 2
    inside = {id(module._parameters[name]) for part in found.values() for module, name in part}
    assert len(inside) == sum(len(part) for part in found.values())
    unused = [name for name, weight in model.named_parameters() if id(weight) not in inside]
    assert unused == []


def test_a_tied_decoder_belongs_to_the_embeddings() -> None:
    model = tiny.model("bert", "masked-lm", tie_word_embeddings=True)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    opened, batch = opened_and_batch(model, "the cat [MASK] good")
    words = model.get_input_embeddings().weight.detach().clone()
    for name, changed in randomised(opened, batch):
        assert torch.equal(changed.model.get_input_embeddings().weight, words) == (name != "embeddings")


@pytest.mark.parametrize("independent", [False, True])
def test_the_test_against_models_changed_by_hand(independent: bool) -> None:
    model = tiny.model(dtype=torch.float64)
    methods = ["globenc", "attcat"]
    found = randomisation(TEXTS, model, TOKENIZER, methods, independent=independent, seed=3)
    assert list(found) == methods
    opened, batch = opened_and_batch(model)
    intact = wherefrom.compare(TEXTS, model, TOKENIZER, methods)
    for stage, (name, changed) in enumerate(randomised(opened, batch, independent=independent, seed=3)):
        for i, text in enumerate(TEXTS):
            for method in methods:
                before = intact[i][method]
                after = wherefrom.explain(
                    text, copy.deepcopy(changed.model), TOKENIZER, method, target=before.target.index
                )
                expected = correlation.spearman(before.scores, after.scores)
                assert found[method].parts[stage] == name
                assert found[method].agreement[stage, i] == pytest.approx(expected, abs=1e-9)


def test_who_looks_at_the_model_and_who_does_not() -> None:
    found = randomisation(TEXTS, tiny.model(), TOKENIZER, ["random", "alti", "attcat"])
    assert found["random"].parts == TOP_DOWN
    assert found["random"].mean == pytest.approx(np.ones(5))  # noise of the input alone
    assert found["alti"].mean[0] == pytest.approx(1.0)  # a map does not see the head
    assert found["alti"].mean[-1] < 0.9
    assert found["attcat"].mean[0] < 0.9
    signed, unsigned = (
        randomisation(TEXTS, tiny.model(), TOKENIZER, ["cat"], magnitude=way)["cat"].agreement for way in (False, True)
    )
    assert not np.allclose(signed, unsigned)


def test_a_random_model_does_not_choose_the_end_of_an_answer_anew() -> None:
    model = tiny.model("bert", "question-answering")
    text = ("is the cat good ?", "the cat is very good and the film is not")
    before = wherefrom.explain(text, model, TOKENIZER, "saliency", target="answer")
    asked = sanity.same_target(Question("answer", None, None), before)
    opened, batch = opened_and_batch(model, text)
    job = resolve_job(opened, choose("saliency"), Wanted(rows="readout"))
    ends = set()
    for seed in range(5):
        for _, changed in randomised(opened, batch, seed=seed):
            ends.add(wherefrom.explain(text, changed.model, TOKENIZER, "saliency", target="answer").target.end)
            (found,) = sanity.explained(sanity.Randomised(), changed, batch.sentences, [asked], {"saliency": job})
            target = found["saliency"].target
            assert (target.index, target.end) == (before.target.index, before.target.end)
    assert len(ends) > 1  # left to themselves, they would


def test_a_layer_that_ranks_nothing_is_no_number() -> None:
    agreement = np.array([[1.0, np.nan], [np.nan, np.nan]])
    mean = sanity.Randomisation("x", ("head", "block 0"), agreement, False).mean
    assert mean[0] == 1.0
    assert np.isnan(mean[1])


@pytest.mark.parametrize("task", ["masked-lm", "question-answering", "encoder", "token-classification"])
def test_taggers_and_language_models_are_randomised_too(task: str) -> None:
    model = tiny.model("bert", task)
    text = "the cat [MASK] good" if task == "masked-lm" else TEXTS[0]
    position = 2 if task == "token-classification" else None
    found = randomisation(text, model, TOKENIZER, ["globenc"], position=position)["globenc"]
    assert found.agreement.shape == (len(found.parts), 1)
    assert found.agreement[-1, 0] < 1
    steady = stability(text, model, TOKENIZER, ["globenc"], position=position)["globenc"]
    assert steady["padding"].difference.max() < 1e-5


def test_the_users_model_is_untouched_even_after_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    model.train()
    before, flags = weights(model), [module.training for module in model.modules()]
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    storage = [weight.data_ptr() for weight in model.parameters()]

    def unchanged() -> None:
        assert all(torch.equal(weight, before[key]) for key, weight in model.named_parameters())
        assert [weight.data_ptr() for weight in model.parameters()] == storage
        assert [module.training for module in model.modules()] == flags
        assert [len(module._forward_pre_hooks) for module in model.modules()] == hooks
        assert model.dtype == torch.float32

    for independent in (False, True):
        randomisation(TEXTS, model, TOKENIZER, ["alti"], independent=independent)
    stability(TEXTS, model, TOKENIZER, ["alti"])
    unchanged()
    calls = []
    real = sanity.run

    def breaks(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise RuntimeError("in the middle")
        return real(*args)

    monkeypatch.setattr(sanity, "run", breaks)
    with pytest.raises(RuntimeError, match="in the middle"):
        randomisation(TEXTS, model, TOKENIZER, ["alti"])
    unchanged()


def test_stability_sees_the_dtype_and_not_the_batch() -> None:
    model = tiny.model()
    found = stability(TEXTS, model, TOKENIZER, ["globenc", "attcat", "random"], dtypes=["float64", "bfloat16"])
    for method in ("globenc", "attcat", "random"):
        assert set(found[method]) == {"batch", "padding", "float64", "bfloat16"}
        for what in ("batch", "padding", "float64"):
            assert found[method][what].difference.max() < 1e-4
            assert found[method][what].agreement.min() > 0.99
    assert found["globenc"]["bfloat16"].difference.max() > 1e-4
    alone = wherefrom.explain(TEXTS[0], model, TOKENIZER, "globenc").scores
    half = wherefrom.explain(TEXTS[0], copy.deepcopy(model).to(torch.bfloat16), TOKENIZER, "globenc").scores
    expected = np.abs(alone.astype(float) - half).max() / alone.max()
    assert found["globenc"]["bfloat16"].difference[0] == pytest.approx(expected, rel=1e-3)


def test_what_sanity_refuses() -> None:
    model = tiny.model()
    for message, call in (
        ("way='burnt'", lambda: randomisation(TEXTS, model, TOKENIZER, ["alti"], way="burnt")),
        ("expected names", lambda: randomisation(TEXTS, model, TOKENIZER, ["alti", 3])),
        ("no methods", lambda: randomisation(TEXTS, model, TOKENIZER, [])),
        ("unknown method", lambda: stability(TEXTS, model, TOKENIZER, ["altar"])),
        ("unknown dtype int8", lambda: stability(TEXTS, model, TOKENIZER, ["alti"], dtypes=["int8"])),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
