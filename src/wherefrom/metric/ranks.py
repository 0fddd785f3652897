r"""Relevance ranks: how high a method ranks tokens that carry no meaning of their own.

    rank_i  =  (tokens scored below i, half of those tied with it)  /  (n − 1)              (ALTI, figure 6)

so that 1 is the token that contributes most and 0 the one that contributes least. ALTI reports the mean rank of
[CLS], [SEP], the comma and the full stop. The paper leaves ties open; ties="dense" divides the dense rank by the
number of different scores, in the way its code ranks elsewhere. Without ties the two agree.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from wherefrom.errors import InvalidInput
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checked

PUNCTUATION = (",", ".")
Ties = Literal["average", "dense"]


def relevance_ranks(scores: ArrayLike, ties: str = "average") -> NDArray[np.float64]:
    """The rank of every token, from 0 (least) to 1 (most): [n] -> [n]; ½ for all where all scores are equal."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InvalidInput(f"cannot rank scores of shape {values.shape}; expected two finite numbers or more")
    checked("ties", ties, Ties)
    ranks: NDArray[np.float64] = stats.rankdata(values, ties) - 1
    if (values == values[0]).all():
        return np.full(len(values), 0.5)
    return ranks / (len(values) - 1 if ties == "average" else ranks.max())


def token_ranks(
    explanation: Explanation, punctuation: Sequence[str] = PUNCTUATION, ties: str = "average"
) -> dict[str, float]:
    """The mean rank of each special token and punctuation mark that stands in one input, by its name.

    Special tokens are those that the tokenizer added, under the names that its vocabulary gives them. Scores with
    signs are ranked by magnitude. A token that does not occur has no entry.
    """
    ranks = relevance_ranks(explanation.magnitude if explanation.signed else explanation.scores, ties)
    found: dict[str, list[float]] = {}
    for token, piece, special, rank in zip(
        explanation.tokens, explanation.pieces, explanation.special, ranks, strict=True
    ):
        name = token if special else piece.strip()
        if special or name in punctuation:
            found.setdefault(name, []).append(float(rank))
    return {name: float(np.mean(each)) for name, each in found.items()}
