"""Names: one registry class for methods, aggregations, metrics, datasets and recipes.

    METRICS: Registry[Metric] = Registry("metric", group="wherefrom.metrics")
    METRICS.add("aopc", found)
    METRICS.find("AOPC")        what it holds, however the name is written; or an error that says what was meant
    list(METRICS)               the names, in the order in which they were added

A name is given once. Only a function that stands where the former one stood takes its place: a cell of a notebook that
is run again, a module that is reloaded.

Capitals do not matter, and `_`, `-` and a space are the same. A registry with a `group` also holds what other installed
packages declare under entry points of that name; they are imported at the first lookup or listing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from wherefrom.errors import InvalidOption, UnknownName, did_you_mean, warn
from wherefrom.typecheck import shown

T = TypeVar("T")
BETWEEN = "(),="  # in "integrated-gradients(n_steps=50)" and in lists of names


class Registry(Mapping[str, T]):
    """What is known by name: a mapping from names to entries that finds an entry by any spelling or alias."""

    def __init__(self, noun: str, *, group: str = "", also: str = "", listing: str = "", between: str = "") -> None:
        self.noun = noun  # what an entry is called in errors
        self.group = group  # the entry points that add to it
        self.also = also  # what an error says is accepted beside the names
        self.listing = listing  # the command that lists them, where they are too many for an error that knows better
        self.between = BETWEEN + between  # what no name may hold, as it stands between names
        self._entries: dict[str, T] = {}
        self._names: dict[str, str] = {}  # every name and alias, folded -> the name
        self._loaded = not group

    def add(self, name: str, entry: T, aliases: tuple[str, ...] = ()) -> None:
        """Enter something under a name and its aliases, none of which may be taken but by its own former version."""
        if not isinstance(name, str) or not name.strip() or set(name) & set(self.between):
            signs = " ".join(self.between)
            raise InvalidOption(
                f"a {self.noun} cannot be called {shown(name)}; expected a text without any of {signs}, "
                f"which stand between a name and what is asked of it"
            )
        if name in self._entries and not _again(self._entries[name], entry):
            raise InvalidOption(f"the {self.noun} '{name}' is registered twice; give one of them another name")
        for each in (name, *aliases):
            owner = self._names.get(fold(each), name)
            if owner != name:
                raise InvalidOption(f"'{name}' cannot be called '{each}': that is a name of the {self.noun} '{owner}'")
        self._entries[name] = entry
        kept = {alias: owner for alias, owner in self._names.items() if owner != name}
        self._names = kept | {fold(each): name for each in (name, *aliases)}

    def find(self, name: Any) -> T:
        """The entry of a name or alias, or an error that says which names there are."""
        return self._entries[self.named(name)]

    def named(self, written: Any) -> str:
        """The registered name, for a name or alias however it is written; or the error."""
        if (known := self._known(written)) is None:
            names = f"{', '.join(self)}, or {self.also}" if self.also else f"one of {', '.join(self)}"
            hint = self.hint(written)
            rest = f"`{self.listing}` lists them all" if hint and self.listing else f"expected {names}"
            raise UnknownName(f"unknown {self.noun} {shown(written)}; {hint}{rest}")
        return known

    def hint(self, name: Any) -> str:
        """The question whether another name was meant, where one resembles it."""
        self._load()
        return did_you_mean(fold(name), self._names, 3, self._names) if isinstance(name, str) else ""

    def __getitem__(self, name: str) -> T:
        if (known := self._known(name)) is None:
            raise KeyError(name)
        return self._entries[known]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _known(self, written: Any) -> str | None:
        self._load()
        return self._names.get(fold(written)) if isinstance(written, str) else None

    def _load(self) -> None:
        """Import what other packages declare, once; their modules register what they have as ours do."""
        if self._loaded:
            return
        self._loaded = True  # first: a module that is being imported may look something up
        for point in declared(self.group):
            try:
                point.load()
            except Exception as error:  # whatever another's module does, the rest can be used
                package = f" of {point.dist.name}" if point.dist else ""
                warn(f"the {self.noun} '{point.name}'{package} is left out: {point.value} cannot be loaded ({error!r})")


def _again(former: Any, entry: Any) -> bool:
    """Whether an entry is another's next version: in a notebook a cell is edited and run once more, a module reloaded.

    Two functions of one file are not told apart from a mistake unless they have one name. Nobody takes a name of ours.
    """
    one, other = (getattr(each, "run", None) for each in (former, entry))
    module = getattr(other, "__module__", None)
    if module is None or module != getattr(one, "__module__", None) or module.partition(".")[0] == "wherefrom":
        return False
    by_hand = module == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    return by_hand or getattr(one, "__qualname__", None) == getattr(other, "__qualname__", "")


def declared(group: str) -> list[Any]:
    """The entry points that installed packages declare in a group."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def fold(name: str) -> str:
    """A name without the differences that do not matter."""
    return name.casefold().replace("_", "-").replace(" ", "-")
