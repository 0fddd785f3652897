"""How results are shown: every view by its name, loaded when somebody looks; and lists as tables of a notebook.

The room `view/` draws results, so it imports them. What it draws (`result/`, a `Run`, the lists below) does not import
`view/` in turn but asks here, by name. Nowhere else does a room reach for one above it (tests/core/test_rooms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")
VIEWS = {
    "terminal": "wherefrom.view.terminal:show",
    "terminal-generation": "wherefrom.view.said:show_generation",
    "terminal-alignment": "wherefrom.view.aligned:show_alignment",
    "terminal-table": "wherefrom.view.said:show_table",
    "plain-text": "wherefrom.view.terminal:in_a_line",
    "title": "wherefrom.view.terminal:title",
    "titles": "wherefrom.view.terminal:labels",
    "picture": "wherefrom.view.plot:draw",
    "picture-alignment": "wherefrom.view.plot:alignment",
    "picture-generation": "wherefrom.view.plot:generation",
    "picture-routes": "wherefrom.view.plot:routes",
    "picture-file": "wherefrom.view.plot:save",
    "html-page": "wherefrom.view.html:document",
    "html-cell": "wherefrom.view.html:fragment",
    "html-generation-page": "wherefrom.view.said_html:document",
    "html-generation-cell": "wherefrom.view.said_html:fragment",
    "html-explanations": "wherefrom.view.notebook:explanations",
    "html-table": "wherefrom.view.notebook:table",
    "html-paragraphs": "wherefrom.view.notebook:paragraphs",
}


def view(name: str) -> Callable[..., Any]:
    """The function of `VIEWS` that shows something in this way."""
    module, _, function = VIEWS[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


class Listed(list[T]):
    """A list that a notebook shows as a table: a row for each item, its cells made by `columns`.

    Without columns, each item as it shows itself, one under the other.
    """

    def __init__(self, items: Iterable[T], columns: Mapping[str, Callable[[T], Any]] | None = None) -> None:
        super().__init__(items)
        self._columns = columns

    def _repr_html_(self) -> str:
        columns = self._columns
        if columns is None:
            return "".join(each._repr_html_() for each in self)  # type: ignore[attr-defined]
        return str(view("html-table")(list(columns), [[cell(each) for cell in columns.values()] for each in self]))
