r"""Whether to believe one explanation: its own evidence, on its own sentence.

    erasure      p(y|x without the k words scored highest), for growing k, beside the same for words in random order
    agreement    Spearman's ρ of every two methods over the words of the text

The probability is that of the explained target (with a foil: among the two); of a sentence embedding, which has none,
its similarity or dimension stands in that place. Words go in the order of their scores, the
pieces of a word together: a classifier's are deleted, and where the place of a token matters (a masked word, a next
token, an answer) they are replaced, by the mask or else the unknown token; a language model that has neither no longer
sees them. A picture's patches are its words, and are painted over with its mean colour. The word at which the answer is
read, a prompt's last, cannot be hidden from itself: it stays, however high its score, and the sentence says so. An
order that knows nothing lowers the probability too, more so in short sentences; what a method adds is the distance to
it.

**The verdict is a rank test.** The order of the scores is compared with 19 other orders, drawn at random and all
different: it is better than chance where its mean probability over the whole curve is the lowest of the 20. An order
that is itself random is one of 20 alike, and so comes first in at most 1/20 of cases: the level is 5 %,
whatever the model and the text, and ties only lower it. A text of three words has six orders and gets no verdict.

One sentence proves little; metrics over a dataset are in `wherefrom.metric.erasure` and `correlation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import factorial, floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidInput, NotDefined
from wherefrom.method.ablation import found_way
from wherefrom.metric.correlation import spearman
from wherefrom.metric.erasure import (
    TENTHS,
    Blank,
    Erased,
    blank_id,
    erasable,
    refuse_another_model,
    refuse_two_phrases,
    without,
)
from wherefrom.model import Model, Sentence, open_model
from wherefrom.model.phrase import continued
from wherefrom.model.target import regression
from wherefrom.result.answer import Target
from wherefrom.result.explanation import Explanation

SPOKEN = 0.2  # the share of the words of which the sentence speaks
LEVEL = 0.05  # how often an order that knows nothing is called better than chance
OTHERS = 19  # random orders to be told from: coming first among 20 has a chance of 5 %
LONG = 64  # tokens beyond which the curve has fewer steps:
FEW_STEPS = (0.0, 0.1, SPOKEN, 0.5)
SMALLEST = 1e-6  # probabilities that begin below have an exponent
NOISE = 1e-6  # of the largest probability: a smaller difference is rounding

Array = NDArray[np.float64]
Words = list[list[int]]  # the tokens of each word


@dataclass(frozen=True, eq=False)
class Check:
    """The explained probability as words go, in the order of the scores and at random."""

    method: str
    target: Target
    by: str  # "delete", "mask", "unknown" or "attention"; of a picture "mean"
    words: list[str]  # in the order in which they go
    taken: list[int]  # how many words are gone at each step, 0 first
    probabilities: Array  # [K]
    random: Array  # [R, K]: one row for each random order, none of them this one
    kept: str = ""  # the word that stays because the answer is read there
    of: str = "sentence"  # or "picture", whose words are its patches

    @property
    def step(self) -> int:
        """The step of which the sentence speaks: two words, or a fifth of a longer text."""
        return self.taken.index(_spoken(len(self.words)))

    @property
    def chance(self) -> Array:
        """The mean over all orders, [K]: this one, which the random ones leave out, is one of n! alike."""
        others = self.random.mean(0)
        return np.asarray(others + (self.probabilities - others) / factorial(min(len(self.words), OTHERS)))

    @property
    def beaten(self) -> int:
        """How many of the random orders leave a higher probability than this one, in the mean over all steps."""
        rounding = NOISE * max(np.abs(self.probabilities).max(), np.abs(self.random).max())
        return int((self.random.mean(1) > self.probabilities.mean() + rounding).sum())

    @property
    def told(self) -> bool | None:
        """Whether the order is better than chance at the level of 5 %; None where the text has too few orders."""
        return None if len(self.random) < OTHERS else self.beaten == len(self.random)

    def __str__(self) -> str:
        k = self.taken[self.step]
        before, after, without_random = self._shown
        but = f" (of all but “{self.kept}”, which stays: the answer is read there)" if self.kept else ""
        one, several = self._nouns
        top = (f"its top {one}" if k == 1 else f"its top {k} {several}") + but
        random = f"a random {one}" if k == 1 else f"{k} random {several}"
        change = f"falls from {before} to {after}" if self._falls else f"does not fall ({before}, then {after})"
        return f"Without {top} {self._probability} {change}; without {random} it is {without_random}."

    @property
    def _probability(self) -> str:
        """Which probability it is: beside a method with a foil may stand one that takes none, and reads another."""
        target = self.target
        if target.label is None:  # scores from elsewhere may not name what they explain
            return "the probability"
        if target.kind == "similarity":
            than = "" if target.foil_label is None else f" less that to “{target.foil_label}”"
            return f"the similarity to “{target.label}”{than}"
        if target.kind == "dimension":
            return f"dimension {target.label}" + ("" if target.foil is None else f" less dimension {target.foil_label}")
        kind = "" if target.kind in ("class", "token", "phrase") else f"the {target.kind} "
        against = "" if target.foil_label is None else f" against “{target.foil_label}”"
        return f"the probability of {kind}“{target.label}”{against}"

    @property
    def _quantity(self) -> str:
        """What is measured, in a word."""
        return {"similarity": "similarity", "dimension": "value"}.get(self.target.kind, "probability")

    @property
    def _shown(self) -> tuple[str, str, str]:
        """The numbers of the sentence as it writes them: nothing gone, the top words gone, random words gone."""
        start, here = self.probabilities[[0, self.step]]
        digits = _format(start)
        return format(start, digits), format(here, digits), format(self.chance[self.step], digits)

    @property
    def _falls(self) -> bool:
        before, after, _ = self._shown
        return float(after) < float(before)  # as a reader sees it

    @property
    def _nouns(self) -> tuple[str, str]:
        """What goes: one, and several."""
        return ("patch", "patches") if self.of == "picture" else ("word", "words")

    @property
    def verdict(self) -> str:
        """What the whole curve says against the random orders."""
        count, last = len(self.random), self.taken[-1]
        if self.told is None:
            return (
                f"{len(self.words)} {self._nouns[1]} have only {count + 1} orders: too few to tell this one from "
                f"chance (at the {100 * LEVEL:.0f} % level)."
            )
        leave = "leaves" if count - self.beaten == 1 else "leave"
        if self.told:
            found = f"all {count} random orders leave a higher {self._quantity}: better than chance"
        else:
            found = (
                f"{count - self.beaten} of {count} random orders {leave} a {self._quantity} as low or lower: on this "
                f"{self.of} it cannot be told from chance"
            )
        said = f"On average over 1 to {last} {self._nouns[1]} erased, {found} (at the {100 * LEVEL:.0f} % level)."
        return said if self._falls or not self.told else f"{self._apart} {said}"

    @property
    def _apart(self) -> str:
        """Between a sentence that sees no fall and a verdict that is good, which else seem to contradict each other."""
        k, (one, several) = self.taken[self.step], self._nouns
        return (
            f"That was with {f'one {one}' if k == 1 else f'{k} {several}'} gone; the verdict is about the whole curve."
        )


def checks(
    explanations: Sequence[Explanation] | Mapping[str, Explanation],
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    *,
    seed: int = 0,
    sentence: Sentence | None = None,
) -> Iterator[Check]:
    """The check of each explanation of one input (a list, or a comparison), as it is done: over tokens, not words.

    Those with one target share their random orders. A WherefromError where the model gives no probability. `sentence`
    is the input as the model reads it, where that is known already.
    """
    opened = open_model(model, tokenizer)
    if regression(opened):
        raise NotDefined("a regression has no probabilities, by which the check measures")
    chance: dict[Target, Array] = {}
    for explanation in explanations.values() if isinstance(explanations, Mapping) else explanations:
        sentence = _read(opened, explanation, sentence)
        words = _words(explanation)
        if len(words) < 2:
            raise NotDefined("there is one word that could go, and no order in which it goes; expected two or more")
        by = _way(opened, explanation)
        blank, taken = blank_id(opened, by), _steps(len(words), len(sentence))
        drawn = _drawn(len(words), seed)
        if explanation.measured not in chance:
            chance[explanation.measured] = _curves(opened, sentence, explanation, words, drawn, taken, blank)
        order = tuple(int(i) for i in np.argsort(-_word_scores(explanation), kind="stable"))
        yield Check(
            method=explanation.method,
            target=explanation.measured,
            by=by,
            words=[_text(explanation, words[i]) for i in order],
            taken=taken,
            probabilities=_curves(opened, sentence, explanation, words, [order], taken, blank)[0],
            random=chance[explanation.measured][others(order, drawn, OTHERS)],
            kept=_kept(explanation),
            of="sentence" if explanation.picture is None else "picture",
        )


def _drawn(words: int, seed: int) -> list[tuple[int, ...]]:
    """One random order more than are needed, since one may be the explanation's own; no two are the same."""
    rng = np.random.default_rng((seed, words))
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(OTHERS + 1, factorial(min(words, OTHERS))):
        found[tuple(int(i) for i in rng.permutation(words))] = None
    return list(found)


def others(order: tuple[int, ...], drawn: Sequence[tuple[int, ...]], count: int) -> list[int]:
    """Which of the orders drawn this one is compared with: the first `count` that are not itself.

    They are a random choice among all other orders, so that a random order and these are alike in every respect.
    """
    return [i for i, other in enumerate(drawn) if other != order][:count]


def agreement(explanations: Sequence[Explanation]) -> Array:
    """Spearman's ρ of every two explanations of one input over the words of its text that can go: [M, M].

    The word at which another is predicted, a mask or a prompt's last, is left out, as in the check by erasure. Where
    one of two methods has no signs, the magnitudes are compared. NaN where scores are constant, or all rounding.
    """
    every = [_word_scores(each) for each in explanations]
    if any(len(scores) != len(every[0]) for scores in every):
        raise InvalidInput("the explanations are of different inputs; expected several methods on one input")
    if len(every[0]) < 2:
        raise NotDefined("there is one word, and nothing to rank; expected two or more")
    found = np.eye(len(every))
    for i, one in enumerate(explanations):
        for j, other in enumerate(explanations[:i]):
            both = one.signed and other.signed
            pair = (every[i], every[j]) if both else (np.abs(every[i]), np.abs(every[j]))
            found[i, j] = found[j, i] = spearman(*pair)
    return found


def _word_scores(explanation: Explanation) -> Array:
    join = np.sum if explanation.additive else np.mean  # as `Explanation.words` does
    if explanation.rounding:
        return np.zeros(len(_words(explanation)))
    return np.array([float(join(explanation.scores[word])) for word in _words(explanation)])


def _words(explanation: Explanation) -> Words:
    free = erasable(explanation)
    if explanation.picture is not None:
        return [[patch] for patch in sorted(free)]
    return [word for word in explanation.groups if free.issuperset(word)]


def _kept(explanation: Explanation) -> str:
    """The word of the text at which the answer is read; none where that is a mask or the tokenizer's own token."""
    readout = explanation.readout
    if readout.why == "mask":
        return ""
    places = {readout.position, *readout.rows[:1]} - erasable(explanation)
    own = {i for i in places if i is not None and not explanation.special[i]}
    return next((_text(explanation, word) for word in explanation.groups if own & set(word)), "")


def _text(explanation: Explanation, word: list[int]) -> str:
    return "".join(explanation.pieces[i] for i in word).strip()


def _read(opened: Model, explanation: Explanation, known: Sentence | None) -> Sentence:
    """The sentence as the model reads it, once for all explanations of it."""
    texts = explanation.texts
    if opened.two_streams:
        raise NotDefined("the check erases words of one text, and here there are two; `evaluate` measures such pairs")
    refuse_two_phrases(explanation)
    refuse_another_model(opened, explanation)
    if (not texts and explanation.picture is None) or explanation.granularity != "token":
        raise InvalidInput("the explanation carries no text, or is over words; expected what `explain` returns")
    if explanation.measured.kind == "none":
        gone = "words" if explanation.picture is None else "patches"
        raise NotDefined(f"nothing is predicted here, so there is no probability that could fall when {gone} go")
    if opened.max_length is not None and len(explanation.tokens) > opened.max_length:
        raise NotDefined("the text was explained in windows; the check needs one that the model reads in one pass")
    if known is None or known.texts != texts:
        reader = opened.reader(truncate=True, tokenizer_kwargs=explanation.options.get("tokenizer_kwargs"))
        if (inputs := explanation.arguments.get("inputs")) is None:
            raise InvalidInput(
                "the picture was explained without a file that it could be read from again; explain the file, or pass "
                "sentence=, which is (sentence,), _ = open_model(model).reader().read(picture)"
            )
        (known,), _ = reader.read(inputs)
        if explanation.measured.kind == "phrase":
            known = continued(opened, known, explanation.measured.tokens)
    if known.tokens != explanation.tokens:
        raise InvalidInput("the explanation is of other tokens than this model reads; pass the model it explains")
    return known


def _way(opened: Model, explanation: Explanation) -> str:
    if opened.images:
        return "mean"
    if explanation.measured.kind == "class" and opened.task == "classification":
        return "delete"
    return str(found_way(opened)) if opened.mask_id is None else "mask"


def _format(start: float) -> str:
    """Two digits after the point, or so many that two of a small probability (a next word's) are seen."""
    if abs(start) < SMALLEST:
        return ".2f" if start == 0 else ".1e"
    return f".{max(2, 1 - floor(log10(abs(start))))}f"


def _spoken(words: int) -> int:
    return max(min(2, words - 1), round(SPOKEN * words))


def _steps(words: int, tokens: int) -> list[int]:
    """How many words are gone at each step; never all of them, which leaves nothing to be right or wrong about."""
    shares = TENTHS if tokens <= LONG else FEW_STEPS
    return sorted({0, _spoken(words), *(min(words - 1, round(share * words)) for share in shares)})


def _curves(
    opened: Model,
    sentence: Sentence,
    explanation: Explanation,
    words: Words,
    orders: Sequence[Sequence[int]],
    taken: Sequence[int],
    blank: Blank,
) -> Array:
    """[orders, steps]: all orders in one batch of reruns."""
    cases = [
        Erased(sentence, explanation, frozenset(token for i in order[:k] for token in words[i]))
        for order in orders
        for k in taken
    ]
    return without(opened, cases, blank).reshape(len(orders), len(taken))
