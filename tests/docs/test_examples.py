"""Every public function shows how it is called, and what it shows is so."""

from __future__ import annotations

import doctest
import inspect

import pytest

import wherefrom
from wherefrom import Explanation

FUNCTIONS = [name for name in wherefrom.__all__ if inspect.isfunction(getattr(wherefrom, name))]
QUICK = ("methods", "presets", "metrics", "similarity")  # run by default, the others among the slow tests
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS]


def examples(of: object, name: str) -> doctest.DocTest:
    names = {"wherefrom": wherefrom, "similarity": wherefrom.similarity, "Explanation": Explanation}
    return doctest.DocTestParser().get_doctest(inspect.getdoc(of) or "", names, name, None, None)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example(name: str) -> None:
    assert examples(getattr(wherefrom, name), name).examples


@pytest.mark.parametrize("name", [*EVERY, "Explanation.from_scores"])
def test_the_examples_are_so(name: str) -> None:
    of = wherefrom
    for part in name.split("."):
        of = getattr(of, part)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples(of, name), out=told.append)
    assert not told, "".join(told)
