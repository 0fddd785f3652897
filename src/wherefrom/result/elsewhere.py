"""Scores made elsewhere, as other libraries hand them over, brought into the form of an `Explanation`'s fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import InvalidInput
from wherefrom.result.answer import Target
from wherefrom.result.serialise import ARRAYS
from wherefrom.result.words import Span
from wherefrom.typecheck import shown


def fields_of(tokens: Sequence[str], scores: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of an explanation, or what is wrong with them."""
    tokens, scores = (list(each) if isinstance(each, Iterator) else each for each in (tokens, scores))
    if isinstance(tokens, str):
        raise InvalidInput("the tokens are one text; expected a list of strings, a score for each")
    if not len(tokens):
        raise InvalidInput("there are no tokens; expected at least one, with its score")
    if not all(isinstance(token, str) for token in tokens):
        raise InvalidInput("a token is no text; expected a list of strings")
    if not isinstance(given.get("target", Target("none")), Target):
        raise InvalidInput(f"target={given['target']!r}; expected a wherefrom.result.answer.Target, or leave it out")
    for name in ("additive", "signed"):
        if not isinstance(given.get(name, False), bool | np.bool_):
            raise InvalidInput(f"{name}={given[name]!r}; expected True or False")
    array = _numbers("scores", scores)
    found = {"signed": bool((array < 0).any()), **given, "tokens": [str(token) for token in tokens], "scores": array}
    for name in ARRAYS[1:]:
        if given.get(name) is not None:
            found[name] = _numbers(name, given[name])
    if given.get("texts") is not None:
        texts = given["texts"]
        found["texts"] = (texts,) if isinstance(texts, str) else tuple(texts)
    if given.get("word_ids") is not None:
        found["word_ids"] = _word_numbers(given["word_ids"])
    if given.get("spans") is not None and len(given["spans"]):
        found["spans"] = _spans(given["spans"], [len(text) for text in found.get("texts", ())])
    return found


def _word_numbers(given: Any) -> list[int | None]:
    every = list(given.tolist() if hasattr(given, "tolist") else given)
    if not all(each is None or (isinstance(each, Integral) and not isinstance(each, bool)) for each in every):
        raise InvalidInput("word_ids are no whole numbers; expected for each token the number of its word, or None")
    return [None if each is None else int(each) for each in every]


def _numbers(name: str, given: Any) -> NDArray[Any]:
    if hasattr(given, "detach"):  # a tensor of torch's, which this module does not know
        given = given.detach().cpu()
        if given.is_floating_point() and given.element_size() < 4:  # bfloat16, which numpy does not know
            given = given.float()
    array = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"{name} of type {array.dtype} are not numbers; expected one number per token")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _spans(given: Iterable[Any], sizes: Sequence[int]) -> list[Span | None]:
    return [None if span is None else _span(span, sizes) for span in given]


def _span(span: Any, sizes: Sequence[int]) -> Span:
    try:
        which, start, end = map(int, span)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the span {shown(span)} has not three numbers; expected (which text, start, end), where a single text is "
            f"text 0, or None for a token that does not stand in it"
        ) from None
    if not sizes:
        raise InvalidInput("spans are given and no texts; expected texts=, in which they lie")
    if not (0 <= which < len(sizes) and 0 <= start <= end <= sizes[which]):
        raise InvalidInput(f"the span {(which, start, end)} lies outside the texts; expected (which text, start, end)")
    return which, start, end
