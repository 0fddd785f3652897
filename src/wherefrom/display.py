"""Lists that a notebook shows as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Listed(list[T]):
    """A list that a notebook shows as a table: a row for each item, its cells made by `columns`.

    Without columns, each item as it shows itself, one under the other.
    """

    def __init__(self, items: Iterable[T], columns: Mapping[str, Callable[[T], Any]] | None = None) -> None:
        super().__init__(items)
        self._columns = columns

    def _repr_html_(self) -> str:
        from wherefrom.view.notebook import table

        columns = self._columns
        if columns is None:
            return "".join(each._repr_html_() for each in self)  # type: ignore[attr-defined]
        return table(list(columns), [[cell(each) for cell in columns.values()] for each in self])
