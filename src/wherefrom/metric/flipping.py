r"""Flipping tokens: what becomes of a next word or an answer as tokens go, the most relevant first and the least.

    MoRF     1/(K+1) Σ_k y(x without the top k/K) − y(x)          the most relevant first: lower is better
    LeRF     1/(K+1) Σ_k y(x without the lowest k/K) − y(x)       the least relevant first: higher is better
    ΔA       LeRF − MoRF                                          the area between the two curves (Achtibat et al. 2024)

y is the log-probability of what is explained, or its logit (`of`); of an answer of several tokens it is their sum. By
default no token sees those that are gone, in any layer, and all others keep their places (`by="attention"`): a language
model has no token that says that nothing stands here. What a curve of one order loses because the text has become
strange, that of the other loses too, so that their distance says more than either.

AttnLRP measures the logit; its step and what it puts in a token's place are not at hand.

Achtibat et al. (2024), AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers. ICML.
https://arxiv.org/abs/2402.05602
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid

from wherefrom.metric.erasure import TENTHS, Erased, Way, blank_id, numbers_without, plan
from wherefrom.model import Model, Sentence
from wherefrom.model.perturb import By
from wherefrom.model.target import regression
from wherefrom.result.explanation import Explanation

Array = NDArray[np.float64]


class Flipped(NamedTuple):
    """The explained number after each share of the tokens is gone, the whole text first."""

    morf: Array
    lerf: Array
    taken: Sequence[int]  # tokens gone at each step

    def area(self, numbers: Array) -> float:
        """The area under one of the curves over the share of tokens gone, by trapezoids."""
        return float(trapezoid(numbers, np.array(self.taken) / max(1, self.taken[-1])))

    @property
    def between(self) -> float:
        """The area between the two curves."""
        return change(self.lerf) - change(self.morf)


Of = Literal["log-probability", "logit", "probability"]


@dataclass(frozen=True)
class Flips:
    """How tokens go, and after which shares one looks."""

    by: By = "attention"
    shares: tuple[float, ...] = TENTHS

    def __post_init__(self) -> None:
        Way(self.by, self.shares)  # refuses what is no way

    def measured(self, opened: Model, cases: Sequence[tuple[Sentence, Explanation]]) -> list[dict[str, Flipped]]:
        """Of each case the curves of every number that could be looked at, from one set of forward passes."""
        erased, steps = [], []
        for sentence, explanation in cases:
            order, taken = plan(sentence, explanation, Way(self.by, self.shares))
            steps.append(taken)
            for walk in (order, order[::-1]):
                erased += [Erased(sentence, explanation, frozenset(walk[:k])) for k in taken]
        numbers_of = ("logit",) if regression(opened) else get_args(Of)
        found = numbers_without(opened, erased, blank_id(opened, self.by), numbers_of)
        each = np.split(found, np.cumsum([2 * len(taken) for taken in steps])[:-1])
        return [
            {
                of: Flipped(curve[: len(taken)], curve[len(taken) :], taken)
                for of, curve in zip(numbers_of, numbers.T, strict=False)
            }
            for numbers, taken in zip(each, steps, strict=True)
        ]


def change(numbers: Array) -> float:
    """By how much the number has changed, on average over the steps."""
    return float((numbers - numbers[0]).mean())
