"""Choose the method where none is named.

A model that predicts something is explained by the first method of its kind's list (`DEFAULT_METHODS`) that is defined
on its blocks, has the options of the call and a token for its baseline where it needs one; by the next where its own
check fails. Targets of one token and of several get the same method. Where nothing is predicted (a bare encoder), or
where a map is requested (a row, layers, a head, an aggregation), a map method answers. A model that predicts at one
place of the text (a masked language model without a mask, a tagger without a position) is refused without that place:
nobody meant [CLS]. docs/methods.md has the numbers behind the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from wherefrom.defaults import COMPARED_BESIDE, COMPARED_MAPS, DEFAULT_METHOD, DEFAULT_METHODS
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
    names: Sequence[str]
    if wanted.head is not None:
        names = DEFAULT_METHODS["head"]
    elif wanted.asks_maps(opened.depth) or not _towards_output(opened, sentences, questions):
        if not opened.family.mapped:  # which gives no maps
            raise no_number(opened)
        names = DEFAULT_METHODS["map"]
    else:
        names = _towards(default_methods(opened), sentences, questions)
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
    return usual(opened, not maps, sentences, questions) or COMPARED_MAPS


def usual(
    opened: Model, towards: bool, sentences: Sequence[Sentence] = (), questions: Sequence[Question] = ()
) -> tuple[str, ...]:
    """The methods of a comparison, by whether an output is explained; the default method comes first."""
    if not towards:
        return tuple(suited(opened, COMPARED_MAPS))
    names = suited(opened, _towards(default_methods(opened), sentences, questions))
    if not opened.family.mapped:
        return tuple(names)
    return tuple(dict.fromkeys([*names[:2], *suited(opened, COMPARED_BESIDE)]))


def default_methods(opened: Model) -> tuple[str, ...]:
    """The methods that explain an output of this kind of model, the first choice first."""
    if not opened.family.mapped:
        return DEFAULT_METHODS["unknown-blocks"]
    kind = "seq2seq" if opened.two_streams else "image" if opened.images else opened.task
    return DEFAULT_METHODS.get(kind, DEFAULT_METHODS["classification"])


def _towards(names: Sequence[str], sentences: Sequence[Sentence], questions: Sequence[Question]) -> Sequence[str]:
    """Those that look at the target and have signs for a foil, where one is requested.

    The text that a decoder reads as its target chooses rows, and map methods take it, too.
    """
    foil = any(question.foil is not None for question in questions)
    target = any(
        question.target is not None and not sentence.said
        for sentence, question in zip(sentences, questions, strict=True)
    )
    known = {name: lookup(name)[0] for name in names}
    return [
        name
        for name, method in known.items()
        if (method.signed or not foil) and (method.class_specific or not (foil or target))
    ]


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
