"""Where an output is read: the position that is asked for, by its index, its name or a word of the text."""

from __future__ import annotations

import re

from wherefrom.errors import InvalidInput
from wherefrom.model.model import Model
from wherefrom.model.pictures import readout as readout_of_picture
from wherefrom.model.sentences import Sentence
from wherefrom.result.answer import Readout
from wherefrom.result.words import group, read_until

POOLED = ("classification", "encoder")  # tasks that may read the mean over all tokens


def readout_at(opened: Model, sentence: Sentence, position: int | str | None, default: str = "given") -> Readout:
    n = len(sentence)
    if isinstance(position, int) and not isinstance(position, bool):
        if not -n <= position < n:
            raise InvalidInput(f"position {position} is outside the sentence of {n} tokens (0 to {n - 1})")
        return Readout(position % n, "given")
    name = default if position is None else position
    if opened.images and (found := readout_of_picture(str(name), sentence)) is not None:
        return found
    if name == "unknown":  # what a head of somebody's own reads
        return Readout(None, "not known")
    if name == "first":
        return Readout(0, "first token")
    if name == "last":
        return Readout(last_token(opened, sentence), "last token")
    if name == "mean":
        return Readout(None, "mean")
    if name == "mask":
        masks = [i for i, token in enumerate(sentence.ids) if token == opened.mask_id]
        if len(masks) == 1:
            return Readout(masks[0], "mask")
        what = f"has {len(masks)} mask tokens" if masks else "has no mask token"
        hint = "" if opened.mask_id is None else f" ({opened.tokenizer.mask_token})"  # type: ignore[union-attr]
        raise InvalidInput(f"the text {what}{hint}; put in exactly one, or say with position= which token is meant")
    return Readout(_place_of(opened, sentence, str(name)), "given")


def _place_of(opened: Model, sentence: Sentence, name: str) -> int:
    """Where a word or a token of the text stands; a word in pieces is its first piece, as taggers have it."""
    words = group(sentence.texts, sentence.spans, sentence.word_ids)
    spelt = {word[0]: span_text(sentence, word[0], word[-1]).strip() for word in words}
    for same in (str.__eq__, lambda a, b: a.casefold() == b.casefold()):
        places = [place for place, text in spelt.items() if same(text, name)]
        places = places or [place for place, token in enumerate(sentence.tokens) if same(token, name)]
        if len(places) == 1:
            return places[0]
        if places:
            raise InvalidInput(
                f"{name!r} stands {len(places)} times in the text, at {', '.join(map(str, places))}; say which one is "
                f"meant by its index"
            )
    if name.casefold() in unread_words(sentence):
        raise InvalidInput(
            f"{name!r} stands behind the {len(sentence)} tokens that are read; shorten what stands before it"
        )
    named = ["'first'", "'last'", *(["'mean'"] * (opened.task in POOLED)), *(["'mask'"] * (opened.mask_id is not None))]
    own = "the index of a patch, 'patches'" if opened.images else "a token index, a word of the text"
    raise InvalidInput(f"unknown position {name!r}; expected {own}, {', '.join(named[:-1])} or {named[-1]}")


def unread_words(sentence: Sentence) -> set[str]:
    """What stands behind the last token of each text, where it was cut."""
    ends = read_until(sentence.spans)
    rest = " ".join(sentence.texts[which][end:] for which, end in ends.items()).casefold()
    return {*rest.split(), *re.findall(r"\w+", rest)}


def last_token(opened: Model, sentence: Sentence) -> int:
    """The last token; for a GPT-2 classifier the one that it reads, the last that is not the padding token."""
    pad = getattr(opened.config, "pad_token_id", None)
    if opened.task == "classification" and pad is not None:
        return max((i for i, token in enumerate(sentence.ids) if token != pad), default=0)
    return len(sentence) - 1


def span_text(sentence: Sentence, start: int, end: int) -> str:
    first, last = sentence.spans[start], sentence.spans[end]
    if first is not None and last is not None and first[0] == last[0]:
        return sentence.texts[first[0]][first[1] : last[2]]
    return " ".join(sentence.tokens[start : end + 1])
