"""The same sentence as text, as ids and as an encoding is the same sentence: special tokens, scores, metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tiny
import wherefrom
from wherefrom.metric.erasure import erasure
from wherefrom.model.inputs import Reader

TOKENIZER = tiny.tokenizer()
METHODS = ("integrated-gradients", "deeplift", "ablation")


def ways(text: Any, tokenizer: Any = TOKENIZER) -> list[Any]:
    encoding = tokenizer(text)
    return [text, encoding["input_ids"], encoding]


@pytest.mark.parametrize("text", ["a \u2603 deep \u2603 film .", "the [MASK] is good", "the film [SEP] a cat is deep"])
def test_text_ids_and_encoding_agree(text: str) -> None:
    model = tiny.model(dtype=torch.float64)
    for method in METHODS:
        found = [wherefrom.explain(way, model, TOKENIZER, method=method, target=1) for way in ways(text)]
        curves = [erasure(way, each, model, TOKENIZER) for way, each in zip(ways(text), found, strict=True)]
        for each, curve in zip(found, curves, strict=True):
            assert each.special == found[0].special
            assert np.allclose(each.scores, found[0].scores, atol=1e-12)
            assert curve.aopc == pytest.approx(curves[0].aopc, abs=1e-12)


def test_a_mask_and_an_unknown_word_are_words_of_the_text() -> None:
    text = "the [MASK] \u2603 film [SEP] a cat"
    for way in ways(text):
        found = wherefrom.explain(way, tiny.model(), TOKENIZER)
        ornaments = [token for token, special in zip(found.tokens, found.special, strict=True) if special]
        assert ornaments == ["[CLS]", "[SEP]", "[SEP]"]
        assert len(found) == 9


def test_ids_around_an_unknown_word_find_their_text() -> None:
    found = wherefrom.explain(TOKENIZER("the meaningful \u2603 film")["input_ids"], tiny.model(), TOKENIZER)
    assert found.texts == ("the meaningful [UNK] film",)
    assert found.words().tokens == ["[CLS]", "the", "meaningful", "[UNK]", "film", "[SEP]"]


def words_alone(**tokens: str) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words that adds no tokens of its own."""
    vocabulary = {word: i for i, word in enumerate(["<?>", "<e>", "the", "film", "is", "good"])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<?>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, **tokens)


def reader(tokenizer: Any) -> Reader:
    return Reader(tokenizer, vocabulary_size=60, pad_id=0, max_length=None)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"unk_token": "<?>", "eos_token": "<e>"}, [False, False, False, True]),
        ({"unk_token": "<?>", "pad_token": "<?>", "eos_token": "<e>"}, [False, False, False, True]),
        # As in GPT-2, where one token begins and ends texts and stands for the unknown, of which there is none.
        ({"unk_token": "<e>", "bos_token": "<e>", "eos_token": "<e>"}, [False, False, False, True]),
    ],
)
def test_an_unknown_token_with_another_part_to_play(tokens: dict[str, str], expected: list[bool]) -> None:
    tokenizer = words_alone(**tokens)
    text = "the strange film <e>" if "<?>" in tokens.values() else "the good film <e>"
    found = [reader(tokenizer).read(way)[0][0] for way in ways(text, tokenizer)]
    assert [sentence.special for sentence in found] == [expected] * 3


@pytest.mark.parametrize("method", ["integrated-gradients", "deeplift"])
@pytest.mark.parametrize("layer", [None, 1])
def test_a_baseline_of_padding_is_read_where_the_sentence_is(method: str, layer: int | None) -> None:
    """GPT-2's classifier reads the last token that is not padding: of a baseline of padding alone it would read another
    token than of the sentence, and the scores would add up the difference of two places."""
    model = tiny.model("gpt2", dtype=torch.float64)
    long, short = TOKENIZER("the film is deep and not very good", add_special_tokens=False)["input_ids"], [9, 15, 21]
    options = {"tolerance": 1e-6} if method == "integrated-gradients" else {}
    both = wherefrom.explain(
        [long, short], model, TOKENIZER, method=method, target=1, baseline="pad", layer=layer, **options
    )
    for ids, found in zip((long, short), both, strict=True):
        blank = torch.full((1, len(ids)), model.config.pad_token_id)
        with torch.no_grad():
            own = model(torch.tensor([ids])).logits[0, 1]
            elsewhere = model(blank).logits[0, 1]
            there = model.score(model.transformer(blank, attention_mask=torch.ones_like(blank))[0])[0, -1, 1]
        assert abs(elsewhere - there) > 0.05  # or this test would see nothing
        assert found.position == len(ids) - 1
        assert found.scores.sum() == pytest.approx(float(own - there), abs=1e-5)
