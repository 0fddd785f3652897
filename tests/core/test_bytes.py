"""Bytes of characters: named by their numbers, and found by them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import wherefrom
from wherefrom.errors import InvalidTarget
from wherefrom.model import open_model
from wherefrom.model.vocabulary_words import token_id, token_name
from wherefrom.result.bytewise import by_bytes
from wherefrom.result.words import in_letters

LM = "wherefrom/lm"
ARABIC = "The word سل"  # after which the model goes on with bytes of Arabic


def named(tokenizer: Any) -> Any:
    """What the names of tokens are taken from."""
    return SimpleNamespace(tokenizer=tokenizer, task="masked-lm", vocabulary_size=len(tokenizer))


def pieces_of_sentences() -> Any:
    """A vocabulary as SentencePiece makes it, whose bytes have their names already."""
    words = ["<unk>", "▁a", "▁", "a", "Ø", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def test_every_token_that_is_no_character_is_named_by_its_bytes_and_found_again() -> None:
    opened = open_model(LM)
    broken = [i for i in range(opened.vocabulary_size) if "\ufffd" in opened.tokenizer.decode([i])]
    names = [token_name(opened, i) for i in broken]
    assert {"<0xD8>", "<0xE2><0x80>", "Ġ<0xC3>"} <= {*names}
    assert len({*names}) == len(broken) > 100
    sentence = opened.reader().text("The word")
    assert [token_id(opened, name, sentence) for name in names] == broken
    whole = opened.tokenizer.convert_tokens_to_ids("Ã³")
    assert "<0x" not in token_name(opened, whole)  # it is ó


def test_bytes_are_named_wherever_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = wherefrom.explain(ARABIC, LM, target="<0xD9>", method="gradient-x-input")
    assert found.prediction == "<0xD8>"
    assert found.target.label == "<0xD9>"
    assert {"<0xD8>", "<0xD9>"} <= found.probabilities.keys()
    found.show()
    assert "predicts <0xD8> (" in capsys.readouterr().out
    assert "<0xD8>" in wherefrom.logit_lens(ARABIC, LM)[-1].probabilities
    said = wherefrom.generate(ARABIC, LM, target="س", method="gradient-x-input")
    assert said.tokens[-2:] == ["س", "س"]  # as it stands in the text, once it is whole
    assert [each.target.label for each in said][-2:] == ["<0xD8>", "<0xB3>"]  # of which each has its own probability
    assert all(each.target.label in each.probabilities for each in said)
    cut = wherefrom.generate(ARABIC, LM, max_new_tokens=1, alternatives=2, method="gradient-x-input")
    assert cut.tokens == [cut[0].target.label] == ["<0xD8>"]
    assert cut.why_not(0, "<0xD9>").target.foil_label == "<0xD9>"


def test_other_vocabularies_keep_their_names() -> None:
    fallback = named(pieces_of_sentences())
    vocabulary = fallback.tokenizer.get_vocab()
    for name in ("<0xD8>", "<0x41>", "Ø"):
        assert token_name(fallback, vocabulary[name]) == name
        assert token_id(fallback, name) == vocabulary[name]
    assert by_bytes("[CLS]") == "[CLS]"
    byte = named(ByT5Tokenizer())
    assert [token_name(byte, 3 + number) for number in (0x41, 0x85, 0xD8)] == ["A", "<0x85>", "<0xD8>"]
    assert token_id(byte, "<0x85>") == 3 + 0x85


def test_bytes_that_a_vocabulary_names_itself_keep_their_names_where_they_are_said() -> None:
    tokenizer = pieces_of_sentences()
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()
    said = wherefrom.generate("a a", model, tokenizer=tokenizer, target="س", method="gradient-x-input")
    assert said.tokens[-2:] == ["س", "س"]
    assert [each.target.label for each in said][-2:] == ["<0xD8>", "<0xB3>"]
    assert all(each.target.label in each.probabilities for each in said)


def test_a_blank_is_shown_and_found_by_each_of_its_names() -> None:
    opened = open_model(LM)
    blank = opened.tokenizer.convert_tokens_to_ids("Ġ")
    assert token_name(opened, blank) == "␣"
    for name in (" ", "Ġ", "▁", "␣", blank):
        found = wherefrom.explain("The word", LM, target=name, method="gradient-x-input")
        assert (found.target.index, found.target.label) == (blank, "␣")
    line = wherefrom.explain("The word", LM, target="\n", method="gradient-x-input")
    assert line.target.label == "\\n"
    fallback = named(pieces_of_sentences())
    for name in (" ", "Ġ", "▁", "␣"):
        assert token_id(fallback, name) == fallback.tokenizer.get_vocab()["▁"]
    assert token_name(fallback, token_id(fallback, " ")) == "␣"
    with pytest.raises(InvalidTarget, match="target ' ' is not a word"):
        wherefrom.explain("the [MASK] film", "wherefrom/mlm", target=" ")


def test_bytes_may_be_written_in_small_letters() -> None:
    opened, fallback = open_model(LM), named(pieces_of_sentences())
    sentence = opened.reader().text("The word")
    for name in ("<0xd8>", "Ġ<0xc3>"):
        assert token_id(opened, name, sentence) == token_id(opened, name.replace("d", "D").replace("c", "C"), sentence)
    assert token_id(fallback, "<0xd8>") == fallback.tokenizer.get_vocab()["<0xD8>"]


def test_a_text_that_holds_the_sign_of_lost_bytes_keeps_it() -> None:
    assert in_letters(" \ufffd", "Ġï¿½") == " \ufffd"
    assert in_letters("caf\ufffd", "[UNK]") == "caf\ufffd"
    assert in_letters("\ufffd", "[UNK]") == "\ufffd"
