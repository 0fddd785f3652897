"""`wherefrom.doctor`: whether a model can be opened, what its blocks are like, and which methods are defined on them.

Nothing is decided here: the proof is the one on opening (model/proof.py), the shape what methods are held against
(model/traits.py), the verdicts what the pipeline would say (method/needs.py).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import isfinite
from typing import Any, Literal, TypeAlias

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import UnsupportedModel
from wherefrom.method import lookup
from wherefrom.method.ablation import found_way
from wherefrom.method.base import METHODS
from wherefrom.method.baseline import BLANKS
from wherefrom.method.needs import undefined
from wherefrom.model import Model, ModelLike, TokenizerLike, open_model
from wherefrom.model.perturb import PAINT, stand_in_for, untokenized
from wherefrom.model.proof import Proof
from wherefrom.model.target import regression
from wherefrom.model.traits import Traits
from wherefrom.options import DeviceLike, DtypeLike, Keywords
from wherefrom.typecheck import checks_arguments

Verdict: TypeAlias = Literal["exact and fast", "exact, slower", "not defined here"]
MANY = 3  # methods for which one reason is said more often than it is worth
VERDICTS: tuple[Verdict, ...] = ("exact and fast", "exact, slower", "not defined here")


@dataclass(frozen=True)
class Suit:
    """What a method can do on a model."""

    method: str
    verdict: Verdict
    why: str | None = None  # it is slower, or not defined
    note: str | None = None  # what it must be told here


@dataclass(frozen=True)
class Diagnosis:
    """What `wherefrom.doctor` found: `print` it, or take `to_json` for programs (docs/models.md says what it holds)."""

    model: str
    family: str | None
    opens: bool
    why_not: str | None  # of a model that opens by its embeddings and output alone: why its blocks are not known
    # Where no blocks are known that of the nearest shape, which fails; None if no shape has such parts.
    proof: Proof | None = field(default=None, repr=False)
    shape: dict[str, Any] = field(default_factory=dict, repr=False)
    methods: tuple[Suit, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "family": self.family,
            "opens": self.opens,
            "why_not": self.why_not,
            "proof": None if self.proof is None else _proof(self.proof),
            "shape": self.shape,
            "methods": [asdict(each) for each in self.methods],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        named = f"{self.model} ('{self.family}')" if self.family else self.model
        unmapped = self.opens and "blocks" not in self.shape
        opens = "opens by its embeddings and output alone" if unmapped else "opens"
        lines = [f"{named} {opens if self.opens else f'does not open: {self.why_not}'}"]
        lines += (
            [f"its blocks are not those that wherefrom knows: {self.why_not}"] if self.opens and self.why_not else []
        )
        by = "proof, taken for the shape that comes nearest" if unmapped else "proof"
        lines += ["", *_proof_lines(self.proof, by)] if self.proof else []
        lines += ["", "shape", *_shape_lines(self.shape)] if self.shape else []
        lines += ["", *_method_lines(self.methods)] if self.methods else []
        return "\n".join(lines)


@checks_arguments
def doctor(
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    model_kwargs: Keywords = None,
) -> Diagnosis:
    """Look a model over: the proof block by block, the shape found, and what each method can do. Nothing is explained.

    Arguments as in `open_model`; the processor of a model of images is passed as `tokenizer`.

    >>> wherefrom.doctor("wherefrom/lm").opens
    True
    """
    how: dict[str, Any] = {"task": task, "device": device, "dtype": dtype, "model_kwargs": model_kwargs}
    try:
        return diagnosed(open_model(model, tokenizer, **how))
    except UnsupportedModel as error:
        found = _closer(model, tokenizer, how)
        name = str(model) if found is None and isinstance(model, str) else type(model).__name__
        if found is None:
            return Diagnosis(name, None, opens=False, why_not=str(error))
        return Diagnosis(found.name, found.family.name, opens=False, why_not=str(error), proof=found.proof)


def diagnosed(opened: Model) -> Diagnosis:
    """The same of a model that is open."""
    mapped = opened.traits.mapped
    proof, shape = (opened.proof, _shape(opened)) if mapped else (opened.nearest, {})
    return Diagnosis(
        opened.name, opened.family.name, True, opened.unfit, proof, {**shape, **_head(opened)}, suits(opened)
    )


def suits(opened: Model) -> tuple[Suit, ...]:
    """What each method can do on a model, in the order of the registry."""
    return tuple(_suit(opened, name) for name in METHODS)


def _suit(opened: Model, name: str) -> Suit:
    method = lookup(name)[0]
    if (why := undefined(method.needs, opened)) is not None:
        return Suit(name, "not defined here", why)
    slower = undefined(method.prefers, opened, "is fast with")
    return Suit(name, "exact and fast" if slower is None else "exact, slower", slower, _told(opened, name))


def _told(opened: Model, name: str) -> str | None:
    """What a caller has to say because the model does not."""
    method, lacks = lookup(name)[0], []
    if method.class_specific and opened.task == "encoder":
        lacks.append("a target: the model predicts nothing by itself")
        if "read-token" in method.needs and (opened.pooling or opened.reads) == "mean":
            lacks.append("position=: its embedding is read at several tokens")
    if "baseline" in method.needs and stand_in_for(opened, *BLANKS, PAINT) is None:
        lacks.append(f"baseline=: there is no {', '.join(BLANKS[:-1])} or {BLANKS[-1]} token{untokenized(opened)}")
    if "over" in method.options and found_way(opened) == "unknown" and stand_in_for(opened, "unknown") is None:
        lacks.append(f"by=: there is no token to blank others out with{untokenized(opened)}")
    if "reruns" in method.needs and "of" in method.options and regression(opened):
        lacks.append("of=logit: a regression has no probabilities")
    return f"needs {'; and '.join(lacks)}" if lacks else None


def _closer(model: Any, tokenizer: Any, how: dict[str, Any]) -> Model | None:
    """A model that is refused, as far as its parts are there: where its proof fails."""
    try:
        found = open_model(model, tokenizer, prove=False, **how)
        return None if found.proof.holds else found
    except Exception:  # it is refused already, and this was to say more about it
        return None


# The shape --------------------------------------------------------------------------------------------------


def _shape(opened: Model) -> dict[str, Any]:
    traits = opened.traits
    norms = sorted({"LayerNorm" if norm.centres else "RMS norm" for norm in traits.norms})
    return {
        "blocks": opened.depth,
        "width": traits.width,
        "norms": traits.norm_places,
        "norm": " and ".join(norms) or None,
        "parallel": traits.parallel,
        "scaled": traits.scaled,
        "ffn": "experts" if traits.experts else "gated" if traits.gated else "plain",
        "heads": opened.heads,
        "key_heads": traits.key_heads,
        "causal": opened.causal,
        "windows": traits.windows,
        "softcap": traits.softcap,
        "sinks": traits.sinks,
        "keys": None if opened.two_streams else _keys(traits),  # of a pair the proof does not look at them
    }


def _keys(traits: Traits) -> str:
    return "hidden" if traits.hidden_scores else "turned" if traits.bent_keys else "linear"


def _head(opened: Model) -> dict[str, Any]:
    return {"task": opened.task, "reads": opened.reads if opened.task == "classification" else None}


def _shape_lines(shape: dict[str, Any]) -> list[str]:
    head = shape["task"] + (f", reads {_READS.get(shape['reads'], shape['reads'])}" if shape["reads"] else "")
    if "blocks" not in shape:
        return ["  blocks     not known: only methods that look at embeddings and output alone", f"  head       {head}"]
    places = " and ".join(f"{place} each branch" for place in shape["norms"])
    groups = "" if shape["heads"] == shape["key_heads"] else f" over {shape['key_heads']} of keys and values"
    windows = [each for each in shape["windows"] if each is not None]
    sees = "each token sees those before it" if shape["causal"] else "each token sees all"
    if shape["task"] == "seq2seq":
        sees = "each token of the source sees all of it, one of the target the source and those before it"
    attention = [f"{shape['heads']} heads{groups}, {sees}"]
    attention += [f"queries and keys {shape['keys']}"] if shape["keys"] is not None else []
    attention += [f"windows of {windows[0]} in {len(windows)} of {len(shape['windows'])} layers"] if windows else []
    attention += [f"soft-cap {shape['softcap']:g}"] if shape["softcap"] is not None else []
    attention += ["sinks"] if shape["sinks"] else []
    order = "beside attention" if shape["parallel"] else "after attention"
    return [
        f"  blocks     {shape['blocks']} of width {shape['width']}" + ", branches scaled" * shape["scaled"],
        f"  norms      {shape['norm']} {places}" if shape["norm"] else "  norms      none",
        f"  attention  {'; '.join(attention)}",
        f"  FFN        {shape['ffn']}, {order}",
        f"  head       {head}",
    ]


_READS = {"first": "the first token", "last": "the last token", "mean": "the mean of all tokens"}


# The proof --------------------------------------------------------------------------------------------------


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "holds": proof.holds,
        "allowed": proof.tolerance,
        "worst": {"block": proof.worst.block, "part": proof.worst.part, "gap": _finite(proof.worst.size)},
        "gaps": [
            {"block": block, **{gap.part: _finite(gap.size) for gap in gaps}}
            for block, gaps in groupby(proof.gaps, key=lambda gap: gap.block)
        ],
    }


def _finite(size: float) -> float | None:
    return size if isfinite(size) else None


def _proof_lines(proof: Proof, by: str) -> list[str]:
    parts = ("values", "attention", "FFN", "input")
    lines = [f"{by}: {proof}", "", "  block   " + " ".join(f"{part:<10}" for part in parts).rstrip()]
    for block, gaps in groupby(proof.gaps, key=lambda gap: gap.block):
        found = {gap.part: f"{gap.size:.1e}" for gap in gaps}
        whole = found.get("output")
        row = [found.get(part, "") for part in parts] if whole is None else [whole]
        lines.append(f"  {block if whole is None else 'output':<7} " + " ".join(f"{size:<10}" for size in row).rstrip())
    return lines


# The methods ------------------------------------------------------------------------------------------------


def _method_lines(methods: tuple[Suit, ...]) -> list[str]:
    lines = []
    width = max(len(each.method) for each in methods)
    for verdict in VERDICTS:
        group = [each for each in methods if each.verdict == verdict]
        bare = [each.method for each in group if not (each.why or each.note)]
        lines += [f"{verdict}: {', '.join(bare)}".removesuffix(": ")] if group else []
        told: dict[str, list[str]] = {}
        for each in group:
            if said := each.why or each.note:
                told.setdefault(said, []).append(each.method)
        for said, names in told.items():
            many = len(names) > MANY
            lines += [f"  {said}: {', '.join(names)}"] if many else [f"  {name:<{width}}  {said}" for name in names]
    return lines
