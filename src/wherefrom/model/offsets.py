"""Where each token stands in its text, and what it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import category

from wherefrom.result.words import Span


def offsets(encoding: Any, words: Sequence[Sequence[tuple[int, int]]]) -> list[Span | None]:
    """Where each token stands in its text, from a fast tokenizer; offsets within words are moved to their word."""
    owners, places = encoding.sequence_ids(), encoding["offset_mapping"]
    if not words:
        return [None if owner is None else (owner, *place) for owner, place in zip(owners, places, strict=True)]
    spans: list[Span | None] = []
    for owner, word, (start, end) in zip(owners, encoding.word_ids(), places, strict=True):
        moved = words[owner][word][0] if owner is not None and word is not None else 0
        spans.append(None if owner is None else (owner, moved + start, moved + end))
    return spans


def with_accents(spans: list[Span | None], texts: Sequence[str]) -> list[Span | None]:
    """The same, and the combining accents that a tokenizer leaves out belong to the letter before them."""
    if all(text.isascii() for text in texts):
        return spans
    begun = {span[:2] for span in spans if span is not None}
    found: list[Span | None] = []
    for span in spans:
        if span is not None and span[1] < span[2]:
            which, start, end = span
            while end < len(texts[which]) and category(texts[which][end]) == "Mn" and (which, end) not in begun:
                end += 1
            span = (which, start, end)
        found.append(span)
    return found


def searched(tokenizer: Any, texts: Sequence[str], ids: Sequence[int], special: Sequence[bool]) -> list[Span | None]:
    """Offsets where the tokenizer gives none: each word of the text encoded by itself.

    Only where the words' ids, one after another, are the sentence's; else nothing is known. The pieces of a word that
    do not spell it (an unknown word, a lost accent) all stand for the whole of it.
    """
    found: list[Span] = []
    alone: list[int] = []
    marks = "|".join(re.escape(mark) for mark in tokenizer.all_special_tokens)
    for which, text in enumerate(texts):
        for match in re.finditer(rf"{marks}|(?:(?!{marks})\S)+" if marks else r"\S+", text):
            pieces = tokenizer.encode(match.group(), add_special_tokens=False)
            alone += pieces
            found += [(which, *place) for place in _places(tokenizer, match.group(), match.start(), pieces)]
    written = [i for i, ornament in zip(ids, special, strict=True) if not ornament]
    if alone != written:
        return [None] * len(ids)
    left = iter(found)
    return [None if ornament else next(left) for ornament in special]


def _places(tokenizer: Any, word: str, start: int, ids: list[int]) -> list[tuple[int, int]]:
    """Where each piece of a word that begins at `start` stands: the length of what the pieces so far spell."""
    tokens = tokenizer.convert_ids_to_tokens(ids)
    spelt = ["".join(tokenizer.convert_tokens_to_string(tokens[:k]).split()) for k in range(len(tokens) + 1)]
    if spelt[-1].lower() != word.lower() or any(not word.lower().startswith(part.lower()) for part in spelt):
        return [(start, start + len(word))] * len(ids)
    return [(start + len(a), start + len(b)) for a, b in pairwise(spelt)]


def places_of_words(words: Sequence[str]) -> list[tuple[int, int]]:
    """Where words stand that are joined by blanks."""
    ends = [0, *accumulate(len(word) + 1 for word in words)]
    return [(start, start + len(word)) for start, word in zip(ends, words, strict=False)]


def word_of(span: Span | None, words: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """The number of the word in which a token begins, counted through both texts of a pair."""
    if span is None:
        return None
    before = sum(len(each) for each in words[: span[0]])
    return before + next(i for i, (start, end) in enumerate(words[span[0]]) if start <= span[1] <= end)


def special_ids(tokenizer: Any) -> set[int]:
    """The ids of the tokenizer's own tokens, however they came into a sentence: [CLS], [SEP], padding and the like.

    A mask and an unknown word stand for words of the text. Only where the unknown token also begins or ends texts
    (GPT-2, whose bytes leave no word unknown) is it the tokenizer's own.
    """
    edges = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls", "sep")}
    return set(tokenizer.all_special_ids) - ({tokenizer.mask_token_id, tokenizer.unk_token_id} - edges)


def unknown_id(tokenizer: Any) -> int | None:
    """The id of [UNK]; None of GPT-2, which calls its end of text unknown, though nothing is unknown to it."""
    others = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls", "sep", "pad", "mask")}
    found: int | None = getattr(tokenizer, "unk_token_id", None)
    return None if found in others else found


class TokenNames(dict[int, str]):
    """Tokens as the vocabulary writes them; the number itself where there is no vocabulary for it. Each is asked for
    once: the results of thousands of texts share them.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, number: int) -> str:
        name = None if self.tokenizer is None else self.tokenizer.convert_ids_to_tokens([number])[0]
        found = self[number] = str(number if name is None else name)
        return found

    def of(self, ids: list[int]) -> list[str]:
        return [*map(self.__getitem__, ids)]


_NUMBERS = TokenNames(None)


def names_by(tokenizer: Any | None) -> TokenNames:
    return _NUMBERS if tokenizer is None else TokenNames(tokenizer)


def token_names(tokenizer: Any | None, ids: list[int]) -> list[str]:
    """The names of a few."""
    return names_by(tokenizer).of(ids)
