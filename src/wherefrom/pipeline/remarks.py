"""What a result should not be read without, in its `notes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wherefrom.model import Answer, Model
from wherefrom.pipeline.resolution import Job


def notes(opened: Model, job: Job, found: Answer, scores: Any) -> list[str]:
    """That nothing is found; where gradients are; what a phrase means to a method without its log-probability."""
    if not (scores[0] or scores.any()):  # to look at all of them takes longer
        return ["all scores are 0: this method finds nothing here"]
    return [*_place(opened, job), *_phrase(job, found)]


def _place(opened: Model, job: Job) -> Iterator[str]:
    """Of an architecture that is not known, what adds positions and types to a word is not, either."""
    if not opened.family.mapped and {**job.method.options, **job.options}.get("at") == "embeddings":
        yield "taken at the word embeddings: of this model no others are known (at='word' says the same)"


def _phrase(job: Job, found: Answer) -> Iterator[str]:
    rows = len(found.readout.rows) if found.target.kind == "phrase" else 0
    if not rows or (job.method.kind == "scores" and "of" in job.method.options):
        return
    if job.method.kind == "scores":
        yield f"the sum of the logits of {rows} tokens"
    else:
        yield f"the mean of {rows} rows of the map, one for each token of the phrase"
