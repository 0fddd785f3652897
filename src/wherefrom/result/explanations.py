"""What `explain` and `compare` give for several inputs: a list that can also be shown, tabled and saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from wherefrom.display import view
from wherefrom.errors import InvalidOption
from wherefrom.files import write
from wherefrom.result import tabular
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 10  # explanations that a picture of the list shows


T = TypeVar("T", bound=Explanation | Comparison)


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
        """Write a table (.csv and .parquet a row per token, .jsonl a line per explanation) or the viewer (.html)."""
        path = Path(path)
        if path.suffix == ".html":
            return write(path, self.to_html())
        if path.suffix not in tabular.ENDINGS:
            known = ", ".join((".html", *tabular.ENDINGS))
            raise InvalidOption(f"cannot save several explanations to '{path.name}'; expected a name ending in {known}")
        return tabular.save(self._entries(), path, named=self._named)

    def to_html(self) -> str:
        """The viewer with all of them, one under the other: one HTML document that needs nothing beside it."""
        named: dict[str, Explanation] = {}
        for row, found in enumerate(self):
            every = found.explanations if isinstance(found, Comparison) else {found.method: found} if found else {}
            titles = view("titles")(list(every), list(every.values()))
            for title, each in zip(titles, every.values(), strict=True):
                named[f"{row}: {title} · {each.explained}"] = each
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
