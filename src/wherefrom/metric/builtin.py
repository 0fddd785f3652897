"""The metrics, each under its name: a few lines between a case and the functions of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.metric import confidence as between
from wherefrom.metric import consistency as models
from wherefrom.metric import (
    correlation,
    erasure,
    flipping,
    layerwise,
    left_out,
    patchwise,
    plausibility,
    precision,
    sanity,
    soft,
)
from wherefrom.metric import evenness as even
from wherefrom.metric.base import Case, MetricSpec, Part, metric
from wherefrom.metric.probing import Code, Probe
from wherefrom.metric.ranks import Ties, token_ranks
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import least, within

Array = NDArray[np.float64]
LEVELS = ("scores", "layers", "maps")
Signs = Literal["none", "reference", "both"]  # whose signs count where two methods are compared; else magnitudes are
CueSigns = Literal["magnitude", "kept"]  # scores with signs by their magnitude, or as they are
Ranked = Literal["all", "text"]  # every token, or those alone that the tokenizer did not add itself
STEPS = {"protocol": Literal["text", "attcat-code"]}  # of erasure in tenths,
TEXT = {"protocol": Literal["text"]}
SHARES = {"protocol": Literal["text", "alti-code"]}  # and in the shares of ERASER

# Agreement with another method ----------------------------------------------------------------------------


def _compared(case: Case, asked: MetricSpec, default: str, signs: str) -> Iterator[tuple[int | None, Array, Array]]:
    """Layer, our scores and the reference's.

    `signs` alone says whether they are taken by magnitude, never the method measured: all rows of a column are
    compared with one reference.
    """
    ours, theirs = case.explanation, case.references[asked.reference or ""]
    mine, its = _sized(signs == "both"), _sized(signs != "none")
    where = asked.where or default
    if where == "scores":
        yield None, mine(ours.scores), its(theirs.scores)
    elif where == "layers":
        for layer, row in enumerate(_rows(ours)):
            yield layer, mine(row), its(theirs.scores)
    else:
        if ours.maps is None or theirs.maps is None:
            raise NotDefined(f"'{(ours if ours.maps is None else theirs).method}' has no layer maps to compare")
        for layer, (a, b) in enumerate(zip(ours.maps, theirs.maps, strict=True)):
            yield layer, mine(a), its(b)


def _sized(signed: bool) -> Callable[[Any], Array]:
    """Scores as they are, or by magnitude."""
    return lambda scores: np.asarray(scores if signed else np.abs(scores), dtype=np.float64)


def _rows(explanation: Explanation) -> Array:
    """What each layer says, everything up to it taken together where the method has an aggregation: [L, n]."""
    return layerwise.layer_rows(explanation, "maps" if explanation.aggregate is None else "aggregated")


@metric("spearman", reference=True, where=LEVELS, better="")
def spearman(
    case: Case, asked: MetricSpec, *, protocol: correlation.Protocol = "scipy", signs: Signs = "none"
) -> Iterator[Part]:
    """Spearman's ρ with another method's scores, by magnitude unless `signs` says otherwise."""
    for layer, a, b in _compared(case, asked, "scores", signs):
        yield Part(layer, correlation.spearman(a, b, protocol))


@metric(
    "pearson",
    reference=True,
    where=("maps", "scores", "layers"),
    better="",
    map_protocols=("globenc-code",),
)
def pearson(
    case: Case, asked: MetricSpec, *, protocol: layerwise.Protocol = "text", signs: Signs = "none"
) -> Iterator[Part]:
    """Pearson's r with another method, over whole layer maps (GlobEnc, figure 4)."""
    pairs = list(_compared(case, asked, "maps", signs))
    if protocol != "text":
        values = layerwise.map_agreement(
            np.stack([a for _, a, _ in pairs]), np.stack([b for _, _, b in pairs]), protocol
        )
        yield from (Part(layer, float(value)) for (layer, _, _), value in zip(pairs, values, strict=True))
        return
    for layer, a, b in pairs:
        yield Part(layer, correlation.pearson(a, b))


@metric("kendall", reference=True, where=LEVELS, better="")
def kendall(case: Case, asked: MetricSpec, *, signs: Signs = "none") -> Iterator[Part]:
    """Kendall's τ-b with another method's scores, by magnitude unless `signs` says otherwise."""
    for layer, a, b in _compared(case, asked, "scores", signs):
        yield Part(layer, correlation.kendall(a, b))


# Erasure --------------------------------------------------------------------------------------------------


def _curve(case: Case, asked: MetricSpec) -> erasure.Curve:
    assert asked.way is not None
    return case.curves[asked.way]


@metric("aopc", way=erasure.Way(), narrowed=STEPS, of_curves=erasure.each_aopc)
def aopc(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Area over the perturbation curve, the highest-scored tokens going first (AttCAT, equation 13).

    The mean of p(y|x) − p(y|x without the top share) over the shares 0, 10, …, 100 % of the tokens that the tokenizer
    did not add itself, each rounded to whole tokens: eleven points, the untouched text and the empty one among them.
    """
    yield Part(None, _curve(case, asked).aopc)


@metric("log-odds", better="lower", way=erasure.Way(), narrowed=STEPS, of_curves=erasure.each_log_odds)
def log_odds(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Mean logarithm of the share of the probability that is left (AttCAT, equation 14).

    Over the same eleven steps as `aopc`.
    """
    yield Part(None, _curve(case, asked).log_odds)


@metric("area", better="lower", way=erasure.Way(), narrowed=STEPS)
def area(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Area under the curve of the probability as tokens are erased."""
    yield Part(None, _curve(case, asked).area)


@metric("comprehensiveness", way=erasure.Way(shares=erasure.ERASER), narrowed=SHARES)
def comprehensiveness(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How far the probability falls without the top 1, 5, 10, 20 and 50 % of the tokens, on average (ERASER)."""
    yield Part(None, _curve(case, asked).mean_drop)


@metric("sufficiency", better="lower", way=erasure.Way(shares=erasure.ERASER, keep=True), narrowed=SHARES)
def sufficiency(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How far the probability falls when only the top 1, 5, 10, 20 and 50 % are left, on average (ERASER)."""
    yield Part(None, _curve(case, asked).mean_drop)


@metric(
    "masked-accuracy", better="lower", needs=("label",), gold=True, way=erasure.Way("mask", erasure.NINE), narrowed=TEXT
)
def masked_accuracy(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Share of right predictions without the top 10, 20, … 90 % of the tokens (DecompX)."""
    if case.gold is None:
        raise NotDefined(f"the gold label {case.example.label!r} is none of the model's classes")
    yield Part(None, _curve(case, asked).accuracy(case.gold))


@metric("prediction-performance", way=erasure.Way("mask", erasure.NINE, keep=True), narrowed=TEXT)
def prediction_performance(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How often the top 10, 20, … 90 % of the tokens alone leave the model's prediction as it is (after DecompX)."""
    yield Part(None, _curve(case, asked).accuracy())


# The model run again on a prompt ---------------------------------------------------------------------------


def _rerun(case: Case, asked: MetricSpec) -> Any:
    assert asked.rerun is not None
    return case.reruns[asked.rerun]


def _curves(case: Case, asked: MetricSpec, of: str) -> flipping.Flipped:
    found: dict[str, flipping.Flipped] = _rerun(case, asked)
    if of not in found:
        raise InvalidOption(
            f"a regression has no {of}, which {asked.metric.name} measures; morf, lerf and lerf-morf measure its "
            f"number: {asked.metric.name if 'of' in asked.metric.options else 'morf'}(of=logit)"
        )
    return found[of]


@metric("morf", better="lower", rerun=flipping.Flips())
def morf(case: Case, asked: MetricSpec, *, of: flipping.Of = "log-probability") -> Iterator[Part]:
    """Change of the answer's log-probability as the most relevant tokens go first, mean over tenths (AttnLRP)."""
    yield Part(None, flipping.change(_curves(case, asked, of).morf))


@metric("lerf", rerun=flipping.Flips())
def lerf(case: Case, asked: MetricSpec, *, of: flipping.Of = "log-probability") -> Iterator[Part]:
    """Change of the answer's log-probability as the least relevant tokens go first, mean over tenths (AttnLRP)."""
    yield Part(None, flipping.change(_curves(case, asked, of).lerf))


@metric("lerf-morf", rerun=flipping.Flips())
def lerf_morf(case: Case, asked: MetricSpec, *, of: flipping.Of = "log-probability") -> Iterator[Part]:
    """Area between the curves of the least and of the most relevant tokens going first (AttnLRP)."""
    yield Part(None, _curves(case, asked, of).between)


@metric("soft-sufficiency", rerun=soft.Dimming(keep=True))
def soft_sufficiency(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How much of the answer stays when every token is kept as far as its score says (Zhao & Aletras)."""
    yield Part(None, _rerun(case, asked).sufficiency)


@metric("soft-comprehensiveness", rerun=soft.Dimming())
def soft_comprehensiveness(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How much of the answer is lost when every token is dimmed as far as its score says (Zhao & Aletras)."""
    yield Part(None, _rerun(case, asked).comprehensiveness)


@metric("lds", rerun=left_out.Masks())
def lds(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Spearman's ρ of the answer with the scores of what is left, over random parts of the prompt (ContextCite)."""
    yield Part(None, _rerun(case, asked).lds)


@metric("top-k-drop", rerun=left_out.Top())
def top_k_drop(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """How far the answer's log-probability falls without the k parts of the highest scores (ContextCite)."""
    yield Part(None, _rerun(case, asked))


# Between classes, and tokens that carry no meaning --------------------------------------------------------


@metric("confidence", better="lower", every_class=True)
def confidence(case: Case, asked: MetricSpec, *, protocol: between.Protocol = "scores") -> Iterator[Part]:
    """Kendall's τ between the scores towards the explained class and towards the others (AttCAT, equation 15)."""
    del asked
    yield Part(None, between.confidence_of(case.classes, case.explanation.measured.label, protocol))


@metric("special-rank", better="")
def special_rank(case: Case, asked: MetricSpec, *, ties: Ties = "average") -> Iterator[Part]:
    """Relevance rank of special tokens and punctuation, 1 the token that contributes most (ALTI, figure 6)."""
    del asked
    for name, rank in token_ranks(case.explanation, ties=ties).items():
        yield Part(None, rank, name)


@metric("evenness", where=("scores", "layers"), better="")
def evenness(case: Case, asked: MetricSpec, *, top: Annotated[float, within(0, 1)] = 1.0) -> Iterator[Part]:
    """Normalized entropy of the scores, or of the `top` share of the largest: 1 is uniform (Abnar & Zuidema)."""
    rows = enumerate(_rows(case.explanation)) if asked.where == "layers" else [(None, case.explanation.scores)]
    for layer, row in rows:
        yield Part(layer, even.evenness(row, top))


# Against tokens that are known to matter ------------------------------------------------------------------


def _mask(case: Case, spans: Any) -> NDArray[np.bool_]:
    from wherefrom.data import token_mask

    mask = token_mask(case.explanation, spans)
    if not mask.any():
        raise NotDefined("none of the model's tokens is one of those that are looked for; the text may have been cut")
    return mask


@metric("precision", needs=("answer",), where=("K",))
def precision_at(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Of the K highest-scored tokens (@20), the share that belongs to an answer, and their count (AttCAT)."""
    yield from _among_top(case.explanation.scores, case, asked)


@metric("answer-precision", needs=("answer",), where=("K",), edges=True)
def answer_precision(case: Case, asked: MetricSpec, *, combine: precision.Combine = "sum") -> Iterator[Part]:
    """Precision@K by the scores towards the answer's start plus those towards its end (AttCAT, figure 3)."""
    start, end = (case.classes[edge].scores for edge in ("start", "end"))
    yield from _among_top(precision.combined(start, end, combine), case, asked)


def _among_top(scores: Any, case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Share and count of the answer's tokens among the K of highest score, and the largest count possible."""
    k, answer = int(asked.where or 20), _mask(case, case.example.answer)
    found = precision.precision_at(scores, answer, k)[k]
    yield Part(None, found.fraction)
    yield Part(None, float(found.count), "count")
    yield Part(None, float(min(k, answer.sum())), "maximum")


def _cue(
    case: Case,
    asked: MetricSpec,
    alignment: Callable[[Array, NDArray[np.bool_]], float],
    signs: CueSigns,
    tokens: Ranked,
) -> Iterator[Part]:
    """The answer and, unless told otherwise, each layer's own map."""
    explanation, cues = case.explanation, _mask(case, case.example.cues)
    ranked = ~np.asarray(explanation.special) if tokens == "text" else np.ones(len(cues), dtype=bool)

    def measured(scores: Any) -> float:
        return float(alignment(_sized(signs == "kept")(scores)[ranked], cues[ranked]))

    if asked.where in ("", "scores"):
        yield Part(None, measured(explanation.scores))
    layered = explanation.maps is not None or explanation.layer_scores is not None
    if asked.where in ("layers", "maps") or (not asked.where and layered):
        rows = _rows(explanation) if asked.where == "layers" else layerwise.layer_rows(explanation, "maps")
        for layer, row in enumerate(rows):
            yield Part(layer, measured(row))


@metric("cue-dot", needs=("cues",), where=LEVELS)
def cue_dot(case: Case, asked: MetricSpec, *, signs: CueSigns = "magnitude", tokens: Ranked = "all") -> Iterator[Part]:
    """Share of the scores that lies on cue words, in every layer and overall (Value Zeroing, section 5)."""
    yield from _cue(case, asked, partial(precision.dot_product, signed=True), signs, tokens)


@metric("cue-ap", needs=("cues",), where=LEVELS)
def cue_ap(case: Case, asked: MetricSpec, *, signs: CueSigns = "magnitude", tokens: Ranked = "all") -> Iterator[Part]:
    """Average precision of cue words in the ranking, in every layer and overall (Value Zeroing, section 5)."""
    yield from _cue(case, asked, precision.average_precision, signs, tokens)


@metric("cue-probes", better="lower", needs=("cues",), where=LEVELS)
def cue_probes(
    case: Case, asked: MetricSpec, *, signs: CueSigns = "magnitude", tokens: Ranked = "all"
) -> Iterator[Part]:
    """Tokens ranked above the best cue, in every layer and overall (Value Zeroing, A.2)."""
    yield from _cue(case, asked, precision.probes_needed, signs, tokens)


@metric("cue-mrr", needs=("cues",), where=LEVELS)
def cue_mrr(case: Case, asked: MetricSpec, *, signs: CueSigns = "magnitude", tokens: Ranked = "all") -> Iterator[Part]:
    """Reciprocal of the best cue's rank, in every layer and overall (Yin & Neubig; ALTI-Logit)."""
    yield from _cue(case, asked, precision.reciprocal_rank, signs, tokens)


def _rationale(case: Case) -> tuple[Array, NDArray[np.bool_]]:
    """Scores and rationale over the tokens of the text: nobody can mark those that a tokenizer adds.

    Of a pair over those of its second text, where the marks are: what people marked in the first is not known.
    """
    from wherefrom.data.spans import last_text

    places = case.explanation.spans
    last = last_text(places)
    elsewhere = [place is not None and place[0] != last for place in places]
    written = ~(np.asarray(case.explanation.special) | np.asarray(elsewhere))
    return np.asarray(case.explanation.scores, float)[written], _mask(case, case.example.rationale)[written]


@metric("token-f1", needs=("rationale",))
def token_f1(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """F1 of the highest-scored tokens, as many as are marked, with a human rationale (ERASER; HateXplain)."""
    del asked
    yield Part(None, precision.overlap(*_rationale(case)).f1)


@metric("iou", needs=("rationale",))
def iou(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Intersection over union of the highest-scored tokens, as many as are marked, with a human rationale."""
    del asked
    yield Part(None, precision.overlap(*_rationale(case)).iou)


@metric("iou-f1", needs=("rationale",))
def iou_f1(case: Case, asked: MetricSpec, *, threshold: plausibility.Threshold = 0.5) -> Iterator[Part]:
    """F1 of runs of tokens that share half of their union with a run of the rationale (ERASER)."""
    del asked
    yield Part(None, plausibility.run_overlap(*_rationale(case), threshold=threshold).f1)


@metric("auprc", needs=("rationale",))
def auprc(case: Case, asked: MetricSpec, *, protocol: plausibility.Protocol = "text") -> Iterator[Part]:
    """Area under precision and recall of the scores against a human rationale (ERASER)."""
    del asked
    yield Part(None, plausibility.auprc(*_rationale(case), protocol))


# Of pictures: patches that go, and where the object is ----------------------------------------------------


@metric("deletion", better="lower", rerun=flipping.Flips("mean"))
def deletion(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Area under the probability as a picture's patches are painted over, the highest scores first (RISE)."""
    found = _curves(case, asked, "probability")
    yield Part(None, found.area(found.morf))


@metric("insertion", rerun=flipping.Flips("mean"))
def insertion(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Area under the probability as patches come into a painted picture, the highest scores first (RISE)."""
    found = _curves(case, asked, "probability")
    yield Part(None, found.area(found.lerf))


def _inside(case: Case) -> NDArray[np.bool_]:
    if case.inside is None or not case.inside.any():
        raise NotDefined("nothing of the object is left in what the model reads of the picture")
    return case.inside


@metric("focus", needs=("region",))
def focus(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Share of a picture's positive scores on patches that lie on the object by half or more (Arias-Duart et al.)."""
    del asked
    yield Part(None, patchwise.focus(*patchwise.on_patches(case.explanation, _inside(case))))


@metric("pointing", needs=("region",))
def pointing(case: Case, asked: MetricSpec, *, tolerance: Annotated[int, least(0)] = 0) -> Iterator[Part]:
    """Whether the pixel with the highest score lies on the object, or so many pixels beside it (Zhang et al.)."""
    del asked
    yield Part(None, float(patchwise.pointing(*patchwise.on_pixels(case.explanation, _inside(case)), tolerance)))


@metric("segmentation", needs=("region",))
def segmentation(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """IoU of object and ground with the scores above their mean; also the object's own, accuracy, AP (Chefer et al.).

    Of each picture by itself, and then their mean; the authors sum up pixels over all pictures.
    """
    del asked
    values, inside = patchwise.on_pixels(case.explanation, _inside(case))
    found = patchwise.segmentation([values], [inside.astype(int)])
    yield Part(None, found.mean_iou)
    yield Part(None, found.object_iou, "object")
    yield Part(None, found.pixel_accuracy, "accuracy")
    yield Part(None, found.mean_average_precision, "ap")


# By other models, and by the same one disturbed -----------------------------------------------------------


@metric("consistency", again=models.Second(), requires=("model",))
def consistency(case: Case, asked: MetricSpec, *, protocol: correlation.Protocol = "scipy") -> Iterator[Part]:
    """Spearman's ρ with the scores of a second model, where both predict the same class (ALTI, figure 7)."""
    (second,) = _again(case, asked).values()
    if not models.same_prediction(case.explanation, second):
        raise NotDefined("the two models predict different classes")
    yield Part(None, models.consistency(case.explanation, second, protocol=protocol))


@metric("randomisation", better="", again=sanity.Randomised(), at="down to block")
def randomisation(case: Case, asked: MetricSpec, *, magnitude: bool = False) -> Iterator[Part]:
    """Spearman's ρ with the scores of the model randomised from the top down to each block (Adebayo et al.)."""
    for part, found in _again(case, asked).items():
        value = sanity.left(case.explanation, found, magnitude)
        name, _, block = part.partition(" ")  # "block 3"; head and embeddings are no layer
        yield Part(int(block), value) if block else Part(None, value, name)


@metric("stability", better="", again=sanity.Disturbed())
def stability(case: Case, asked: MetricSpec) -> Iterator[Part]:
    """Largest change of a score, relative to the largest score, in a batch, padded or in another dtype; and ρ."""
    (alone,), (found,) = case.again[sanity.Alone()].values(), _again(case, asked).values()
    yield Part(None, sanity.moved(alone, found))
    yield Part(None, sanity.left(alone, found), "rho")


def _again(case: Case, asked: MetricSpec) -> Mapping[str, Explanation]:
    assert asked.again is not None
    return case.again[asked.again]


# Of the model's layers, on the whole dataset --------------------------------------------------------------


@metric("mdl", better="lower", probe=Probe())
def mdl(codes: Sequence[Code], asked: MetricSpec) -> Iterator[Part]:
    """Bits needed to send the examples' labels to someone who holds a layer's vectors (Voita & Titov)."""
    del asked
    yield from _by_layer(code.bits for code in codes)


@metric("compression", probe=Probe())
def compression(codes: Sequence[Code], asked: MetricSpec) -> Iterator[Part]:
    """MDL as a rate against a uniform code, and its ρ with cue alignment over layers (Value Zeroing, table 2)."""
    del asked
    yield from _by_layer(code.compression for code in codes)


def _by_layer(values: Iterable[float]) -> Iterator[Part]:
    """What goes into block 0, then what comes out of each block."""
    for number, value in enumerate(values):
        yield Part(number - 1, value) if number else Part(None, value, "embeddings")
