"""What can be asked, and how it is answered: `explain` and `compare`, under the names that they have in Python.

`explained` and `compared` give what Python gives, as one event. `told` gives the same step by step: each explanation as
it is done, how far the methods agree, and the evidence of each on this very text.

    {"event": "waiting", "ahead": 3}                      while others are served
    {"event": "progress", "done": 1, "of": 9, "doing": "globenc"}
    {"event": "explanation", "input": 0, "name": "globenc", "explanation": {…}}     or "payload", for the viewer
    {"event": "failed", "input": 0, "name": "…", "detail": "…"}                     this one alone; the others go on
    {"event": "agreement", "input": 0, "names": [...], "spearman": [[…]]}
    {"event": "evidence", "input": 0, "name": "globenc", "sentence": "…", "verdict": "…", …}
    {"event": "note", "detail": "…"}   {"event": "error", "status": 400, "detail": "…"}
    {"event": "done", "seconds": 0.8}
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from whence.comparison import Comparison
from whence.defaults import COMPARED, DEFAULT_METHOD
from whence.errors import WhenceError
from whence.evidence.sentence import LEVEL, agreement, checks
from whence.evidence.sentence import Check as Evidence
from whence.explaining import by_target, compare, explain, reader
from whence.explanation import Explanation
from whence.jobs import LARGE_FLOW, run
from whence.method import choose, lookup
from whence.model import Opened
from whence.serve.limits import Limits
from whence.serve.line import Check
from whence.settling import AUTO, Question, Wanted, refuse_unseen_targets, settle_job

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Choice = Annotated[str, Field(max_length=200)] | Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
Number = Annotated[int, Field(ge=-1000, le=1000)] | Annotated[float, Field(ge=-1000, le=1000)]
HEADS = 100_000  # numbers of all heads' maps up to which they are given along
LONGEST_FLOW = 4 * LARGE_FLOW  # entries of the maps beyond which even one token's flows take more than a minute
PACKED = 8  # numbers packed for the viewer take the room of one written as text
Event = dict[str, Any]


class Asked(BaseModel):
    """What `explain` and `compare` have in common; the names and meanings are Python's."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    inputs: Text | list[Text | tuple[Text, Text]] = Field(
        description="A text, or a list of texts and of pairs [text, text].", examples=["a deep and meaningful film ."]
    )
    pair: Text | None = Field(None, description="A second text that goes with a single one (question, hypothesis, …).")
    model: Annotated[str, Field(max_length=300)] | None = Field(
        None, description="One of /api/models; the first of them if none is named."
    )
    aggregate: Name | None = Field(AUTO, description="auto, rollout, flow, sum, mean, last, or null.")
    target: Choice | None = Field(
        None, description="A class, a word at the mask, start or end; the prediction if none."
    )
    foil: Choice | None = Field(None, description="Explain the difference to this class or word.")
    position: Choice | None = Field(None, description="The row that answers: an index, first, last, mean or mask.")
    head: Annotated[int, Field(ge=0, le=1000)] | Literal["all"] | None = Field(None, description="One head, or all.")
    layers: tuple[int | None, int | None] | None = Field(None, description="(start, end), as in a slice.")
    receptive_field: bool = False
    rows: Literal["all", "reading"] = "all"
    drop_self: bool = False
    truncate: bool = Field(False, description="Cut a text that is longer than the model reads.")
    maps: bool = Field(True, description="Give the layer maps too; without them the answer is small.")
    evidence: bool = Field(False, description="Check each explanation by erasing words of this text.")

    def texts(self, limits: Limits) -> list[str | tuple[str, str]]:
        """The inputs as `explain` takes them, within the limits."""
        single = isinstance(self.inputs, str)
        if self.pair is not None and not single:
            raise WhenceError("pair goes with a single text; in a list, write a pair as [text, text]")
        every: Sequence[Any] = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        if self.pair is not None:
            every = [(self.inputs, self.pair)]
        if not every:
            raise WhenceError("nothing to explain: the list of inputs is empty; expected at least one text")
        if len(every) > limits.inputs:
            raise WhenceError(f"{len(every)} inputs in one request; this server takes at most {limits.inputs}")
        for each in every:
            size = len(each) if isinstance(each, str) else sum(map(len, each))
            if size > limits.characters:
                raise WhenceError(
                    f"a text of {size:,} characters; this server takes at most {limits.characters:,}: shorten it"
                )
        return list(every)

    def arguments(self) -> dict[str, Any]:
        """What `explain` and `compare` take by name, apart from the method."""
        names = ("aggregate", "target", "foil", "position", "head", "layers", "receptive_field", "rows", "drop_self")
        return {**{name: getattr(self, name) for name in (*names, "truncate")}, "keep": "maps" if self.maps else None}


class Explain(Asked):
    """`whence.explain`"""

    method: Name = Field(DEFAULT_METHOD, description="One of /api/methods, or auto.")
    options: dict[Name, bool | Number | Name | None] = Field(
        default_factory=dict, max_length=16, description='Options of the method, e.g. {"n_steps": 50}.'
    )


class Compare(Asked):
    """`whence.compare`"""

    methods: list[Name] = Field(list(COMPARED), description="Names from /api/methods.", min_length=1)
    form: Literal["explanation", "viewer"] = Field(
        "explanation", description="In a stream: whole explanations, or the viewer's packed payloads."
    )
    heads: bool = Field(False, description="In a stream: also the maps of single heads, where methods have them.")


def settle(asked: Asked, limits: Limits) -> None:
    """Say what is wrong before the request stands in line."""
    asked.texts(limits)
    names = [asked.method] if isinstance(asked, Explain) else asked.methods if isinstance(asked, Compare) else []
    if len(names) > limits.methods:
        raise WhenceError(f"{len(names)} methods in one request; this server takes at most {limits.methods}")
    for name in names:
        if name != DEFAULT_METHOD:
            lookup(name)
    if len(set(names)) < len(names):
        raise WhenceError(f"a method is named twice in {', '.join(names)}; expected each once")


# One answer -----------------------------------------------------------------------------------------------


def explained(asked: Explain, opened: Opened, limits: Limits, check: Check) -> Iterator[Event]:
    """One event with what `whence.explain` returns."""
    with _interruptible(opened, check):
        inputs = _inputs(asked, opened, limits, [asked.method])
        options: dict[str, Any] = dict(asked.options)
        found = explain(inputs, opened, method=asked.method, **asked.arguments(), **options)
        yield {"event": "result", "result": _results(asked, found, opened, limits)}


def compared(asked: Compare, opened: Opened, limits: Limits, check: Check) -> Iterator[Event]:
    """One event with what `whence.compare` returns."""
    with _interruptible(opened, check):
        found = compare(
            _inputs(asked, opened, limits, asked.methods), opened, methods=asked.methods, **asked.arguments()
        )
        yield {"event": "result", "result": _results(asked, found, opened, limits)}


def _inputs(asked: Asked, opened: Opened, limits: Limits, methods: Sequence[str] = ()) -> Any:
    """As `explain` takes them, none longer than this server reads, nor than these methods can take as they are."""
    texts = asked.texts(limits)
    inputs = texts[0] if isinstance(asked.inputs, str) else texts
    for sentence in reader(opened, asked.truncate, None).read(inputs)[0]:
        if len(sentence) > limits.tokens:
            raise WhenceError(
                f"the text has {len(sentence)} tokens; this server reads at most {limits.tokens}: shorten it"
            )
        for name in methods:
            if _rows(asked, name, len(sentence), opened) != asked.rows:
                raise WhenceError(f"{name} of {len(sentence)} tokens would take minutes; ask for rows='reading'")
    return inputs


def _results(asked: Asked, found: Any, opened: Opened, limits: Limits) -> Any:
    every = found if isinstance(found, list) else [found]
    numbers = 0
    results = []
    for each in every:
        named = each if isinstance(each, Comparison) else {"": each}
        bare = {name: one if asked.maps else _bare(one) for name, one in named.items()}
        numbers += sum(map(_numbers, bare.values()))
        _room(numbers, limits)
        evidence = dict(_evidence(named, opened)) if asked.evidence else {}
        if isinstance(each, Comparison):
            results.append(
                {**Comparison(bare).to_dict(), **_agreed(named), **({"evidence": evidence} if evidence else {})}
            )
        else:
            results.append({**bare[""].to_dict(), **({"evidence": evidence[""]} if evidence else {})})
    return results if isinstance(found, list) else results[0]


# The same, step by step -----------------------------------------------------------------------------------


def told(asked: Compare, opened: Opened, limits: Limits, check: Check) -> Iterator[Event]:
    """An explanation per input and method as it is done, then their agreement and their evidence."""
    begin = time.perf_counter()
    with _interruptible(opened, check):
        texts = asked.texts(limits)
        _inputs(asked, opened, limits)
        asks = Question(asked.target, asked.foil, asked.position)
        refuse_unseen_targets(opened, [asks], [choose(name) for name in asked.methods])
        steps = len(texts) * len(asked.methods) * (2 if asked.evidence else 1)
        done, numbers = 0, 0.0
        for which, text in enumerate(texts):
            found: dict[str, Explanation] = {}
            for name in asked.methods:
                check()
                yield {"event": "progress", "done": done, "of": steps, "doing": name}
                done += 1
                try:
                    arguments, note = _fitting(asked, name, text, opened)
                    each = _beside_others(asked, text, opened, name, arguments)
                except WhenceError as error:
                    yield {"event": "failed", "input": which, "name": name, "detail": str(error)}
                    continue
                if note:
                    yield {"event": "note", "detail": note}
                for label, one in _named(name, each).items():
                    found[label] = one if asked.maps else _bare(one)
                    numbers += _numbers(found[label]) / (PACKED if asked.form == "viewer" else 1)
                    _room(numbers, limits)
                    yield {"event": "explanation", "input": which, "name": label, **_shown(asked, label, found[label])}
            if len(found) > 1:
                yield {"event": "agreement", "input": which, **_agreed(found)["agreement"]}
            if asked.evidence:
                yield {"event": "progress", "done": done, "of": steps, "doing": "evidence"}
                for name, checked in _evidence(found, opened):
                    done += 1
                    yield {"event": "evidence", "input": which, "name": name, **checked}
                    yield {"event": "progress", "done": done, "of": steps, "doing": "evidence"}
    yield {"event": "done", "seconds": round(time.perf_counter() - begin, 3)}


def _beside_others(asked: Compare, text: Any, opened: Opened, name: str, arguments: Mapping[str, Any]) -> Any:
    """One method's part of what `compare` gives: one that looks at no target stands beside those that do."""
    sentences, _ = reader(opened, asked.truncate, None).read(text)
    wanted = Wanted(**{each.name: arguments[each.name] for each in fields(Wanted) if each.name in arguments})
    job = settle_job(opened, choose(name), wanted)
    question = Question(asked.target, asked.foil, asked.position)
    found = run(opened, sentences, [question], [job], 1)[0][0]
    return found[0] if len(found) == 1 or not job.method.class_specific else by_target(found)


def _named(name: str, found: Explanation | Comparison) -> Mapping[str, Explanation]:
    """By the method's name; with target="all", by name and label, as `compare` writes it."""
    return {name: found} if isinstance(found, Explanation) else {f"{name}: {label}": x for label, x in found.items()}


def _fitting(asked: Compare, name: str, text: Any, opened: Opened) -> tuple[dict[str, Any], str]:
    """The arguments of one method, and what was changed about them."""
    arguments = asked.arguments()
    method, _ = lookup(name)
    (sentence,), _ = reader(opened, asked.truncate, None).read(text)
    entries = opened.depth * int(opened.config.num_attention_heads) * len(sentence) ** 2
    if asked.heads and asked.head is None and method.heads is not None and entries <= HEADS:
        arguments["head"] = "all"
    arguments["rows"] = _rows(asked, name, len(sentence), opened)
    if arguments["rows"] == asked.rows:
        return arguments, ""
    return arguments, f"{name}: the flows of the answering token alone; those of all tokens would take minutes."


def _rows(asked: Asked, name: str, n: int, opened: Opened) -> str:
    """The rows asked for; of a long text the flows of one token alone. A solver of flows cannot be interrupted."""
    joins = asked.aggregate
    if joins == AUTO and name != DEFAULT_METHOD:
        method, preset = lookup(name)
        joins = preset.aggregate if preset else method.aggregate
    size = opened.depth * n**2
    if joins == "flow" and size > LONGEST_FLOW:
        raise WhenceError(f"{name} of {n} tokens would take minutes on this server; choose a shorter text or rollout")
    return "reading" if joins == "flow" and size > LARGE_FLOW else asked.rows


def _shown(asked: Compare, name: str, explanation: Explanation) -> Event:
    if asked.form == "explanation":
        return {"explanation": explanation.to_dict()}
    from whence.view.html import payload

    return {"payload": payload({name: explanation})}


def _agreed(found: Mapping[str, Explanation]) -> Event:
    """How far the methods agree; null where a method gives all words the same score."""
    try:
        matrix = agreement(list(found.values()))
    except WhenceError as error:
        return {"agreement": {"names": list(found), "spearman": None, "detail": str(error)}}
    rows = [[None if math.isnan(value) else round(float(value), 4) for value in row] for row in matrix]
    return {"agreement": {"names": list(found), "spearman": rows}}


def _evidence(found: Mapping[str, Explanation], opened: Opened) -> Iterator[tuple[str, Event]]:
    """The check of each explanation of one input; where there is none, why."""
    left = list(found)
    try:
        for checked in checks(list(found.values()), opened):
            yield left.pop(0), _written(checked)
    except WhenceError as error:
        for name in left:
            yield name, {"sentence": None, "detail": str(error)}


def _written(found: Evidence) -> Event:
    return {
        "sentence": str(found),
        "verdict": found.verdict,
        "told": found.told,
        "level": LEVEL,
        "by": found.by,
        "words": found.words,
        "taken": found.taken,
        "probabilities": _rounded(found.probabilities),
        "random": _rounded(found.random.mean(0)),
        "random_low": _rounded(np.quantile(found.random, 0.25, axis=0)),
        "random_high": _rounded(np.quantile(found.random, 0.75, axis=0)),
        "orders": len(found.random),
        "beaten": found.beaten,
        "step": found.step,
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]


def _bare(explanation: Explanation) -> Explanation:
    return replace(explanation, maps=None, aggregated=None, head_maps=None)


def _numbers(explanation: Explanation) -> int:
    arrays = (explanation.scores, explanation.maps, explanation.aggregated, explanation.head_maps)
    return sum(array.size for array in arrays if array is not None)


def _room(numbers: float, limits: Limits) -> None:
    if numbers > limits.numbers:
        raise WhenceError(
            f"the answer has more than the {limits.numbers:,} numbers that this server sends at once; ask for "
            f"maps=false, fewer methods or a shorter text"
        )


@contextmanager
def _interruptible(opened: Opened, check: Check) -> Iterator[None]:
    """Look before every block of every pass whether the answer is still wanted."""

    def look(*_: Any) -> None:
        check()

    with ExitStack() as stack:
        for block in opened.blocks:
            stack.callback(block.module.register_forward_pre_hook(look).remove)
        yield
