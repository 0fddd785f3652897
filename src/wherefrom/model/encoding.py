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

RESERVED = {  # what wherefrom tells the tokenizer itself, and how to ask for it
    **dict.fromkeys(["return_tensors", "padding", "return_offsets_mapping", "return_special_tokens_mask"], ""),
    "truncation": " (to cut long texts use truncate=True)",
    **dict.fromkeys(["return_overflowing_tokens", "stride"], " (all of a long text: long='windows')"),
    **dict.fromkeys(["text", "text_pair", "text_target", "text_pair_target"], " (a pair is one input: (text, pair))"),
}
NEAR = 0.85  # how alike a misspelt name is; `split_special_tokens`, which some tokenizers have, is `add_…` by 0.8
HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def is_fast(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "is_fast", False))


def check_texts(texts: Sequence[str]) -> None:
    if empty := [place for place, part in enumerate(texts) if not part.strip()]:
        which = "text" if len(texts) == 1 else ("first text", "second text")[empty[0]]
        raise InvalidInput(f"the {which} is empty; expected at least one word")
    if any(HALF_A_PAIR.search(part) for part in texts):
        raise InvalidInput(
            "the text holds half of a surrogate pair, which is not a character; decode it properly first (on a command "
            "line: PYTHONUTF8=1)"
        )


def options(tokenizer: Any, own: Mapping[str, Any], truncate: bool, max_length: int | None) -> dict[str, Any]:
    """What a tokenizer is told, beside what every call tells it: the user's `own` options, and whether to cut."""
    if clash := sorted(RESERVED.keys() & set(own)):
        how = "".join(dict.fromkeys(RESERVED[name] for name in clash))
        raise InvalidOption(f"tokenizer_kwargs may not set {', '.join(clash)}: wherefrom does that itself{how}")
    if "max_length" in own:
        max_length = _shorter(tokenizer, own["max_length"], truncate, max_length)
    known = inspect.signature(type(tokenizer).__call__).parameters if own else {}
    for name in sorted(own.keys() - known):  # a tokenizer takes whatever it is told, and most of it for nothing
        if near := get_close_matches(name, known, n=1, cutoff=NEAR):
            raise InvalidOption(f"tokenizer_kwargs has {name!r}; did you mean {near[0]!r}?")
    return {**own, "max_length": max_length, "truncation": max_length is not None} if truncate else dict(own)


def _shorter(tokenizer: Any, asked: Any, truncate: bool, most: int | None) -> int:
    """How many tokens of a text are kept, where the user says: never more than the model reads."""
    if not truncate:
        raise InvalidOption("tokenizer_kwargs has max_length, which cuts long texts: give it beside truncate=True")
    least = int(tokenizer.num_special_tokens_to_add()) + 1
    if not isinstance(asked, int) or asked < least:
        raise InvalidOption(
            f"tokenizer_kwargs has max_length={shown(asked)}; expected a number of tokens from {least} up"
        )
    return asked if most is None else min(asked, most)


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
