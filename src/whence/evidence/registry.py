r"""The measures by name, as `whence evaluate` takes them:

    NAME[(OPTION=VALUE, …)][:REFERENCE][@WHERE]

    aopc    aopc(by=mask)    aopc(by=pad, protocol=attcat-code)    comprehensiveness(shares=[0.1,0.2])
    spearman:saliency    spearman(protocol=dense):ablation@layers    pearson:hta-x-input    precision@20
    consistency(model=FOLDER)    randomisation(independent=true)    stability(against=padding)    compression(of=group)

REFERENCE is another method, explained beside the measured one. WHERE says what of the explanation is measured: `scores`
(the answer), `layers` (the answering row of everything aggregated up to each layer) or `maps` (each layer by itself);
for precision it is K. A measure of one example is a few numbers, each with its layer or none; where it has no value it
says why. What a measure needs of the data is stated, so that a dataset without it is refused before anything is run.
Some measures need more than the explanation: the model once more without tokens (`way`), the example explained once
more by a changed model (`again`), or every example's vectors (`probe`, a measure of the model on the whole dataset).
What they share with each other is computed once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whence.asking import parse
from whence.errors import WhenceError
from whence.evidence import confidence as between
from whence.evidence import consistency as models
from whence.evidence import correlation, erasure, layers, plausibility, precision, sanity
from whence.evidence.probing import Code, Probe
from whence.evidence.ranks import token_ranks
from whence.explanation import Explanation

if TYPE_CHECKING:
    from whence.data import Example

Array = NDArray[np.float64]
NEEDS = {
    "cues": "cue words",
    "rationale": "a human rationale",
    "answer": "a gold answer",
    "label": "a gold label",
    "group": "a group",
    "target": "a target word",
}
Again = models.Second | sanity.Randomised | sanity.Disturbed | sanity.Alone
LEVELS = ("scores", "layers", "maps")


@dataclass(frozen=True)
class Case:
    """One example as one method explains it, and what is measured beside it."""

    example: Example
    explanation: Explanation
    references: Mapping[str, Explanation] = field(default_factory=dict)
    classes: Mapping[str, Explanation] = field(default_factory=dict)  # towards every class, by label
    curves: Mapping[erasure.Way, erasure.Curve] = field(default_factory=dict)
    again: Mapping[Again, Mapping[str, Explanation]] = field(default_factory=dict)  # once more, by what was changed


class Number(NamedTuple):
    """What a measure says of one case: NaN where it has no value, and why."""

    metric: str
    layer: int | None
    value: float
    why: str | None = None


class Part(NamedTuple):
    """One number of a measure; `name` where it has several."""

    layer: int | None
    value: float
    name: str = ""


Run = Callable[..., Iterator[Part]]


@dataclass(frozen=True)
class Metric:
    """What is known of a measure beside its definition."""

    name: str
    better: str  # "higher", "lower", or "" where neither is
    run: Run = field(repr=False)
    needs: tuple[str, ...] = ()  # parts of the example
    reference: bool = False  # compares with another method
    where: tuple[str, ...] = ()  # the levels it can be taken at, its own first
    every_class: bool = False  # explains every class, not only the predicted one
    way: erasure.Way | None = None  # takes tokens away like this
    again: Again | None = None  # explains once more like this
    probe: Probe | None = None  # reads the vectors of the whole dataset like this
    requires: tuple[str, ...] = ()  # options that must be given
    protocols: tuple[str, ...] = ()  # how it can be computed, the default first

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.run) or "").splitlines()[0]

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        parameters = inspect.signature(self.run).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        return {**own, **_options(self.way), **_options(self.again), **_options(self.probe)}


def _options(more: erasure.Way | Again | Probe | None) -> dict[str, Any]:
    """Those by which a measure's way, change or probe is chosen; keeping tokens is a measure of its own."""
    return {} if more is None else {each.name: getattr(more, each.name) for each in fields(more) if each.name != "keep"}


@dataclass(frozen=True)
class Asked:
    """A measure with everything settled that its name left open."""

    name: str
    metric: Metric
    options: dict[str, Any]
    reference: str | None = None
    where: str = ""
    way: erasure.Way | None = None
    again: Again | None = None
    probe: Probe | None = None

    @property
    def at_once(self) -> bool:
        """Whether it is measured from the explanation alone."""
        return self.way is None and self.again is None and self.probe is None

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts that an example must have."""
        return self.metric.needs if self.probe is None else (*self.metric.needs, self.probe.of)

    def measure(self, case: Case | Sequence[Code]) -> list[Number]:
        """All numbers of one case; or of a model, from the codes of its layers."""
        try:
            if isinstance(case, Case):
                self._refuse_missing(case)
            found = list(self.metric.run(case, self, **self.options))
        except WhenceError as error:
            return [Number(self.name, None, np.nan, str(error))]
        none = "the measure has no value here (all scores are equal)"
        return [
            Number(f"{self.name} {part.name}".rstrip(), part.layer, part.value, none if np.isnan(part.value) else None)
            for part in found
        ]

    def _refuse_missing(self, case: Case) -> None:
        for need in self.metric.needs:
            value = getattr(case.example, need)
            if value is None or value == ():
                raise WhenceError(f"the example lacks {NEEDS[need]}")


_METRICS: dict[str, Metric] = {}


def metrics() -> list[Metric]:
    """Every measure of one example that `whence evaluate` knows by name."""
    return list(_METRICS.values())


def metric(name: str, *, better: str = "higher", **known: Any) -> Callable[[Run], Run]:
    """Register the decorated function under `name`."""

    def register(run: Run) -> Run:
        _METRICS[name] = Metric(name, better, run, **known)
        return run

    return register


def lookup(text: str) -> Asked:
    """The measure of a name such as `spearman:saliency@layers`, or an error that says what is known."""
    head, reference, where = _taken_apart(text)
    name, options = parse(head)
    found = _METRICS.get(name)
    if found is None:
        near = get_close_matches(name, _METRICS, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise WhenceError(f"unknown measure {name!r}; {hint}expected one of {', '.join(_METRICS)}")
    if unknown := set(options) - set(found.options):
        known = ", ".join(found.options) or "none"
        raise WhenceError(f"'{name}' has no option {', '.join(map(repr, sorted(unknown)))}; its options: {known}")
    if found.protocols and (protocol := options.get("protocol", found.protocols[0])) not in found.protocols:
        raise WhenceError(f"unknown protocol {protocol!r} of '{name}'; expected one of {', '.join(found.protocols)}")
    if found.reference and not reference:
        raise WhenceError(f"'{name}' compares with another method; say which, e.g. {name}:saliency")
    if reference and not found.reference:
        raise WhenceError(f"'{name}' compares with no other method; leave ':{reference}' out")
    if where and where not in found.where and not ("K" in found.where and where.isdecimal() and int(where) > 0):
        expected = f"one of @{', @'.join(found.where)}" if found.where else "nothing after it"
        raise WhenceError(f"'{name}' cannot be taken at '@{where}'; expected {expected}")
    if missing := [option for option in found.requires if option not in options]:
        raise WhenceError(f"'{name}' must be told its {missing[0]}; write {name}({missing[0]}=…)")
    way, again, probe = (_settled(more, options) for more in (found.way, found.again, found.probe))
    return Asked(text.strip(), found, options, reference or None, where, way, again, probe)


def _settled(default: Any, options: dict[str, Any]) -> Any:
    """The way, change or probe that the options choose, which are taken out."""
    chosen = {key: options.pop(key) for key in _options(default) if key in options}
    if isinstance(chosen.get("shares"), list):
        chosen["shares"] = tuple(chosen["shares"])
    return None if default is None else replace(default, **chosen)


def measure_of(metric: str) -> Metric:
    """The measure that a number was written under: `special-rank [CLS]`, `aopc(by=mask)`."""
    return _METRICS[re.split("[(:@ ]", metric)[0]]


def _taken_apart(text: str) -> tuple[str, str, str]:
    """NAME(…), REFERENCE and WHERE; signs within brackets belong to the options."""
    parts: dict[str, str] = {"head": "", ":": "", "@": ""}
    depth, now = 0, "head"
    for char in text.strip():
        depth += (char in "([") - (char in ")]")
        if depth == 0 and char in ":@":
            now = char
        else:
            parts[now] += char
    return parts["head"], parts[":"], parts["@"]


# Agreement with another method ----------------------------------------------------------------------------


def _compared(case: Case, asked: Asked, default: str) -> Iterator[tuple[int | None, Array, Array]]:
    """Layer, our scores and the reference's; magnitudes, where one of the two methods has no signs."""
    ours, theirs = case.explanation, case.references[asked.reference or ""]
    plain = ours.signed and theirs.signed
    size: Callable[[Any], Array] = (lambda a: np.asarray(a, float)) if plain else (lambda a: np.abs(a).astype(float))
    where = asked.where or default
    if where == "scores":
        yield None, size(ours.scores), size(theirs.scores)
    elif where == "layers":
        for layer, row in enumerate(_rows(ours)):
            yield layer, size(row), size(theirs.scores)
    else:
        if ours.maps is None or theirs.maps is None:
            raise WhenceError(f"'{(ours if ours.maps is None else theirs).method}' has no layer maps to compare")
        for layer, (a, b) in enumerate(zip(ours.maps, theirs.maps, strict=True)):
            yield layer, size(a), size(b)


def _rows(explanation: Explanation) -> Array:
    """What each layer says, everything up to it taken together where the method has an aggregation: [L, n]."""
    return layers.layer_rows(explanation, "maps" if explanation.aggregate is None else "aggregated")


@metric("spearman", reference=True, where=LEVELS, better="", protocols=("scipy", "dense"))
def spearman(case: Case, asked: Asked, *, protocol: str = "scipy") -> Iterator[Part]:
    """Spearman's ρ with another method's scores."""
    for layer, a, b in _compared(case, asked, "scores"):
        yield Part(layer, correlation.spearman(a, b, protocol))


@metric("pearson", reference=True, where=("maps", "scores", "layers"), better="", protocols=layers.PROTOCOLS)
def pearson(case: Case, asked: Asked, *, protocol: str = "text") -> Iterator[Part]:
    """Pearson's r with another method, over whole layer maps (GlobEnc, figure 4)."""
    pairs = list(_compared(case, asked, "maps"))
    if protocol != "text":
        values = layers.map_agreement(np.stack([a for _, a, _ in pairs]), np.stack([b for _, _, b in pairs]), protocol)
        yield from (Part(layer, float(value)) for (layer, _, _), value in zip(pairs, values, strict=True))
        return
    for layer, a, b in pairs:
        yield Part(layer, correlation.pearson(a, b))


@metric("kendall", reference=True, where=LEVELS, better="")
def kendall(case: Case, asked: Asked) -> Iterator[Part]:
    """Kendall's τ-b with another method's scores."""
    for layer, a, b in _compared(case, asked, "scores"):
        yield Part(layer, correlation.kendall(a, b))


# Erasure --------------------------------------------------------------------------------------------------


def _curve(case: Case, asked: Asked) -> erasure.Curve:
    assert asked.way is not None
    return case.curves[asked.way]


@metric("aopc", way=erasure.Way())
def aopc(case: Case, asked: Asked) -> Iterator[Part]:
    """Area over the perturbation curve, the highest-scored tokens going first (AttCAT, equation 13)."""
    yield Part(None, _curve(case, asked).aopc)


@metric("log-odds", better="lower", way=erasure.Way())
def log_odds(case: Case, asked: Asked) -> Iterator[Part]:
    """Mean logarithm of the share of the probability that is left (AttCAT, equation 14)."""
    yield Part(None, _curve(case, asked).log_odds)


@metric("area", better="lower", way=erasure.Way())
def area(case: Case, asked: Asked) -> Iterator[Part]:
    """Area under the curve of the probability as tokens go."""
    yield Part(None, _curve(case, asked).area)


@metric("comprehensiveness", way=erasure.Way(shares=erasure.ERASER))
def comprehensiveness(case: Case, asked: Asked) -> Iterator[Part]:
    """How far the probability falls without the top 1, 5, 10, 20 and 50 % of the tokens, on average (ERASER)."""
    yield Part(None, _curve(case, asked).mean_drop)


@metric("sufficiency", better="lower", way=erasure.Way(shares=erasure.ERASER, keep=True))
def sufficiency(case: Case, asked: Asked) -> Iterator[Part]:
    """How far the probability falls when only the top 1, 5, 10, 20 and 50 % are left, on average (ERASER)."""
    yield Part(None, _curve(case, asked).mean_drop)


# Between classes, and tokens that carry no meaning --------------------------------------------------------


@metric("confidence", better="lower", every_class=True, protocols=between.PROTOCOLS)
def confidence(case: Case, asked: Asked, *, protocol: str = "text") -> Iterator[Part]:
    """Kendall's τ between the scores towards the explained class and towards the others (AttCAT, equation 15)."""
    del asked
    yield Part(None, between.confidence_of(case.classes, case.explanation.target.label, protocol))


@metric("special-rank", better="")
def special_rank(case: Case, asked: Asked, *, ties: str = "average") -> Iterator[Part]:
    """Relevance rank of special tokens and punctuation, 1 the token that contributes most (ALTI, figure 6)."""
    del asked
    for name, rank in token_ranks(case.explanation, ties=ties).items():
        yield Part(None, rank, name)


# Against tokens that are known to matter ------------------------------------------------------------------


def _mask(case: Case, spans: Any) -> NDArray[np.bool_]:
    from whence.data import token_mask

    mask = token_mask(case.explanation, spans)
    if not mask.any():
        raise WhenceError("none of the model's tokens is one of those that are looked for; the text may have been cut")
    return mask


@metric("precision", needs=("answer",), where=("K",))
def precision_at(case: Case, asked: Asked) -> Iterator[Part]:
    """Of the K highest-scored tokens (@20), the share that belongs to the answer, and their count (AttCAT)."""
    k = int(asked.where or 20)
    found = precision.precision_at(case.explanation.scores, _mask(case, case.example.answer), k)[k]
    yield Part(None, found.fraction)
    yield Part(None, float(found.count), "count")


def _cue(case: Case, asked: Asked, measure: Callable[[Array, NDArray[np.bool_]], float]) -> Iterator[Part]:
    """The answer and, unless told otherwise, each layer's own map; scores with signs by their magnitude."""
    explanation, cues = case.explanation, _mask(case, case.example.cues)

    def measured(scores: Any) -> float:
        return float(measure(np.abs(scores).astype(float), cues))

    if asked.where in ("", "scores"):
        yield Part(None, measured(explanation.scores))
    layered = explanation.maps is not None or explanation.layer_scores is not None
    if asked.where in ("layers", "maps") or (not asked.where and layered):
        rows = _rows(explanation) if asked.where == "layers" else layers.layer_rows(explanation, "maps")
        for layer, row in enumerate(rows):
            yield Part(layer, measured(row))


@metric("cue-dot", needs=("cues",), where=LEVELS)
def cue_dot(case: Case, asked: Asked) -> Iterator[Part]:
    """Share of the scores that lies on cue words, in every layer and in the end (Value Zeroing, section 5)."""
    yield from _cue(case, asked, precision.dot_product)


@metric("cue-ap", needs=("cues",), where=LEVELS)
def cue_ap(case: Case, asked: Asked) -> Iterator[Part]:
    """Average precision of cue words in the ranking, in every layer and in the end (Value Zeroing, section 5)."""
    yield from _cue(case, asked, precision.average_precision)


@metric("cue-probes", better="lower", needs=("cues",), where=LEVELS)
def cue_probes(case: Case, asked: Asked) -> Iterator[Part]:
    """Tokens ranked above the best cue, in every layer and in the end (Value Zeroing, A.2)."""
    yield from _cue(case, asked, precision.probes_needed)


@metric("token-f1", needs=("rationale",))
def token_f1(case: Case, asked: Asked) -> Iterator[Part]:
    """F1 of the highest-scored tokens, as many as are marked, with a human rationale (ERASER; HateXplain)."""
    del asked
    yield Part(None, precision.overlap(case.explanation.scores, _mask(case, case.example.rationale)).f1)


@metric("iou", needs=("rationale",))
def iou(case: Case, asked: Asked) -> Iterator[Part]:
    """Intersection over union of the highest-scored tokens, as many as are marked, with a human rationale."""
    del asked
    yield Part(None, precision.overlap(case.explanation.scores, _mask(case, case.example.rationale)).iou)


@metric("iou-f1", needs=("rationale",))
def iou_f1(case: Case, asked: Asked, *, threshold: float = 0.5) -> Iterator[Part]:
    """F1 of runs of tokens that share half of their union with a run of the rationale (ERASER)."""
    del asked
    marked = _mask(case, case.example.rationale)
    yield Part(None, plausibility.run_overlap(case.explanation.scores, marked, threshold=threshold).f1)


@metric("auprc", needs=("rationale",), protocols=plausibility.PROTOCOLS)
def auprc(case: Case, asked: Asked, *, protocol: str = "text") -> Iterator[Part]:
    """Area under precision and recall of the scores against a human rationale (ERASER)."""
    del asked
    yield Part(None, plausibility.auprc(case.explanation.scores, _mask(case, case.example.rationale), protocol))


# By other models, and by the same one disturbed -----------------------------------------------------------


@metric("consistency", again=models.Second(), requires=("model",), protocols=("scipy", "dense"))
def consistency(case: Case, asked: Asked, *, protocol: str = "scipy") -> Iterator[Part]:
    """Spearman's ρ with the scores of a second model, where both predict the same class (ALTI, figure 7)."""
    (second,) = _again(case, asked).values()
    if not models.same_prediction(case.explanation, second):
        raise WhenceError("the two models predict different classes")
    yield Part(None, models.consistency(case.explanation, second, protocol=protocol))


@metric("randomisation", better="", again=sanity.Randomised())
def randomisation(case: Case, asked: Asked, *, magnitude: bool = False) -> Iterator[Part]:
    """Spearman's ρ with the scores when the model is random from the top down to each block (Adebayo et al.)."""
    for part, found in _again(case, asked).items():
        value = sanity.left(case.explanation, found, magnitude)
        name, _, block = part.partition(" ")  # "block 3"; head and embeddings are no layer
        yield Part(int(block), value) if block else Part(None, value, name)


@metric("stability", better="", again=sanity.Disturbed())
def stability(case: Case, asked: Asked) -> Iterator[Part]:
    """Largest change of a score, relative to the largest score, in a batch, padded or in another dtype; and their ρ."""
    (alone,), (found,) = case.again[sanity.Alone()].values(), _again(case, asked).values()
    yield Part(None, sanity.moved(alone, found))
    yield Part(None, sanity.left(alone, found), "rho")


def _again(case: Case, asked: Asked) -> Mapping[str, Explanation]:
    assert asked.again is not None
    return case.again[asked.again]


# Of the model's layers, on the whole dataset --------------------------------------------------------------


@metric("mdl", better="lower", probe=Probe())
def mdl(codes: Sequence[Code], asked: Asked) -> Iterator[Part]:
    """Bits that it takes to say the examples' labels to someone who holds a layer's vectors (Voita & Titov)."""
    del asked
    yield from _by_layer(code.bits for code in codes)


@metric("compression", probe=Probe())
def compression(codes: Sequence[Code], asked: Asked) -> Iterator[Part]:
    """The same as a rate against an even code, and its ρ with cue alignment over layers (Value Zeroing, table 2)."""
    del asked
    yield from _by_layer(code.compression for code in codes)


def _by_layer(values: Iterable[float]) -> Iterator[Part]:
    """What goes into block 0, then what comes out of each block."""
    for number, value in enumerate(values):
        yield Part(number - 1, value) if number else Part(None, value, "embeddings")
