"""Words of the original text, and which token belongs to which: by offsets, never by marker characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

Span = tuple[int, int, int]  # (which text, start, end), in characters
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


def group(texts: Sequence[str], spans: Sequence[Span | None]) -> list[list[int]]:
    """Token indices by word, in order. Tokens without a place in the text stand alone; none is lost.

    A token that covers several words (`");"`) joins them; a piece of white space goes with its neighbour.

    >>> group(["film."], [None, (0, 0, 2), (0, 2, 4), (0, 4, 5), None])
    [[0], [1, 2], [3], [4]]
    """
    owners = [_word_at(text) for text in texts]
    groups: list[list[int]] = []
    previous: tuple[int, int] | None = None  # (text, last word) that the running group reaches
    for token, span in enumerate(spans):
        if span is None:
            groups.append([token])
            previous = None
            continue
        which, start, end = span
        words = [word for word in owners[which][start:end] if word >= 0]
        joins = previous is not None and previous[0] == which and (not words or words[0] <= previous[1])
        if joins:
            groups[-1].append(token)
        else:
            groups.append([token])
        if words:
            previous = (which, words[-1])
    return groups


def _word_at(text: str) -> list[int]:
    """For each character the index of its word, -1 between words."""
    owner = [-1] * len(text)
    for word, (start, end) in enumerate(word_spans(text)):
        owner[start:end] = [word] * (end - start)
    return owner
