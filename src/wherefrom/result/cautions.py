"""Sentences that stand beside the scores of an explanation: what was cut off, how far a surrogate can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wherefrom.result.words import Span, read_until

LAST = 24  # letters before a cut that a remark shows


def left_out(
    texts: Sequence[str], tokens: Sequence[str], spans: Iterable[Span | None], options: Mapping[str, Any]
) -> list[str]:
    """What was left out of each text, as far as it is known where tokens stand."""
    asked = "max_length" in options.get("tokenizer_kwargs", {})
    where = "at max_length" if asked else "where the model stops reading"
    rests = [(texts[which], end, len(texts[which].rstrip())) for which, end in read_until(spans).items()]
    return [
        f"cut {where}, after {_last_words(text[:end])!r}: {size - end:,} of {size:,} characters are left out"
        for text, end, size in rests
        if text[end:size].strip() not in ("", *tokens)  # a target ends with a mark of the vocabulary, nobody's word
    ]


def _last_words(text: str) -> str:
    """The end of a text, which begins with a whole word where it has blanks."""
    end = text[-LAST:]
    begun = len(text) > LAST and not text[-LAST - 1].isspace()  # inside of a word
    return (end.partition(" ")[2].lstrip() if begun else end.lstrip()) or end


def surrogate_fit(surrogate: Mapping[str, Any]) -> str:
    """How far a surrogate can be believed, in words."""
    rho, units = surrogate["correlation"], surrogate["units"]
    sure = sum(each["low"] > 0 or each["high"] < 0 for each in units)
    fit = "foretells nothing" if rho is None else f"foretells runs that it was not fitted to with ρ = {rho:.2f}"
    return (
        f"weights of a linear surrogate of {surrogate['runs']} runs, each without some of {len(units)} parts: it "
        f"{fit}, and the 95 % interval of {sure} weight{'s' * (sure != 1)} is clear of 0"
    )
