"""What can be asked, and how it is answered: `explain` and `compare`, under the names that they have in Python.

`explained` and `compared` give what Python gives, as one event. `told` gives the same step by step: each explanation as
it is done, how far the methods agree, and the evidence of each on this very text.

    {"event": "waiting", "ahead": 3}                      while others are served
    {"event": "progress", "done": 1, "of": 9, "doing": "layer 1 of 4"}               the pass that all methods share,
    {"event": "progress", "done": 5, "of": 9, "doing": "deeplift"}                   then each method by itself
    {"event": "explanation", "input": 0, "name": "globenc", "explanation": {…}}     or "payload", for the viewer
    {"event": "failed", "input": 0, "name": "…", "detail": "…", "code": "…"}        this one alone; the others go on
    {"event": "agreement", "input": 0, "names": [...], "spearman": [[…]], "by_magnitude": ["alti"], …}
    {"event": "evidence", "input": 0, "name": "globenc", "sentence": "…", "verdict": "…", …}
    {"event": "note", "detail": "…"}   {"event": "error", "status": 400, "detail": "…", "code": "…"}
    {"event": "done", "seconds": 0.8}
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from wherefrom.api import explain
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_METHODS
from wherefrom.errors import InvalidInput, InvalidOption, OverLimit, WherefromError
from wherefrom.method import MethodSpec, choose, choose_each, list_of_names, lookup
from wherefrom.metric.spotcheck import LEVEL, agreement, checks
from wherefrom.metric.spotcheck import Check as Evidence
from wherefrom.model import Model, Sentence
from wherefrom.model.rerun import watched
from wherefrom.pipeline import auto
from wherefrom.pipeline.bulk import Given, How, beside_phrases, followed
from wherefrom.pipeline.bulk import explained as explained_by_input
from wherefrom.pipeline.execution import attempt
from wherefrom.pipeline.outcome import Outcome, by_name
from wherefrom.pipeline.resolution import AUTO, Job, Question, Wanted, refuse_unseen_targets, resolve_job, resolve_jobs
from wherefrom.pipeline.shelf import LARGE_FLOW
from wherefrom.pipeline.windows import at_once, refuse_overlap
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.result.generation import SOURCE
from wherefrom.server.bodies import LARGEST, Body, CompareBody, ExplainBody
from wherefrom.server.limits import Limits
from wherefrom.server.queue import Event, Talk
from wherefrom.server.refusals import described

HEAD_MAPS = 100_000  # numbers of all heads' maps up to which they are given along
LONGEST_FLOW = 4 * LARGE_FLOW  # entries of the maps beyond which even one token's flows take more than a minute
BATCH = 16  # texts in one pass
PACKED = 8  # numbers packed for the viewer take the room of one written as text
ERASABLE = "words that can be erased"  # without the one at which a word is predicted


def check_request(asked: Body, limits: Limits) -> None:
    """Refuse what can be refused before the request waits in line."""
    asked.texts(limits)
    names = asked.methods if isinstance(asked, CompareBody) else []
    if len(names) > limits.methods:
        raise OverLimit(f"{len(names)} methods in one request; this server takes at most {limits.methods}")
    if isinstance(asked, ExplainBody) and asked.method == DEFAULT_METHOD:
        known = {option for names in DEFAULT_METHODS.values() for name in names for option in lookup(name)[0].options}
        if unknown := asked.options.keys() - known:
            raise InvalidOption(f"no method that wherefrom chooses has an option {min(unknown)!r}")
    for each in chosen(asked).values():
        refuse_large_numbers(each)


def refuse_large_numbers(method: MethodSpec) -> None:
    """An option that would keep the server busy for hours."""
    for name, value in method.options.items():
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise InvalidOption(
                f"'{method.asked}' cannot have {name}={value}; this server takes numbers up to {LARGEST}",
            )


def chosen(asked: Body) -> dict[str, MethodSpec]:
    """The methods by the names asked for; none where the choice is left to wherefrom."""
    if isinstance(asked, ExplainBody):
        if asked.method == DEFAULT_METHOD:
            return {}
        return {asked.method: choose(asked.method, asked.options)}
    names = list_of_names(asked.methods) if isinstance(asked, CompareBody) else []
    return {} if names == [DEFAULT_METHOD] else choose_each(names)


# One answer -----------------------------------------------------------------------------------------------


def explained(asked: ExplainBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    """One event with what `wherefrom.explain` returns."""
    return interruptible(opened, talk, _explained(asked, opened, limits))


def _explained(asked: ExplainBody, opened: Model, limits: Limits) -> Iterator[Event]:
    sentences = _read(asked, opened, limits)
    method = chosen(asked).get(asked.method)
    _refuse_long_flows(asked, _followed(asked, sentences, opened, limits), opened)
    arguments: dict[str, Any] = {} if method else dict(asked.options)  # left to wherefrom, whose options are its own
    found = explain(_given(asked, sentences), opened, method=method or asked.method, **asked.arguments(), **arguments)
    yield {"event": "result", "result": _results(asked, found, sentences, opened, limits)}


def compared(asked: CompareBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    """One event with what `wherefrom.compare` returns."""
    return interruptible(opened, talk, _compared(asked, opened, limits))


def _compared(asked: CompareBody, opened: Model, limits: Limits) -> Iterator[Event]:
    given = _followed(asked, _read(asked, opened, limits), opened, limits)
    _refuse_long_flows(asked, given, opened)
    methods, questions = _methods(asked, given, opened), [_question(asked)] * given.count
    jobs, failed = resolve_jobs(opened, methods, _wanted(asked))
    done = explained_by_input(opened, given, questions, jobs, _how(asked))
    found = [by_name(list(methods), outcomes, failed) for outcomes in done.outcomes.values()]
    sentences = list(given.sentences.values())
    yield {"event": "result", "result": _results(asked, _given(asked, found), sentences, opened, limits)}


def _read(asked: Body, opened: Model, limits: Limits) -> list[Sentence]:
    """The texts as the model reads them, which is done once; none longer than this server reads."""
    texts = asked.texts(limits)
    if opened.images and not all(isinstance(each, dict) for each in texts):
        # A text would be taken for the path of a file on this machine.
        expected = '{"image": "the bytes of a file in base64"}'
        raise InvalidInput(f"{opened.name} reads images, and no text; expected {expected}")
    reader = opened.reader(truncate=asked.truncate, long=asked.long)
    refuse_overlap(asked.overlap, reader)
    sentences, _ = reader.read(texts[0] if asked.single else texts)
    if asked.overlap is not None and opened.max_length is not None and asked.overlap > opened.max_length // 2:
        raise OverLimit(
            f"overlap={asked.overlap}; on this server windows share at most half of the tokens that the model reads, "
            f"{opened.max_length // 2}"
        )
    _refuse_long(opened, sentences, limits)
    return sentences


def _refuse_long(opened: Model, sentences: Iterable[Sentence], limits: Limits) -> None:
    for sentence in sentences:
        if at_once(opened, sentence) > limits.tokens:
            raise OverLimit(
                f"the text has {len(sentence)} tokens; this server reads at most {limits.tokens}: shorten it"
            )


def _question(asked: Body) -> Question:
    return Question(asked.target, asked.foil, asked.position)


def _how(asked: Body) -> How:
    return How(BATCH, progress=False, overlap=asked.overlap)


def _followed(asked: Body, sentences: Sequence[Sentence], opened: Model, limits: Limits) -> Given:
    """The texts, each followed by the phrase that is asked for; for a translator that is the target."""
    read = Given(dict(enumerate(sentences)), len(sentences), asked.single)
    given = followed(opened, read, [_question(asked)] * len(sentences))
    _refuse_long(opened, [*given.sentences.values(), *given.foils.values()], limits)
    return given


def _given(asked: Body, every: list[Any]) -> Any:
    """One where one input was asked about."""
    return every[0] if asked.single else every


def _refuse_long_flows(asked: Body, given: Given, opened: Model) -> None:
    for name, each in chosen(asked).items():
        for sentence in given.sentences.values():
            if _rows(asked, each, at_once(opened, sentence), opened) != asked.rows:
                raise OverLimit(f"{name} of {len(sentence)} tokens would take minutes; ask for rows='readout'")


def _results(asked: Body, found: Any, sentences: Sequence[Sentence], opened: Model, limits: Limits) -> Any:
    every = found if isinstance(found, list) else [found]
    numbers = 0
    results = []
    for each, sentence in zip(every, sentences, strict=True):
        named = each if isinstance(each, Comparison) else {"": each}
        bare = {name: one if asked.maps else one.without_maps() for name, one in named.items()}
        numbers += sum(map(_numbers, bare.values()))
        _room(numbers, limits)
        evidence = dict(_evidence(named, opened, sentence)) if asked.evidence else {}
        if isinstance(each, Comparison):
            results.append(
                {
                    **replace(each, explanations=bare).to_dict(),
                    **_agreed(named),
                    **({"evidence": evidence} if evidence else {}),
                }
            )
        else:
            results.append({**bare[""].to_dict(), **({"evidence": evidence[""]} if evidence else {})})
    return results if isinstance(found, list) else results[0]


# The same, step by step -----------------------------------------------------------------------------------


def told(asked: CompareBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    """Of each text one pass for all methods, their explanations as they are done, their agreement, their evidence."""
    return interruptible(opened, talk, _told(asked, opened, limits, talk))


def _told(asked: CompareBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    begin = time.perf_counter()
    given = _followed(asked, _read(asked, opened, limits), opened, limits)
    methods = _methods(asked, given, opened)
    steps = _Steps(given.count * (opened.depth + len(methods) * (2 if asked.evidence else 1)))
    numbers = 0.0
    for which, sentence in given.sentences.items():
        found: dict[str, Explanation] = {}
        for event in _explanations(asked, methods, given.one(which), opened, steps, talk):
            if event["event"] != "explanation":
                yield {**event, **({"input": which} if event["event"] == "failed" else {})}
                continue
            name, one = event["name"], event["explanation"]
            found[name] = one if asked.maps else one.without_maps()
            numbers += _numbers(found[name]) / (PACKED if asked.form == "viewer" else 1)
            _room(numbers, limits)
            yield {"event": "explanation", "input": which, "name": name, **_shown(asked, name, found[name])}
        if len(found) > 1:
            yield {"event": "agreement", "input": which, **_agreed(found)["agreement"]}
        if asked.evidence:
            yield steps.at("evidence")
            for name, checked in _evidence(found, opened, sentence):
                yield {"event": "evidence", "input": which, "name": name, **checked}
                yield steps.done("evidence")
    yield {"event": "done", "seconds": round(time.perf_counter() - begin, 3)}


def _methods(asked: CompareBody, given: Given, opened: Model) -> dict[str, MethodSpec]:
    """The methods asked for, of which one at least can answer; where none are named, those that wherefrom compares."""
    questions, methods = [_question(asked)] * given.count, chosen(asked)
    if not methods:
        methods = choose_each(auto.compared(opened, list(given.sentences.values()), questions, _wanted(asked)))
    refuse_unseen_targets(opened, beside_phrases(given, questions), list(methods.values()))
    return methods


@dataclass
class _Steps:
    """How far a request is, out of so many steps."""

    of: int
    gone: int = 0

    def at(self, doing: str) -> Event:
        return {"event": "progress", "done": min(self.gone, self.of), "of": self.of, "doing": doing}

    def done(self, doing: str) -> Event:
        self.gone += 1
        return self.at(doing)


def _explanations(
    asked: CompareBody,
    methods: Mapping[str, MethodSpec],
    given: Given,
    opened: Model,
    steps: _Steps,
    talk: Talk,
) -> Iterator[Event]:
    """Of one input. One pass, in which methods that go by layers do their work; then what each has, or why it has
    nothing.
    """
    (sentence,) = given.sentences.values()
    jobs: dict[str, Job] = {}
    for name, each in methods.items():
        try:
            wanted, note = _fitting(asked, each, sentence, opened)
            jobs[name] = resolve_job(opened, each, wanted)
        except WherefromError as error:
            yield {"event": "failed", "name": name, **described(error)}
            yield steps.done(name)
            continue
        if note:
            yield {"event": "note", "detail": f"{name}: {note}"}
    if not jobs:
        return

    def passing(layer: int) -> None:
        talk.say(steps.done(f"layer {layer + 1} of {opened.depth}"))

    following = dict(pairwise(jobs))
    yield steps.at("the text")
    for outcome in _outcomes(asked, given, opened, jobs, passing):
        if outcome.error is not None:
            yield {"event": "failed", "name": outcome.name, **described(outcome.error)}
        else:
            for name, one in by_name([outcome.name], {outcome.name: outcome}, {}).items():
                yield {"event": "explanation", "name": name, "explanation": one}
        yield steps.done(following.get(outcome.name, outcome.name))


def _outcomes(
    asked: CompareBody, given: Given, opened: Model, jobs: Mapping[str, Job], passing: Callable[[int], None]
) -> Iterator[Outcome]:
    """What each job has of one input, as it is done; of a text in windows and of two phrases all of it at once."""
    (sentence,), question = given.sentences.values(), _question(asked)
    if given.foils or at_once(opened, sentence) < len(sentence):
        for outcomes in explained_by_input(opened, given, [question], jobs, _how(asked)).outcomes.values():
            yield from outcomes.values()
    else:
        yield from attempt(opened, [sentence], [question], jobs, 1, on_layer=passing)


def _wanted(asked: Body) -> Wanted:
    arguments = asked.arguments()
    return Wanted(**{each.name: arguments[each.name] for each in fields(Wanted)})


def _fitting(asked: CompareBody, chosen: MethodSpec, sentence: Sentence, opened: Model) -> tuple[Wanted, str]:
    """What one method is asked, and what was changed about it."""
    wanted = _wanted(asked)
    heads, n = opened.heads, at_once(opened, sentence)
    if (
        asked.heads
        and asked.head is None
        and n == len(sentence)  # windows have no maps to join
        and chosen.method.heads is not None
        and opened.depth * heads * n**2 <= HEAD_MAPS
    ):
        wanted = replace(wanted, head="all")
    rows = _rows(asked, chosen, n, opened)
    if rows == asked.rows:
        return wanted, ""
    return replace(wanted, rows=rows), "the flows of the readout token alone; those of all tokens would take minutes."


def _rows(asked: Body, chosen: MethodSpec, n: int, opened: Model) -> str:
    """The rows asked for; of a long text the flows of one token alone. A solver of flows cannot be interrupted."""
    joins = chosen.how.get("aggregate", asked.aggregate)
    if joins == AUTO:
        joins = chosen.preset.aggregate if chosen.preset else chosen.method.aggregate
    size = opened.depth * n**2
    if joins == "flow" and size > LONGEST_FLOW:
        raise OverLimit(
            f"{chosen.asked} of {n} tokens would take minutes on this server; choose a shorter text or rollout"
        )
    return "readout" if joins == "flow" and size > LARGE_FLOW else asked.rows


def _shown(asked: CompareBody, name: str, explanation: Explanation) -> Event:
    if asked.form == "explanation":
        return {"explanation": explanation.to_dict()}
    from wherefrom.view.html import payload

    return {"payload": payload({name: explanation})}


def _agreed(found: Mapping[str, Explanation]) -> Event:
    """How far the methods agree; null where a method gives all words the same score."""
    try:
        matrix = agreement(list(found.values()))
    except WherefromError as error:
        return {"agreement": {"names": list(found), "spearman": None, **described(error)}}
    rows = [[None if math.isnan(value) else round(float(value), 4) for value in row] for row in matrix]
    unsigned = [name for name, each in found.items() if not each.signed]
    mixed = unsigned if len(unsigned) < len(found) else []  # of pairs with these, magnitudes are compared
    over = _ranked(next(iter(found.values())))
    return {"agreement": {"names": list(found), "spearman": rows, "by_magnitude": mixed, "over": over}}


def _ranked(explanation: Explanation) -> str:
    """What the methods put in an order: of a translation the words of its source alone, as only these can go."""
    if explanation.picture is not None:
        return "patches"
    if SOURCE in explanation.segments:
        return f"words of the {SOURCE}"
    return ERASABLE if explanation.measured.kind in ("token", "phrase") else "words"


def _evidence(found: Mapping[str, Explanation], opened: Model, sentence: Sentence) -> Iterator[tuple[str, Event]]:
    """The check of each explanation of one input; where there is none, why."""
    left = list(found)
    try:
        for checked in checks(list(found.values()), opened, sentence=sentence):
            yield left.pop(0), _written(checked)
    except WherefromError as error:
        for name in left:
            yield name, {"sentence": None, **described(error)}


def _written(found: Evidence) -> Event:
    return {
        "sentence": str(found),
        "verdict": found.verdict,
        "told": found.told,
        "level": LEVEL,
        "by": found.by,
        "words": found.words,
        "over": "patches" if found.of == "picture" else "words",
        "taken": found.taken,
        "probabilities": _rounded(found.probabilities),
        "random": _rounded(found.chance),
        "random_low": _rounded(np.quantile(found.random, 0.25, axis=0)),
        "random_high": _rounded(np.quantile(found.random, 0.75, axis=0)),
        "orders": len(found.random),
        "beaten": found.beaten,
        "step": found.step,
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]


def _numbers(explanation: Explanation) -> int:
    arrays = (explanation.scores, explanation.maps, explanation.aggregated, explanation.head_maps)
    return sum(array.size for array in arrays if array is not None)


def _room(numbers: float, limits: Limits) -> None:
    if numbers > limits.numbers:
        raise OverLimit(
            f"the answer has more than the {limits.numbers:,} numbers that this server sends at once; ask for "
            f"maps=false, fewer methods or a shorter text"
        )


def interruptible(opened: Model, talk: Talk, events: Iterator[Event]) -> Iterator[Event]:
    """The events, and a look before every block of every pass on the way to one whether the answer is still wanted."""

    while (event := watched(opened, lambda: next(events, None), talk.check)) is not None:
        yield event
