"""Which class of a model a dataset's gold label is, where `target="label"` explains it or an accuracy is measured.

Labels are the model's own names, or ids. Where they are neither, as in a model whose classes are called LABEL_0 and
LABEL_1, they are named by the caller (`names={0: "negative"}`), or recognised as longer or shorter forms of the model's
(POS, positive), or taken by their ids: the dataset's first label is class 0. What was taken so is said in a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wherefrom.errors import InvalidOption, InvalidTarget, warn
from wherefrom.model.target import class_index

SHORTEST = 3  # letters of a shorter form


def gold_classes(
    classes: Mapping[int, str],
    labels: Iterable[Any],
    by_id: tuple[str, ...] = (),
    names: Mapping[Any, str] | None = None,
) -> dict[str, int]:
    """The class of every gold label that is not called as the model calls it.

    classes: the model's, by id. labels: those that occur. by_id: the dataset's, where it numbers them. names: what the
    dataset calls a class of the model, by the class's id or name.
    """
    named = {str(label): _named(classes, given, label) for given, label in (names or {}).items()}
    every = list(labels)
    unknown = sorted(str(label) for label in every if str(label) not in named and not _has(classes, label))
    _refuse_other_numbers(classes, [str(label) for label in every if str(label) not in named], unknown)
    if len(unknown) < len(every) or not every:  # a single label that the model does not have fails where it occurs
        return named
    if close := _forms(classes, unknown):
        return named | close
    ordered = dict(enumerate(by_id))
    if not named and set(unknown) <= set(by_id) and ordered.keys() == classes.keys():
        shown = ", ".join(f"{index} ('{classes[index]}') = {label}" for index, label in ordered.items())
        warn(
            f"the model's classes are not called as the dataset's labels, which are taken in the order of their ids: "
            f"{shown}; where that is wrong, say what a class is: names={{0: '{by_id[0]}', …}} or --name 0={by_id[0]}"
        )
        return {label: index for index, label in ordered.items()}
    raise InvalidOption(
        f"the dataset's labels {', '.join(map(repr, unknown[:5]))} are none of the model's classes "
        f"({_shown(classes)}); {_what_to_say(unknown[0])}"
    )


def _named(classes: Mapping[int, str], given: Any, label: Any) -> int:
    """The class that was named; where only the label is one, the two stand in each other's place."""
    if not _has(classes, given) and _has(classes, label):
        raise InvalidOption(
            f"the model has no class {given!r}, but it has {label!r}: the class stands first here, and what the data "
            f"call it second: names={{{label!r}: {given!r}}} or --name {label}={given}"
        )
    return class_index(classes, given, "class")


def _refuse_other_numbers(classes: Mapping[int, str], labels: list[str], unknown: list[str]) -> None:
    """Refuse numbers of which some are ids of the model and others are not: 1 and 2, or stars, count otherwise."""
    taken = [each for each in labels if each.isdecimal() and int(each) in classes and each not in classes.values()]
    if taken and any(each.isdecimal() for each in unknown):
        raise InvalidOption(
            f"the dataset's labels {', '.join(sorted(labels)[:8])} are not the ids of the model's classes "
            f"({_shown(classes)}): {min(taken)} would be taken for '{classes[int(min(taken))]}'; "
            f"{_what_to_say(min(labels))}"
        )


def _shown(classes: Mapping[int, str]) -> str:
    return ", ".join(f"{index} '{label}'" for index, label in list(classes.items())[:20])


def _what_to_say(label: str) -> str:
    return (
        f"say what a class is: names={{0: {label!r}, …}} or --name 0={label}; or leave out what asks for the gold "
        f"class (target='label', masked-accuracy)"
    )


def _has(classes: Mapping[int, str], label: Any) -> bool:
    try:
        class_index(classes, label, "label")
    except InvalidTarget:
        return False
    return True


def _forms(classes: Mapping[int, str], unknown: list[str]) -> dict[str, int]:
    """Every label as the one class of which it is a longer or shorter form, if all are and each of another."""
    found: dict[str, int] = {}
    for label in unknown:
        alike = [index for index, name in classes.items() if _alike(name.casefold(), label.casefold())]
        if len(alike) != 1 or alike[0] in found.values():
            return {}
        found[label] = alike[0]
    return found


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= SHORTEST and long.startswith(short)
