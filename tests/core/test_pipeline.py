"""The pipeline by itself: its records, and what shares a batch."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
import pytest

import tiny
from wherefrom.errors import WherefromWarning
from wherefrom.method import choose
from wherefrom.model import open_model
from wherefrom.model.batching import by_length
from wherefrom.pipeline.bulk import How, explained, read
from wherefrom.pipeline.execution import run_all
from wherefrom.pipeline.resolution import UNASKED, Question, Wanted, resolve_jobs

TEXTS = ["the cat is good and the film was not", "", "the film", "a cat and a dog"]


def test_outcomes_know_the_number_of_their_input_and_their_method() -> None:
    opened = open_model(tiny.model(), tiny.tokenizer())
    how = How(batch_size=2, on_error="skip")
    given = read(opened.reader(), TEXTS, how)
    jobs, _ = resolve_jobs(opened, {name: choose(name) for name in ("attcat", "random(seed=2)")}, Wanted())
    questions = [Question(0, None, None), Question(99, None, None), UNASKED]  # the model has no class 99
    done = explained(opened, given, questions, jobs, how)
    assert list(done.outcomes) == [0, 3]
    assert set(done.failed) == {1, 2}
    assert "class" in done.failed[2]
    for row, outcomes in done.outcomes.items():
        assert [(each.input, each.name, each.job) for each in outcomes.values()] == [
            (row, name, job) for name, job in jobs.items()
        ]
        assert all(each.explanations[0].texts == (TEXTS[row],) for each in outcomes.values())
    with pytest.warns(WherefromWarning, match="2 of 4 inputs were skipped"):
        found = done.gathered({row: row for row in done.outcomes})
    assert list(found) == [0, None, None, 3]


def test_a_method_that_fails_leaves_its_error_in_the_record() -> None:
    opened = open_model(tiny.model(), tiny.tokenizer())
    sentences, _ = opened.reader().read([TEXTS[0], TEXTS[2]])
    jobs, _ = resolve_jobs(opened, {name: choose(name) for name in ("ablation(by=59999)", "alti")}, Wanted())
    for row, outcomes in enumerate(run_all(opened, sentences, [UNASKED] * 2, jobs, 2)):
        wrong, right = outcomes.values()
        assert (wrong.input, right.input) == (row, row)
        assert wrong.explanations == ()
        assert "59999" in str(wrong.error)
        assert right.error is None
        assert len(right.explanations) == 1


@pytest.mark.parametrize(("size", "tokens", "slack"), [(3, inf, inf), (inf, 40, inf), (inf, inf, 0.25), (4, 60, 0.5)])
def test_batches_hold_neighbours_by_length(size: float, tokens: float, slack: float) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 50).tolist()
    groups = list(by_length(lengths, size, tokens=tokens, slack=slack))
    every = [i for group in groups for i in group]
    assert every == sorted(range(50), key=lambda i: (lengths[i], i))
    for group in groups:
        longest, shortest = lengths[group[-1]], lengths[group[0]]
        assert len(group) <= size
        assert len(group) * longest <= tokens or len(group) == 1
        assert longest <= shortest * (1 + slack)
    for group, after in pairwise(groups):  # none could have taken one more
        more, shortest = lengths[after[0]], lengths[group[0]]
        assert len(group) == size or (len(group) + 1) * more > tokens or more > shortest * (1 + slack)


def test_nothing_has_no_batches() -> None:
    assert list(by_length([], 3)) == []
