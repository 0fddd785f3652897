r"""Attention sinks: the first token, on which the maps of decoders pile up.

Whatever a head of a decoder has no use for goes to the first token that it sees, which all others can see and which
gives them next to nothing. `sink="drop"` takes that token s out of every layer map M and lets each row keep its sum:

    M'_ij = M_ij Σ_k M_ik / Σ_{k≠s} M_ik   for j ≠ s,        M'_is = 0               (i ≠ s)

so that rows which sum to one do so again, and rows that sum to less (gpt-oss, where a part goes to a learnt sink that
is no token) or more (norms) keep that. A row that has all it has from s is taken to come from token i itself. Row s is
left as it is: s sees nothing but itself, and no other row leads to it any more. With left padding, or a first token
that attention may not see, s is the first token that it may.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wherefrom.method.normalise import nonzero
from wherefrom.model import Sentence
from wherefrom.result.answer import Readout

LARGE = 0.5  # of all scores: a first token with more is worth a word ...
ENOUGH = 4  # ... in a text of at least so many tokens


def first_seen(sentence: Sentence) -> int:
    """The first token that attention may see."""
    visible = sentence.visible or [True]
    return next((i for i, seen in enumerate(visible) if seen), 0)


def without_sink(rows: Tensor, sentences: Sequence[Sentence], targets: Tensor | None = None) -> Tensor:
    """M' of all rows of each sentence's map, [B, …, n, n]; or of those of the tokens `targets`, [B, R]."""
    n = rows.shape[-1]
    if targets is None:
        targets = torch.arange(n).expand(len(sentences), -1)
    first = torch.tensor([first_seen(each) for each in sentences], device=rows.device)
    between = [1] * (rows.ndim - 3)  # axes of heads
    targets = targets.to(rows.device).view(len(first), *between, -1, 1)
    first = first.view(-1, *between, 1, 1)
    tokens = torch.arange(n, device=rows.device)
    rest = rows.masked_fill(tokens == first, 0)
    had, left = rows.sum(-1, keepdim=True), rest.sum(-1, keepdim=True)
    shared = torch.where(left == 0, had * (tokens == targets), rest * (had / nonzero(left)))
    return torch.where(targets == first, rows, shared)


def note(sentence: Sentence, readout: Readout, scores: np.ndarray) -> list[str]:
    """What is said of scores most of which lie on the first token, unless that is the one they explain."""
    first, total = first_seen(sentence), float(np.abs(scores).sum())
    if len(sentence) < ENOUGH or readout.position == first or total == 0:
        return []
    share = float(abs(scores[first])) / total
    if share <= LARGE:
        return []
    return [
        f"the first token {sentence.tokens[first]} has {share:.0%} of the scores: decoders put on it what they have no "
        f"other use for (an attention sink); sink='drop' leaves it out"
    ]
