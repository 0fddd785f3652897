"""What was asked, resolved before anything is run: names and arguments become jobs and questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from wherefrom.aggregate import check_aggregation
from wherefrom.defaults import DEFAULT_METHODS
from wherefrom.errors import InvalidOption, InvalidTarget, Unsuited, WherefromError, did_you_mean
from wherefrom.method import Method, MethodSpec, methods
from wherefrom.method.needs import undefined
from wherefrom.model import Model
from wherefrom.model.containers import several
from wherefrom.typecheck import checked, plain, shown

AUTO = "auto"  # aggregate as the method and its name say


@dataclass(frozen=True)
class Reach:
    """From where to where layer maps are joined, and how."""

    aggregate: str | None
    start: int  # the first block taken
    end: int  # the first one no longer taken
    depth: int
    receptive_field: bool
    readout_only: bool
    drop_sink: bool = False  # wherefrom/pipeline/sinks.py
    windows: tuple[int | None, ...] = ()  # how far a token sees in each of these blocks, for the receptive field

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for beyond the ordinary, for the record."""
        part = {} if (self.start, self.end) == (0, self.depth) else {"layers": [self.start, self.end]}
        field = {"receptive_field": True} if self.receptive_field else {}
        sink = {"sink": "drop"} if self.drop_sink else {}
        return {**part, **field, **sink, **({"rows": "readout"} if self.readout_only else {})}


@dataclass(frozen=True)
class Job:
    """One method to run, its name resolved to an algorithm, an aggregation and options."""

    asked: str
    method: Method
    reach: Reach
    head: int | str | None
    drop_self: bool
    options: dict[str, Any]
    keep: str = "maps"  # or "row": of every layer its readout row; or "scores": of the last alone
    judged: str = "prediction"  # what metrics judge it by if it looks at no output; or "target", as those that do

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The method's options that were left as they are."""
        return {name: value for name, value in self.method.options.items() if name not in self.options}

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """What the caller chose, under the names of `explain`: what makes it again, beside the method's name."""
        head = {} if self.head is None else {"head": self.head}
        drop_self = {"drop_self": True} if self.drop_self else {}
        keep = {} if self.keep == _usual_keep(self.reach, self.head) else {"keep": self.keep}
        return {**self.options, **head, **self.reach.options, **drop_self, **keep}


@dataclass(frozen=True)
class Question:
    """What is asked of one input."""

    target: Any
    foil: Any
    position: Any


UNASKED = Question(None, None, None)


@dataclass(frozen=True)
class Wanted:
    """What all methods of a call are asked beside their own options, as `explain` takes it."""

    aggregate: str | None = AUTO
    layers: Any = None
    receptive_field: bool = False
    rows: str = "all"
    head: int | str | None = None
    drop_self: bool = False
    sink: str = "keep"
    keep: str | None = "maps"

    def asks_maps(self, depth: int) -> bool:
        """Whether more was asked than scores can answer."""
        bent = self.receptive_field or self.sink == "drop"
        return self.aggregate != AUTO or bent or _layers(self.layers, depth) != (0, depth)


USUAL = Wanted()


def resolve_job(opened: Model, chosen: MethodSpec, wanted: Wanted = USUAL, judged: str = "prediction") -> Job:
    """What a method is to do on this model; what stands in its own name goes before what all are asked."""
    check_defined(opened, chosen)
    wanted = replace(wanted, **chosen.how)
    method, preset, name = chosen.method, chosen.preset, chosen.asked
    start, end = _layers(wanted.layers, opened.depth)
    if opened.two_streams:
        wanted = _over_streams(opened, chosen, wanted)
    joined = _aggregation(chosen, wanted.aggregate, wanted.receptive_field)
    if wanted.receptive_field and not opened.causal:
        raise InvalidOption(
            f"receptive_field=True corrects for tokens that see only those before them, and every token of "
            f"{opened.name} sees all; leave it out"
        )
    if (method.kind == "scores" or method.pairs) and (start, end) != (0, opened.depth):
        raise InvalidOption(f"'{name}' has no layer maps to choose from; leave layers out")
    if wanted.head is not None and method.heads is None:
        able = ", ".join(each.name for each in methods() if each.heads is not None)
        raise InvalidOption(f"'{name}' does not take single heads; leave head out, or choose one that does: {able}")
    if preset is not None and joined != preset.aggregate:
        name = method.name  # "attention-rollout" joined in another way is no rollout
    drop_sink = wanted.sink == "drop"
    if drop_sink:
        _check_sink(opened, name, method)
    windows = tuple(opened.traits.windows[start:end]) if wanted.receptive_field else ()
    reach = Reach(
        joined, start, end, opened.depth, wanted.receptive_field, wanted.rows == "readout", drop_sink, windows
    )
    kept = _keep(wanted.keep, reach, wanted.head)
    return Job(name, method, reach, wanted.head, wanted.drop_self, chosen.options, kept, judged)


def _over_streams(opened: Model, chosen: MethodSpec, wanted: Wanted) -> Wanted:
    """What is wanted of an encoder with a decoder, whose maps not every method lets be joined."""
    method, name = chosen.method, chosen.asked
    if wanted.head == "all" and len({block.heads for block in opened.blocks}) > 1:
        raise InvalidOption("encoder and decoder have unlike numbers of heads; ask for one by its number (head=0)")
    own = replace(wanted, aggregate=AUTO) if wanted.aggregate == method.aggregate else wanted  # as `arguments` names it
    if method.class_specific and method.aggregate is not None and own.asks_maps(opened.depth):
        raise InvalidOption(
            f"'{name}' joins the layers of an encoder with a decoder by rules of its own; leave aggregate and layers "
            f"out"
        )
    if method.joins_streams or wanted.aggregate in (None, "none", "last"):
        return wanted
    if wanted.aggregate != AUTO:
        raise InvalidOption(
            f"'{name}' does not say how much of a token stays when a decoder reads the source, so that the layer maps "
            f"of an encoder with a decoder are not joined; leave aggregate out"
        )
    return replace(wanted, aggregate=None)


def check_defined(opened: Model, chosen: MethodSpec) -> None:
    """Refuse a method that is not defined on this model, before anything runs."""
    method = chosen.method
    if method.blocks and not opened.family.mapped:
        others = ", ".join(each.name for each in methods() if not each.blocks and not undefined(each.needs, opened))
        opened.need_blocks(repr(chosen.asked), f" Methods that look at embeddings and output alone: {others}")
    if (why := undefined(method.needs, opened)) is not None:
        same = _defined(opened, method.class_specific)
        alike = [each for each in same if not each.random and (method.pairs or not each.pairs)]
        alike.sort(key=lambda each: each.idea != method.idea)  # nearest relatives first
        towards = method.class_specific and opened.family.mapped
        maps = f"; or one that looks at no output, as {DEFAULT_METHODS['map'][0]}" if towards else ""
        raise Unsuited(
            f"'{chosen.asked}' is not defined on {opened.name} ('{opened.family.name}'): {why}; choose a method that "
            f"is: {', '.join(each.name for each in alike)}{maps}"
        )


def _defined(opened: Model, class_specific: bool) -> list[Method]:
    """The methods of one sort that are defined on a model: a refusal suggests no other."""
    return [each for each in methods() if each.class_specific == class_specific and not undefined(each.needs, opened)]


def _check_sink(opened: Model, name: str, method: Method) -> None:
    """Refuse to leave out the first token where there is no map of shares, or where it is no sink."""
    if not opened.causal:
        raise InvalidOption(
            f"sink='drop' leaves out the first token, on which the maps of decoders pile up, and every token of "
            f"{opened.name} sees all; leave sink out"
        )
    if method.kind == "scores" or method.signed or method.whole:
        signs = "maps with signs, which are no shares of a row"
        what = "no maps" if method.kind == "scores" else signs if method.signed else "maps of all layers together"
        raise InvalidOption(f"sink='drop' shares out what the first token has in a map, and '{name}' has {what}")


def resolve_jobs(
    opened: Model, chosen: Mapping[str, MethodSpec], wanted: Wanted
) -> tuple[dict[str, Job], dict[str, WherefromError]]:
    """The jobs by the names they were asked for, and why some of these methods cannot do what all are asked."""
    jobs, failed = {}, {}
    for name, each in chosen.items():
        try:
            jobs[name] = resolve_job(opened, each, wanted)
        except WherefromError as error:
            failed[name] = error
    if not jobs:
        raise next(iter(failed.values()))
    return jobs, failed


def _aggregation(chosen: MethodSpec, aggregate: str | None, receptive_field: bool) -> str | None:
    unjoined = chosen.method.kind == "scores" or chosen.method.pairs
    if unjoined and receptive_field:
        raise InvalidOption(
            f"receptive_field=True corrects rollout and flow, which '{chosen.asked}' has not; leave it out"
        )
    if aggregate == AUTO:
        aggregate = chosen.method.aggregate if chosen.preset is None else chosen.preset.aggregate
    elif unjoined and aggregate not in (None, "none"):
        gives = "one map of pairs" if chosen.method.pairs else "scores and no maps"
        raise InvalidOption(f"'{chosen.asked}' gives {gives}: there is nothing to aggregate by {shown(aggregate)}")
    return check_aggregation(aggregate, receptive_field)


def _keep(keep: str | None, reach: Reach, head: int | str | None) -> str:
    """What stays of the maps; where nothing is said, as much as `rows` and `head` ask for."""
    if keep in ("row", "scores") and head == "all":
        raise InvalidOption(f"head='all' asks for every head's maps and keep='{keep}' for none; leave one of them out")
    return keep or _usual_keep(reach, head)


def _usual_keep(reach: Reach, head: int | str | None) -> str:
    return "row" if reach.readout_only and head != "all" else "maps"


def _layers(layers: Any, depth: int) -> tuple[int, int]:
    if layers is None:
        return 0, depth
    if not isinstance(layers, tuple | list) or len(layers) != 2:
        raise InvalidOption(f"layers is {shown(layers)}; expected (start, end), e.g. (0, {depth}) for all blocks")
    start, end = (plain(other if each is None else each) for each, other in zip(layers, (0, depth), strict=True))
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (start, end))
    if whole:
        start, end = (each + depth if each < 0 else each for each in (start, end))
    if not whole or not 0 <= start < end <= depth:
        raise InvalidOption(
            f"layers is {shown(layers)}; expected whole numbers (start, end) with 0 <= start < end <= {depth}, "
            f"the model's number of blocks (end is not included; negative numbers count from the end)"
        )
    return start, end


def resolve_questions(count: int, single: bool, target: Any, foil: Any, position: Any) -> list[Question]:
    """What is asked of each input: one thing of all, or a list (an array, a column) with an entry for each."""
    columns = []
    for name, value in (("target", target), ("foil", foil), ("position", position)):
        listed = None if single or isinstance(value, str) or getattr(value, "ndim", 1) == 0 else several(value)
        entries = [value] * count if listed is None else list(listed)
        if len(entries) != count:
            entry = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
            raise InvalidTarget(f"{entry} in {name} for {count} inputs; expected one each")
        columns.append([each if each is None else checked(name, each, int | str | None) for each in entries])
    return [Question(*each) for each in zip(*columns, strict=True)]


def refuse_misspelt(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse an argument of the function that is misspelt: it would be taken for an option of the method."""
    if not options:
        return
    own = inspect.signature(function).parameters
    known = {option for each in methods() for option in each.options}
    for name in sorted(options.keys() - known):
        if name == "processor":  # would read as a misspelt `progress`
            raise InvalidOption(
                f"{function.__name__} has no argument 'processor'; pass it as tokenizer=, or open the model with it: "
                f"wherefrom.open_model(model, processor=…)"
            )
        if meant := did_you_mean(name, own):
            raise InvalidOption(f"{function.__name__} has no argument {name!r}; {meant}".rstrip())


def refuse_unseen_targets(opened: Model, questions: Sequence[Question], asked: Sequence[MethodSpec]) -> None:
    """Refuse a target or a foil that none of the methods looks at.

    In an answer, start and end choose the row that is read.
    """
    targets = any(each.target is not None or each.foil is not None for each in questions)
    answered = any(each.method.class_specific for each in asked)
    if not targets or answered or opened.task == "question-answering":
        return
    names = ", ".join(each.asked for each in asked)
    say = f"say{'s' * (len(asked) == 1)} what a representation is made of"
    say = "has random scores" if all(each.method.random for each in asked) else say
    foils = any(each.foil is not None for each in questions)  # of a foil of several tokens the others say nothing
    mean = any(each.position == "mean" for each in questions)  # of several tokens, where some look at one
    looking = [
        each
        for each in _defined(opened, class_specific=True)
        if (each.signed or not foils) and not (mean and "read-token" in each.needs)
    ]
    answering = ", ".join(each.name for each in looking)
    out = "the foil" if opened.two_streams else "target and foil"  # a decoder's target is what it reads
    raise InvalidTarget(
        f"{names} {say}, the same for every target; leave {out} out, or choose a method that looks at them: {answering}"
    )
