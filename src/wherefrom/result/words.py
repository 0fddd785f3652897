"""Words of the original text, and which token belongs to which: by offsets, never by marker characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from wherefrom.result.bytewise import by_bytes

Span = tuple[int, int, int]  # (which text, start, end), in characters
LOST = "\ufffd"  # what bytes that are no character become
MARKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})  # how tokenizers write blanks
OPEN_BOX = "␣"  # Unicode's name of the sign for a blank
JOINERS = "'’-"


def word_spans(text: str) -> list[tuple[int, int]]:
    """The words of a text, punctuation marks and ideographs standing alone.

    >>> [text[a:b] for text in ["I didn't, 是吗?"] for a, b in word_spans(text)]
    ['I', "didn't", ',', '是', '吗', '?']
    """
    spans: list[tuple[int, int]] = []
    start = None
    for i, char in enumerate(text):
        if _kind(text, i) == "letter":
            start = i if start is None else start
            continue
        if start is not None:
            spans.append((start, i))
            start = None
        if not char.isspace():
            spans.append((i, i + 1))
    if start is not None:
        spans.append((start, len(text)))
    return spans


def _kind(text: str, i: int) -> str:
    char = text[i]
    if char.isspace() or _ideographic(char):
        return "alone"
    if char in JOINERS and 0 < i < len(text) - 1 and text[i - 1].isalnum() and text[i + 1].isalnum():
        return "letter"
    return "alone" if unicodedata.category(char)[0] in "PSZC" else "letter"


def _ideographic(char: str) -> bool:
    return "\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff" or "\U00020000" <= char <= "\U0003ffff"


def read_until(spans: Iterable[Span | None]) -> dict[int, int]:
    """Where the last token of each text ends: of a text that was cut, the end of what is read of it.

    >>> read_until([None, (0, 0, 3), (0, 4, 8), None, (1, 0, 2)])
    {0: 8, 1: 2}
    """
    ends: dict[int, int] = {}
    for which, _, end in filter(None, spans):
        ends[which] = max(end, ends.get(which, 0))
    return ends


def as_written(token: str, texts: Sequence[str], span: Span | None) -> str:
    """A token as its text has it; as its vocabulary writes it ("[CLS]") where it has no place in a text.

    >>> as_written("Ġof", ["capital of"], (0, 7, 10)), as_written("[CLS]", ["capital of"], None)
    ('of', '[CLS]')
    """
    if span is None:
        return token
    which, start, end = span
    return in_sight(in_letters(texts[which][start:end], token)) or token


def in_letters(piece: str, token: str) -> str:
    r"""A piece of a text; where it is part of a character whose rest never came, the token by its bytes.

    >>> in_letters("ó", "Ã³"), in_letters("\ufffd", "Ø")
    ('ó', '<0xD8>')
    """
    if piece.strip(f" {LOST}") or LOST not in piece:
        return piece
    named = by_bytes(token)
    return piece if named == token else named  # a text may hold the sign itself


def in_sight(text: str) -> str:
    r"""A text without blanks around it; where it is nothing else, a sign for each, and lines that end by name.

    >>> in_sight(" of"), in_sight("\n"), in_sight(" ")
    ('of', '\\n', '␣')
    """
    return text.strip() or text.strip(" ").encode("unicode_escape").decode() or OPEN_BOX * len(text)


def spelt_by(tokens: Sequence[str], *, is_word: bool = False) -> str:
    """A word without a place in a text, from its tokens; one alone is as its vocabulary writes it, unless it is known
    to be a word.

    >>> spelt_by(["un", "##like", "##ly"]), spelt_by(["Ġun", "like", "ly"]), spelt_by(["##ly"])
    ('unlikely', 'unlikely', '##ly')
    >>> spelt_by(["▁film"]), spelt_by(["▁film"], is_word=True), spelt_by(["▁"], is_word=True)
    ('▁film', 'film', '␣')
    """
    first, *more = tokens
    if not more and not is_word:
        return first
    return in_sight("".join([first, *(each.removeprefix("##") for each in more)]).translate(MARKS))


def group(
    texts: Sequence[str], spans: Sequence[Span | None], word_ids: Sequence[int | None] | None = None
) -> list[list[int]]:
    """Token indices by word, in order. Tokens without a place in the text stand alone; none is lost.

    A token that covers several words (`");"`) joins them; a piece of white space goes with the word before it, at the
    start of a text with the one after it. `word_ids` are the caller's own words, which then stand as they were given,
    with a place in a text or without.

    >>> group(["film."], [None, (0, 0, 2), (0, 2, 4), (0, 4, 5), None])
    [[0], [1, 2], [3], [4]]
    """
    groups: list[list[int]] = []
    previous: tuple[int, int] | None = None  # (text, last word) that the running group reaches; -1: only white space
    for token, (which, words) in enumerate(_words_of(texts, spans, word_ids)):
        joins = previous is not None and previous[0] == which
        if joins and previous is not None and words and previous[1] >= 0:
            joins = words[0] <= previous[1] if word_ids is None else words[0] == previous[1]
        if joins:
            groups[-1].append(token)
        else:
            groups.append([token])
            previous = None
        if which is None:
            previous = None
        elif words or previous is None:
            previous = (which, words[-1] if words else -1)
    return groups


def _words_of(
    texts: Sequence[str], spans: Sequence[Span | None], word_ids: Sequence[int | None] | None
) -> Iterator[tuple[int | None, list[int]]]:
    """For each token the text it stands in and the words of it that it covers."""
    owners = [] if word_ids is not None else [_word_at(text) for text in texts]
    for token, span in enumerate(spans):
        word = None if word_ids is None else word_ids[token]
        if word is not None:  # also of scores made elsewhere, without a text in which they had a place
            yield 0 if span is None else span[0], [word]
        elif span is None:
            yield None, []
        elif word_ids is not None:
            yield span[0], []
        else:
            yield span[0], [word for word in owners[span[0]][span[1] : span[2]] if word >= 0]


def _word_at(text: str) -> list[int]:
    """For each character the index of its word, -1 between words."""
    owner = [-1] * len(text)
    for word, (start, end) in enumerate(word_spans(text)):
        owner[start:end] = [word] * (end - start)
    return owner
