"""From places in a text to tokens: which tokens of an explanation do the characters (start, end) touch?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import InvalidInput
from wherefrom.result.words import Span


class Placed(Protocol):
    """Anything whose tokens know their place: an `Explanation`, by token or by word, or a tokenised sentence."""

    @property
    def spans(self) -> list[Span | None]: ...


def last_text(places: Sequence[Span | None]) -> int:
    """Which of its texts is the last that tokens stand in: the one that the spans of an `Example` are in."""
    return max((place[0] for place in places if place is not None), default=0)


def token_mask(
    tokens: Placed | Sequence[Span | None], spans: Sequence[tuple[int, int]], text: int = -1
) -> NDArray[np.bool_]:
    """True where a token shares at least one character with a span. Special tokens are never in one.

    text: which of the texts the spans are in; the last, as in an `Example`, if none is said.
    Where a span reaches beyond a text that was cut, the tokens that are left are marked, which may be none.

    >>> token_mask([None, (0, 0, 4), (0, 5, 8), None], [(5, 8)]).tolist()
    [False, False, True, False]
    """
    places = list(tokens if isinstance(tokens, Sequence) else tokens.spans)
    if spans and not any(places):
        raise InvalidInput("the tokens have no places in a text; expected an explanation of a text, not of token ids")
    which = text if text >= 0 else last_text(places)
    return np.array(
        [
            place is not None
            and place[0] == which
            and any(max(start, place[1]) < min(end, place[2]) for start, end in spans)
            for place in places
        ],
        dtype=bool,
    )
