"""Several inputs in one call: read, explained, those that fail left out where the caller says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from wherefrom.errors import EXAMPLE_ERRORS, InvalidInput, InvalidTarget, OutOfMemory, WherefromError, warn
from wherefrom.model import Model, Reader, Sentence
from wherefrom.model.containers import Chunk, several
from wherefrom.model.inputs import refused
from wherefrom.pipeline.execution import Advance
from wherefrom.pipeline.outcome import Outcomes
from wherefrom.pipeline.resolution import Job, Question
from wherefrom.pipeline.windows import run_whole
from wherefrom.progress import bar
from wherefrom.result.explanations import Explanations
from wherefrom.typecheck import kind_of

INPUT_ERRORS = (*EXAMPLE_ERRORS, InvalidTarget, OutOfMemory)  # a target or the memory may fit the other inputs
GO_ON = "; on_error='skip' goes on without it"


@dataclass(frozen=True)
class How:
    """How the inputs of one call are gone through, whatever is asked of them."""

    batch_size: int = 16
    on_error: str = "raise"
    progress: bool | None = None
    overlap: int | None = None


@dataclass(frozen=True)
class Given:
    """The inputs of a call as sentences, by their place in it; and why some of them are none."""

    sentences: dict[int, Sentence]
    count: int
    single: bool
    first: int = 0  # the number of the first, where they are a part of a stream
    failed: dict[int, str] = field(default_factory=dict)

    def copy(self) -> Given:
        """One of its own to take sentences out of."""
        return replace(self, sentences=dict(self.sentences), failed=dict(self.failed))

    def gathered(self, found: Sequence[Any]) -> Any:
        """Results in the order of the inputs: the one of a single input, else all of them."""
        if self.single:
            return found[0]
        if self.failed:
            reasons = "; ".join(self.failed[row] for row in sorted(self.failed)[:3])
            more = " …" if len(self.failed) > 3 else ""
            were = "was" if len(self.failed) == 1 else "were"
            warn(f"{len(self.failed)} of {self.count} inputs {were} skipped: {reasons}{more}")
        done = dict(zip(self.sentences, found, strict=True))
        return Explanations([done.get(row) for row in range(self.count)], self.failed)


def read(reader: Reader, inputs: Any, how: How) -> Given:
    """Every input tokenised; with on_error="skip" without those that cannot be."""
    first = inputs.first if isinstance(inputs, Chunk) else 0
    found, single = reader.read_each(inputs, first)
    bad = {row: each for row, each in enumerate(found) if isinstance(each, WherefromError)}
    if bad and (how.on_error == "raise" or len(bad) == len(found)):
        raise refused(bad, len(found), "" if single or how.on_error == "skip" else GO_ON)
    sentences = {row: each for row, each in enumerate(found) if isinstance(each, Sentence)}
    return Given(sentences, len(found), single, first, {row: str(error) for row, error in bad.items()})


def explained(
    opened: Model, given: Given, questions: Sequence[Question], jobs: Mapping[str, Job], how: How
) -> list[Outcomes]:
    """For every sentence of `given`; one that fails is taken out of it where the caller goes on past errors."""
    with bar(len(given.sentences), how.progress, worth=len(given.sentences) > how.batch_size) as advance:
        asked = [
            (row, given.sentences[row], question) for row, question in zip(given.sentences, questions, strict=True)
        ]
        found = _explained(opened, given, asked, jobs, how, advance)
    done = [each for each in found if not isinstance(each, WherefromError)]
    if not done:  # the call was wrong, and not an input
        raise next(each for each in found if isinstance(each, WherefromError))
    return done


def _explained(
    opened: Model,
    given: Given,
    asked: Sequence[tuple[int, Sentence, Question]],
    jobs: Mapping[str, Job],
    how: How,
    advance: Advance,
) -> list[Outcomes | WherefromError]:
    """All of them at once; where that fails and the caller goes on, halves of them, down to the one that fails."""
    sentences, questions = [each[1] for each in asked], [each[2] for each in asked]
    try:
        return [*run_whole(opened, sentences, questions, jobs, how.batch_size, how.overlap, advance)]
    except INPUT_ERRORS as error:
        if how.on_error == "raise" or given.single:
            raise
        if len(asked) > 1:
            half = len(asked) // 2
            parts = (asked[:half], asked[half:])
            return [each for part in parts for each in _explained(opened, given, part, jobs, how, lambda _: None)]
        row = asked[0][0]
        given.failed[row] = f"input {given.first + row}: {error}"
        del given.sentences[row]
        return [error]


def chunks(inputs: Any, size: int) -> Iterator[Chunk]:
    """Inputs taken as they come, so many at a time."""
    items = several(inputs)
    if items is None:
        raise InvalidInput(
            f"{kind_of(inputs)} was given; expected several inputs, one after another (a list, a generator, a "
            f"column of a dataset); for a single one use explain"
        )
    return _cut(items, size)


def _cut(items: Iterable[Any], size: int) -> Iterator[Chunk]:
    left, first = iter(items), 0
    while part := list(islice(left, size)):
        yield Chunk(part, first)
        first += len(part)
