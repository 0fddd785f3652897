"""The registry: a method joins wherefrom by one decorator above one function.

    @method("attention", symbols=("W", "RawAtt"), paper=citations.ABNAR_2020, needs="attention weights")
    def attention(layer: LayerTrace) -> Tensor:
        '''Mean over heads of the attention weights.'''
        return layer.attention.mean(1)

The function's keyword-only parameters are the method's options; the first line of its docstring is what
`wherefrom methods` prints. There are three kinds of function:

    kind="map"                          layer: LayerTrace        -> that layer's map [B, n, n]
    kind="map", class_specific=True     output: OutputTrace      -> the maps of all layers, L times [B, n, n]
    kind="scores"                       output: OutputTrace      -> Scores, one per input token
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from wherefrom.display import Listed
from wherefrom.errors import InvalidOption, did_you_mean
from wherefrom.method.citations import Paper
from wherefrom.registry import Registry
from wherefrom.spec import options_of, parse, summary_of
from wherefrom.typecheck import checked, checks_arguments, kinds_of, shown

if TYPE_CHECKING:
    from torch import Tensor

Run = Callable[..., Any]  # one of the three kinds above
Of = Literal["logit", "probability"]  # the number that is explained, an option of most methods
HOW: dict[str, Any] = {"aggregate": str | None, "layers": Any, "head": int | Literal["all"] | None, "drop_self": bool}


class Scores(NamedTuple):
    """What a method of kind "scores" returns."""

    scores: Tensor  # [B, n]
    layers: Tensor | None = None  # [L, B, n]: the same layer by layer
    delta: Tensor | None = None  # [B]: by how much the scores miss the sum they promise

    signed: bool | None = None  # where an option decides it

    def cpu(self) -> Scores:
        layers, delta = (None if part is None else part.detach().cpu() for part in (self.layers, self.delta))
        return Scores(self.scores.detach().cpu(), layers, delta, self.signed)


@dataclass(frozen=True)
class Method:
    """What is known of a method beside its formula."""

    name: str
    symbols: tuple[str, ...]  # how papers write it; each works as a name
    paper: Paper
    kind: str  # "map": one [n, n] map per layer; "scores": one number per input token
    needs: str  # what it reads of the trace, in words
    signed: bool  # scores below zero speak against the target
    additive: bool  # the scores of a word's pieces add up to the word's
    class_specific: bool  # explains one output rather than one representation
    gradient: bool  # needs the graph of the forward pass
    blocks: bool  # looks inside the model; False: at its embeddings and its output alone
    aggregate: str | None  # how its layer maps are joined unless the caller says otherwise
    run: Run = field(repr=False)
    heads: Run | None = field(repr=False)  # the same for every head: [B, H, n, n]
    random: bool  # explains nothing: scores to compare with

    @property
    def summary(self) -> str:
        return summary_of(self.run)

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        return options_of(self.run)

    @property
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

    asked: str  # the name alone
    method: Method
    preset: Preset | None
    options: dict[str, Any]
    how: dict[str, Any]  # what `explain` takes beside a method's own options (`HOW`), written into the name


METHODS: Registry[Method | Preset] = Registry("method", group="wherefrom.methods")


def method(
    name: str,
    *,
    paper: Paper,
    needs: str,
    symbols: tuple[str, ...] = (),
    kind: str = "map",
    signed: bool = False,
    additive: bool | None = None,
    class_specific: bool = False,
    gradient: bool = False,
    blocks: bool = True,
    aggregate: str | None = "rollout",
    heads: Run | None = None,
    random: bool = False,
) -> Callable[[Run], Run]:
    """Register the decorated function under `name` and its symbols.

    What a map says is how much token i takes from token j, amounts that add up unless it is signed or `additive` says
    otherwise; scores do where it says so.
    """

    def register(run: Run) -> Run:
        run = checks_arguments(run)
        joined = aggregate if kind == "map" else None
        adds = (kind == "map" and not signed) if additive is None else additive
        made = Method(
            name,
            symbols,
            paper,
            kind,
            needs,
            signed,
            adds,
            class_specific,
            gradient,
            blocks,
            joined,
            run,
            heads,
            random,
        )
        METHODS.add(name, made, symbols)
        return run

    return register


def preset(found: Preset) -> None:
    """Register a combination of method and aggregation under the field's own name for it."""
    METHODS.add(found.name, found, found.symbols)


def lookup(name: str) -> tuple[Method, Preset | None]:
    """The method of a name or symbol, and the preset when the name is one."""
    found = METHODS.find(name)
    if isinstance(found, Method):
        return found, None
    return lookup(found.method)[0], found


def choose(asked: str | MethodSpec, options: Mapping[str, Any] | None = None) -> MethodSpec:
    """The method that a name such as `random(seed=1)` asks for, with further options, or what is wrong with it."""
    if isinstance(asked, MethodSpec):
        return asked
    name, written = parse(asked) if isinstance(asked, str) else (asked, {})
    method, preset = lookup(name)
    if twice := written.keys() & (options or {}):
        raise InvalidOption(f"{min(twice)} is given twice, in {asked!r} and beside it; expected it once")
    how = {key: _option(name, key, written.pop(key), kind) for key, kind in HOW.items() if key in written}
    every = {**written, **(options or {})}
    if unknown := every.keys() - method.options:
        known = ", ".join(method.options) or "none"
        hint = did_you_mean(min(unknown), method.options)
        raise InvalidOption(
            f"'{name}' has no option {', '.join(map(shown, sorted(unknown)))}; {hint}its options: {known}",
        )
    kinds = method.kinds
    return MethodSpec(
        name, method, preset, {key: _option(name, key, each, kinds[key]) for key, each in every.items()}, how
    )


def _option(name: str, option: str, value: Any, kind: Any) -> Any:
    return checked(f"'{name}' cannot have {option}", value, kind)


def list_of_names(methods: Any) -> list[str]:
    """The names of methods to compare, each once."""
    named = [methods] if isinstance(methods, str) else methods
    try:
        names = [] if isinstance(named, bytes | Mapping) else list(named)
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
    """Every registered method, in the order of registration."""
    columns: dict[str, Callable[[Method], str]] = {
        "method": lambda each: each.name,
        "symbols": lambda each: ", ".join(each.symbols),
        "kind": lambda each: each.kind + ", towards an output" * each.class_specific,
        "what it is": lambda each: each.summary,
        "from": lambda each: each.paper.short,
    }
    return Listed((each for each in METHODS.values() if isinstance(each, Method)), columns)


def presets() -> list[Preset]:
    """Every registered combination of a method and an aggregation."""
    return [each for each in METHODS.values() if isinstance(each, Preset)]
