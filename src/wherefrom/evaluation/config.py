"""What is asked of a run, resolved and checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wherefrom.errors import InvalidOption, NotDefined
from wherefrom.method import choose, choose_each, name_of
from wherefrom.metric.base import NEEDS, MetricSpec
from wherefrom.metric.names import lookup
from wherefrom.metric.probing import PROPERTIES
from wherefrom.pipeline.resolution import Job, Wanted, resolve_job
from wherefrom.spec import split
from wherefrom.typecheck import shown

if TYPE_CHECKING:
    from wherefrom.data import Example
    from wherefrom.model import Model

LABEL = "label"  # the target that is each example's gold class
UNREAD = {  # tasks of which no one output is measured, and why
    "encoder": "a bare encoder, which has none",
    "token-classification": "a token classifier, which has one for every token",
}
READ = "Wherefrom, isn't it? 42 naïve [MASK] words"  # what tokenizers must cut alike beside having the same words


@dataclass(frozen=True)
class Setting:
    """One run, as every worker needs to know it. It can be pickled, and is resolved anew wherever it arrives."""

    model: Any
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    given: tuple[str, ...] = ()  # methods whose explanations come with the examples
    modules: tuple[str, ...] = ()  # which register methods and metrics of somebody's own
    tokenizer: Any = None
    target: int | str | None = None
    classes: Mapping[str, int] = field(default_factory=dict)  # of gold labels that the model calls otherwise
    batch_size: int = 16
    truncate: bool = False
    threads: int = 1
    seed: int = 0
    task: str | None = None
    device: str | None = None
    dtype: str | None = None
    prove: bool = True
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def asked(self) -> list[MetricSpec]:
        """The metrics, each name resolved."""
        return [lookup(name) for name in self.metrics]

    @property
    def wants_gold(self) -> bool:
        """Whether anything depends on which class a gold label is."""
        return self.target == LABEL or any(each.metric.gold for each in self.asked())

    def explained(self) -> list[str]:
        """Every method that is run: the measured ones, and those that they are compared with."""
        references = [each.reference for each in self.asked() if each.reference and each.reference not in self.given]
        return list(dict.fromkeys([*self.methods, *references]))

    def on(self, model: str, opened: Model) -> Setting:
        """The same methods on a second classifier, beside the first and in its dtype."""
        own: dict[str, Any] = {"tokenizer": None, "task": "classification", "model_kwargs": {}}
        beside: dict[str, Any] = {"device": str(opened.device), "dtype": opened.dtype}
        return replace(self, model=model, metrics=(), given=(), **own, **beside)


def listed(asked: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Names as they were typed or listed, each once."""
    try:
        every = [name_of(each) for each in ([asked] if isinstance(name_of(asked), str) else asked)]
    except TypeError:
        raise InvalidOption(f"{what}: {shown(asked)}; expected names, in a list or with commas between them") from None
    if odd := [each for each in every if not isinstance(each, str)]:
        raise InvalidOption(f"{shown(odd[0])} stands among the {what}; expected names")
    found = [part for each in every for part in split(each)]
    if twice := {name for name in found if found.count(name) > 1}:
        raise InvalidOption(f"{', '.join(sorted(twice))} stands twice among the {what}; expected each once")
    return tuple(found)


def check(setting: Setting) -> None:
    """Refuse what can be refused without the model."""
    of_methods = [asked for asked in setting.asked() if asked.probe is None]
    if of_methods and not setting.methods and not setting.given:
        raise InvalidOption(
            "no methods to evaluate; expected names from `wherefrom methods` (methods=), or scores made elsewhere"
        )
    if not setting.metrics:
        raise InvalidOption("no metrics to evaluate by; expected names from `wherefrom metrics`")
    if setting.target == "all":
        raise InvalidOption("target='all' is not one target; the metric 'confidence' looks at every class by itself")
    for each in (setting.batch_size, setting.threads):
        if isinstance(each, bool) or not isinstance(each, int) or each < 1:
            raise InvalidOption(f"batch size or threads is {each!r}; expected a whole number, at least 1")
    if both := set(setting.methods) & set(setting.given):
        raise InvalidOption(f"{', '.join(sorted(both))} is both a method and given as explanations; rename one")
    choose_each(setting.methods)
    for name in setting.explained():
        choose(name)
    for asked in setting.asked():
        _check_maps(setting, asked)
        if asked.again is not None and setting.given:
            raise NotDefined(
                f"'{asked.name}' explains every example once more, which those given ({', '.join(setting.given)}) "
                f"cannot; leave it out"
            )
        if asked.metric.every_target and setting.given:
            of = "every class" if asked.metric.every_class else "the start and the end of an answer"
            raise NotDefined(f"'{asked.name}' takes explanations of {of}, and those given are of one; leave it out")


def _check_maps(setting: Setting, asked: MetricSpec) -> None:
    """Whole maps can be compared only of methods that have maps."""
    if asked.reference is None or (asked.where or asked.metric.where[0]) != "maps":
        return
    for name in (*setting.methods, asked.reference):
        if name not in setting.given and choose(name).method.kind != "map":
            raise NotDefined(
                f"'{asked.name}' compares layer maps, and '{name}' has none; ask for {asked.metric.name}:"
                f"{asked.reference}@scores, or leave that method out"
            )


def check_model(opened: Model, setting: Setting) -> None:
    """Refuse what this model cannot give."""
    from wherefrom.metric.erasure import blank_id
    from wherefrom.model.perturb import ways
    from wherefrom.model.target import class_index

    found = jobs(opened, setting)
    if opened.task in UNREAD:
        _check_unread(opened, setting, found)
    if opened.two_streams and setting.target is not None:
        raise InvalidOption(
            f"{opened.name} is an encoder with a decoder, each of whose examples has a target text of its own; leave "
            f"target out and name the column that holds it (columns={{'target': …}})"
        )
    if opened.task == "classification" and setting.target not in (None, LABEL):
        class_index(opened.labels, setting.target, "target")
    for asked in setting.asked():
        if asked.way is not None:
            blank = blank_id(opened, asked.way.by)
            if blank is None and opened.task != "classification" and not opened.two_streams:
                instead = next(iter(ways(opened)), "TOKEN_ID")
                raise NotDefined(
                    f"'{asked.name}' deletes tokens, which moves the one where {opened.name} predicts; let them go "
                    f"otherwise: {asked.metric.name}(by={instead})"
                )
        if asked.metric.gold and opened.task != "classification":
            raise NotDefined(f"'{asked.name}' is the accuracy of a classifier, and {opened.name} is not one")
        if asked.metric.every_class and (opened.task != "classification" or len(opened.labels) < 2):
            raise NotDefined(f"'{asked.name}' compares the classes of a classifier, and {opened.name} is not one")
        if asked.metric.edges and opened.task != "question-answering":
            raise NotDefined(
                f"'{asked.name}' is of a model that answers questions, and {opened.name} does not; choose precision@K"
            )


def _check_unread(opened: Model, setting: Setting, found: Mapping[str, Job]) -> None:
    """Refuse what looks at an output, of a model that has none, or one for every token and no word of which."""
    looking = [f"'{name}' explains" for name, job in found.items() if job.method.class_specific]
    reading = [f"'{each.name}' measures" for each in setting.asked() if each.way is not None or each.rerun is not None]
    if blamed := [*looking, *reading]:
        raise NotDefined(
            f"{blamed[0]} one output, and {opened.name} is {UNREAD[opened.task]}; `evaluate` measures its maps alone "
            f"(alti, …), by metrics that look at no output (spearman:attention, stability)"
        )


def check_second(ours: Model, theirs: Model) -> None:
    """Refuse a second model whose explanations cannot be compared token by token, class by class."""
    for each in (ours, theirs):
        if each.task != "classification":
            raise NotDefined(f"'consistency' compares two classifiers, and {each.name} is not one")
    if set(ours.labels.values()) != set(theirs.labels.values()):
        raise NotDefined(
            f"{ours.name} and {theirs.name} choose between different classes ({', '.join(ours.labels.values())}; "
            f"{', '.join(theirs.labels.values())}); 'consistency' expects the same labels (id2label in config.json)"
        )
    first, second = ours.tokenizer, theirs.tokenizer
    if first is None or second is None:
        raise InvalidOption("'consistency' needs the tokenizers of both models")
    if first.get_vocab() != second.get_vocab() or first(READ)["input_ids"] != second(READ)["input_ids"]:
        raise NotDefined(
            f"{ours.name} and {theirs.name} cut text into different tokens; 'consistency' compares token by token and "
            f"expects two models with the same tokenizer"
        )


def check_needs(
    setting: Setting, having: Mapping[str, int], kinds: Mapping[str, set[str]], rows: int, data: str
) -> None:
    """Refuse a dataset of which no row has what a metric needs."""
    for asked in setting.asked():
        for need in asked.needs:
            if not having[need]:
                raise NotDefined(
                    f"'{asked.name}' needs {NEEDS[need]}, and none of the {rows} rows of {data} has that; choose "
                    f"another dataset or metric, or name the column that holds it "
                    f"(columns={{'{need}': …}}, --column {need}=…)"
                )
        if asked.probe is not None and len(kinds[asked.probe.of]) < 2:
            raise NotDefined(
                f"'{asked.name}' reads a property off the layers, and all rows of {data} have the same "
                f"{asked.probe.of}; choose another: {asked.metric.name}(of={'|'.join(PROPERTIES)})"
            )
    if setting.target == LABEL and not having["label"]:
        raise InvalidOption(
            f"target='label' explains the gold class, and no row of {data} has a label that wherefrom found; name the "
            f"column that holds it (columns={{'label': …}}, --column label=…), or leave it out"
        )


def count_needs(example: Example, having: dict[str, int], kinds: dict[str, set[str]]) -> None:
    """Add one for everything that this example has; of properties also what they are, until two are known."""
    for need in NEEDS:
        having[need] = having.get(need, 0) + (getattr(example, need) not in (None, ()))
    for name in PROPERTIES:
        seen, value = kinds.setdefault(name, set()), getattr(example, name)
        if value is not None and len(seen) < 2:
            seen.add(str(value))


def jobs(opened: Model, setting: Setting) -> dict[str, Job]:
    """The methods by name, as one capture runs them. Only readout rows are aggregated: metrics read no others.

    Metrics of the explanation itself may look at layers; where there is none of them, scores alone are kept.
    """
    found, keep = {}, "maps" if any(each.at_once for each in setting.asked()) else "scores"
    for name in setting.explained():
        chosen = choose(name)
        if "seed" in chosen.method.options:
            chosen = replace(chosen, options={"seed": setting.seed, **chosen.options})
        found[name] = resolve_job(opened, chosen, Wanted(rows="readout", keep=keep), judged="target")
    return found
