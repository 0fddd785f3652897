"""What `explain` and `compare` give for several inputs: a list that can also be shown, tabled, saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from wherefrom.display import view
from wherefrom.errors import DamagedFile, InvalidOption
from wherefrom.files import write
from wherefrom.result import serialise, tabular
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = "wherefrom.explanations"
SHOWN = 10  # explanations that a picture of the list shows

T = TypeVar("T", bound=Explanation | Comparison)


def _records(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The record of every explanation in the list's, those of a comparison one after another."""
    for found in data["explanations"]:
        if found is not None:
            yield from found["explanations"].values() if "explanations" in found else [found]


def _item(row: int, data: Any) -> Any:
    """What stands at a place of the list, from its record; None for an input that was left out."""
    kind = Comparison if isinstance(data, Mapping) and "explanations" in data else Explanation
    try:
        return None if data is None else kind.from_dict(data)
    except DamagedFile as error:
        raise DamagedFile(f"number {row} of this list: {error}") from error


class Explanations(list[T]):
    """A list of `Explanation` (or `Comparison`), one per input, in their order.

    With on_error="skip" there is None for an input that was left out, and `skipped` has the reason by its number.
    """

    def __init__(self, found: Iterable[T] = (), skipped: dict[int, str] | None = None) -> None:
        super().__init__(found)
        self.skipped = dict(skipped or {})

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> Explanations[T]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> T | Explanations[T]:
        if not isinstance(key, slice):
            return super().__getitem__(key)
        found = super().__getitem__(key)
        places = range(len(self))[key]
        return Explanations(found, {new: self.skipped[old] for new, old in enumerate(places) if old in self.skipped})

    def __add__(self, others: Any) -> Explanations[Any]:
        """Those of two calls in one list; what was skipped is still known by its place."""
        later = {len(self) + row: why for row, why in getattr(others, "skipped", {}).items()}
        return Explanations([*self, *others], {**self.skipped, **later})

    def copy(self) -> Explanations[T]:
        return self[:]

    def each(self) -> Iterator[tuple[int, Explanation]]:
        """Every explanation with the number of its input; those of a comparison one after another."""
        return ((row, each) for row, each, _ in self._entries())

    def _entries(self) -> Iterator[tuple[int, Explanation, str | None]]:
        """The same with the name that each has in its comparison."""
        for row, found in enumerate(self):
            if isinstance(found, Comparison):
                yield from ((row, each, name) for name, each in found.items())
            elif found is not None:
                yield row, found, None

    def titled(self) -> Iterator[tuple[int, str, Explanation]]:
        """The same with what stands above each: its method, and the name that it has in its comparison."""
        for row, found in enumerate(self):
            every = {name or each.method: each for _, each, name in Explanations([found])._entries()}
            titles = view("titles")(list(every), list(every.values()))
            yield from ((row, title, each) for title, each in zip(titles, every.values(), strict=True))

    @property
    def _named(self) -> bool:
        return any(isinstance(found, Comparison) for found in self)

    def words(self, how: str | None = None, *, rows: str | None = None) -> Explanations[T]:
        """Every explanation over words instead of pieces, as `Explanation.words` has it."""
        joined: list[Any] = [None if each is None else each.words(how, rows=rows) for each in self]
        return Explanations(joined, self.skipped)

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`), a row per token: which input, which token, its score."""
        return tabular.dataframe(self._entries(), named=self._named)

    def save(self, path: str | Path) -> Path:
        """Write everything (.json, or .npz for size), which `load` reads; a table (.csv and .parquet a row per token,
        .jsonl a line per explanation); or the viewer (.html)."""
        path = Path(path)
        if path.suffix == ".html":
            return write(path, self.to_html())
        if path.suffix in tabular.ENDINGS:
            return tabular.save(self._entries(), path, named=self._named)
        if path.suffix not in serialise.WHOLE:
            known = ", ".join((*serialise.WHOLE, ".html", *tabular.ENDINGS))
            raise InvalidOption(f"cannot save several explanations to '{path.name}'; expected a name ending in {known}")
        data = self.to_dict()
        return serialise.store(path, data, serialise.apart(_records(data)) if path.suffix == ".npz" else {})

    @classmethod
    def load(cls, path: str | Path) -> Explanations[Any]:
        """Read what `save` wrote as .json or .npz; never unpickles anything."""
        return cls.from_dict(serialise.stored(Path(path), "list of explanations"))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and strings, ready for JSON."""
        return {
            "format": FORMAT,
            "version": 1,
            "explanations": [None if found is None else found.to_dict() for found in self],
            "skipped": {str(row): reason for row, reason in self.skipped.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanations[Any]:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise serialise.not_a("explanations", data)
        if data.get("version") != 1:
            raise DamagedFile(f"this list has version {data.get('version')!r}; this wherefrom reads version 1")
        try:
            serialise.together(_records(data), data)
            skipped = {int(row): str(reason) for row, reason in data["skipped"].items()}
            items = list(data["explanations"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(f"this list of explanations is damaged: {type(error).__name__}: {error}") from error
        return cls((_item(row, each) for row, each in enumerate(items)), skipped)

    def to_html(self) -> str:
        """The viewer with all of them, one under the other: one HTML document that needs nothing beside it."""
        named = {f"{row}: {title} · {each.explained}": each for row, title, each in self.titled()}
        return str(view("html-page")(named))

    def show(self, *, layers: bool = False) -> None:
        """Coloured text in the terminal, one input after another."""
        for found in self:
            if found is not None:
                found.show(layers=layers)
                print()

    def _repr_html_(self) -> str:
        return str(view("html-explanations")(self))

    def __repr__(self) -> str:
        left_out = f", {len(self.skipped)} skipped" if self.skipped else ""
        lines = [f"  {row}: {found!r}" for row, found in enumerate(self[:SHOWN])]
        more = [f"  … {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([f"<{len(self)} explanation{'s' * (len(self) != 1)}{left_out}", *lines, *more]) + ">"
