r"""Soft sufficiency and comprehensiveness: every token is dimmed as much as its score says, none is taken away whole.

    x'_i   =  x_i ⊙ b_i,    b_i ∈ {0, 1}^e with P(b_ik = 1) = a_i  (sufficiency)  or  1 − a_i  (comprehensiveness)
    S(x')  =  1 − max(0, p(y|x) − p(y|x'))

    Soft-NS  =  max(0, S(x') − S(0)) / (1 − S(0))             Soft-NC  =  (1 − S(x')) / (1 − S(0))

x_i is the word embedding of token i (of an encoder with a decoder, of the source's tokens alone), 0 the input with all
of them 0, and a_i its score, those below 0 as 0, divided by the largest; p of one of several labels is its sigmoid.
`distance="hellinger"` compares all of the next word's distribution, as ReAGent's code does for language models:
S(x') = 1 − Σ_w (√p_w − √q_w)² / √2, over an answer of several tokens their mean. Means over `samples` draws.

Scores that are large on average keep more of the text and so look more sufficient. With `retain=0.5` they are scaled
until every method keeps the same share of the text on average, a_i = min(1, c a_i) with mean a = 0.5 (π-Soft of Huang &
Chan 2026); with `retain=0.3` sufficiency keeps three tenths and comprehensiveness seven.

Zhao & Aletras (2023), Incorporating Attribution Importance for Improving Faithfulness Metrics. ACL.
Zhao & Shan (2024), ReAGent: A Model-agnostic Feature Attribution Method for Generative Language Models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.model import Answer, Model, Sentence, collate
from wherefrom.model.capture import rerunning
from wherefrom.model.output import choices
from wherefrom.model.target import multi_label, regression
from wherefrom.model.two_streams import SOURCE
from wherefrom.model.undo import hook
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import check_fields, least, within

Array = NDArray[np.float64]
Distance = Literal["probability", "hellinger"]
HALVINGS = 60  # of the interval in which the scale of the scores lies
SMALLEST = 1e-9  # where the empty text says the same as the whole, nothing can be measured


class Softened(NamedTuple):
    """How much of the answer is lost: with tokens dimmed, on average over the draws, and with nothing left."""

    dimmed: float
    empty: float

    @property
    def sufficiency(self) -> float:
        return max(0.0, self._all - self.dimmed) / self._all

    @property
    def comprehensiveness(self) -> float:
        return self.dimmed / self._all

    @property
    def _all(self) -> float:
        if self.empty < SMALLEST:
            raise NotDefined("the model says the same of an empty text, so that nothing can be lost")
        return self.empty


@dataclass(frozen=True)
class Dimming:
    """How tokens are dimmed, and what is compared."""

    distance: Distance = "probability"
    retain: Annotated[float, within(0, 1)] | None = None
    samples: Annotated[int, least(1)] = 8
    seed: Annotated[int, least(0)] = 0
    keep: bool = False  # entries stay by their token's score (sufficiency), or go by it

    def __post_init__(self) -> None:
        check_fields(self)

    def measured(self, opened: Model, cases: Sequence[tuple[Sentence, Explanation]]) -> list[Softened]:
        return [self._one(opened, sentence, explanation) for sentence, explanation in cases]

    def _one(self, opened: Model, sentence: Sentence, explanation: Explanation) -> Softened:
        if not explanation.measured.towards:
            raise NotDefined("tokens are dimmed to see what becomes of an output, and nothing is predicted here")
        if regression(opened):
            raise InvalidOption(
                "a regression has no probabilities, which soft sufficiency and comprehensiveness compare; morf, lerf "
                "and lerf-morf measure its number: lerf-morf(of=logit)"
            )
        n = explanation.segments.count(SOURCE) or len(sentence)
        share = shares(explanation.scores[:n], self.retain)
        share = share if self.keep else 1 - share
        width = opened.width
        draws = np.random.default_rng([self.seed, *sentence.ids]).random((self.samples, n, width))
        whole, none = np.ones((1, n, width)), np.zeros((1, n, width))
        kept = torch.from_numpy(np.concatenate([whole, none, draws < share[:, None]]))
        said = _distributions(opened, sentence, explanation, kept)
        lost = [
            float(np.mean([loss(*pair, self.distance) for pair in zip(said[0], each, strict=True)])) for each in said
        ]
        return Softened(float(np.mean(lost[2:])), lost[1])


def shares(scores: ArrayLike, retain: float | None = None) -> Array:
    """What part of each token its score stands for: divided by the largest, or so that `retain` is kept on average."""
    positive = np.maximum(np.asarray(scores, dtype=np.float64), 0)
    if not positive.any():
        raise NotDefined(
            "no score is above 0, so that there is nothing to keep; expected scores that speak for something"
        )
    share: Array = positive / positive.max()
    if retain is None:
        return share
    low, high = 0.0, 1.0 / share[share > 0].min()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * share).mean() < retain else (low, middle)
    scaled: Array = np.minimum(1, high * share)
    return scaled


Choice = tuple[Tensor, int]  # the probabilities of all that could be said, and which of it was


def loss(whole: Choice, other: Choice, distance: Distance) -> float:
    """What is lost of one choice: 1 − S."""
    (p, said), (q, _) = whole, other
    if distance == "hellinger":
        return float(((p.sqrt() - q.sqrt()) ** 2).sum() / 2**0.5)
    return max(0.0, float(p[said] - q[said]))


def _distributions(opened: Model, sentence: Sentence, explanation: Explanation, kept: Tensor) -> list[list[Choice]]:
    """What the model says with these entries of its word embeddings alone: for each draw, the choices it makes."""
    answer = Answer(explanation.measured, explanation.readout, None, {})
    batch = collate([sentence] * len(kept), opened.pad_id)
    seen: list[bool] = []

    def dim(_module: Any, _args: Any, output: Tensor) -> Tensor | None:
        if seen:
            return None  # GPT-2 embeds its token types by the table of its words
        seen.append(True)
        return output * kept.to(output)

    words = opened.pretrained.get_encoder().get_input_embeddings() if opened.two_streams else opened.words

    @torch.no_grad()
    def run() -> Any:
        hook(words, dim)
        return opened.forward(batch)

    output = rerunning(opened, run, own_attention=True)
    return [_made(opened, choices(opened, output, row, answer, len(sentence))) for row in range(len(kept))]


def _made(opened: Model, among: Iterator[tuple[Tensor, int | None]]) -> list[Choice]:
    """The choices as probabilities; each of several labels is there or not, whatever the others."""
    if opened.task == "classification" and multi_label(opened):
        here = [scores[said].double().sigmoid() for scores, said in among]
        return [(torch.stack([p, 1 - p]), 0) for p in here]
    return [(scores.double().softmax(-1), int(said or 0)) for scores, said in among]
