r"""Sanity: an explanation of a model must depend on the model, and on nothing but the model and the input.

    randomisation    ρ_k = Spearman ρ(S(f), S(f_k)),  f_k the model with its parts from the top down to k made random
                     (cascading), or with part k alone made random (independent)               (Adebayo et al. 2018)
    stability        max_i |S_i − S'_i| / max_i |S_i|,  S' the scores of the same input in a batch, beside a longer
                     input that it is padded to, or by the same weights in another dtype

A method whose ρ stays near 1 when everything is random explains the input (its length, its positions, the residual
connection), not what the model learned. A low ρ alone is no praise: noise would have it too, and how far ρ falls also
depends on the weights that are drawn. The number explained stays the one that the intact model was asked for. Every
change is made to a copy; the model handed in is only read.

Adebayo et al. (2018), Sanity Checks for Saliency Maps. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import choose_each, list_of_names
from wherefrom.metric.correlation import spearman
from wherefrom.model import Model, Sentence, collate, open_model
from wherefrom.model.loading import DTYPES
from wherefrom.model.two_streams import SOURCE
from wherefrom.model.variants import Randomising, in_dtype, randomised
from wherefrom.pipeline.execution import run
from wherefrom.pipeline.outcome import Outcomes
from wherefrom.pipeline.resolution import Job, Question, Wanted, resolve_job, resolve_questions
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import check_fields, least

Array = NDArray[np.float64]
ByMethod = dict[str, Explanation]  # of one input
Dtype = Literal["float32", "float64", "bfloat16", "float16"]
Disturbance = Literal["batch", "padding"] | Dtype


@dataclass(frozen=True)
class Randomised:
    """Which parts of the model are randomised at a time, and how they are drawn."""

    independent: bool = False
    way: Randomising = "initial"
    seed: Annotated[int, least(0)] = 0

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Disturbed:
    """A change that should change no score: a batch, padding, or the dtype."""

    against: Disturbance = "batch"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Alone:
    """The input by itself: what it is compared with when it is disturbed."""


@dataclass(frozen=True, eq=False)
class Randomisation:
    """How one method's explanations change as the model's parts are randomised, from the top."""

    method: str
    parts: tuple[str, ...]
    agreement: Array  # [parts, N]: rank correlation with the intact model's; NaN where one ranks nothing
    independent: bool

    @property
    def mean(self) -> Array:
        """Over the inputs on which it has a value: [parts]."""
        known = ~np.isnan(self.agreement)
        total, count = np.where(known, self.agreement, 0).sum(1), known.sum(1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass(frozen=True, eq=False)
class Change:
    """How far scores moved where they should not."""

    difference: Array  # [N]: the largest change of a score, relative to the largest score
    agreement: Array  # [N]: rank correlation


def randomisation(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: Sequence[str] = ("attention-rollout",),
    *,
    independent: bool = False,
    way: Randomising = "initial",
    magnitude: bool = False,
    target: Any = None,
    foil: Any = None,
    position: Any = None,
    batch_size: int = 16,
    seed: int = 0,
) -> dict[str, Randomisation]:
    """The randomisation test of several methods at once, by method. `target`, `foil`, `position` as in `explain`.

    way: "initial" (as if untrained) or "shuffled" (every tensor's own values in other places). magnitude: compare the
    scores without their signs, as Adebayo et al. also do.
    """
    how, methods = Randomised(independent, way, seed), list_of_names(methods)
    opened, sentences, questions, jobs = _settle(inputs, model, tokenizer, methods, target, foil, position)
    intact = _explain(opened, sentences, questions, jobs, batch_size)
    questions = _same_targets(questions, intact)
    parts: list[str] = []
    found: dict[str, list[list[float]]] = {method: [] for method in methods}  # each [parts][N]
    for part, changed in models(how, opened, sentences[0]):
        now = explained(how, changed, sentences, questions, jobs, batch_size)
        parts.append(part)
        for method in methods:
            pairs = zip(intact, now, strict=True)
            found[method].append([left(before[method], after[method], magnitude) for before, after in pairs])
    return {method: Randomisation(method, tuple(parts), np.array(found[method]), independent) for method in methods}


def stability(
    inputs: Any,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: Sequence[str] = ("attention-rollout",),
    *,
    dtypes: Sequence[Dtype] = ("float64", "bfloat16"),
    target: Any = None,
    foil: Any = None,
    position: Any = None,
) -> dict[str, dict[str, Change]]:
    """By method, then by what was changed: "batch", "padding" and each dtype; each against the input by itself."""
    if unknown := set(dtypes) - set(DTYPES):
        raise InvalidOption(f"unknown dtype {', '.join(sorted(unknown))}; expected some of {', '.join(DTYPES)}")
    methods = list_of_names(methods)
    opened, sentences, questions, jobs = _settle(inputs, model, tokenizer, methods, target, foil, position)
    alone = explained(Alone(), opened, sentences, questions, jobs)
    questions = _same_targets(questions, alone)
    disturbances: list[Disturbance] = ["batch", "padding", *dtypes]
    changed = {
        what: explained(Disturbed(what), model, sentences, questions, jobs)
        for what in disturbances
        for _, model in models(Disturbed(what), opened, sentences[0])
    }
    return {
        method: {
            what: _change([row[method] for row in alone], [row[method] for row in now]) for what, now in changed.items()
        }
        for method in methods
    }


def models(how: Randomised | Disturbed | Alone, opened: Model, sentence: Sentence) -> Iterator[tuple[str, Model]]:
    """The models that explain once more, by name: one for each part made random, from the top; else one.

    They are copies, or the model itself where only its input changes. Any sentence serves to see what runs when.
    """
    if isinstance(how, Randomised):
        batch = collate([sentence], opened.pad_id)
        yield from randomised(opened, batch, independent=how.independent, way=how.way, seed=how.seed)
    elif isinstance(how, Disturbed) and how.against in DTYPES:
        yield how.against, in_dtype(opened, getattr(torch, how.against))
    else:
        yield how.against if isinstance(how, Disturbed) else "alone", opened


def explained(
    how: Randomised | Disturbed | Alone,
    opened: Model,
    sentences: list[Sentence],
    questions: list[Question],
    jobs: Mapping[str, Job],
    batch_size: int = 1,
) -> list[ByMethod]:
    """For every sentence, an explanation by every job: by one of the `models`, and disturbed in its input."""
    if isinstance(how, Randomised):
        return _explain(opened, sentences, questions, jobs, batch_size)
    if how == Disturbed("padding"):
        return [
            _explain(opened, *_beside_longer(opened, sentence, question), jobs, 2)[0]
            for sentence, question in zip(sentences, questions, strict=True)
        ]
    return _explain(opened, sentences, questions, jobs, len(sentences) if how == Disturbed("batch") else 1)


def left(intact: Explanation, random: Explanation, magnitude: bool = False) -> float:
    """Rank correlation of the scores on the intact model and on the randomised one."""
    if magnitude:
        return spearman(intact.magnitude, random.magnitude)
    return spearman(intact.scores, random.scores)


def moved(before: Explanation, after: Explanation) -> float:
    """The largest change of a score, relative to the largest score."""
    a, b = before.scores.astype(np.float64), after.scores.astype(np.float64)
    return float(np.abs(a - b).max() / (np.abs(a).max() or 1.0))


def _settle(
    inputs: Any, model: Any, tokenizer: Any | None, methods: Sequence[str], target: Any, foil: Any, position: Any
) -> tuple[Model, list[Sentence], list[Question], dict[str, Job]]:
    chosen = choose_each(methods)
    opened = open_model(model, tokenizer)
    sentences, single = opened.reader().read(inputs)
    questions = resolve_questions(len(sentences), single, target, foil, position)
    only_scores = Wanted(rows="readout")  # are compared
    jobs = {name: resolve_job(opened, each, only_scores, judged="target") for name, each in chosen.items()}
    return opened, sentences, questions, jobs


def _explain(
    opened: Model, sentences: list[Sentence], questions: list[Question], jobs: Mapping[str, Job], batch_size: int
) -> list[ByMethod]:
    """For every sentence, an explanation by every job."""
    return one_each(run(opened, sentences, questions, jobs, batch_size))


def one_each(found: Sequence[Outcomes]) -> list[ByMethod]:
    """For every input, by method, the one explanation that was asked for."""
    return [{name: each.explanations[0] for name, each in outcomes.items()} for outcomes in found]


def _same_targets(questions: Sequence[Question], found: Sequence[ByMethod]) -> list[Question]:
    first = (next(iter(each.values())) for each in found)
    return [same_target(question, each) for question, each in zip(questions, first, strict=True)]


def same_target(question: Question, found: Explanation) -> Question:
    """The same question with nothing left to the model's own choice."""
    target = found.measured
    if target.kind in ("class", "token"):
        return replace(question, target=target.index, foil=target.foil)
    if target.kind == "none":
        return question
    return Question(target if target.kind == "answer" else target.kind, None, found.position)  # an answer has two ends


def _beside_longer(opened: Model, sentence: Sentence, question: Question) -> tuple[list[Sentence], list[Question]]:
    """The sentence together with one about twice as long, of its own tokens; in two streams both are."""
    if opened.images:
        raise NotDefined("pictures of different sizes share no batch, so that none is ever padded")
    streams = [range(len(sentence))]
    if opened.two_streams:
        source = sentence.segments.count(SOURCE)
        streams = [range(source), range(source, len(sentence))]
    at = [i for stream in streams for i in _twice(stream, opened.max_length)]
    longer = Sentence(
        ids=[sentence.ids[i] for i in at],
        tokens=[sentence.tokens[i] for i in at],
        special=[sentence.special[i] for i in at],
        spans=[None] * len(at),
        texts=(),
        types=None if sentence.types is None else [sentence.types[i] for i in at],
        segments=[sentence.segments[i] for i in at] if opened.two_streams else [],
    )
    anything = Question(None, None, None if opened.task == "classification" or opened.two_streams else 0)
    return [sentence, longer], [question, anything]


def _twice(places: range, most: int | None) -> list[int]:
    """These places again and again, to about twice their number."""
    length = 2 * len(places) + 5
    return [places[i % len(places)] for i in range(length if most is None else min(length, most))]


def _change(before: list[Explanation], after: list[Explanation]) -> Change:
    pairs = list(zip(before, after, strict=True))
    return Change(np.array([moved(a, b) for a, b in pairs]), np.array([left(a, b) for a, b in pairs]))
