"""Which method answers when none is named.

A model that predicts something is explained towards what it predicts, with signs: by the first of `TOWARDS` (of a word
at a mask, `MASKED`; of several tokens, `PHRASES`) that is defined on its blocks, has the options given and a token for
its baseline where it needs one, and by the next where its own check fails. Of a model whose blocks are not known,
methods answer that look at none (`UNMAPPED`). Where nothing is predicted (a bare encoder), or where a map is asked for
(a row, layers, a head, an aggregation), `MAPS` says what a representation is made of. A model that predicts at a place
which nobody has named (a masked language model without a mask, a tagger without a position) is refused: nobody meant
[CLS]. docs/methods.md has the numbers behind the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from wherefrom.defaults import (
    COMPARED,
    COMPARED_MAPS,
    DEFAULT_METHOD,
    HEADS,
    MAPS,
    MASKED,
    PHRASES,
    PICTURES,
    TOWARDS,
    TRANSLATED,
    UNMAPPED,
)
from wherefrom.errors import InvalidOption, Unsuited, warn
from wherefrom.method import MethodSpec, choose, lookup
from wherefrom.method.baseline import BLANKS
from wherefrom.method.needs import undefined
from wherefrom.model import Model, Sentence
from wherefrom.model.perturb import PAINT, stand_in_for
from wherefrom.model.target import no_number
from wherefrom.pipeline.resolution import Question, Wanted

T = TypeVar("T")
PLACED = ("masked-lm", "token-classification")  # which predict at one place of the text


def is_default(method: Any) -> bool:
    """Whether the choice of a method is left to wherefrom."""
    return isinstance(method, str) and method == DEFAULT_METHOD


def candidates(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    wanted: Wanted,
    options: Mapping[str, Any],
) -> list[MethodSpec]:
    """The methods that may answer, the first choice first: those that have the options given."""
    names = _explaining(opened, any(each.said for each in sentences))
    if wanted.head is not None:
        names = HEADS
    elif wanted.asks_maps(opened.depth) or not _towards_output(opened, sentences, questions):
        if not opened.family.mapped:  # which gives no maps
            raise no_number(opened)
        names = MAPS
    able = [name for name in names if set(options) <= set(lookup(name)[0].options)] or names[:1]
    try:
        return [choose(name, options) for name in suited(opened, able, options) or able]
    except InvalidOption as error:
        raise InvalidOption(f"no method was named, so it is {able[0]}: {error}") from None


def suited(opened: Model, names: Sequence[str], options: Mapping[str, Any] | None = None) -> list[str]:
    """Those that are defined on this model and have what they compare a text with."""
    blank = "baseline" in (options or {}) or stand_in_for(opened, *BLANKS, PAINT) is not None
    needs = {name: lookup(name)[0].needs for name in names}
    return [each for each in names if (blank or "baseline" not in needs[each]) and not undefined(needs[each], opened)]


def compared(
    opened: Model, sentences: Sequence[Sentence], questions: Sequence[Question], wanted: Wanted
) -> tuple[str, ...]:
    """The methods that are compared when none are named."""
    maps = wanted.asks_maps(opened.depth) or not _towards_output(opened, sentences, questions)
    return usual(opened, not maps) or COMPARED_MAPS


def usual(opened: Model, towards: bool) -> tuple[str, ...]:
    """The same, where it is known whether an output is explained; the method that answers by itself is among them."""
    if not towards:
        return tuple(suited(opened, COMPARED_MAPS))
    own = suited(opened, _explaining(opened))
    return tuple(dict.fromkeys([*own[:1], *suited(opened, COMPARED)]) if opened.family.mapped else own)


def _explaining(opened: Model, phrases: bool = False) -> tuple[str, ...]:
    """The methods that explain an output (or one of several tokens) where none is named, the first choice first."""
    if not opened.family.mapped:
        return UNMAPPED
    if opened.two_streams:
        return TRANSLATED
    if phrases:
        return PHRASES
    if opened.images:
        return PICTURES
    return MASKED if opened.task == "masked-lm" else TOWARDS


def _towards_output(opened: Model, sentences: Sequence[Sentence], questions: Sequence[Question]) -> bool:
    """Whether there is a number to explain for every input, and none asks for a row instead."""
    every = all(_has_number(opened, *each) for each in zip(sentences, questions, strict=True))
    if not every and opened.task in PLACED:
        raise no_number(opened)
    return every


def _has_number(opened: Model, sentence: Sentence, question: Question) -> bool:
    if opened.task == "classification":
        return question.position is None or question.target is not None  # a class is read where the head reads it
    if opened.task == "token-classification":
        return question.position is not None or question.target is not None
    if opened.task == "masked-lm":
        asked = any(each is not None for each in (question.target, question.foil, question.position))
        return asked or opened.mask_id in sentence.ids
    return opened.task != "encoder" or question.target is not None


def first_suited(choices: Sequence[MethodSpec], explain: Callable[[MethodSpec], T]) -> T:
    """What the first choice gives; where a method says that it cannot answer, the next, and a warning."""
    for choice, after in pairwise(choices):
        try:
            return explain(choice)
        except Unsuited as error:
            warn(f"{error}. Explained by {after.asked} instead")
    return explain(choices[-1])
