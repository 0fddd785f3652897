r"""Consistency: do two models that say the same say it for the same reasons?

    consistency  =  mean over inputs with equal predictions of  Spearman ρ(S, S')           (ALTI, figure 7)

with S and S' one method's scores on either model. The two must cut the text into the same tokens, as ALTI's BERT and
DistilBERT do; where they do not, compare over words (`Explanation.words`). Two models may well give one answer for
different reasons, and a method that looks only at positions is perfectly consistent: a high value is no proof.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.metric.correlation import spearman
from wherefrom.result.explanation import Explanation


@dataclass(frozen=True)
class Second:
    """The other model, by its name or folder."""

    model: str = ""


def same_prediction(first: Explanation, second: Explanation, labels: Mapping[str, str] | None = None) -> bool:
    """Whether both models predict the same class. `labels` translates the second model's labels into the first's."""
    theirs = {label: (labels or {}).get(label, label) for label in second.probabilities}
    if not first.probabilities or set(first.probabilities) != set(theirs.values()):
        raise NotDefined(
            f"the models choose between different classes ({', '.join(first.probabilities) or 'none'} against "
            f"{', '.join(theirs.values()) or 'none'}); expected two classifiers with the same labels, or "
            f"labels={{'second model': 'first model', …}}"
        )
    assert second.prediction is not None
    return first.prediction == theirs[second.prediction]


def consistency(
    first: Explanation, second: Explanation, labels: Mapping[str, str] | None = None, protocol: str = "scipy"
) -> float:
    """Rank correlation of two models' explanations of one input; NaN where they predict different classes.

    So `correlation.summary` of many gives ALTI's average, and counts apart the inputs on which the models differ.
    `protocol="dense"` is the Spearman of ALTI's code.
    """
    if first.method != second.method:
        raise InvalidInput(
            f"the methods differ ('{first.method}' and '{second.method}'); expected one method, two models"
        )
    if first.tokens != second.tokens:
        raise InvalidInput(
            "the two models cut the text into different tokens; compare over words instead: explanation.words()"
        )
    if not same_prediction(first, second, labels):
        return np.nan
    return spearman(first.scores, second.scores, protocol)
