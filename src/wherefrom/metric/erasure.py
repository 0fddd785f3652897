r"""Erasure: what becomes of the prediction when the highest-scored tokens go first.

    AOPC               1/(K+1) Σ_{k=0}^{K} (p(y|x) − p(y|x without the top k/K))       (AttCAT, equation 13)
    log-odds           1/(K+1) Σ_k ln(p(y|x without the top k/K) / p(y|x))             (AttCAT, equation 14)
    comprehensiveness  mean over shares of p(y|x) − p(y|x without the top share)       (ERASER; ALTI)
    sufficiency        mean over shares of p(y|x) − p(y|the top share alone)           (ERASER; ALTI)
    masked accuracy    mean over shares of 1[argmax p(·|x without the top share) = the gold class]      (DecompX)
    kept prediction    mean over shares of 1[argmax p(·|the top share alone) = argmax p(·|x)]           (DecompX)

Tokens are taken in the order of their scores, in K = 10 steps of a tenth of those that the tokenizer did not add
itself, the last step all of them: of 13 tokens 0, 1, 3, 4, 5, 6, 8, 9, 10, 12, 13. They are deleted, or replaced by
padding, the mask or the unknown token, or (`by="attention"`) no token sees them any more; a picture's patches are
painted over. The curve is kept, so that
the area under it and every metric come from one set of forward passes. Shares are rounded to whole tokens; one above 0
is at least one token.

`protocol="attcat-code"` repeats AttCAT's notebooks, which differ from their text: nine steps of a ninth of all tokens,
special ones counted but passed over, the last token in the order never taken, padding attended, and the absolute change
in the place of the signed one. `protocol="alti-code"` repeats ALTI's (aupc.py), of comprehensiveness and sufficiency:
shares of all tokens but the first, the last and a mask that is read, rounded up; curves that never rise again, or for
sufficiency fall; and the drops at the five shares summed and divided by six.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from torch import Tensor

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined
from wherefrom.method.ablation import changing
from wherefrom.metric.deletion import without_each
from wherefrom.model import Answer, Model, Sentence, Target, open_model
from wherefrom.model.output import explained, predicted
from wherefrom.model.paired import followed_by, start_of
from wherefrom.model.perturb import UNSEEN, By, left_out, stand_in_for, suggested, untokenized
from wherefrom.model.phrase import continued
from wherefrom.model.pictures import PAINTS
from wherefrom.model.rerun import readings
from wherefrom.result.explanation import SAID, Explanation
from wherefrom.typecheck import check_fields

STARTS = ("bos_token_id", "cls_token_id", "eos_token_id")  # what a text may begin with
TENTHS = tuple(k / 10 for k in range(11))
NINE = TENTHS[1:-1]  # 10 to 90 % (DecompX)
ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)  # the shares of comprehensiveness and sufficiency (DeYoung et al. 2020)
Protocol = Literal["text", "attcat-code", "alti-code"]
TOKENS = {"cpu": 2048, "cuda": 65536}  # in one batch of variants
SLACK = {"cpu": 0.125, "cuda": 0.5}  # how much longer than the shortest of its batch: few passes keep a GPU busy


@dataclass(frozen=True, eq=False)
class Curve:
    """Probability of the target as tokens go: `probabilities[k]` after `taken[k]` tokens, the whole sentence first."""

    taken: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    kept: bool = False  # the tokens named were kept, and all others taken (sufficiency)
    protocol: str = "text"
    predictions: NDArray[np.float64] | None = None  # the id of what the model puts first, NaN where it chooses none

    @property
    def drops(self) -> NDArray[np.float64]:
        """`p(y|x) − p(y|x without)` at every step."""
        drops: NDArray[np.float64] = self.probabilities[0] - self.probabilities
        return drops

    @property
    def aopc(self) -> float:
        """Area over the perturbation curve; higher is better."""
        if self.protocol == "attcat-code":
            return float(np.abs(self.drops[1:]).mean())
        return float(self.drops.mean())

    @property
    def log_odds(self) -> float:
        """Mean log of the probability that is left; lower is better."""
        steps = self.probabilities[1:] if self.protocol == "attcat-code" else self.probabilities
        if (self.probabilities <= 0).any():
            raise NotDefined("a probability is 0, so its logarithm is not finite; use a model in float64")
        return float(np.log(steps / self.probabilities[0]).mean())

    @property
    def area(self) -> float:
        """Area under the curve of probabilities over the share of tokens taken, by trapezoids."""
        share = self.taken / max(1, self.taken[-1])
        return float(trapezoid(self.probabilities, share))

    @property
    def mean_drop(self) -> float:
        """Comprehensiveness (tokens taken) or sufficiency (tokens kept): the mean drop over the shares."""
        if self.protocol == "alti-code":
            # The first step of their curve is the whole sentence; where tokens are kept, one without any.
            curve = (
                np.maximum.accumulate(self.probabilities[1:])
                if self.kept
                else np.minimum.accumulate(self.probabilities)
            )
            drops = self.probabilities[0] - curve[1:]
            return float(drops.sum() / (len(drops) + 1))
        return float(self.drops[1:].mean())

    def accuracy(self, wanted: int | None = None) -> float:
        """The share of the steps at which the model predicts this class; by default what it predicts of the whole."""
        found = self.predictions
        if found is None or np.isnan(found).any():
            raise NotDefined("the model chooses no single class or word here, whose accuracy could be measured")
        return float((found[1:] == (found[0] if wanted is None else wanted)).mean())


def _stacked(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Their probabilities, [curves, steps]; NaN of those that a protocol of its own measures otherwise."""
    usual = all(each.protocol == "text" for each in curves) and len({len(each.taken) for each in curves}) == 1
    return np.stack([each.probabilities for each in curves]) if usual else np.full((len(curves), 1), np.nan)


def each_aopc(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """`Curve.aopc` of many."""
    kept = _stacked(curves)
    found: NDArray[np.float64] = (kept[:, :1] - kept).mean(1)
    return found


def each_log_odds(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """`Curve.log_odds` of many; NaN where one has none."""
    kept = _stacked(curves)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.log(kept / kept[:, :1]).mean(1)
    return np.where((kept > 0).all(1), found, np.nan)


@dataclass(frozen=True)
class Way:
    """How tokens go: what stands in their place, after which shares one looks, and whether the top is taken or kept."""

    by: By = "auto"
    shares: tuple[float, ...] = TENTHS
    keep: bool = False
    protocol: Protocol = "text"

    def __post_init__(self) -> None:
        check_fields(self)
        within = all(0 <= share <= 1 for share in self.shares)
        if not self.shares or not within or sorted(set(self.shares)) != list(self.shares):
            raise InvalidOption("shares of tokens must be increasing numbers between 0 and 1, such as [0.1, 0.5]")

    def __str__(self) -> str:
        usual = {TENTHS: "tenths", ERASER: "ERASER's shares"}
        shares = usual.get(self.shares) or " ".join(f"{share:g}" for share in self.shares)
        kept, protocol = " kept" if self.keep else "", "" if self.protocol == "text" else f", {self.protocol}"
        by = "delete" if self.by == "auto" else self.by  # as runs have named it from the first: curves are found by it
        return f"{by}, {shares}{kept}{protocol}"


def erasure(
    inputs: Any,
    explanations: Explanation | Sequence[Explanation],
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    *,
    by: By = "auto",
    shares: Sequence[float] = TENTHS,
    keep: bool = False,
    protocol: Protocol = "text",
) -> Any:
    """The erasure curves of explanations of `inputs` (one, or a list of both): a `Curve`, or a list of them.

    The probability is that of each explanation's own target. `keep=True` keeps the top tokens and takes the rest.
    Scores made elsewhere are measured in the same way (`Explanation.from_scores`, with the target that they explain).
    """
    opened = open_model(model, tokenizer)
    sentences, single = opened.reader().read(inputs)
    every = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if len(every) != len(sentences):
        raise InvalidInput(f"{len(every)} explanations for {len(sentences)} inputs; expected one each")
    way = Way(by, tuple(shares), keep, protocol)
    both = zip(sentences, every, strict=True)
    found = curves(opened, [(_with_answer(opened, sentence, each), each, way) for sentence, each in both])
    return found[0] if single else found


def _with_answer(opened: Model, sentence: Sentence, explanation: Explanation) -> Sentence:
    """The sentence with the phrase after it that was explained, where it was one."""
    refuse_two_phrases(explanation)
    refuse_another_model(opened, explanation)
    said = explanation.measured.tokens
    if explanation.measured.kind != "phrase" or sentence.said:
        return sentence
    if opened.two_streams:
        return followed_by(opened, sentence, start_of(opened, said), said)
    return continued(opened, sentence, said)


def refuse_another_model(opened: Model, explanation: Explanation) -> None:
    """Class 1 of a classifier is the second token of a vocabulary: its probability would be taken for the class's."""
    target = explanation.measured
    classes = opened.labels if opened.task in ("classification", "token-classification") else {}
    foreign = target.kind == "class" and (target.label or None) not in (None, classes.get(target.index or 0))
    if foreign or (target.kind in ("token", "phrase") and classes):
        raise InvalidInput(f"{opened.name} has no {target}, which was explained; pass the model that was explained")


def refuse_two_phrases(explanation: Explanation) -> None:
    target = explanation.measured
    if target.kind == "phrase" and target.foil is not None:
        raise NotDefined(
            f"{target}: a foil beside several tokens is read as a text of its own, and words can only go from one; "
            f"explain the target without the foil to measure it"
        )


def curves(opened: Model, asked: Sequence[tuple[Sentence, Explanation, Way]]) -> list[Curve]:
    """Many curves from one set of forward passes, batched over sentences, methods and ways alike."""
    return begun_curves(opened, asked)()


def begun_curves(opened: Model, asked: Sequence[tuple[Sentence, Explanation, Way]]) -> Callable[[], list[Curve]]:
    """The same under way where a device works by itself; the function waits for them."""
    many, slack = (each.get(opened.device.type, each["cpu"]) for each in (TOKENS, SLACK))
    if (quick := without_each(opened, asked, int(many), slack)) is None:
        found = _one_by_one(opened, asked)
        return lambda: found
    return lambda: [
        Curve(each.taken, each.readings[:, 0], way.keep, way.protocol, each.readings[:, 1])
        for (_, _, way), each in zip(asked, quick(), strict=True)
    ]


def _one_by_one(opened: Model, asked: Sequence[tuple[Sentence, Explanation, Way]]) -> list[Curve]:
    """The same, variant after variant."""
    variants: list[tuple[Sentence, Answer]] = []
    steps: list[list[int]] = []
    for sentence, explanation, way in asked:
        blank = blank_id(opened, way.by)
        order, taken = plan(sentence, explanation, way)
        steps.append(taken)
        for step, k in enumerate(taken):  # the whole sentence first
            gone = (order[k:] if way.keep else order[:k]) if step else []
            variants.append(_variant(opened, Erased(sentence, explanation, frozenset(gone)), blank))
    each = np.split(_readings(opened, variants), np.cumsum([len(taken) for taken in steps])[:-1])
    return [
        Curve(np.array(taken), found[:, 0], way.keep, way.protocol, found[:, 1])
        for (_, _, way), taken, found in zip(asked, steps, each, strict=True)
    ]


class Erased(NamedTuple):
    """A sentence of which these tokens are taken away."""

    sentence: Sentence
    explanation: Explanation
    gone: frozenset[int]


Blank = int | str | None  # the id of what stands in for a token; UNSEEN where nothing does, None where it is deleted


def without(opened: Model, cases: Sequence[Erased], blank: Blank) -> NDArray[np.float64]:
    """The probability of each explanation's target without the tokens: deleted, replaced by a token, or unseen."""
    found: NDArray[np.float64] = numbers_without(opened, cases, blank, ["probability"])[:, 0]
    return found


def numbers_without(opened: Model, cases: Sequence[Erased], blank: Blank, of: Sequence[str]) -> NDArray[np.float64]:
    """The same of several numbers of the target, its logit or a logarithm: [cases, numbers]."""
    found: NDArray[np.float64] = _readings(opened, [_variant(opened, case, blank) for case in cases], of)[:, :-1]
    return found


def _variant(opened: Model, case: Erased, blank: Blank) -> tuple[Sentence, Answer]:
    answer = _answer(opened, case.explanation, blank)
    if blank is None and opened.two_streams:  # tokens of the source alone go, and those that are read move up
        shorter = changing(opened, "delete")(case.sentence, answer, sorted(case.gone))
        if shorter is None:
            raise NotDefined("deleting what the decoder writes leaves nothing to measure; choose protocol='text'")
        return shorter
    return _without(opened, case.sentence, case.gone, blank), answer


def _readings(
    opened: Model, variants: Sequence[tuple[Sentence, Answer]], of: Sequence[str] = ("probability",)
) -> NDArray[np.float64]:
    """The target's probability (or other numbers `of` it), and last the prediction of each variant: [N, numbers + 1].

    What several orders have in common (all there, all gone, the same few gone) is read once.
    """
    keys = [
        (
            *(tuple(part or ()) for part in (each.ids, each.embedded, each.types, each.visible, each.unseen)),
            answer.target,
            answer.readout,
        )
        for each, answer in variants
    ]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    different = dict(zip(keys, variants, strict=True))
    answers = [different[key][1] for key in places]
    many, slack = (each.get(opened.device.type, each["cpu"]) for each in (TOKENS, SLACK))

    def read(output: Any, members: Sequence[int], lengths: Sequence[int]) -> Tensor:
        asked = [answers[i] for i in members]
        numbers = [explained(opened, output, asked, lengths, each) for each in of]
        return torch.stack([*numbers, predicted(opened, output, asked).to(numbers[0])], 1)

    found = readings(
        opened,
        [different[key][0] for key in places],
        read,
        len(of) + 1,
        tokens=int(many),
        slack=slack,
        own_attention=not any(sentence.unseen for sentence, _ in variants),
    ).numpy()
    one_each: NDArray[np.float64] = found[[places[key] for key in keys]]
    return one_each


def plan(sentence: Sentence, explanation: Explanation, way: Way) -> tuple[list[int], list[int]]:
    """The order in which tokens go, and how many are gone (or kept) at each step; the first is the whole sentence."""
    if explanation.tokens != sentence.tokens:
        raise InvalidInput(
            f"the explanation is of other tokens than the input ({explanation.tokens[:6]} … against "
            f"{sentence.tokens[:6]} …); explain with the tokenizer of the model, over tokens and not words"
        )
    if explanation.picture and sentence.picture and not explanation.picture.resembles(sentence.picture):
        raise InvalidInput("the explanation is of another picture than the input; expected what `explain` gave for it")
    order = [int(i) for i in np.argsort(-explanation.scores, kind="stable")]
    n = len(order)
    if way.protocol == "attcat-code":
        counts = sorted({int(k) for k in np.round(np.linspace(0, 1, 10) * n)} - {0})
        walk = [i for i in order[: n - 1] if not explanation.special[i]]  # theirs stops before the last of the order
        return walk, [0, *(min(k, len(walk)) for k in counts)]
    if way.protocol == "alti-code":
        inner = [i for i in order if 0 < i < n - 1 and i not in _read_at(explanation)]
        return inner, [0, *([0] if way.keep else []), *(ceil(share * len(inner)) for share in way.shares)]
    free = erasable(explanation)
    own = [i for i in order if i in free]
    if not own:
        raise NotDefined("there is no token that could be taken away; expected at least one of the text's own")
    # At least one token: 1 % of a short sentence would be none, and none kept is not what a share of 0 stands for.
    counts = [min(len(own), max(round(share * len(own)), int(share > 0))) for share in way.shares]
    return own, counts if way.shares[0] == 0 else [0, *counts]


def _without(opened: Model, sentence: Sentence, gone: frozenset[int], blank: Blank) -> Sentence:
    if blank == UNSEEN:
        return replace(sentence, unseen=tuple(sorted(gone)))
    if isinstance(blank, int):
        return sentence.blanked(gone, blank)
    if len(gone) < len(sentence):
        return sentence.without(gone)
    # A tokenizer that adds no token of its own leaves nothing to read: an empty text is what a text begins with.
    start = next((i for name in STARTS if (i := getattr(opened.tokenizer, name, None)) is not None), None)
    if start is None:
        raise NotDefined(
            f"deleting every token leaves nothing to read, and {opened.name} has no token that a text begins with; "
            f"let them go otherwise ({suggested(opened)}), or keep some (shares=[0, 0.1, …, 0.9])"
        )
    return sentence.without(gone - {0}).blanked({0}, start)


def erasable(explanation: Explanation) -> set[int]:
    """The tokens that may go: those of the text, but none at which a word is predicted, nor what is said after it."""
    fixed = _read_at(explanation)
    said = {i for i, name in enumerate(explanation.segments) if name in SAID}
    return {i for i, special in enumerate(explanation.special) if not special and i not in fixed | said}


def _read_at(explanation: Explanation) -> set[int | None]:
    readout = explanation.readout
    return {readout.position, *readout.rows} if explanation.measured.kind in ("token", "phrase") else set()


def blank_id(opened: Model, by: str | int) -> Blank:
    """What stands in for the tokens erased, by a way that `Way` has let pass."""
    by = left_out(opened, by)
    if by == "delete":
        if opened.images:
            raise InvalidOption(
                "a patch cannot be deleted from a picture; choose by='mean', 'black', 'blur', 'attention'"
            )
        return None
    if by == UNSEEN:
        opened.need_blocks(f"by={UNSEEN!r}")
        return UNSEEN
    token = stand_in_for(opened, by)
    if by in PAINTS and not opened.images:
        raise InvalidOption(
            f"{opened.name} reads text, and by={by!r} paints over patches of a picture; choose {suggested(opened)}"
        )
    if token is None:
        raise InvalidOption(
            f"{opened.name} has no token to erase by {by!r}{untokenized(opened)}; choose {suggested(opened)}"
        )
    return token


def _answer(opened: Model, explanation: Explanation, blank: Blank) -> Answer:
    target: Target = explanation.measured
    if target.kind == "none":
        raise NotDefined("erasure measures the probability of an output, and nothing is predicted here")
    if blank is None and (target.kind != "class" or opened.task != "classification") and not opened.two_streams:
        raise NotDefined(
            f"deleting tokens moves the one at which {target} is read, so that erasure by deletion measures a class of "
            f"a classifier; let them go otherwise: {suggested(opened)}"
        )
    return Answer(target, explanation.readout, None, {})
