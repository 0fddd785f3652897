"""The registry: a method joins wherefrom by one decorator above one function.

    @method(
        "attention",
        idea="attention weights",
        paper=citations.ABNAR_2020,
        needs={"attention"},
        checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
        cost=lambda s, _: Work(moved=2 * s.bytes * s.pairs * s.heads),
    )
    def attention(layer: LayerTrace) -> Tensor:
        '''Mean over heads of the attention weights.'''
        return layer.attention.mean(1)

The function's keyword-only parameters are the method's options; the first line of its docstring is what
`wherefrom methods` prints. What it needs of a model (`NEEDS` in needs.py), which identities hold (`CHECKS`, which
`wherefrom.testing.check_method` runs) and what it costs (wherefrom/work.py) is stated here and nowhere else. There are
four kinds of function:

    kind="map"                          layer: LayerTrace        -> that layer's map [B, n, n]
    kind="map", whole=True              output: OutputTrace      -> the maps of all layers, L times [B, n, n]
    kind="map", class_specific=True     the same, of one number of the output
    kind="scores"                       output: OutputTrace      -> Scores, one per input token
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from wherefrom.defaults import DEFAULT_METHOD
from wherefrom.display import Listed
from wherefrom.errors import InvalidOption, did_you_mean
from wherefrom.method.citations import Paper
from wherefrom.method.needs import NEEDS, WITHOUT_BLOCKS
from wherefrom.options import HeadLike, Sink
from wherefrom.registry import Registry, fold
from wherefrom.spec import checked_options, options_of, parse, refuse_uncallable, summary_of
from wherefrom.typecheck import checks_arguments, kinds_of, shown
from wherefrom.work import Cost

if TYPE_CHECKING:
    from torch import Tensor

Run = Callable[..., Any]  # one of the kinds above
# The number that is explained, an option of most methods; "auto" is the log-probability of a phrase, else the logit.
Of = Literal["auto", "logit", "target-logit", "log-probability", "probability"]
# The identities that may hold of what a method gives, with its options as they come.
CHECKS = {
    "batch-equals-single": "a text gets the same numbers in a padded batch as alone",
    "token-permutation": "in a model without positions, reordering the words reorders the numbers and no more",
    "hidden-tokens": "a token that attention cannot see gives nothing to the others",
    "rows-sum-to-one": "each row of a layer's map sums to one",
    "sign-flips-with-foil": "with target and foil exchanged, every score changes its sign",
    "adds-up": "the scores add up to what the method promises",
}
# What a name may say of `options.MapOptions`: `alti(layers=[0, 2])`. How much is kept is one for all methods of a call.
HOW: dict[str, Any] = {
    "aggregate": str | None,
    "layers": Any,
    "head": HeadLike,
    "drop_self": bool,
    "sink": Sink,
    "receptive_field": bool,
}


class Scores(NamedTuple):
    """What a method of kind "scores" returns."""

    scores: Tensor  # [B, n]
    layers: Tensor | None = None  # [L, B, n]: the same layer by layer
    delta: Tensor | None = None  # [B]: by how much the scores miss the sum they promise

    signed: bool | None = None  # where an option decides it
    arrived: Tensor | None = None  # [B]: what part of the explained number they add up to, where none is promised
    surrogates: Sequence[dict[str, Any]] | None = None  # B times, where the scores are the weights of a fitted model

    def cpu(self) -> Scores:
        """The same, where results wait: off the device and without a graph."""
        moved = {name: part.detach().cpu() for name, part in self._asdict().items() if hasattr(part, "detach")}
        return self._replace(**moved)


@dataclass(frozen=True)
class Method:
    """What is known of a method beside its formula."""

    name: str
    symbols: tuple[str, ...]  # how papers write it; each works as a name
    idea: str  # what it shares with others: a heading in lists
    paper: Paper
    kind: str  # "map": one [n, n] map per layer; "scores": one number per input token
    needs: frozenset[str]  # what it must have of a model: words of `NEEDS`
    prefers: frozenset[str]  # what makes it fast; without it, it is exact and slower
    checks: frozenset[str]  # the identities that hold of it: words of `CHECKS`
    signed: bool  # scores below zero speak against the target
    additive: bool  # the scores of a word's pieces add up to the word's
    class_specific: bool  # explains one output rather than one representation
    whole: bool  # takes all layers together, though it explains representations
    aggregate: str | None  # how its layer maps are joined unless the caller says otherwise
    joins_streams: bool  # whether those of an encoder with a decoder may be joined at all
    run: Run = field(repr=False)
    heads: Run | None = field(repr=False)  # the same for every head: [B, H, n, n]
    row: Run | None = field(repr=False)  # one row of the map without the others
    random: bool  # explains nothing: scores to compare with
    pairs: bool  # an entry of its map is of two tokens together, not of what one draws on another
    side_by_side: bool  # takes all layers of a sentence for a batch (model/side_by_side.py)
    cost: Cost | None = field(repr=False)  # the work of one layer, or towards an output that of the whole model

    @property
    def gradient(self) -> bool:
        """Whether it needs the graph of the forward pass."""
        return "gradient" in self.needs

    @property
    def frozen(self) -> bool:
        """Whether it needs the graph of a pass in which what is not linear is frozen (model/frozen_pass.py)."""
        return "frozen-pass" in self.needs

    @property
    def doubled(self) -> bool:
        """Whether it repeats the pass in float64 and keeps all of it."""
        return "weights" in self.needs

    @property
    def blocks(self) -> bool:
        """Whether it looks inside the model; else at its embeddings and its output alone."""
        return not self.needs <= WITHOUT_BLOCKS

    @property
    def by_layer(self) -> bool:
        """Whether it takes one layer at a time, as the pass goes by."""
        return self.kind == "map" and not self.class_specific and not self.whole

    @property
    def all_layers(self) -> bool:
        """Whether it needs all layers at once."""
        return self.gradient or self.frozen or "layers" in self.needs

    @property
    def needs_in_words(self) -> str:
        return ", ".join(said for word, said in NEEDS.items() if word in self.needs) or "nothing but the tokens"

    @property
    def summary(self) -> str:
        return summary_of(self.run)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        return options_of(self.run)

    @cached_property
    def kinds(self) -> dict[str, Any]:
        """What each option may be, as annotations (`wherefrom.typecheck`)."""
        known = kinds_of(self.run)
        return {name: known[name] for name in self.options}


@dataclass(frozen=True)
class Preset:
    """A name that the field gives to a method together with a way to aggregate it."""

    name: str
    method: str
    aggregate: str | None
    paper: Paper
    summary: str
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class MethodSpec:
    """A method as it was asked for, `integrated-gradients(n_steps=20)`, its options known to be of the right kind."""

    asked: str  # the method's name, or the preset's, as it is registered
    method: Method
    preset: Preset | None
    options: dict[str, Any]
    how: dict[str, Any]  # what `explain` takes beside a method's own options (`HOW`), written into the name


MethodLike: TypeAlias = str | MethodSpec | Method | Preset

METHODS: Registry[Method | Preset] = Registry("method", group="wherefrom.methods", listing="wherefrom methods")


@checks_arguments
def method(
    name: str,
    *,
    idea: str,
    paper: Paper,
    needs: Set[str],
    checks: Set[str],
    cost: Cost | None = None,
    prefers: Set[str] = frozenset(),
    symbols: tuple[str, ...] = (),
    kind: Literal["map", "scores"] = "map",
    signed: bool = False,
    additive: bool | None = None,
    class_specific: bool = False,
    whole: bool = False,
    aggregate: str | None = "rollout",
    joins_streams: bool = True,
    heads: Run | None = None,
    row: Run | None = None,
    random: bool = False,
    pairs: bool = False,
    side_by_side: bool = False,
) -> Callable[[Run], Run]:
    """Register the decorated function under `name` and its symbols.

    What a map says is how much token i takes from token j, amounts that add up unless it is signed or `additive` says
    otherwise; scores do where it says so.
    """
    if not isinstance(paper, Paper):
        raise InvalidOption(f"'{name}' has the paper {shown(paper)}; expected a Paper of wherefrom.method.citations")
    _refuse_unknown_words(name, "needs", needs, NEEDS)
    _refuse_unknown_words(name, "prefers", prefers, NEEDS)
    _refuse_unknown_words(name, "checks", checks, CHECKS)

    if fold(name) == DEFAULT_METHOD:
        raise InvalidOption(f"a method cannot be called '{name}', which stands for the one that suits the model")

    def register(run: Run) -> Run:
        refuse_uncallable(name, run, ["layer" if kind == "map" else "output"])
        run = checks_arguments(run)
        made = Method(
            name=name,
            symbols=symbols,
            idea=idea,
            paper=paper,
            kind=kind,
            needs=frozenset(needs),
            prefers=frozenset(prefers),
            checks=frozenset(checks),
            signed=signed,
            additive=(kind == "map" and not signed) if additive is None else additive,
            class_specific=class_specific,
            whole=whole,
            aggregate=aggregate if kind == "map" else None,
            joins_streams=joins_streams,
            run=run,
            heads=heads,
            row=row,
            random=random,
            pairs=pairs,
            side_by_side=side_by_side,
            cost=cost,
        )
        METHODS.add(name, made, symbols)
        return run

    return register


def _refuse_unknown_words(name: str, what: str, given: Any, known: Mapping[str, str]) -> None:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOption(f"'{name}' {what} {shown(given)}; expected a set of words of {', '.join(known)}")
    for word in sorted(set(given) - known.keys()):
        hint = did_you_mean(word, known)
        raise InvalidOption(f"'{name}' {what} {word!r}; {hint}expected words of {', '.join(known)}")


def preset(found: Preset) -> None:
    """Register a combination of method and aggregation under the field's own name for it."""
    METHODS.add(found.name, found, found.symbols)


def lookup(name: str) -> tuple[Method, Preset | None]:
    """The method of a name or symbol, and the preset when the name is one."""
    found = METHODS.find(name)
    if isinstance(found, Method):
        return found, None
    return lookup(found.method)[0], found


def name_of(asked: Any) -> Any:
    """The name of a method that `methods()` or `presets()` has; whatever else was given, as it is."""
    return asked.name if isinstance(asked, Method | Preset) else asked


def choose(asked: MethodLike, options: Mapping[str, Any] | None = None) -> MethodSpec:
    """The method that a name such as `random(seed=1)` asks for, with further options, or what is wrong with it."""
    if isinstance(asked, MethodSpec):
        return asked
    name: Any = name_of(asked)
    name, written = parse(name) if isinstance(name, str) else (name, {})
    method, preset = lookup(name)
    if twice := written.keys() & (options or {}):
        raise InvalidOption(f"{min(twice)} is given twice, in {asked!r} and beside it; expected it once")
    how = checked_options(name, {key: written.pop(key) for key in HOW if key in written}, HOW, HOW)
    own = checked_options(name, {**written, **(options or {})}, method.options, method.kinds)
    return MethodSpec((preset or method).name, method, preset, own, how)


def choose_each(names: Iterable[str]) -> dict[str, MethodSpec]:
    """The methods by the names that ask for them; one method under two names is refused."""
    found: dict[str, MethodSpec] = {}
    for name in names:
        asked = choose(name)
        if same := [other for other, each in found.items() if each == asked]:
            raise InvalidOption(
                f"a method is named twice: '{same[0]}' and '{name}' are both {asked.asked}; expected each once"
            )
        found[name] = asked
    return found


def list_of_names(methods: Any) -> list[str]:
    """The names of methods to compare, each once."""
    named = [methods] if isinstance(name_of(methods), str) else methods
    try:
        names = [] if isinstance(named, bytes | Mapping) else [name_of(each) for each in named]
    except TypeError:
        raise InvalidOption(f"methods={shown(methods)}; expected a list of names from wherefrom.methods()") from None
    if odd := [each for each in names if not isinstance(each, str)]:
        raise InvalidOption(f"methods holds {shown(odd[0])}; expected names from wherefrom.methods()")
    if not names:
        raise InvalidOption("no methods to compare; expected at least one name from wherefrom.methods()")
    if len(set(names)) < len(names):
        raise InvalidOption(f"a method is named twice in {', '.join(names)}; expected each once")
    return names


def methods() -> list[Method]:
    """Every registered method, in the order of registration.

    Names that stand for a method with an aggregation (attention-rollout, attention-flow, raw-attention) are taken
    wherever a method is; `wherefrom.presets()` has them.

    >>> "alti" in [method.name for method in wherefrom.methods()]
    True
    """
    columns: dict[str, Callable[[Method], str]] = {
        "method": lambda each: each.name,
        "symbols": lambda each: ", ".join(each.symbols),
        "kind": lambda each: each.kind + ", towards an output" * each.class_specific,
        "what it is": lambda each: each.summary,
        "from": lambda each: each.paper.short,
    }
    return Listed((each for each in METHODS.values() if isinstance(each, Method)), columns)


def presets() -> list[Preset]:
    """Every registered name of a method with an aggregation: attention-rollout, for one.

    >>> [preset.name for preset in wherefrom.presets()]
    ['attention-rollout', 'attention-flow', 'raw-attention']
    """
    return [each for each in METHODS.values() if isinstance(each, Preset)]
