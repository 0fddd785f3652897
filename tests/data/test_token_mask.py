"""From characters to tokens: for every kind of tokenizer, by token and by word."""

from __future__ import annotations

import re
from typing import Any

import pytest
from transformers import PreTrainedTokenizer

import tiny
import wherefrom
from wherefrom.data import read, token_mask
from wherefrom.errors import WherefromError
from wherefrom.model.inputs import Reader

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "film",
    "##s",
    "mean",
    "##ing",
    "##ful",
    "are",
    ".",
    "cafe",
]


class Slow(PreTrainedTokenizer):
    """A WordPiece tokenizer in Python, which knows no offsets: lower case, no accents, punctuation apart."""

    def __init__(self) -> None:
        self.words = {piece: i for i, piece in enumerate(PIECES)}
        named = zip(("pad", "unk", "cls", "sep", "mask"), PIECES, strict=False)
        super().__init__(**{f"{name}_token": piece for name, piece in named})  # type: ignore[arg-type]

    @property
    def vocab_size(self) -> int:
        return len(PIECES)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.words)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        found: list[str] = []
        for word in re.findall(r"\w+|[^\w\s]", text.lower().replace("é", "e")):
            start = 0
            while start < len(word):
                mark = "##" if start else ""
                fit = next((e for e in range(len(word), start, -1) if mark + word[start:e] in self.words), None)
                if fit is None:
                    found.append("[UNK]")
                    break
                found.append(mark + word[start:fit])
                start = fit
        return found

    def _convert_token_to_id(self, token: str) -> int:
        return self.words.get(token, 1)

    def _convert_id_to_token(self, index: int) -> str:
        return PIECES[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return " ".join(tokens).replace(" ##", "")

    def build_inputs_with_special_tokens(self, first: list[int], second: list[int] | None = None) -> list[int]:
        return [2, *first, 3] if second is None else [2, *first, 3, *second, 3]

    def get_special_tokens_mask(
        self, first: list[int], second: list[int] | None = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        assert not already_has_special_tokens
        return [1, *[0] * len(first), 1] if second is None else [1, *[0] * len(first), 1, *[0] * len(second), 1]


def sentence_of(tokenizer: Any, text: str | tuple[str, str]) -> Any:
    (sentence,), _ = Reader(tokenizer, len(tokenizer), 0, None).read(text)
    return sentence


def test_a_tokenizer_without_offsets() -> None:
    text = "The films  are [MASK] Meaningful."
    sentence = sentence_of(Slow(), text)
    assert sentence.tokens == [
        "[CLS]", "the", "film", "##s", "are", "[MASK]", "mean", "##ing", "##ful", ".", "[SEP]"
    ]  # fmt: skip
    shown = [None if span is None else text[span[1] : span[2]] for span in sentence.spans]
    assert shown == [None, "The", "film", "s", "are", "[MASK]", "Mean", "ing", "ful", ".", None]
    at = text.index("Meaningful")
    mask = token_mask(sentence, [(at, at + len("Meaningful"))])
    assert [token for token, marked in zip(sentence.tokens, mask, strict=True) if marked] == ["mean", "##ing", "##ful"]


def test_words_that_are_not_spelt_by_their_pieces_stand_whole() -> None:
    text = ("the café.", "xyz films")
    sentence = sentence_of(Slow(), text)
    shown = [None if span is None else text[span[0]][span[1] : span[2]] for span in sentence.spans]
    assert shown == [None, "the", "café.", "café.", None, "xyz", "film", "s", None]
    assert token_mask(sentence, [(4, 9)]).tolist() == [False] * 6 + [True, True, False]
    assert token_mask(sentence, [(0, 3)], text=0).tolist() == [False, True] + [False] * 7


def test_a_text_whose_words_do_not_encode_alone_has_no_places() -> None:
    class Joining(Slow):
        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return ["film"] if text == "the film" else super()._tokenize(text)

    sentence = sentence_of(Joining(), "the film")
    assert sentence.spans == [None] * 3
    with pytest.raises(WherefromError, match="no places in a text"):
        token_mask(sentence, [(0, 3)])
    assert not token_mask(sentence, []).any()  # nothing is marked, so nothing is missed


def test_spans_on_a_shipped_model_by_token_and_by_word() -> None:
    example = next(example for example in read("grammar:distractor") if example.attractors == 2)
    found = wherefrom.explain(example.text, model="wherefrom/mlm", target=example.target, foil=example.foil)
    for each in (found, found.words()):
        mask = token_mask(each, example.cues)
        ((start, end),) = example.cues
        assert [each.pieces[i] for i in mask.nonzero()[0]] == [str(example.text)[start:end]]


def test_a_pair_is_marked_in_its_second_text() -> None:
    tokenizer = tiny.tokenizer()
    text = ("a deep film", "a deep film")
    (sentence,), _ = Reader(tokenizer, len(tokenizer), 0, None).read(text)
    first, second = (token_mask(sentence, [(2, 6)], text=which) for which in (0, 1))
    assert (token_mask(sentence, [(2, 6)]) == second).all()
    assert not (first & second).any()
    for which, mask in enumerate((first, second)):
        assert mask.any()
        for i in mask.nonzero()[0]:
            owner, start, end = sentence.spans[i]
            assert owner == which
            assert start < 6
            assert end > 2


def test_what_was_cut_off_is_not_marked() -> None:
    places = [None, (0, 0, 3), (0, 4, 6)]
    assert not token_mask(places, [(8, 12)]).any()
    assert token_mask(places, [(5, 12)]).tolist() == [False, False, True]
