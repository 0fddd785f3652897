r"""ContextCite: which parts of the context an answer rests on, from runs in which random parts are missing.

    y(m)  =  log p − log(1 − p),   p  =  Π_s p(a_s | the context without the units that m leaves out, a_1 … a_{s−1})

    w, b  =  argmin  1/2N Σ_m (y(m)/k − b − ⟨w, z(m)⟩)²  +  α ‖w‖₁

m ∈ {0, 1}^S says which of the S units (sentences, …) stay, each with probability 1/2; z is m with every column brought
to mean 0 and variance 1, k the number of tokens of the answer. The weights are given for m itself and for the whole
answer (times k, divided by the columns' deviations): so much the logit of the answer's probability rises when a unit is
there. A unit's tokens share its weight evenly, so that `explanation.by(unit)` gives the weights again.

The prompt's last unit, at whose end the answer begins, what is said after it and the tokenizer's own tokens are never
left out; of an encoder with a decoder every unit of the source can be. Tokens of units that are left out are deleted
from the ids; the authors delete the text and tokenise anew. A picture's units are its patches, painted over with its
mean colour (`by`).

How far the surrogate can be believed comes with it (`explanation.surrogate`): Spearman's ρ of y with what surrogates
fitted to four fifths of the runs say of the last fifth (the linear datamodelling score, held out), and of each weight
the 95 % interval over 200 resamplings of the runs.

Cohen-Wang, Shah, Georgiev & Mądry (2024), ContextCite: Attributing Model Generation to Context. NeurIPS.
https://arxiv.org/abs/2409.00729
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from wherefrom.errors import NotDefined
from wherefrom.method.ablation import IDEA, changing, reruns
from wherefrom.method.base import Scores, method
from wherefrom.method.citations import COHEN_WANG_2024
from wherefrom.model.perturb import By, left_out, suggested
from wherefrom.result.answer import Answer
from wherefrom.result.explanation import SAID
from wherefrom.result.units import grouped
from wherefrom.typecheck import above, least, within

if TYPE_CHECKING:
    from wherefrom.model import Model, OutputTrace, Sentence

FOLDS, RESAMPLED, INTERVAL = 5, 200, (2.5, 97.5)
STOP, PASSES = 1e-4, 1000  # scikit-learn's own, with which the authors fit
Array = NDArray[np.float64]
Number = Literal["logit-probability", "log-probability", "probability", "logit"]
Parts = Literal["auto", "token", "word", "sentence", "line", "document", "turn"] | list[tuple[int, int]]


@method(
    "context-cite",
    symbols=("ContextCite",),
    idea=IDEA,
    paper=COHEN_WANG_2024,
    needs={"reruns"},
    checks={"batch-equals-single", "sign-flips-with-foil"},
    cost=lambda s, options: reruns(s, options["n_masks"]),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def context_cite(
    output: OutputTrace,
    *,
    unit: Parts = "auto",
    n_masks: Annotated[int, least(10)] = 64,
    kept: Annotated[float, within(0, 1)] = 0.5,
    alpha: Annotated[float, above(0)] = 0.01,
    of: Number = "logit-probability",
    by: By = "auto",
    seed: Annotated[int, least(0)] = 0,
) -> Scores:
    """Weights of a sparse linear surrogate of the answer, fitted to runs without random sentences.

    unit: what is left out as one; "auto" are sentences, or words where fewer than two sentences can go; a document
    ends at an empty line; with given spans (start, end) everything beside them stays.
    """
    key = f"surrogates of {unit} {n_masks} {kept} {alpha} {of} {by} {seed}"
    found = output.trace.once(key, lambda _: _fitted(output, unit, n_masks, kept, alpha, of, by, seed))
    scores = torch.zeros(output.mask.shape, dtype=torch.float64)
    surrogates = []
    for row, (sentence, (units, fits)) in enumerate(zip(output.trace.batch.sentences, found, strict=True)):
        fit = fits[output.which]
        surrogates.append({**fit, "units": _named(sentence, units, fit["units"])})
        for members, one in zip(units, fit["units"], strict=True):
            scores[row, members] = one["weight"] / len(members)
    return Scores(scores, surrogates=surrogates)


def _fitted(
    output: OutputTrace, unit: Parts, n_masks: int, kept: float, alpha: float, of: str, by: By, seed: int
) -> list[tuple[list[list[int]], list[dict[str, Any]]]]:
    """For each sentence its units, and a surrogate for each number that is asked of it: the runs serve all of them."""
    batch = output.trace.batch.sentences
    asked = list(output.asked) or [[each] for each in output.answers]
    parts = [removable(each, answers, unit) for each, answers in zip(batch, asked, strict=True)]
    masks = [random_masks(len(each), n_masks, kept, seed) for each in parts]
    runs = answers_without(output.trace.opened, batch, asked, parts, masks, of, by)
    if not all(np.isfinite(each).all() for each in runs):
        raise NotDefined(
            "in some runs without parts of the text the answer is certain, or impossible, and the logit of its "
            "probability infinite; ask with of='probability'"
        )
    tokens = [[max(1, len(each.target.tokens)) for each in answers] for answers in asked]
    fits = [surrogates(*each, alpha, seed) for each in zip(masks, runs, tokens, strict=True)]
    return list(zip(parts, fits, strict=True))


# What is left out ------------------------------------------------------------------------------------------


def removable(sentence: Sentence, answers: Sequence[Answer], unit: Parts) -> list[list[int]]:
    """The tokens of each unit that may be missing."""
    read = {i for each in answers for i in (each.readout.position, *each.readout.rows, each.target.end)}
    segments = sentence.segments or [""] * len(sentence)
    if sentence.picture is not None:
        read = set()  # a patch that is painted over keeps its place, and can be read
    fixed = {i for i, own in enumerate(sentence.special) if own or i in read or segments[i] in SAID}

    def units(name: Any) -> list[list[int]]:
        found = grouped(name, sentence.texts, sentence.spans, sentence.segments, sentence.word_ids)
        named = found if isinstance(name, str) else [each for each in found if _given(name, sentence, each[0])]
        return [each for each in named if fixed.isdisjoint(each)]

    found = units("sentence" if unit == "auto" else unit)
    if unit == "auto" and len(found) < 2:
        found = units("word")
    if not found:
        raise NotDefined(
            "there is no part of the text that could be left out: one with a special token, or with that at which the "
            "answer is read, always stays; expected a longer context, or smaller parts (unit='word')"
        )
    return found


def _given(spans: Sequence[tuple[int, int]], sentence: Sentence, token: int) -> bool:
    """Whether a token ends in one of the spans: beside them `grouped` has single tokens."""
    place = sentence.spans[token]
    return place is not None and place[0] == 0 and any(start < place[2] <= end for start, end in spans)


def random_masks(units: int, count: int, kept: float, seed: int) -> NDArray[np.bool_]:
    """True where a unit stays: [count, units]. As the authors draw them, each by a seed of its own."""
    draws = (np.random.RandomState((seed * count + number) % 2**32) for number in range(count))  # which takes no more
    return np.stack([each.choice([False, True], size=units, p=[1 - kept, kept]) for each in draws])


def answers_without(
    opened: Model,
    sentences: Sequence[Sentence],
    asked: Sequence[Sequence[Answer]],
    parts: Sequence[list[list[int]]],
    masks: Sequence[NDArray[np.bool_]],
    of: str,
    by: str | int,
) -> list[Array]:
    """For each sentence the numbers asked of it, with the units that each mask keeps: [masks, numbers]."""
    from wherefrom.model.rerun import several_numbers

    by = left_out(opened, by)
    change = changing(opened, by)
    texts: list[Sentence] = []
    wanted, places = [], []
    for sentence, answers, units, drawn in zip(sentences, asked, parts, masks, strict=True):
        different, place = np.unique(drawn, axis=0, return_inverse=True)  # few units: the same runs come again
        places.append(len(texts) + place)
        for mask in different:
            gone = [i for members, stays in zip(units, mask, strict=True) if not stays for i in members]
            changed = [change(sentence, answer, gone) for answer in answers] if gone else []
            if gone and None in changed:
                raise NotDefined(
                    f"without these parts no token is left to read; replace them instead: {suggested(opened)}"
                )
            texts.append(changed[0][0] if changed and changed[0] else sentence)
            wanted.append([each[1] for each in changed if each] or list(answers))
    meant = [[of] * len(each) for each in wanted]
    found = several_numbers(opened, texts, wanted, meant, own_attention=by != "attention").numpy()
    return [found[place] for place in places]


# The surrogate ---------------------------------------------------------------------------------------------


def surrogates(
    masks: NDArray[np.bool_], outputs: Array, tokens: Sequence[int], alpha: float, seed: int = 0
) -> list[dict[str, Any]]:
    """For each number of `outputs` [N, K], an answer of so many tokens: the weights with their intervals, the bias, and
    how well weights fitted to some runs foretell the others.
    """
    x, lengths = masks.astype(np.float64), np.array(tokens)
    y = outputs / lengths
    weights, bias = (found[0] for found in lasso(x[None], y[None], alpha))  # [S, K], [K]
    draws = np.random.default_rng(seed).integers(len(y), size=(RESAMPLED, len(y)))
    low, high = np.percentile(lasso(x[draws], y[draws], alpha)[0], INTERVAL, axis=0)
    edges = (lengths * np.stack([weights, low, high])).transpose(2, 1, 0).tolist()
    units = [[dict(zip(("weight", "low", "high"), one, strict=True)) for one in each] for each in edges]
    believed = [_correlation(*each) for each in zip(_foretold(x, y, alpha).T, y.T, strict=True)]
    answers = zip((lengths * bias).tolist(), believed, units, strict=True)
    return [{"runs": len(y), "bias": b, "correlation": c, "units": each} for b, c, each in answers]


def _foretold(x: Array, y: Array, alpha: float) -> Array:
    """What surrogates say of runs that they were fitted without: [N, K]."""
    foretold = np.zeros_like(y)
    fold = np.arange(len(y)) % FOLDS
    for each in range(FOLDS):
        weights, bias = lasso(x[None, fold != each], y[None, fold != each], alpha)
        foretold[fold == each] = x[fold == each] @ weights[0] + bias[0]
    return foretold


def _correlation(foretold: Array, y: Array) -> float | None:
    """Spearman's ρ; None where all are equal."""
    if np.ptp(foretold) == 0 or np.ptp(y) == 0:
        return None
    return float(stats.spearmanr(foretold, y).statistic)


def lasso(x: Array, y: Array, alpha: float) -> tuple[Array, Array]:
    """Weights [R, S, K] and bias [R, K] of K fits to each of R designs, x [R, N, S] and y [R, N, K], by cyclic
    coordinate descent.

    Columns are standardised first, and a fit is done when a pass moves no weight by more than 1e-4 of the largest: the
    authors' StandardScaler and Lasso. A column that is constant has weight 0. What a weight is pulled by is kept up to
    date by the columns' products with each other, which the K fits of a design share.
    """
    mean, deviation = x.mean(1), x.std(1)
    scale = np.where(deviation == 0, 1, deviation)
    z = (x - mean[:, None]) / scale[:, None]
    products = (z.mT @ z / x.shape[1]).transpose(1, 2, 0)[..., None].copy()  # [S, S, R, 1]; 1 with itself, or 0
    pulls = (z.mT @ (y - y.mean(1, keepdims=True)) / x.shape[1]).transpose(1, 0, 2).copy()  # [S, R, K]
    weights = np.zeros_like(pulls)
    going = np.ones(pulls.shape[1:], dtype=bool)
    for _ in range(PASSES):
        before = weights.copy()
        for column, own in enumerate(products):
            pull = pulls[column] + own[column] * weights[column]
            moved = np.sign(pull) * np.maximum(np.abs(pull) - alpha, 0)
            moved = np.where(going, moved / np.where(own[column] == 0, 1, own[column]), weights[column])
            pulls -= own * (moved - weights[column])
            weights[column] = moved
        going &= np.abs(weights - before).max(0) > STOP * np.abs(weights).max(0)
        if not going.any():
            break
    found = weights.transpose(1, 0, 2) / scale[..., None]
    return found, y.mean(1) - (found * mean[..., None]).sum(1)


def _named(sentence: Sentence, units: Sequence[list[int]], found: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """The units in words, where the sentence came as a text."""
    return [{"text": _text(sentence, members), **one} for members, one in zip(units, found, strict=True)]


def _text(sentence: Sentence, members: Sequence[int]) -> str:
    first, last = sentence.spans[members[0]], sentence.spans[members[-1]]
    if first is None or last is None:
        return " ".join(sentence.tokens[i] for i in members)
    return sentence.texts[first[0]][first[1] : last[2]].strip()
