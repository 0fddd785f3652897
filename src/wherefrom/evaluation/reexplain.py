"""A shard's examples explained once more: by a second model, by the randomised model, or disturbed.

Memory holds one changed copy of the model at a time, and of what it explains the scores, not the maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from wherefrom.data import Example
from wherefrom.errors import EXAMPLE_ERRORS
from wherefrom.metric import sanity
from wherefrom.metric.base import Again
from wherefrom.metric.consistency import Second
from wherefrom.model import Model, Sentence
from wherefrom.pipeline.execution import run
from wherefrom.pipeline.resolution import Question
from wherefrom.result.explanation import Explanation

if TYPE_CHECKING:
    from wherefrom.evaluation.worker import Worker

Explain = Callable[[list["Explained"]], list[sanity.ByMethod]]  # for every row, by every method


class Explained(NamedTuple):
    """An example as the run explained it, by every method."""

    example: Example
    sentence: Sentence
    explanations: sanity.ByMethod

    @property
    def first(self) -> Explanation:
        """By the first method: all have the same target."""
        return next(iter(self.explanations.values()))

    @property
    def question(self) -> Question:
        """What was explained, with nothing left to the choice of a model that has changed."""
        return sanity.same_target(Question(None, None, None), self.first)


def explained_again(worker: Worker, how: Again, rows: list[Explained]) -> list[dict[str, sanity.ByMethod] | str]:
    """For every row what each changed model says, by each method; or the reason why there is nothing."""
    found: list[dict[str, sanity.ByMethod] | str] = [{} for _ in rows]
    for name, explain in _models(worker, how, rows):
        for batch in worker.batches([(i, row.sentence) for i, row in enumerate(rows)]):
            members = [i for i, _ in batch]
            for i, every in zip(members, _all_or_each(explain, [rows[i] for i in members]), strict=True):
                said = found[i]
                if isinstance(every, str):
                    found[i] = every
                elif not isinstance(said, str):
                    said[name] = {method: light(each) for method, each in every.items()}
    return found


def light(explanation: Explanation) -> Explanation:
    """Without its maps, which are most of what it takes."""
    bare = explanation.maps is None and explanation.layer_scores is None and explanation.head_maps is None
    return explanation if bare else replace(explanation.without_maps(), layer_scores=None)


def _models(worker: Worker, how: Again, rows: list[Explained]) -> Iterator[tuple[str, Explain]]:
    if isinstance(how, Second):
        yield how.model, partial(_by_second, worker.others[how.model])
        return
    jobs = {name: worker.jobs[name] for name in worker.setting.methods}  # not those that are only compared with

    for name, model in sanity.models(how, worker.opened, rows[0].sentence):

        def explain(some: list[Explained], model: Model = model) -> list[sanity.ByMethod]:
            sentences, questions = [row.sentence for row in some], [row.question for row in some]
            return sanity.explained(how, model, sentences, questions, jobs, len(some))

        yield name, explain


def _by_second(second: Worker, rows: list[Explained]) -> list[sanity.ByMethod]:
    sentences = [second.read(row.example) for row in rows]
    questions = [Question(row.first.measured.label, None, None) for row in rows]  # its number may be another
    return sanity.one_each(run(second.opened, sentences, questions, second.jobs, len(rows)))


def _all_or_each(explain: Explain, rows: list[Explained]) -> list[sanity.ByMethod | str]:
    """A batch; where one of it cannot be explained, each by itself, so that the others are not lost."""
    try:
        return [*explain(rows)]
    except EXAMPLE_ERRORS as error:
        return [str(error)] if len(rows) == 1 else [found for row in rows for found in _all_or_each(explain, [row])]
