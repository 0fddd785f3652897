"""Several inputs in one call: read, explained, those that fail left out where the caller says so."""

from __future__ import annotations

import time
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
from wherefrom.pipeline.phrases import contrasted, with_phrases
from wherefrom.pipeline.resolution import Job, Question
from wherefrom.pipeline.windows import refuse_overlap, run_whole
from wherefrom.progress import bar
from wherefrom.result.explanations import Explanations
from wherefrom.typecheck import kind_of

INPUT_ERRORS = (*EXAMPLE_ERRORS, InvalidTarget, OutOfMemory)  # a target or the memory may fit the other inputs
AHEAD = 16  # batches of a stream that are read before they are explained, sentences of similar length together,
PATIENCE = 4.0  # seconds: fewer where they take longer, as none is given before all are explained
GO_ON = "; on_error='skip' goes on without it"


@dataclass(frozen=True)
class How:
    """How the inputs of one call are read and batched, whatever is asked of them."""

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
    in_stream: bool = False
    foils: dict[int, Sentence] = field(default_factory=dict)  # inputs whose foil is read by itself

    def one(self, row: int) -> Given:
        """One of the inputs alone."""
        foils = {row: self.foils[row]} if row in self.foils else {}
        return Given({row: self.sentences[row]}, 1, True, self.first, foils=foils)


@dataclass(frozen=True, eq=False)
class ByInput:
    """What came of the inputs of a call, by their place in it; and why some have come to nothing."""

    given: Given
    outcomes: dict[int, Outcomes]
    failed: dict[int, str]

    def gathered(self, results: Mapping[int, Any]) -> Any:
        """What was made of the outcomes, in the order of the inputs: the one of a single input, else all of them."""
        if self.given.single:
            return results[0]
        if self.failed:
            reasons = "; ".join(self.failed[row] for row in sorted(self.failed)[:3])
            more = " …" if len(self.failed) > 3 else ""
            warn(f"{self._skipped()} skipped: {reasons}{more}")
        return Explanations([results.get(row) for row in range(self.given.count)], self.failed)

    def _skipped(self) -> str:
        """How many; of a stream nobody knows out of how many."""
        one = len(self.failed) == 1
        inputs = f"input{'s' * (not one)}" if self.given.in_stream else f"of {self.given.count} inputs"
        return f"{len(self.failed)} {inputs} {'was' if one else 'were'}"


def read(reader: Reader, inputs: Any, how: How) -> Given:
    """Every input tokenised; with on_error="skip" without those that cannot be."""
    refuse_overlap(how.overlap, reader)
    in_stream = isinstance(inputs, Chunk)  # others may follow
    first = inputs.first if in_stream else 0
    found, single = reader.read_each(inputs, first)
    bad = {row: each for row, each in enumerate(found) if isinstance(each, WherefromError)}
    if bad and (how.on_error == "raise" or (len(bad) == len(found) and not in_stream)):
        raise refused(bad, len(found), "" if single or how.on_error == "skip" else GO_ON)
    sentences = {row: each for row, each in enumerate(found) if isinstance(each, Sentence)}
    return Given(sentences, len(found), single, first, {row: str(error) for row, error in bad.items()}, in_stream)


def followed(opened: Model, given: Given, questions: Sequence[Question]) -> Given:
    """The same inputs, followed by the phrases that are asked for."""
    asked = zip(given.sentences.items(), questions, strict=True)
    found = {row: with_phrases(opened, sentence, question) for (row, sentence), question in asked}
    foils = {row: foil for row, (_, foil) in found.items() if foil is not None}
    return replace(given, sentences={row: each for row, (each, _) in found.items()}, foils=foils)


def beside_phrases(given: Given, questions: Sequence[Question]) -> list[Question]:
    """What is asked beside phrases, which choose the rows that are read, also of methods that look at no output."""
    both = zip(given.sentences.values(), questions, strict=True)
    return [replace(asked, target=None) if sentence.said else asked for sentence, asked in both]


def explained(opened: Model, given: Given, questions: Sequence[Question], jobs: Mapping[str, Job], how: How) -> ByInput:
    """Every sentence of `given`; where the caller goes on past errors, without those that fail."""
    asked = dict(zip(given.sentences, zip(given.sentences.values(), questions, strict=True), strict=True))
    foils = {_foil(row): (each, asked[row][1]) for row, each in given.foils.items()}
    skips = how.on_error == "skip" and not given.single
    with bar(len(asked), how.progress, worth=len(asked) > how.batch_size) as advance:
        try:
            found = _explained(opened, {**asked, **foils}, jobs, how, skips, advance)
        except InvalidInput as error:
            raise _placed(error, given) from error.__cause__
    for row, foil in given.foils.items():
        target, against = found[row], found.pop(_foil(row))
        if not isinstance(target, WherefromError):
            prompt = len(foil) - len(foil.said) + 1
            found[row] = against if isinstance(against, WherefromError) else contrasted(target, against, prompt)
    outcomes = {row: each for row, each in found.items() if not isinstance(each, WherefromError)}
    errors = {row: each for row, each in found.items() if isinstance(each, WherefromError)}
    if not outcomes and not given.first:  # the call was wrong, and not an input
        raise next(iter(errors.values()))
    failed = {row: f"input {given.first + row}: {error}" for row, error in errors.items()}
    return ByInput(given, outcomes, {**given.failed, **failed})


def _placed(error: InvalidInput, given: Given) -> InvalidInput:
    """The same error, which says of several inputs which one it is about, where that is known."""
    rows = [] if given.single else [row for row, each in given.sentences.items() if each is error.about]
    return type(error)(f"input {given.first + rows[0]}: {error}{GO_ON}") if rows else error


def _foil(row: int) -> int:
    """The number of an input's foil among the inputs, where it is one of them."""
    return -1 - row


def _explained(
    opened: Model,
    asked: Mapping[int, tuple[Sentence, Question]],
    jobs: Mapping[str, Job],
    how: How,
    skips: bool,
    advance: Advance,
) -> dict[int, Outcomes | WherefromError]:
    """All of them at once; where that fails and the caller goes on, halves of them, down to the one that fails."""
    sentences, questions = [each for each, _ in asked.values()], [each for _, each in asked.values()]
    try:
        found = run_whole(opened, sentences, questions, jobs, how.batch_size, how.overlap, advance)
    except INPUT_ERRORS as error:
        if not skips:
            raise
        if len(asked) == 1:
            return dict.fromkeys(asked, error)
        rows, half = list(asked), len(asked) // 2
        halves = ({row: asked[row] for row in part} for part in (rows[:half], rows[half:]))
        parts = [_explained(opened, each, jobs, how, skips, lambda _: None) for each in halves]
        return {row: each for part in parts for row, each in part.items()}
    return {
        row: {name: each.at(row) for name, each in outcomes.items()} for row, outcomes in zip(asked, found, strict=True)
    }


def chunks(inputs: Any, batch_size: int) -> Iterator[Chunk]:
    """Inputs taken as they come: one batch at first, so that nobody waits long for an answer, later several."""
    items = several(inputs)
    if items is None:
        raise InvalidInput(
            f"{kind_of(inputs)} was given; expected several inputs, one after another (a list, a generator, a "
            f"column of a dataset); for a single one use explain"
        )
    return _cut(items, batch_size)


def _cut(items: Iterable[Any], batch_size: int) -> Iterator[Chunk]:
    """What came before an input that cannot be read is given before that is said."""
    left, first, size = iter(items), 0, batch_size
    error: Exception | None = None
    while error is None:
        part: list[Any] = []
        try:
            for item in islice(left, size):
                part.append(item)  # noqa: PERF402 - one by one: what came before an error stays
        except Exception as raised:
            error = raised
        begin = time.monotonic()
        if part:
            yield Chunk(part, first)
        elif error is None:
            return
        slow = time.monotonic() - begin > PATIENCE
        first, size = first + len(part), max(size // 2, batch_size) if slow else min(2 * size, AHEAD * batch_size)
    raise error
