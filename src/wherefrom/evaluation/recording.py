"""What is written down of an example: the numbers of a metric, and explanations that no method of ours has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wherefrom.errors import InvalidInput
from wherefrom.evaluation.task import Record
from wherefrom.metric import erasure
from wherefrom.metric.base import Again, Case, MetricSpec, Number
from wherefrom.metric.sanity import Alone, Disturbed
from wherefrom.model import Sentence
from wherefrom.result.answer import Answer
from wherefrom.result.explanation import Explanation


def of_all_curves(asked: MetricSpec, curves: Sequence[erasure.Curve | str]) -> list[float] | None:
    """The metric of all curves, NaN where one must be measured by itself; None where each must."""
    of_curves, known = asked.metric.of_curves, [each for each in curves if isinstance(each, erasure.Curve)]
    if of_curves is None or asked.options or not known or len(known) < len(curves):
        return None
    found: list[float] = of_curves(known).tolist()
    return found


def records(method: str, asked: MetricSpec, case: Case, found: object) -> list[Record]:
    """What a metric says of a case; where what was found for it is a reason, no number and that reason."""
    why = found if isinstance(found, str) else None
    numbers = asked.measure(case) if why is None else [Number(asked.name, None, float("nan"), why)]
    return [Record(method, number) for number in numbers]


def compared_with(asked: MetricSpec) -> list[Again]:
    """What an explanation is compared with; where it is disturbed, also the one by itself."""
    more: list[Again] = [Alone()] if isinstance(asked.again, Disturbed) else []
    return more if asked.again is None else [*more, asked.again]


def unexplained_answer(sentence: Sentence, found: Answer) -> Explanation:
    """What the model says, with scores that say nothing."""
    return Explanation.from_scores(
        sentence.tokens,
        [0.0] * len(sentence),
        target=found.target,
        readout=found.readout,
        prediction=found.prediction,
        probabilities=found.probabilities,
    )


def is_of(explanation: Explanation, wanted: Any) -> bool:
    label, index = str(explanation.measured.label), explanation.measured.index
    return index == wanted or label == wanted or label.casefold() == str(wanted).casefold() or str(index) == wanted


def completed(given: Explanation, sentence: Sentence, main: Explanation, name: str) -> Explanation:
    """An explanation made elsewhere, with what is known of the tokens and the answer put in where it says nothing."""
    if list(given.tokens) != list(sentence.tokens):
        raise InvalidInput(
            f"'{name}' was given over other tokens than the model reads: {_first_difference(given, sentence)}"
        )
    told = main if given.measured.kind == "none" else given
    return replace(
        given,
        method=name,
        texts=sentence.texts,
        spans=sentence.spans,
        special=sentence.special,
        unknown=sentence.unknown,
        target=told.target,
        measured=told.measured,
        readout=told.readout,
    )


def _first_difference(given: Explanation, sentence: Sentence) -> str:
    """Where the tokens of an explanation part from those that the model reads, and what to do about it."""
    there, here = list(given.tokens), list(sentence.tokens)
    if there[: len(here)] == here and given.measured.kind == "phrase":
        return (
            f"{len(there) - len(here)} of its {len(there)} are of the {given.target} that it explains; give the row "
            'that target, too: {"text": …, "target": …}'
        )
    at = next((i for i, (one, other) in enumerate(zip(there, here, strict=False)) if one != other), None)
    if at is None:
        seen = f"{len(there)} against {len(here)}, the shorter list being the beginning of the other"
    else:
        seen = f"token {at} is {there[at]!r} against {here[at]!r}"
    return f"{seen}; expected one score for each token of the model's tokenizer"
