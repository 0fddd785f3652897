"""Texts longer than the model reads: overlapping windows, each explained by itself, their scores joined.

Every window has the special tokens of the whole at its ends, so that the model reads it as a text of its own:

    [CLS] t_1 … t_m [SEP]      [CLS] t_{m-o+1} … t_{2m-o} [SEP]      …      [CLS] t_{n-m+1} … t_n [SEP]

with o tokens of overlap; the last window reaches back as far as it has room. A classifier's target is one for all of
them: the class asked for, or the one with the highest mean probability over the windows. The score of a token is the
mean over the windows that it stands in, so no token counts more because it was read twice; the scores then add up to
no number of the model's. Maps are left out: no layer ever saw two tokens of different windows together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from wherefrom.errors import InvalidInput, InvalidOption, InvalidTarget
from wherefrom.model import Model, Reader, Sentence, answers, collate
from wherefrom.model.capture import rerunning
from wherefrom.pipeline.execution import Advance, run_all
from wherefrom.pipeline.outcome import Outcome, Outcomes
from wherefrom.pipeline.remarks import SHARED_NOTES
from wherefrom.pipeline.resolution import Job, Question
from wherefrom.result.answer import Answer, Readout, Target
from wherefrom.result.explanation import Explanation

TASKS = ("classification", "encoder")
IN_EVERY_WINDOW = (None, "first", "last", "mean")  # positions


@dataclass(frozen=True)
class Cut:
    """A sentence in windows: for each, the tokens of the whole that it holds."""

    sentence: Sentence
    windows: list[list[int]]
    overlap: int

    @property
    def parts(self) -> list[Sentence]:
        return [_taken(self.sentence, window) for window in self.windows]


def run_whole(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    overlap: int | None = None,
    advance: Advance = lambda _count: None,
) -> list[Outcomes]:
    """As `run_all`, for sentences of any length."""
    most = _most(opened)
    longer = [i for i, each in enumerate(sentences) if most is not None and len(each) > most]
    fitting = [i for i in range(len(sentences)) if i not in set(longer)]
    short, asked = [sentences[i] for i in fitting], [questions[i] for i in fitting]
    found = dict(zip(fitting, run_all(opened, short, asked, jobs, batch_size, advance), strict=True))
    for i in longer:
        assert most is not None
        _refuse(opened, questions[i], jobs)
        whole = cut(opened, sentences[i], most, overlap)
        found[i] = _explained(opened, whole, questions[i], jobs, batch_size)
        advance(1)
    return [{name: outcome.at(i) for name, outcome in found[i].items()} for i in range(len(sentences))]


def at_once(opened: Model, sentence: Sentence) -> int:
    """How many tokens of the sentence the model reads in one pass."""
    most = _most(opened)
    return len(sentence) if most is None else min(len(sentence), most)


def _most(opened: Model) -> int | None:
    """How many tokens fit; each of two streams has its own room, which was looked at when it was read."""
    return None if opened.two_streams else opened.max_length


def refuse_overlap(overlap: int | None, reader: Reader) -> None:
    """Only windows overlap; where none are asked for, somebody forgot to."""
    if overlap is not None and not reader.any_length:
        raise InvalidOption(f"overlap={overlap} is of windows, and none are asked for; say long='windows' with it")


def as_read(opened: Model, sentences: Sequence[Sentence], overlap: int | None = None) -> list[Sentence]:
    """What the model will read: every sentence that fits, and the windows of those that do not."""
    most = _most(opened)
    return [
        part
        for each in sentences
        for part in ([each] if most is None or len(each) <= most else cut(opened, each, most, overlap).parts)
    ]


def cut(opened: Model, sentence: Sentence, most: int, overlap: int | None = None) -> Cut:
    """The windows of a sentence of more than `most` tokens, neighbours sharing `overlap` (a quarter, if None)."""
    if opened.tokenizer is None:
        raise InvalidOption(
            "windows need the tokenizer, to know which tokens stand at the ends of each; pass tokenizer="
        )
    n = len(sentence)
    written = [i for i in range(n) if not sentence.special[i]]
    if not written:
        raise InvalidInput(f"the text has {n} tokens, all special; there is nothing to cut into windows")
    head, tail = list(range(written[0])), list(range(written[-1] + 1, n))
    if len(sentence.texts) > 1 or len(written) < n - len(head) - len(tail):
        raise InvalidInput("a pair of texts is not cut into windows: what belongs together is unknown; shorten one")
    room = most - len(head) - len(tail)
    overlap = room // 4 if overlap is None else overlap
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap < room:
        raise InvalidOption(f"overlap is {overlap!r}; expected a number of tokens from 0 to {room - 1}")
    starts = [*range(0, len(written) - room, room - overlap), len(written) - room]
    return Cut(sentence, [[*head, *written[start : start + room], *tail] for start in starts], overlap)


def _refuse(opened: Model, question: Question, jobs: Mapping[str, Job]) -> None:
    if opened.task not in TASKS:
        raise InvalidOption(
            f"long='windows' is for classifiers and bare encoders; what {opened.name} predicts stands at one place of "
            f"the text: cut the text around it"
        )
    if question.position not in IN_EVERY_WINDOW:
        raise InvalidTarget(
            "position= names one token, which not every window has; with long='windows' leave it out or say 'first', "
            "'last' or 'mean', which is of each window"
        )
    if any(job.head == "all" for job in jobs.values()):
        raise InvalidOption("windows have no maps to join, so none of single heads either; leave head='all' out")


def _taken(sentence: Sentence, places: list[int]) -> Sentence:
    def those(values: Any) -> Any:
        return None if values is None else [values[i] for i in places]

    names = ("ids", "tokens", "special", "spans", "types", "visible", "word_ids", "unknown", "embedded")
    return replace(sentence, **{name: those(getattr(sentence, name)) for name in names})


def _explained(opened: Model, whole: Cut, question: Question, jobs: Mapping[str, Job], batch_size: int) -> Outcomes:
    parts = whole.parts
    prediction, probabilities = _predicted(opened, parts, batch_size)
    best = next((Target("class", i, label) for i, label in opened.labels.items() if label == prediction), None)
    chosen = best is not None and question.target is None
    if best is not None and chosen:
        question = replace(question, target=best.index)
    bare = {name: replace(job, keep="row") for name, job in jobs.items()}
    found = run_all(opened, parts, [question] * len(parts), bare, batch_size)
    joined: Outcomes = {}
    for name, job in jobs.items():
        windows = [outcomes[name] for outcomes in found]
        failed = next((each.error for each in windows if each.error), None)
        if failed is not None:
            joined[name] = Outcome(0, name, job, error=failed)
            continue
        by_target = zip(*(each.explanations for each in windows), strict=True)
        whole_text = [_joined(whole, list(each), prediction, probabilities, chosen) for each in by_target]
        judged = tuple(each if best is None else replace(each, measured=best) for each in whole_text)
        joined[name] = Outcome(0, name, job, judged)
    return joined


def _predicted(opened: Model, parts: Sequence[Sentence], size: int) -> tuple[str | None, dict[str, float]]:
    """What a classifier says of all windows: the class of the highest mean probability, and the means."""
    if opened.task != "classification":
        return None, {}
    said: list[Answer] = []

    @torch.no_grad()
    def read() -> None:
        for members in opened.batches(parts, size):
            output = opened.forward(collate([parts[i] for i in members], opened.pad_id))
            said.extend(answers(opened, parts[i], output, row, 0)[0] for row, i in enumerate(members))

    rerunning(opened, read, own_attention=True)
    if not said[0].probabilities:  # a regression predicts a number
        return f"{np.mean([float(each.prediction or 0) for each in said]):.4g}", {}
    means = {label: float(np.mean([each.probabilities[label] for each in said])) for label in said[0].probabilities}
    return max(means, key=lambda label: means[label]), means


def _joined(
    whole: Cut, found: list[Explanation], prediction: str | None, probabilities: dict[str, float], chosen: bool
) -> Explanation:
    sentence = whole.sentence
    layers = [each.layer_scores for each in found if each.layer_scores is not None]
    ours = ("keep", *(("target",) if chosen else ()))  # chosen here, not by the caller
    asked = {name: value for name, value in found[0].options.items() if name not in ours}
    note = (
        f"{len(sentence)} tokens are more than the model reads: explained in {len(found)} windows that overlap by "
        f"{whole.overlap}, a token's score the mean over its windows"
    )
    return replace(
        found[0],
        tokens=sentence.tokens,
        scores=_mean(whole, [each.scores for each in found]),
        maps=None,
        aggregated=None,
        head_maps=None,
        layer_scores=_mean(whole, layers) if len(layers) == len(found) else None,
        texts=sentence.texts,
        spans=sentence.spans,
        special=sentence.special,
        unknown=sentence.unknown,
        word_ids=sentence.word_ids,
        delta=None,
        arrived=None,
        surrogate=None,
        readout=_readout(whole, found),
        prediction=prediction,
        probabilities=probabilities,
        options={**asked, "long": "windows", "overlap": whole.overlap},
        seconds=sum(each.seconds for each in found),
        notes=[
            note + ("; the class is that of the highest mean probability" if chosen else ""),
            *(note for note in found[0].notes if note in SHARED_NOTES),
        ],
    )


def _mean(whole: Cut, values: Sequence[Any]) -> Any:
    """Over the windows that each token stands in, along the last axis."""
    total = np.zeros((*values[0].shape[:-1], len(whole.sentence)), dtype=values[0].dtype)
    count = np.zeros(len(whole.sentence), dtype=values[0].dtype)
    for window, each in zip(whole.windows, values, strict=True):
        total[..., window] += each
        count[window] += 1
    return total / count


def _readout(whole: Cut, found: Sequence[Explanation]) -> Readout:
    """The readout of the whole text, where every window is read out at the same token of it."""
    places = {
        None if each.position is None else window[each.position]
        for window, each in zip(whole.windows, found, strict=True)
    }
    why = found[0].readout.why
    return Readout(places.pop(), why) if len(places) == 1 else Readout(None, f"{why} of each window")
