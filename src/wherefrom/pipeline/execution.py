"""The run: one captured pass a batch, and what each job makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import chain
from math import inf
from typing import Annotated, Any, NamedTuple

import torch

from wherefrom.errors import (
    InvalidInput,
    InvalidOption,
    InvalidTarget,
    NotDefined,
    OutOfMemory,
    UnsupportedModel,
    WherefromError,
)
from wherefrom.method import Scores
from wherefrom.method.returned import layer_heads, layer_map, layer_row, maps_of, scores_of
from wherefrom.method.tiling import free_memory
from wherefrom.model import Answer, LayerTrace, Model, OutputTrace, Sentence, Trace, answers, collate, foreseen, stream
from wherefrom.model.frozen_pass import Freezing
from wherefrom.model.target import asks_all, is_each
from wherefrom.model.undo import own_modes
from wherefrom.pipeline.fetching import on_host, one_ahead
from wherefrom.pipeline.joint_maps import joining
from wherefrom.pipeline.layers_together import blocks_together, waits, work
from wherefrom.pipeline.outcome import Outcome, Outcomes
from wherefrom.pipeline.own_code import own_code_in_a_sentence
from wherefrom.pipeline.readout_rows import rows_alone
from wherefrom.pipeline.remarks import notes
from wherefrom.pipeline.resolution import Job, Question
from wherefrom.pipeline.shelf import Shelf, parts_of, scores_alone
from wherefrom.pipeline.sinks import note as sink_note
from wherefrom.pipeline.sinks import without_sink
from wherefrom.result.answer import Readout, Target
from wherefrom.result.explanation import Explanation, known_to_fit
from wherefrom.result.words import as_written
from wherefrom.typecheck import checked, least

Advance = Callable[[int], None]  # told how many more sentences are done
# What a pass in float64, all of which is kept, is given at once: tokens that keep a GPU busy, of which more would take
# more of its memory and little less time; but of long sentences several, where it has room, as they are begun together.
DOUBLED, SEVERAL = 2816, 8
RANDOM = Target("random")


def run(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[Outcomes]:
    """For every sentence, in their order, what each job has; the first error is raised."""
    results = run_all(opened, sentences, questions, jobs, batch_size, advance)
    for outcomes in results:
        for each in outcomes.values():
            if each.error is not None:
                raise each.error
    return results


def run_all(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    advance: Advance = lambda _count: None,
) -> list[Outcomes]:
    """As `run`, but a job that fails for a sentence leaves its error there, unless all of them fail."""
    found: list[Outcomes] = [{} for _ in sentences]
    for outcome in attempt(opened, sentences, questions, jobs, batch_size, advance=advance):
        found[outcome.input][outcome.name] = outcome
    for outcomes in found:
        errors = [each.error for each in outcomes.values() if each.error is not None]
        if len(errors) == len(jobs):
            raise errors[0]
    return [{name: outcomes[name] for name in jobs} for outcomes in found]


def attempt(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    jobs: Mapping[str, Job],
    batch_size: int,
    *,
    advance: Advance = lambda _count: None,
    on_layer: Callable[[int], None] | None = None,
) -> Iterator[Outcome]:
    """What each job has for each sentence, as it is done.

    `on_layer` hears of each layer of the pass that all jobs share. Between two results the model is as it was. An error
    of the pass itself, or of what is asked, is raised.
    """
    checked("batch_size", batch_size, Annotated[int, least(1)])

    def run(members: Sequence[int]) -> Iterator[Outcome | None]:
        again: dict[str, Job] = {}
        with _memory([len(sentences[i]) for i in members], list(jobs.values())), _weights(opened):
            for outcome in _run_batch(opened, sentences, questions, members, jobs, on_layer):
                if outcome is not None and outcome.error is not None and len(members) > 1:
                    again[outcome.name] = outcome.job  # a sentence is to blame, which is known when each is alone
                else:
                    yield outcome
        for i in members if again else []:
            yield from _run_batch(opened, sentences, questions, [i], again, None)
        advance(len(members))

    runs = map(run, opened.batches(sentences, batch_size, tokens=_at_once(opened, sentences, jobs)))
    for outcome in chain.from_iterable(one_ahead(runs) if _goes_ahead(opened, jobs) else runs):
        if outcome is not None:
            yield outcome


def _goes_ahead(opened: Model, jobs: Mapping[str, Job]) -> bool:
    """Whether a pass is begun before the results of the one before it are read: where a device works by itself and
    nothing is kept of a layer but its map.
    """
    return opened.device.type == "cuda" and all(job.method.by_layer for job in jobs.values())


def _at_once(opened: Model, sentences: Sequence[Sentence], jobs: Mapping[str, Job]) -> float:
    """How many tokens, padding included, share a batch at most."""
    doubled = [job for job in jobs.values() if job.method.doubled]
    if opened.device.type != "cuda" or not doubled:
        return inf
    longest = max(map(len, sentences), default=0)
    together = opened.shape((longest,) * SEVERAL)
    held = max(job.method.cost(together, job.options).held if job.method.cost else inf for job in doubled)
    return max(DOUBLED, SEVERAL * longest) if held <= free_memory(opened.device) / 2 else DOUBLED


@contextmanager
def _memory(lengths: Sequence[int], jobs: Sequence[Job]) -> Iterator[None]:
    """Too little memory, as numpy and torch report it, becomes a sentence that says what was asked for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        count, names = len(lengths), ", ".join(job.asked for job in jobs)
        less = [f"batch_size={max(1, count // 4)}"] if count > 1 else ["a shorter text, or long='windows'"]
        less += ["keep='scores'"] if any(job.keep == "maps" and job.method.kind == "map" for job in jobs) else []
        why = (str(error) or "out of memory").splitlines()[0]
        raise OutOfMemory(
            f"not enough memory for {names} of {count} input{'s' * (count > 1)} of up to {max(lengths)} tokens "
            f"at once ({why}); ask for less: {' or '.join(less)}"
        ) from error


@contextmanager
def _weights(opened: Model) -> Iterator[None]:
    """Weights that were made in inference mode take part in no gradient, which torch says in the middle of a pass."""
    try:
        yield
    except RuntimeError as error:
        if not any(each.is_inference() for each in (*opened.model.parameters(), *opened.model.buffers())):
            raise
        raise UnsupportedModel(
            f"{opened.name} was loaded under torch.inference_mode, so that no gradient can go through its weights; "
            f"load it outside of inference mode, or use a method without gradients"
        ) from error


def _run_batch(
    opened: Model,
    sentences: Sequence[Sentence],
    questions: Sequence[Question],
    members: Sequence[int],
    jobs: Mapping[str, Job],
    on_layer: Callable[[int], None] | None,
) -> Iterator[Outcome | None]:
    """Job by job what the members have, from one pass; and None before, when that is under way."""
    read, asked = [sentences[i] for i in members], [questions[i] for i in members]
    lengths = [len(each) for each in read]
    shelves = {name: Shelf(job, asked, lengths, error=_refused(opened, job, asked)) for name, job in jobs.items()}
    if all(shelf.error for shelf in shelves.values()):
        yield from (outcome for name, shelf in shelves.items() for outcome in shelf.outcomes(name, members))
        return
    places = cache(lambda: [_foreseen(opened, *each) for each in zip(read, asked, strict=True)])
    for shelf in shelves.values():
        shelf.rows = None if shelf.error else rows_alone(shelf.job, lengths, places)
        shelf.joint = joining(shelf.job, lengths, shelf.fetching)
    begin = time.perf_counter()
    trace = _passed(opened, read, list(shelves.values()), on_layer)
    seen = on_host(trace.output)
    begun = time.perf_counter() - begin
    yield None
    shown = [_shown(opened, each) for each in read]  # before a device is waited for
    output, found = _answered(trace, seen, asked, list(shelves.values()), begun)
    for which in range(len(found[0])):
        output = output.among(found, which)
        said = [_said(*each) for each in zip(shown, read, output.answers, strict=True)]
        for name, shelf in shelves.items():
            _explained(output, shelf, said)
            if which == len(found[0]) - 1:
                yield from shelf.outcomes(name, members)


def _foreseen(opened: Model, sentence: Sentence, question: Question) -> Readout | None:
    with _about(sentence):
        return foreseen(opened, sentence, question.target, question.foil, question.position)


@contextmanager
def _about(sentence: Sentence) -> Iterator[None]:
    """What is wrong in here is wrong with this sentence and none beside it."""
    try:
        yield
    except InvalidInput as error:
        error.about = sentence
        raise


def _refused(opened: Model, job: Job, questions: Sequence[Question]) -> WherefromError | None:
    """Why this method cannot be asked this of this model; None if it can."""
    given = any(question.position is not None for question in questions)
    if not given or opened.task != "classification" or not job.method.class_specific:
        return None
    return InvalidTarget(
        f"{job.asked} follows the logit to the token that the classifier reads; position= chooses the row of a map, "
        f"leave it out here"
    )


@own_modes
def _passed(
    opened: Model,
    sentences: Sequence[Sentence],
    shelves: Sequence[Shelf],
    on_layer: Callable[[int], None] | None,
) -> Trace:
    """One pass, in which every layerwise job does its work. A device may still be at it."""
    batch = collate(sentences, opened.pad_id)
    kept: list[LayerTrace] = []
    running = [shelf.job.method for shelf in shelves if not shelf.error]
    gradient = any(method.gradient for method in running)
    # The numbers of a frozen pass are those of any other, its gradients are not: it serves all but gradient methods.
    frozen = Freezing() if not gradient and any(method.frozen for method in running) else None
    keep = any(method.all_layers for method in running)
    by_layer = [shelf for shelf in shelves if shelf.job.method.by_layer]
    together = blocks_together(opened, sentences)
    waiting = [shelf for shelf in by_layer if together is not None and waits(shelf, opened.depth)]
    at_once = [shelf for shelf in by_layer if shelf not in waiting]
    every: list[LayerTrace] = []

    def each(layer: LayerTrace) -> None:
        if keep and opened.family.mapped:
            kept.append(layer)
        if waiting:
            every.append(layer)
        for shelf in at_once:
            with torch.no_grad(), _charged(shelf):
                _work(shelf, layer, batch.sentences)
        if on_layer is not None:
            on_layer(layer.index)

    with own_code_in_a_sentence(f"{opened.name} does not read this text"):
        trace = replace(stream(opened, batch, each, grad=gradient, frozen=frozen, wait=False), layers=kept)
    for shelf in waiting:
        assert together is not None
        with torch.no_grad(), _charged(shelf):
            work(shelf, every, together)
    for shelf in by_layer:
        if shelf.joint is not None:
            shelf.joint.look()
    trace.look()
    return trace


@own_modes
def _answered(
    trace: Trace, seen: Callable[[], Any], questions: Sequence[Question], shelves: Sequence[Shelf], begun: float
) -> tuple[OutputTrace, list[list[Answer]]]:
    """The end of a pass, whose beginning took so many seconds and whose output is `seen`; and for each sentence what is
    explained.
    """
    sentences, begin = trace.batch.sentences, time.perf_counter()
    trace.settle()
    shared = begun + time.perf_counter() - begin - sum(shelf.seconds for shelf in shelves)
    said = seen()
    found: list[list[Answer]] = []
    for row, (sentence, asked) in enumerate(zip(sentences, questions, strict=True)):
        with _about(sentence):
            found.append(answers(trace.opened, sentence, said, row, asked.target, asked.foil, asked.position))
    if len({len(each) for each in found}) > 1:
        raise InvalidTarget("target='all' must be asked of every input or of none")
    targets = len(found[0])
    for shelf in shelves:  # one pass, and one map, for all targets: each has its share
        shelf.shared = shared / len(sentences) / targets
        shelf.seconds /= targets if shelf.job.method.by_layer else 1
    return OutputTrace(trace, [each[0] for each in found]), found


@contextmanager
def _charged(shelf: Shelf) -> Iterator[None]:
    """One job's own work: its time, and its failure, after which nothing more is tried."""
    begin = time.perf_counter()
    try:
        with own_code_in_a_sentence(f"'{shelf.job.asked}' has no value here"):
            yield
    except WherefromError as error:
        shelf.error = error
    shelf.seconds += time.perf_counter() - begin


@own_modes
def _explained(output: OutputTrace, shelf: Shelf, said: Sequence[_Said]) -> None:
    """Towards one target, an explanation more for each sentence, of which `said` is what all methods have to say."""
    lengths = output.trace.batch.lengths
    if not shelf.job.method.by_layer:
        shelf.seconds = 0.0
        with _charged(shelf), _memory(lengths, [shelf.job]):
            _work_towards(shelf, output)
    if shelf.error:
        return
    shelf.fetching.wait()
    try:
        with _memory(lengths, [shelf.job]):
            shelf.explanations.append(_explanations(output, shelf, said))
    except WherefromError as error:
        shelf.error = error


def _work(shelf: Shelf, layer: LayerTrace, sentences: Sequence[Sentence]) -> None:
    """One job's share of one layer. Maps that are kept move to the CPU, where they wait for the other layers."""
    job, rows = shelf.job, shelf.rows
    outside = not job.reach.start <= layer.index < job.reach.end
    if shelf.error or outside or (rows is not None and rows.unread(layer.index)):
        return

    def sunk(maps: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        return without_sink(maps, sentences, targets) if job.reach.drop_sink else maps

    one_stream = layer.step is None
    if rows is not None and one_stream and rows.alone(layer.index) and job.head is None and job.method.row is not None:
        at = rows.targets(layer.mask)
        row = layer_row(job.method, job.method.row(layer, at, **job.options), layer)
        rows.add(sunk(row.unsqueeze(1), at[:, None]))
        return
    whole = sunk(layer.on_axis(layer_map(job.method, job.method.run(layer, **job.options), layer)))
    if job.head is None:
        rows.add(whole) if rows is not None else shelf.maps.add(whole)
        if shelf.joint is not None:
            shelf.joint.add(whole)
        return
    assert job.method.heads is not None
    heads = sunk(layer.on_axis(layer_heads(job.method, job.method.heads(layer, **job.options), layer)))
    if job.head == "all":
        shelf.maps.add(whole)
        shelf.heads.add(heads)
        return
    if not 0 <= int(job.head) < layer.heads:
        raise InvalidOption(f"head {job.head} is outside the model's {layer.heads} heads (0 to {layer.heads - 1})")
    if rows is not None:
        rows.add(heads[:, int(job.head)], whole)
        return
    shelf.maps.add(heads[:, int(job.head)])
    shelf.below.add(whole)
    if shelf.joint is not None:
        shelf.joint.add(heads[:, int(job.head)], whole)


def _work_towards(shelf: Shelf, output: OutputTrace) -> None:
    """A class-specific job, for one target."""
    job = shelf.job
    if shelf.error:
        return
    found, shape = job.method.run(output, **job.options), (len(shelf.lengths), max(shelf.lengths))
    if job.method.kind == "scores" or isinstance(found, Scores):  # generic-attention's, where there are two streams
        shelf.scores = scores_of(job.method, found, *shape).cpu()
        return
    shelf.maps = shelf.stack()
    shelf.joint = joining(job, shelf.lengths, shelf.fetching)
    every = maps_of(job.method, found, job.reach.depth, *shape)
    for layer in every[job.reach.start : job.reach.end]:
        maps = layer.detach()
        if job.reach.drop_sink:
            maps = without_sink(maps, output.trace.batch.sentences)
        shelf.maps.add(maps)
        if shelf.joint is not None:
            shelf.joint.add(maps)


class _Said(NamedTuple):
    """What every method says of one sentence: the same fields, and what a method explains that looks at no output."""

    fields: dict[str, Any]
    represented: Target


def _shown(opened: Model, sentence: Sentence) -> dict[str, Any]:
    """What the results of a sentence have of it, whatever the model says."""
    n = len(sentence)
    return {
        "tokens": sentence.tokens,
        "texts": sentence.texts,
        "spans": sentence.spans or [None] * n,
        "special": sentence.special or [False] * n,
        "unknown": sentence.unknown or [False] * n,
        "word_ids": sentence.word_ids,
        "segments": sentence.segments,
        "given": sentence.given,
        "picture": sentence.picture,
        "model": opened.name,
    }


def _said(shown: dict[str, Any], sentence: Sentence, found: Answer) -> _Said:
    fields = {
        **shown,
        "readout": found.readout,
        "prediction": found.prediction,
        "probabilities": found.probabilities,
        "candidates": found.candidates,
        "log_probabilities": found.log_probabilities,
    }
    return _Said(fields, _represented(sentence, found.readout))


def _explanations(output: OutputTrace, shelf: Shelf, said: Sequence[_Said]) -> list[Explanation]:
    """One for each sentence; where scores alone are kept, and seen to be numbers, nobody looks at each once more."""
    job, opened, alone = shelf.job, output.trace.opened, scores_alone(shelf)
    looks_back = job.method.kind == "map" and not job.method.signed and opened.causal
    every, share = [], shelf.shared + shelf.seconds / len(said)
    for row, ((fields, represented), found) in enumerate(zip(said, output.answers, strict=True)):
        begin, sentence = time.perf_counter(), output.trace.batch.sentences[row]
        parts = parts_of(shelf, row, output) if alone is None else alone[row]
        target = found.target
        if not job.method.class_specific:
            target = RANDOM if job.method.random else represented
        sunk = sink_note(sentence, found.readout, parts["scores"]) if looks_back else []
        fields = {
            **fields,
            **parts,
            "method": job.asked,
            "aggregate": job.reach.aggregate,
            "options": {**job.chosen, **_asked(output, row, shelf), **sentence.read_by},
            "defaults": {**job.defaults},
            "target": target,
            "measured": target if target.towards else _judged(job, found),
            "notes": notes(opened, job, found, parts["scores"]) + sunk,
        }
        fits = alone is not None or ("aggregated" in parts and fields.pop("known_finite"))
        fields["seconds"] = share + time.perf_counter() - begin
        every.append(known_to_fit(fields) if fits else _looked_at(fields))
    return every


def _looked_at(fields: dict[str, Any]) -> Explanation:
    """An explanation that may hold NaN: of several methods, the error says which one gave it."""
    try:
        return Explanation(**fields)
    except InvalidInput as error:
        raise NotDefined(f"the method '{fields['method']}' has no value here: {error}") from error


def _judged(job: Job, found: Answer) -> Target:
    """The output by which metrics judge what is explained towards none."""
    return found.target if job.judged == "target" else found.predicted or found.target


def _asked(output: OutputTrace, row: int, shelf: Shelf) -> dict[str, Any]:
    """What the caller asked of this sentence, as far as the method looks at it: for the record, to ask it again."""
    question, target = shelf.questions[row], output.answers[row].target
    wanted: Any = question.target
    if wanted is None and question.foil is None and question.position is None:
        return {}
    if is_each(wanted) or asks_all(output.trace.opened, wanted):  # of which this is one
        wanted = target.index if target.kind in ("class", "token") else target.kind
    looks = shelf.job.method.class_specific or output.trace.opened.task in ("question-answering", "seq2seq")
    asked = {"target": wanted, "foil": question.foil} if looks else {}
    return {name: value for name, value in {**asked, "position": question.position}.items() if value is not None}


def _represented(sentence: Sentence, readout: Readout) -> Target:
    """What a method explains that does not look at the output."""
    if (where := readout.position) is None:
        of_phrase = "the mean of the tokens before each of the phrase's"
        several = readout.why if sentence.picture is not None else "the mean of all tokens"
        return Target("none", label=of_phrase if sentence.said else several)
    token = as_written(sentence.tokens[where], sentence.texts, sentence.spans[where])
    return Target("none", label=token)
