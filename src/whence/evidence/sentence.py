r"""Whether to believe one explanation: its own evidence, on its own sentence.

    erasure      p(y|x without the k words scored highest), for growing k, beside the same for words in random order
    agreement    Spearman's ρ of every two methods over the words of the text

The probability is that of the explained target (with a foil: among the two). Words go in the order of their scores, the
pieces of a word together: a classifier's are deleted, and where the place of a token matters (a masked word, a next
token, an answer) they are replaced, by the mask or else the unknown token. An order that knows nothing lowers the
probability too, more so in short sentences; what a method adds is the distance to it. One sentence proves little:
measures over a dataset are in `whence.evidence.erasure` and `correlation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.answer import Target
from whence.errors import WhenceError
from whence.evidence.correlation import spearman
from whence.evidence.erasure import TENTHS, Case, blank_id, erasable, without
from whence.explaining import DEFAULT_MODEL, reader
from whence.explanation import Explanation
from whence.model import Opened, Sentence, open_model

SPOKEN = 0.2  # the share of the words of which the sentence speaks
ORDERS = 10  # random orders, fewer in long texts:
READ = 512  # about how many tokens a step of all random orders reads
CLEAR = 0.9  # the share of random orders that an order must beat to be told from chance

Array = NDArray[np.float64]
Words = list[list[int]]  # the tokens of each word


@dataclass(frozen=True, eq=False)
class Check:
    """The explained probability as words go, in the order of the scores and at random."""

    method: str
    target: Target
    by: str  # "delete", "mask" or "unknown"
    words: list[str]  # in the order in which they go
    taken: list[int]  # how many words are gone at each step, 0 first
    probabilities: Array  # [K]
    random: Array  # [R, K]: one row for each random order

    @property
    def step(self) -> int:
        """The step of which the sentence speaks: two words, or a fifth of a longer text."""
        return self.taken.index(_spoken(len(self.words)))

    @property
    def beaten(self) -> int:
        """How many of the random orders keep the probability higher than this one, over all steps."""
        return int((self.random.mean(1) > self.probabilities.mean()).sum())

    def __str__(self) -> str:
        k, (start, here) = self.taken[self.step], self.probabilities[[0, self.step]].round(2)
        chance = self.random[:, self.step].mean()
        top = "its top word" if k == 1 else f"its top {k} words"
        one = "a random word" if k == 1 else "random words"
        moves = "falls" if here < start else "rises"
        change = f"stays at {here:.2f}" if here == start else f"{moves} from {start:.2f} to {here:.2f}"
        return f"Without {top} the probability {change}; {one}: {chance:.2f}."

    @property
    def verdict(self) -> str:
        """What the whole curve says against the random orders."""
        found = f"Better than {self.beaten} of {len(self.random)} random orders"
        if self.beaten >= CLEAR * len(self.random):
            return f"{found}."
        return f"{found}: on this sentence it cannot be told from chance."


def checks(
    explanations: Sequence[Explanation], model: Any = DEFAULT_MODEL, tokenizer: Any | None = None, *, seed: int = 0
) -> Iterator[Check]:
    """The check of each explanation of one input, as it is done. Explanations are over tokens, not words.

    Those with one target share their random orders. A WhenceError where the model gives no probability.
    """
    opened = open_model(model, tokenizer)
    chance: dict[Target, Array] = {}
    for explanation in explanations:
        sentence, words = _read(opened, explanation)
        if len(words) < 2:
            raise WhenceError("there is one word that could go, and no order in which it goes; expected two or more")
        by = _way(opened, explanation)
        blank, taken = blank_id(opened, by), _steps(len(words))
        if explanation.target not in chance:
            count = max(3, min(ORDERS, READ // len(sentence)))
            orders = [list(np.random.default_rng((seed, row)).permutation(len(words))) for row in range(count)]
            chance[explanation.target] = _curves(opened, sentence, explanation, words, orders, taken, blank)
        scores = [float(explanation.scores[word].mean()) for word in words]
        order = [int(i) for i in np.argsort(-np.array(scores), kind="stable")]
        yield Check(
            method=explanation.method,
            target=explanation.target,
            by=by,
            words=[_text(explanation, words[i]) for i in order],
            taken=taken,
            probabilities=_curves(opened, sentence, explanation, words, [order], taken, blank)[0],
            random=chance[explanation.target],
        )


def agreement(explanations: Sequence[Explanation]) -> Array:
    """Spearman's ρ of every two explanations of one input over the words of its text: [M, M].

    Where one of two methods has no signs, the magnitudes are compared. NaN where scores are constant.
    """
    every = [_word_scores(each) for each in explanations]
    if any(len(scores) != len(every[0]) for scores in every):
        raise WhenceError("the explanations are of different inputs; expected several methods on one input")
    if len(every[0]) < 2:
        raise WhenceError("there is one word, and nothing to rank; expected two or more")
    found = np.eye(len(every))
    for i, one in enumerate(explanations):
        for j, other in enumerate(explanations[:i]):
            both = one.signed and other.signed
            pair = (every[i], every[j]) if both else (np.abs(every[i]), np.abs(every[j]))
            found[i, j] = found[j, i] = spearman(*pair)
    return found


def _word_scores(explanation: Explanation) -> Array:
    return np.array([float(explanation.scores[word].mean()) for word in _words(explanation)])


def _words(explanation: Explanation) -> Words:
    free = erasable(explanation)
    return [word for word in explanation.groups if free.issuperset(word)]


def _text(explanation: Explanation, word: list[int]) -> str:
    return "".join(explanation.pieces[i] for i in word).strip()


def _read(opened: Opened, explanation: Explanation) -> tuple[Sentence, Words]:
    """The sentence as the model reads it, and the words that may go."""
    texts = explanation.texts
    if not texts or explanation.granularity != "token":
        raise WhenceError("the explanation carries no text, or is over words; expected what `explain` returns")
    if explanation.target.kind == "none":
        raise WhenceError("nothing is predicted here, so there is no probability that could fall when words go")
    (sentence,), _ = reader(opened, True, None).read(texts[0] if len(texts) == 1 else (texts[0], texts[1]))
    if sentence.tokens != explanation.tokens:
        raise WhenceError("the explanation is of other tokens than this model reads; pass the model it explains")
    return sentence, _words(explanation)


def _way(opened: Opened, explanation: Explanation) -> str:
    if explanation.target.kind == "class" and opened.task == "classification":
        return "delete"
    return "unknown" if opened.mask_id is None else "mask"


def _spoken(words: int) -> int:
    return max(min(2, words - 1), round(SPOKEN * words))


def _steps(words: int) -> list[int]:
    """How many words are gone at each step; never all of them, which leaves nothing to be right or wrong about."""
    return sorted({0, _spoken(words), *(min(words - 1, round(share * words)) for share in TENTHS)})


def _curves(
    opened: Opened,
    sentence: Sentence,
    explanation: Explanation,
    words: Words,
    orders: Sequence[Sequence[int]],
    taken: Sequence[int],
    blank: int | None,
) -> Array:
    """[orders, steps]: all orders in one batch of reruns."""
    cases = [
        Case(sentence, explanation, frozenset(token for i in order[:k] for token in words[i]))
        for order in orders
        for k in taken
    ]
    return without(opened, cases, blank).reshape(len(orders), len(taken))
