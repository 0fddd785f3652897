"""The logit lens against the model's own norm and head, called by hand on its own hidden states."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidInput, InvalidTarget, NotDefined

TEXT = "the film is very"


def by_hand(model: Any, ids: list[int]) -> list[torch.Tensor]:
    """Probabilities of the next token after each layer of a GPT-2 or Llama; the last state comes normed already."""
    base = model.base_model
    closing = base.ln_f if hasattr(base, "ln_f") else base.norm
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        normed = [*map(closing, states[:-1]), states[-1]]
        return [model.lm_head(each)[0, -1].softmax(-1) for each in normed]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_every_layer_says_what_norm_and_head_make_of_its_state(kind: str) -> None:
    model, tokenizer = tiny.model(kind, "causal-lm"), tiny.tokenizer()
    ids = tokenizer(TEXT)["input_ids"]
    lens = wherefrom.logit_lens(ids, model, tokenizer, target="good", top=3)
    wanted = by_hand(model, ids)
    place = tokenizer.convert_tokens_to_ids("good")
    assert len(lens) == len(wanted) == 4
    for found, p in zip(lens.layers, wanted, strict=True):
        assert list(found.probabilities.values()) == pytest.approx(p.topk(3).values.tolist(), rel=1e-4)
        assert found.target == pytest.approx(float(p[place]), rel=1e-4)
        assert found.rank == 1 + int((p > p[place]).sum())
    explained = wherefrom.explain(ids, model, tokenizer, method="alti-logit")
    assert lens[-1].prediction == explained.prediction
    assert {word: explained.probabilities[word] for word in lens[-1].probabilities} == pytest.approx(
        lens[-1].probabilities
    )


def test_the_token_that_is_read_stands_as_in_the_text() -> None:
    lens = wherefrom.logit_lens("Alice gave", model="wherefrom/lm", top=1)
    assert lens.tokens[-1] == "Ġgave"
    assert "'gave'" in lens.title


def test_an_explanation_and_a_token_that_was_said_are_questions_too() -> None:
    model, tokenizer = tiny.model("llama", "causal-lm"), tiny.tokenizer()
    said = wherefrom.generate(TEXT, model, tokenizer, max_new_tokens=3, do_sample=False)
    lens = wherefrom.logit_lens(said[2], model, tokenizer)
    assert lens.target == said[2].target
    assert lens[-1].target == pytest.approx(float(torch.tensor(said.log_probabilities[2]).exp()), rel=1e-4)
    found = wherefrom.explain(TEXT, model, tokenizer, method="alti-logit", target="good", foil="film")
    two = wherefrom.logit_lens(found, model, tokenizer)
    assert (two.target.label, two.target.foil_label) == ("good", "film")
    assert 0 < (two[-1].target or 0) < 1
    phrase = wherefrom.logit_lens(TEXT, model, tokenizer, target="good film")
    assert phrase.target.kind == "phrase"
    assert phrase[-1].rank is None


def test_a_classifier_and_a_masked_word_are_followed_too() -> None:
    lens = wherefrom.logit_lens("a deep and meaningful film .")
    assert [each.layer for each in lens.layers] == list(range(11))
    assert lens[-1].probabilities == pytest.approx(wherefrom.explain("a deep and meaningful film .").probabilities)
    assert lens.settled <= 10
    assert all(sum(each.probabilities.values()) == pytest.approx(1) for each in lens.layers)
    model, tokenizer = tiny.model("bert", "masked-lm"), tiny.tokenizer()
    assert len(wherefrom.logit_lens("the [MASK] is good", model, tokenizer)) == 4
    with pytest.raises(NotDefined, match="no masked word"):
        wherefrom.logit_lens("the film", model, tokenizer)
    with pytest.raises(NotDefined, match=r"predicts nothing; use a model with a head$"):
        wherefrom.logit_lens("the film", tiny.model("bert", "encoder"), tokenizer)


def test_it_is_shown_and_given_as_data() -> None:
    model, tokenizer = tiny.model("gpt2", "causal-lm"), tiny.tokenizer()
    lens = wherefrom.logit_lens(TEXT, model, tokenizer)
    assert json.loads(json.dumps(lens.to_dict()))["layers"][0]["layer"] == 0
    assert lens._repr_html_().count("<tr>") == 5
    assert "LogitLens of 3 layers" in repr(lens)
    shown = CliRunner().invoke(app, ["lens", "a deep and meaningful film ."], catch_exceptions=False).output
    assert "embeddings" in shown
    assert "class 'positive'" in shown
    data = CliRunner().invoke(app, ["lens", "a deep film .", "--json"], catch_exceptions=False).output
    assert json.loads(data)["target"]["kind"] == "class"
    with pytest.raises(InvalidInput, match="2 inputs were given"):
        wherefrom.logit_lens([TEXT, TEXT], model, tokenizer)
    with pytest.raises(InvalidTarget, match="one at a time"):
        wherefrom.logit_lens(TEXT, model, tokenizer, target="good film", foil="good dog")
    pytest.importorskip("pandas", reason="tables need the extra `pandas`")
    assert set(lens.to_dataframe()["layer"]) == {0, 1, 2, 3}


def test_a_bare_encoder_has_nothing_to_follow() -> None:
    for target in (None, 0, wherefrom.similarity("a cat")):
        with pytest.raises(wherefrom.errors.NotDefined, match="nothing to follow through the layers"):
            wherefrom.logit_lens("the film", tiny.model(task="encoder"), tiny.tokenizer(), target=target)
