"""The shipped translator: it translates plain sentences, and the words of its translations come from the right ones."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

import wherefrom
from wherefrom import zoo
from wherefrom.cli import app
from wherefrom.errors import InvalidOption
from wherefrom.metric.spotcheck import checks

SAID = [
    ("Diese Katze ist sehr alt.", "This cat is very old."),
    ("Es war eine schlechte Idee.", "It was a bad idea."),
    ("Tom hat drei Hunde.", "Tom has three dogs."),
    ("Er trinkt keinen Kaffee.", "He doesn't drink coffee."),
    ("Das ist nicht wahr.", "That's not true."),
    ("Sie hat gestern einen Hund gekauft.", "She bought a dog yesterday."),
]
# Source and target word: nouns, adverbs and verbs, of which no grammar could say otherwise.
LINKS = {
    SAID[0]: {("Katze", "cat"), ("sehr", "very"), ("alt", "old")},
    SAID[3]: {("Er", "He"), ("trinkt", "drink"), ("Kaffee", "coffee")},
    SAID[5]: {("gekauft", "bought"), ("Hund", "dog"), ("gestern", "yesterday")},
}


@pytest.fixture(scope="module")
def translator():  # type: ignore[no-untyped-def]  # a Model, whose room is private
    return wherefrom.open_model("wherefrom/translate")


def test_plain_sentences_are_translated(translator) -> None:  # type: ignore[no-untyped-def]
    words = translator.tokenizer
    given = words([source for source, _ in SAID], padding=True, return_tensors="pt")
    with torch.inference_mode():
        said = words.batch_decode(translator.model.generate(**given), skip_special_tokens=True)
    right = [one == other for one, (_, other) in zip(said, SAID, strict=True)]
    assert sum(right) >= len(SAID) - 1, said


@pytest.mark.parametrize(("source", "target"), LINKS)
def test_words_come_from_those_that_they_translate(translator, source: str, target: str) -> None:  # type: ignore[no-untyped-def]
    found = wherefrom.align(source, target, translator)
    links = {(found.source[s], found.target[t]) for s, t in found.links()}
    assert LINKS[source, target] <= links, links


def test_what_it_writes_is_from_its_source_at_all(translator) -> None:  # type: ignore[no-untyped-def]
    found = wherefrom.generate("Diese Katze ist sehr alt.", translator)
    assert found.text.startswith("This cat")
    assert found.source_contribution[0] > 0.5


def test_a_translation_cut_short_just_stops(translator) -> None:  # type: ignore[no-untyped-def]
    source = SAID[5][0]
    whole, cut = (wherefrom.generate(source, translator, max_new_tokens=most) for most in (20, 3))
    assert whole.tokens[-1] == "</s>"
    assert cut.tokens == whole.tokens[:3]
    forced = wherefrom.generate(source, translator, max_new_tokens=3, forced_eos_token_id=0)
    assert forced.tokens == [*whole.tokens[:2], "</s>"]


def test_it_is_marian_s_layout_and_its_tokenizer_is_in_the_folder() -> None:
    folder = zoo.path("wherefrom/translate")
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["encoder_layers"], config["decoder_layers"]) == ("marian", 4, 3)
    assert "Tatoeba" in " ".join(zoo.card("wherefrom/translate").data)
    assert "CC BY 2.0 FR" in " ".join(zoo.card("wherefrom/translate").data)


def test_what_it_wrote_is_explained_as_it_was_written(translator) -> None:  # type: ignore[no-untyped-def]
    said = wherefrom.generate("Das stimmt nicht!", translator, method="gradient-x-input")
    whole = wherefrom.explain(
        "Das stimmt nicht!", translator, method="gradient-x-input", of="log-probability", target=said.text
    )
    assert whole.target.tokens == tuple(said.ids[said.start :])
    source = said.over("prompt")
    assert set(source.segments) == {"source"}
    assert set(said.over("answer").segments) == {"target"}
    assert whole.scores[: len(source)] == pytest.approx(source.scores, abs=1e-5)


def test_after_what_was_written_a_foil_is_another_token(translator) -> None:  # type: ignore[no-untyped-def]
    said = wherefrom.generate("Das stimmt nicht!", translator, method="gradient-x-input", alternatives=1)
    foil = said.steps[1].foils[0].foil
    found = wherefrom.explain(model=translator, foil=foil, **said[1].arguments)
    assert found.target.foil == foil
    assert found.scores == pytest.approx(said.why_not(1, foil).scores, abs=1e-5)
    again = wherefrom.explain(model=translator, **{**said[1].arguments, "target": said.steps[1].target.label})
    assert again.target.index == said.ids[said.start + 1]


def test_words_of_two_streams_are_read_as_their_tokens(translator) -> None:  # type: ignore[no-untyped-def]
    tokens = wherefrom.explain("Das stimmt nicht!", translator, method="alti", target="Yes.")
    words = tokens.words()
    assert len(words) < len(tokens)
    assert words.readout_rows[-1] == pytest.approx(words.scores, abs=1e-6)
    assert words.readout_rows.sum(1) == pytest.approx(tokens.readout_rows.sum(1), abs=1e-6)
    assert "<html" in tokens.to_html()


def test_one_translation_has_no_check_and_the_reason_is_said(translator) -> None:  # type: ignore[no-untyped-def]
    found = wherefrom.explain("Das stimmt nicht!", translator, method="gradient-x-input", target="Yes.")
    with pytest.raises(wherefrom.WherefromError, match="here there are two"):
        list(checks([found], translator))


def test_what_was_said_ends_before_the_token_that_ends_it(translator) -> None:  # type: ignore[no-untyped-def]
    source, target = SAID[4]
    found = wherefrom.generate(source, translator)
    assert found.text == target
    assert found.tokens[-1] == "</s>"
    assert "</s>" not in wherefrom.generate(source, translator, target=target).text


def test_layers_are_refused_where_a_method_has_none() -> None:
    command = ["align", *SAID[4]]  # the shipped translator is the default
    assert CliRunner().invoke(app, [*command, "--layer", "0"]).exit_code == 0
    found = CliRunner().invoke(app, [*command, "--method", "gradient-x-input", "--layer", "0"])
    assert isinstance(found.exception, InvalidOption)
    assert "has no layers; leave --layer out" in str(found.exception)


def test_a_refusal_names_the_default_too() -> None:
    with pytest.raises(wherefrom.WherefromError, match="or one that looks at no output, as alti"):
        wherefrom.align(*SAID[4], "wherefrom/translate", method="decompx")


def test_pairs_of_tokens_align_no_word() -> None:
    with pytest.raises(InvalidOption, match="scores pairs of tokens, and a link is of one word"):
        wherefrom.align(*SAID[4], "wherefrom/translate", method="ablation-pairs(by=unknown)")
