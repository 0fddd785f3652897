r"""Confidence: does a method tell the classes apart, or does it point at the same tokens whatever is asked?

    confidence  =  mean over the classes k ≠ c of  Kendall τ(S_c, S_k)                       (AttCAT, equation 15)

with S_c the scores of all tokens towards class c, the predicted one. Lower is better: −1 where the classes rank the
tokens in opposite orders, 1 for every method that does not look at the class. The equation's S is "an array of the
token index in order of decreasing" scores, and AttCAT's code correlates these arrays of indices, which is no rank
correlation of the tokens: moving one token to the front shifts all others and may turn τ around. `protocol="text"`
correlates the scores, as the sentence above the equation says; `protocol="attcat-code"` repeats the code, which also
compares with one other class alone: class 1 for c = 0, else class c − 1. Tied tokens ([CLS] and [SEP], which its mask
sets to 0) fall as numpy's default sort lets them fall, which differs between processors; so does its τ then.

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from wherefrom.errors import InvalidInput, UnknownName
from wherefrom.metric.correlation import kendall
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checked

Protocol = Literal["text", "attcat-code"]


def confidence(scores: ArrayLike, chosen: int, protocol: str = "text") -> float:
    """Kendall's τ between the scores [C, n] towards the chosen class and those towards the others.

    NaN where a class gives every token the same score: it ranks nothing.
    """
    rows = np.asarray(scores, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise InvalidInput(f"scores have shape {rows.shape}; expected one row of tokens per class, two classes or more")
    if not 0 <= chosen < len(rows):
        raise InvalidInput(f"class {chosen} was chosen, and there are scores for classes 0 to {len(rows) - 1}")
    checked("protocol", protocol, Protocol)
    if protocol == "attcat-code":
        other = 1 if chosen == 0 else chosen - 1
        first, second = (np.argsort(-rows[each]) for each in (chosen, other))  # unstable, as theirs
        return kendall(first, second)
    return float(np.mean([kendall(rows[chosen], row) for k, row in enumerate(rows) if k != chosen]))


def confidence_of(explanations: Mapping[str, Explanation], chosen: str | None = None, protocol: str = "text") -> float:
    """The same from the explanations of every class, as `explain(…, target="all")` gives them.

    `chosen` is a label; by default the predicted one (AttCAT's text), where its notebooks take the gold label.
    """
    every = sorted(explanations.values(), key=lambda each: -1 if each.measured.index is None else each.measured.index)
    if not every or any(each.measured.kind != "class" or each.measured.foil is not None for each in every):
        raise InvalidInput("confidence compares classes; explain with target='all' and a classifier")
    if any(each.tokens != every[0].tokens or each.method != every[0].method for each in every):
        raise InvalidInput(
            "the explanations are of different inputs or methods; expected one method, towards every class"
        )
    labels = [each.measured.label for each in every]
    wanted = every[0].prediction if chosen is None else chosen
    if wanted not in labels:
        raise UnknownName(f"there is no explanation of the class {wanted!r}; found {', '.join(map(repr, labels))}")
    return confidence(np.stack([each.scores for each in every]), labels.index(wanted), protocol)
