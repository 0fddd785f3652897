"""Recall of the source: is the sentence that states the answer the one with the highest score?

    recall@1 = mean over prompts of [argmax_s Σ_{j ∈ s} score_j = the sentence that holds the cue]

s runs over the sentences before the last one, which asks the question. Used with planted facts
(wherefrom/papers/planted_facts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from wherefrom.errors import NotDefined
from wherefrom.metric.base import Case, MetricSpec, Part, metric

Unit = Literal["sentence", "line", "document"]
Join = Literal["sum", "mean"]


@metric("source-recall", needs=("cues",))
def source_recall(case: Case, _: MetricSpec, *, unit: Unit = "sentence", join: Join = "sum") -> Iterator[Part]:
    """1 where the sentence of the highest score holds the cue, else 0; the last one, which asks, is left out."""
    from wherefrom.data import token_mask

    parts = case.explanation.by(unit, join)
    content = case.example.text
    single = isinstance(content, str)
    text = content if isinstance(content, str) else content[1]
    places = [span if span is not None and span[0] == (not single) else None for span in parts.spans]  # no answer's
    last = len(text.rstrip()) - 1
    asking = next((start for _, start, end in filter(None, places) if start <= last < end), len(text))
    sources = [i for i, place in enumerate(places) if place is not None and place[2] <= asking]
    holding = token_mask(places, case.example.cues)[sources]
    if not holding.any():
        raise NotDefined("the cue is in no sentence before the last one; the text may have been cut")
    yield Part(None, float(holding[np.argmax(parts.scores[sources])]))
