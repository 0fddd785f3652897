"""`align`: which words of a source the words of its translation come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from wherefrom.api import explain
from wherefrom.defaults import TRANSLATOR
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.generating import generate
from wherefrom.method import MethodLike, MethodSpec, choose
from wherefrom.model import Model, ModelLike, TokenizerLike, open_model
from wherefrom.model.offsets import special_ids
from wherefrom.model.phrase import spelt
from wherefrom.options import DeviceLike, DtypeLike, Keywords
from wherefrom.pipeline.auto import is_default
from wherefrom.pipeline.resolution import AUTO
from wherefrom.result.alignment import Alignment, word_rows
from wherefrom.result.explanation import Array, Explanation
from wherefrom.result.words import word_spans
from wherefrom.typecheck import checks_arguments

Words = str | Sequence[str]  # a text, or its words as they are to be aligned
USUAL = "alti"
Place = tuple[int, int]  # of a word or a token in its text, in characters


@checks_arguments
def align(
    source: Words,
    target: Words,
    model: ModelLike = TRANSLATOR,
    tokenizer: TokenizerLike = None,
    method: MethodLike = USUAL,
    *,
    word: Literal["output", "input"] = "output",
    aggregate: str | None = AUTO,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
) -> Alignment:
    """Align the words of a target text with those of its source, by an encoder with a decoder that reads both.

    source, target: texts, whose words are found as in all results; or lists of words.
    model: an encoder with a decoder; by default the one that ships, from German into English.
    method: any that is defined on such models, but for pairs of tokens; "auto" is alti. Of methods with layer maps,
        every layer of the decoder has an alignment.
    word: a row of the decoder is that of the word which it puts out ("output", AWO), or of the one that it has just
        read ("input", AWI).

    >>> found = wherefrom.align("Das stimmt", "That is true", "Helsinki-NLP/opus-mt-de-en")  # doctest: +SKIP
    >>> found.links()  # of source and target word, from 0  # doctest: +SKIP
    [(0, 0), (1, 1), (1, 2)]
    """
    opened = open_model(model, tokenizer, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    if not opened.two_streams or opened.tokenizer is None:
        raise InvalidOption(
            f"{opened.name} reads no source and target; expected an encoder with a decoder and its tokenizer"
        )
    if (chosen := aligning_by(method)).method.pairs:
        raise InvalidOption(
            f"'{chosen.asked}' scores pairs of tokens, and a link is of one word; expected e.g. ablation"
        )
    if not any(word.strip() for word in target):
        raise InvalidInput("the target has no word; expected the text, or the words, that the source is aligned with")
    return in_words(opened, token_rows(opened, source, target, chosen, aggregate), (source, target), word)


def aligning_by(method: MethodLike) -> MethodSpec:
    """The method that is asked for; "auto" is the usual one."""
    return choose(USUAL if is_default(method) else method)


class SourceRows(NamedTuple):
    """Rows over the source, [L, T, S], of what the decoder says, token by token."""

    rows: Array
    columns: dict[int, list[int]]  # the tokens of each source word
    end: list[int]  # those that end the source
    said: Sequence[int]
    method: str


def token_rows(opened: Model, source: Words, target: Words, chosen: MethodSpec, aggregate: str | None) -> SourceRows:
    """What a method says: every layer of the decoder, or the scores of each token by itself."""
    texts = [text if isinstance(text, str) else " ".join(text) for text in (source, target)]
    (read,), _ = opened.reader().read(texts[0])  # which says of a long one what can be done about it here
    if has_rows(chosen):
        found = explain(read, opened, method=chosen, target=texts[1], aggregate=aggregate, keep="maps")
        return rows_of_maps(opened, source, found)
    written = generate(read, opened, method=chosen, target=texts[1], aggregate=aggregate)
    s = written.whole.segments.count("source")
    rows = np.abs(written.scores[None, :, :s])
    return _source_rows(opened, source, written.whole, rows, tuple(written.ids[written.start :]))


def has_rows(chosen: MethodSpec) -> bool:
    """Whether one map of a method has the rows of all tokens that are written."""
    return chosen.method.kind == "map" and not chosen.method.class_specific


def rows_of_maps(opened: Model, source: Words, found: Explanation) -> SourceRows:
    """The decoder's layers of an explanation that has its maps."""
    maps = found.maps if found.aggregated is None else found.aggregated
    assert maps is not None
    s = found.segments.count("source")
    last = -2 * sum(block.family.crosses for block in opened.blocks) + 1
    return _source_rows(opened, source, found, np.abs(maps[last::2, s:, :s]), found.measured.tokens)


def _source_rows(opened: Model, source: Words, found: Explanation, rows: Array, said: Sequence[int]) -> SourceRows:
    s = found.segments.count("source")
    columns = _grouped(_places(source), [None if place is None else place[1:] for place in found.spans[:s]])
    assert opened.tokenizer is not None
    end = [i for i, token in enumerate(found.tokens[:s]) if token == opened.tokenizer.eos_token]
    return SourceRows(rows, columns, end, said, found.method)


def in_words(opened: Model, told: SourceRows, texts: tuple[Words, Words], word: str) -> Alignment:
    """Words out of tokens, layer by layer; words of which no token is known have no place in it."""
    (source, target), (rows, columns, end, said, method) = texts, told
    lines = _grouped(_places(target), _spelt_places(opened, said, target))
    if word == "input":  # the row that has read a token is the next one
        lines = {i: [t + 1 for t in tokens if t + 1 < len(said)] for i, tokens in lines.items()}
        lines = {i: tokens for i, tokens in lines.items() if tokens}
    found = np.zeros((len(rows), len(_places(target)), len(_places(source)) + 1))
    for layer, each in enumerate(rows):
        small = word_rows(each, list(columns.values()), list(lines.values()), end)
        found[layer][np.ix_(list(lines), [*columns, -1])] = small
    found[:, [i for i in range(found.shape[1]) if i not in lines], -1] = 1  # no row, no link
    return Alignment(_words(source), _words(target), found, method, opened.name)


def _words(text: Words) -> list[str]:
    return [text[a:b] for a, b in word_spans(text)] if isinstance(text, str) else list(text)


def _places(text: Words) -> list[Place]:
    """Where the words stand; a list of words is joined by blanks."""
    if isinstance(text, str):
        return word_spans(text)
    ends = np.cumsum([len(word) + 1 for word in text]).tolist()
    return [(end - len(word) - 1, end - 1) for word, end in zip(text, ends, strict=True)]


def _spelt_places(opened: Model, said: Sequence[int], target: Words) -> list[Place | None]:
    """Where the tokens of a target stand in it, as its tokenizer says.

    Of one that cannot tell, counted in letters: it may move the blanks.
    """
    text = target if isinstance(target, str) else " ".join(target)
    tokenizer = opened.tokenizer
    if tokenizer is not None and getattr(tokenizer, "is_fast", False):
        read = tokenizer(text_target=text, return_offsets_mapping=True)
        if list(read["input_ids"]) == list(said):
            return [(a, b) if a < b else None for a, b in read["offset_mapping"]]
    own = special_ids(opened.tokenizer)
    kept = [i for i, token in enumerate(said) if token not in own]
    decoded, spans = spelt(opened.tokenizer, [said[i] for i in kept], 0)
    letters = [i for i, char in enumerate(text) if not char.isspace()]
    places: list[Place | None] = [None] * len(said)
    for i, span in zip(kept, spans, strict=True):
        assert span is not None
        start, end = (len("".join(decoded[:edge].split())) for edge in span[1:])
        if start < len(letters) and end > start:
            places[i] = letters[start], letters[min(end, len(letters)) - 1] + 1
    return places


def _grouped(words: Sequence[Place], tokens: Sequence[Place | None]) -> dict[int, list[int]]:
    """The tokens of each word that has any; a token is of the word in which most of it stands."""
    found: dict[int, list[int]] = {}
    for i, place in enumerate(tokens):
        if place is None:
            continue
        shared = [min(b, place[1]) - max(a, place[0]) for a, b in words]
        if max(shared, default=0) > 0:
            found.setdefault(shared.index(max(shared)), []).append(i)
    return dict(sorted(found.items()))
