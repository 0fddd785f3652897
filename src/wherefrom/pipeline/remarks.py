"""What a result should not be read without, in its `notes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wherefrom.model import Answer, Model
from wherefrom.patents import PATENT_NOTE, PATENTED_IDEA
from wherefrom.pipeline.resolution import Job

UNPROVED = "opened with prove=False: not compared with the model's own pass"
SHARED_NOTES = (UNPROVED, PATENT_NOTE)  # notes on every part of an explanation, which the joined one keeps


def notes(opened: Model, job: Job, found: Answer, scores: Any) -> list[str]:
    """List an unproved model, scores that are all 0, the place of gradients, how rows are joined, and a patent."""
    unproved = [] if opened.prove else [UNPROVED]
    patent = [PATENT_NOTE] if job.method.idea == PATENTED_IDEA else []
    if not (scores[0] or scores.any()):  # to look at all of them takes longer
        return [*unproved, "all scores are 0: this method finds nothing here", *patent]
    return [*unproved, *_place(opened, job), *_phrase(job, found), *patent]


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
