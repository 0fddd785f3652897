r"""Confidence: how little the order of the tokens towards one class resembles their order towards the others.

    scores        mean over the classes k ≠ c of  τ(s_c, s_k)
    indices       mean over the classes k ≠ c of  τ(S_c, S_k),   S_k = argsort(−s_k)         (AttCAT, equation 15)
    attcat-code   τ(S_c, S_k)  with one other class:  k = 1 for c = 0, else k = c − 1

s_k are the scores of all tokens towards class k, c is the predicted class, and τ is Kendall's. Lower is better: 1 for
every method that is blind to the class, −1 where the scores of two classes rank the tokens in opposite orders.

Equation 15 defines S as "an array of the token index in order of the decreasing" scores, which `indices` correlates. It
is no rank correlation of the tokens: moving one token to the front shifts all others and may turn τ around. The
default, `scores`, is the rank correlation, as the sentence above the equation describes it. `attcat-code` repeats the
notebooks; tied tokens ([CLS] and [SEP], which their mask sets to 0) fall as numpy's default sort lets them fall, which
differs between processors. `indices` keeps tied tokens in the order of the text.

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

Protocol = Literal["scores", "indices", "attcat-code"]


def confidence(scores: ArrayLike, chosen: int, protocol: str = "scores") -> float:
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
    if (np.ptp(rows, axis=1) == 0).any():
        return float("nan")
    compared = rows if protocol == "scores" else np.argsort(-rows, axis=1, kind="stable")
    return float(np.mean([kendall(compared[chosen], row) for k, row in enumerate(compared) if k != chosen]))


def confidence_of(
    explanations: Mapping[str, Explanation], chosen: str | None = None, protocol: str = "scores"
) -> float:
    """Confidence from the explanations of every class, as `explain(…, target="all")` gives them.

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
