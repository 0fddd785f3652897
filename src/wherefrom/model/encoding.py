"""Texts as their tokenizer encodes them: one, or many together, which takes a fast tokenizer a fraction of the time."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from transformers import BatchEncoding

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.typecheck import shown

RESERVED = {"return_tensors", "padding", "return_offsets_mapping", "return_special_tokens_mask", "truncation"}
NEAR = 0.85  # how alike a misspelt name is; `split_special_tokens`, which some tokenizers have, is `add_…` by 0.8
HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def is_fast(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "is_fast", False))


def check_texts(texts: Sequence[str]) -> None:
    if any(not part.strip() for part in texts):
        raise InvalidInput("the text is empty; expected at least one word")
    if any(HALF_A_PAIR.search(part) for part in texts):
        raise InvalidInput(
            "the text holds half of a surrogate pair, which is not a character; decode it properly first"
        )


def options(tokenizer: Any, own: Mapping[str, Any], truncate: bool, max_length: int | None) -> dict[str, Any]:
    """What a tokenizer is told, beside what every call tells it: the user's `own` options, and whether to cut."""
    if clash := RESERVED & set(own):
        raise InvalidOption(
            f"tokenizer_kwargs may not set {', '.join(sorted(clash))}: wherefrom sets these itself "
            f"(to cut long texts use truncate=True)"
        )
    known = inspect.signature(type(tokenizer).__call__).parameters if own else {}
    for name in sorted(own.keys() - known):  # a tokenizer takes whatever it is told, and most of it for nothing
        if near := get_close_matches(name, known, n=1, cutoff=NEAR):
            raise InvalidOption(f"tokenizer_kwargs has {name!r}; did you mean {near[0]!r}?")
    return {"max_length": max_length, **own, "truncation": max_length is not None} if truncate else dict(own)


def encoded(tokenizer: Any, given: Sequence[Any], told: Mapping[str, Any], *, chosen: bool) -> Any:
    """A text or a pair. `chosen`: the user is to blame for some of the options."""
    try:
        return tokenizer(
            *given,
            return_special_tokens_mask=True,
            return_offsets_mapping=is_fast(tokenizer),
            verbose=False,
            **told,
        )
    except AssertionError as error:  # byte-level tokenizers want to be told about the blank before a word
        raise InvalidOption(f"the tokenizer takes no words as it was loaded: {error}") from error
    except Exception as error:  # whatever a tokenizer makes of arguments that it does not know
        if not chosen:
            raise
        raise InvalidOption(f"the tokenizer cannot be called with tokenizer_kwargs {shown(told)}: {error}") from error


def encoded_together(tokenizer: Any, texts: Sequence[str], told: Mapping[str, Any]) -> dict[str, Any]:
    """By text what `encoded` gives of it; nothing where the tokenizer does not take all of them."""
    different = list(dict.fromkeys(texts))
    if not is_fast(tokenizer) or not different:
        return {}
    try:
        found = encoded(tokenizer, [different], told, chosen=False)
    except Exception:  # one by one it is known which of them is to blame
        return {}
    columns, single = found.data, found.encodings
    return {
        text: BatchEncoding({name: column[row] for name, column in columns.items()}, single[row])
        for row, text in enumerate(different)
    }
