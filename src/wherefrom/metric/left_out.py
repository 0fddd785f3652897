r"""Parts of a prompt left out: does the sum of the scores foretell what becomes of the answer?

    LDS          ρ over masks m of  Σ_u m_u S_u  and  y(m)          linear datamodelling score (Park et al. 2023)
    top-k drop   log p(answer) − log p(answer without the k units of the highest scores)

Units are sentences, or documents, lines, turns, words; each stays with probability 1/2. S_u is the sum of the scores of
a unit's tokens, or their mean where scores do not add up. y is log p − log(1 − p) of the answer, as in ContextCite,
whose own masks these are not (another seed). The last unit of the prompt, at whose end the answer begins, always stays.

Park et al. (2023), TRAK: Attributing Model Behavior at Scale. ICML.
Cohen-Wang et al. (2024), ContextCite: Attributing Model Generation to Context. NeurIPS, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import NotDefined
from wherefrom.method.context_cite import answers_without, random_masks, removable
from wherefrom.metric.correlation import spearman
from wherefrom.model import Answer, Model, Sentence
from wherefrom.model.perturb import By
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import check_fields, least, within

Array = NDArray[np.float64]
Unit = Literal["auto", "token", "word", "sentence", "line", "document", "turn"]


class LeftOut(NamedTuple):
    """What the scores say of each mask, and what became of the answer."""

    said: Array
    found: Array

    @property
    def lds(self) -> float:
        """The linear datamodelling score."""
        return spearman(self.said, self.found)


@dataclass(frozen=True)
class Masks:
    """Random masks over the units of a prompt."""

    unit: Unit = "auto"
    n_masks: Annotated[int, least(4)] = 32
    share: Annotated[float, within(0, 1)] = 0.5  # of the units that stay, on average
    by: By = "auto"
    seed: Annotated[int, least(0)] = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def measured(self, opened: Model, cases: Sequence[tuple[Sentence, Explanation]]) -> list[LeftOut]:
        units = [_units(sentence, each, self.unit) for sentence, each in cases]
        masks = [random_masks(len(each), self.n_masks, self.share, self.seed) for each in units]
        found = _answers(opened, cases, units, masks, "logit-probability", self.by)
        scores = (unit_scores(each, mine) for (_, each), mine in zip(cases, units, strict=True))
        return [LeftOut(mask @ s, y) for mask, s, y in zip(masks, scores, found, strict=True)]


@dataclass(frozen=True)
class Top:
    """The k units of the highest scores, left out together."""

    k: Annotated[int, least(1)] = 1
    unit: Unit = "auto"
    by: By = "auto"

    def __post_init__(self) -> None:
        check_fields(self)

    def measured(self, opened: Model, cases: Sequence[tuple[Sentence, Explanation]]) -> list[float]:
        units = [_units(sentence, each, self.unit) for sentence, each in cases]
        masks = []
        for (_, explanation), mine in zip(cases, units, strict=True):
            top = np.argsort(-unit_scores(explanation, mine), kind="stable")[: self.k]
            masks.append(np.array([[True] * len(mine), [i not in top for i in range(len(mine))]]))
        found = _answers(opened, cases, units, masks, "log-probability", self.by)
        return [float(whole - less) for whole, less in found]


def unit_scores(explanation: Explanation, units: Sequence[list[int]]) -> Array:
    """The score of each unit: what its tokens sum to, or their mean where scores do not add up."""
    join = np.sum if explanation.additive else np.mean
    return np.array([float(join(explanation.scores[members])) for members in units])


def _units(sentence: Sentence, explanation: Explanation, unit: Unit) -> list[list[int]]:
    found = removable(sentence, [_answer(explanation)], unit)
    if len(found) < 2:
        raise NotDefined("one part alone can be left out, so that there is no order to judge; expected two or more")
    return found


def _answer(explanation: Explanation) -> Answer:
    if explanation.measured.kind == "none":
        raise NotDefined("parts are left out to see what becomes of an output, and nothing is predicted here")
    return Answer(explanation.measured, explanation.readout, None, {})


def _answers(
    opened: Model,
    cases: Sequence[tuple[Sentence, Explanation]],
    units: Sequence[list[list[int]]],
    masks: Sequence[NDArray[np.bool_]],
    of: str,
    by: str | int,
) -> list[Array]:
    sentences, asked = [sentence for sentence, _ in cases], [[_answer(each)] for _, each in cases]
    return [each[:, 0] for each in answers_without(opened, sentences, asked, units, masks, of, by)]
