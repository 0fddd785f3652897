"""Whether a value is of the kind that an annotation names, and a sentence where it is not.

    def alti(layer, *, metric: Literal["l1", "l2"] = "l1", budget: Annotated[int, least(1)] | None = None): ...

What is checked are the annotations of a function's parameters: `bool`, `int`, `float`, `str`, `None`, `Literal`,
`list[int]`, `tuple[int, ...]`, `Mapping`, paths, unions of these, and bounds by `Annotated[int, least(1)]`. A parameter
without an annotation is taken to be of the kind of its default. Anything else (`Any`, a class) is not checked. Numbers
of numpy's or torch's are taken for Python's own.
"""

from __future__ import annotations

import inspect
import math
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, Unpack, get_args, get_origin

from wherefrom.errors import InvalidOption, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
WORDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a word", NoneType: "None"}
WIDEST = 2**63  # beyond it no array holds a number, and beyond 4,300 digits no message does
LISTS: dict[Any, str] = {
    int: "whole numbers",
    float: "numbers",
    str: "words",
    tuple[int, int]: "pairs of whole numbers",
}


class least(NamedTuple):
    """The bounds of a number, in `Annotated`."""

    low: int
    high: int | None = None

    def __str__(self) -> str:
        return f", at least {self.low}" if self.high is None else f" from {self.low} to {self.high:,}"

    def holds(self, number: float) -> bool:
        return number >= self.low and (self.high is None or number <= self.high)


class within(NamedTuple):
    """The exclusive bounds of a number, in `Annotated`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f" between {self.low:g} and {self.high:g}"

    def holds(self, number: float) -> bool:
        return self.low < number < self.high


class above(NamedTuple):
    """The bounds of a number, the lower exclusive and the upper inclusive, in `Annotated`."""

    low: float
    high: float | None = None

    def __str__(self) -> str:
        return f" above {self.low:g}" + ("" if self.high is None else f" and at most {self.high:g}")

    def holds(self, number: float) -> bool:
        return self.low < number and (self.high is None or number <= self.high)


class only(NamedTuple):
    """Of what a choice can be had, in `Annotated`; whether this is one is seen later."""

    where: str

    def __str__(self) -> str:
        return f" ({self.where})"

    def holds(self, _: Any) -> bool:
        return True


class _Unfit(Exception):
    """The value is of another kind."""


def checked(what: str, value: Any, kind: Any) -> Any:
    """The value, if it is of this kind; `what` begins the sentence that says so if not."""
    if kind is Any:
        return value
    try:
        return _taken(value, kind)
    except _Unfit:
        raise InvalidOption(f"{what}={shown(value)}; expected {described(kind)}") from None


def plain(value: Any) -> Any:
    """A number of numpy's or torch's as Python's own."""
    if type(value).__module__.partition(".")[0] not in ("numpy", "torch") or getattr(value, "ndim", None) != 0:
        return value
    try:
        return value.item()
    except Exception:  # a tensor without values
        return value


def shown(value: Any) -> str:
    """A value in an error: short, on one line, whatever it is."""
    try:
        return " ".join(reprlib.repr(value).split())
    except Exception:  # a number of thousands of digits, an object whose repr fails
        return f"<{type(value).__name__}>"


def kind_of(value: Any) -> str:
    """The type of a value with its article: an int, a str."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def described(kind: Any) -> str:
    """What is expected, in words."""
    parts = [each for each in _alternatives(kind) if each is not NoneType]
    choices = [repr(choice) for each in parts if get_origin(each) is Literal for choice in get_args(each)]
    others = [_word(each) for each in parts if get_origin(each) is not Literal]
    none = ["None"] if NoneType in _alternatives(kind) else []
    found = [*choices, *others, *none]
    if len(found) == 1:
        return found[0]
    comma = "," if any("," in each for each in found) else ""  # "a whole number, at least 1, or None"
    return f"{', '.join(found[:-1])}{comma} or {found[-1]}"


def kinds_of(run: Callable[..., Any]) -> dict[str, Any]:
    """The kind of each parameter of a function, by name; `Any` where nothing is known of it."""
    return {each.name: _kind(each, inspect.unwrap(run)) for each in inspect.signature(run).parameters.values()}


def check_fields(record: Any) -> None:
    """For a dataclass's `__post_init__`: refuse a field that is not of the kind that its annotation names."""
    kinds = kinds_of(type(record).__init__)
    for each in fields(record):
        object.__setattr__(record, each.name, checked(each.name, getattr(record, each.name), kinds[each.name]))


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that are not of the kind that their annotation names, before anything is done."""
    signature = inspect.signature(function)
    names = lru_cache(maxsize=1)(lambda: _names(function, signature))
    known = lru_cache(maxsize=1)(lambda: {name: kind for name, kind in kinds_of(function).items() if kind is not Any})

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if (own := names()) is not None:
            _refuse_unknown(function.__name__, own, kwargs)
        given = signature.bind(*args, **kwargs)
        for name, kind in known().items():
            if name in given.arguments and signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = checked(name, given.arguments[name], kind)
        return function(*given.args, **given.kwargs)

    return call


def _names(function: Callable[..., Any], signature: inspect.Signature) -> list[str] | None:
    """What its arguments may be called, those of an `Unpack[…]` too; None where anything is taken."""
    found = list(signature.parameters)
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            kind = eval(str(each.annotation), function.__globals__)  # as the module itself would read it
            if get_origin(kind) is not Unpack:
                return None
            found += get_args(kind)[0].__annotations__
    return found


def _refuse_unknown(name: str, own: Sequence[str], given: Mapping[str, Any]) -> None:
    """Python's own error for an argument that there is not, with what may have been meant."""
    for unknown in given.keys() - set(own):
        raise TypeError(f"{name} has no argument {unknown!r}; {did_you_mean(unknown, own)}".rstrip("; "))


def _kind(parameter: inspect.Parameter, run: Any) -> Any:
    kind = parameter.annotation
    if isinstance(kind, str):
        try:
            kind = eval(kind, run.__globals__)  # the annotation as the module itself would read it
        except (NameError, TypeError):  # a name, or a union with one, that type checkers alone can read
            return Any
    if kind is inspect.Parameter.empty:
        kind = type(parameter.default)
    return kind if all(map(_known, _alternatives(kind))) else Any


def _known(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Annotated:
        return _known(get_args(kind)[0])
    return kind in WORDS or kind is Mapping or origin in (Literal, Mapping, os.PathLike) or _is_list(kind)


def _is_list(kind: Any) -> bool:
    args = get_args(kind)
    alike = get_origin(kind) in (list, Sequence) or (get_origin(kind) is tuple and args[1:] == (...,))
    return alike and args[0] in LISTS


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if kind is None:
        return (NoneType,)
    if get_origin(kind) in (Union, UnionType):
        return tuple(each for part in get_args(kind) for each in _alternatives(part))
    return (kind,)


def _word(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        base, bounds = get_args(kind)
        return f"{WORDS.get(base) or described(base)}{bounds}"
    if _is_list(kind):
        return f"a list of {LISTS[get_args(kind)[0]]}"
    if get_origin(kind) is os.PathLike:
        return "a path"
    return WORDS.get(kind) or "a dictionary by name"


def _taken(value: Any, kind: Any) -> Any:
    value = plain(value)
    for each in _alternatives(kind):
        try:
            return _as(value, each)
        except _Unfit:
            continue
    raise _Unfit


def _as(value: Any, kind: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, bounds = args
        number = _as(value, base)
        if not bounds.holds(number):
            raise _Unfit
        return number
    if origin is Literal:  # a choice is a word: 1 is not True, and an array compares with nothing
        fits = isinstance(value, str) and value in args
    elif _is_list(kind):
        return _list(value, args[0]) if origin is not tuple else tuple(_list(value, args[0]))
    elif kind == tuple[int, int]:
        found = _list(value, int)
        if len(found) != 2:
            raise _Unfit
        return tuple(found)
    elif kind is Mapping or origin is Mapping:
        named = not args or args[0] is str
        fits = isinstance(value, Mapping) and not (named and any(not isinstance(key, str) for key in value))
    elif origin is os.PathLike:
        fits = isinstance(value, os.PathLike)
    elif kind is int:
        fits = isinstance(value, int) and not isinstance(value, bool) and -WIDEST <= value < WIDEST
    elif kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise _Unfit
    return value


def _list(value: Any, kind: Any) -> list[Any]:
    if type(value).__module__.partition(".")[0] in ("numpy", "torch") and getattr(value, "ndim", None) == 1:
        try:
            value = value.tolist()
        except Exception:  # a tensor without values
            raise _Unfit from None
    if not isinstance(value, list | tuple):
        raise _Unfit
    return [_taken(each, kind) for each in value]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
