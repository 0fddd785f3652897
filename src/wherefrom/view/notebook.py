"""Lists in a notebook: small tables in HTML, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wherefrom.view.html import coloured, escaped

if TYPE_CHECKING:
    from wherefrom.result.comparison import Comparison
    from wherefrom.result.explanation import Explanation
    from wherefrom.result.explanations import Explanations

SHOWN = 20  # rows of a table


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", best: str = "") -> str:
    """A table of plain values; in bold those between two marks of the best, where there is such a mark."""

    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        marked = bool(best) and text.startswith(best) and text.endswith(best)
        return f"<b>{escaped(text.strip(best))}</b>" if marked else escaped(text)

    return _table(columns, [[cell(each) for each in row] for row in rows], caption)


def paragraphs(texts: Iterable[str], title: str = "") -> str:
    """Lines of plain text, under a heading."""
    return (f"<h4>{escaped(title)}</h4>" if title else "") + "".join(f"<p>{escaped(text)}</p>" for text in texts)


def explanations(found: Explanations[Explanation] | Explanations[Comparison]) -> str:
    """The first of them: input, method, what is explained, and the text with its colours."""
    shown = [
        [str(row), *map(escaped, (title, str(each.prediction or ""), each.explained)), coloured(each)]
        for row, title, each in found[:SHOWN].titled()
    ]
    more = f", the first {SHOWN} shown" if len(found) > SHOWN else ""
    left_out = f", {len(found.skipped)} skipped" if found.skipped else ""
    columns = ("input", "method", "prediction", "explained", "text")
    return _table(columns, shown, f"{len(found)} explanation{'s' * (len(found) != 1)}{left_out}{more}")


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], caption: str) -> str:
    look = ' style="text-align:left;vertical-align:top"'
    head = "".join(f"<th{look}>{escaped(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td{look}>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    above = f"<p>{escaped(caption)}</p>" if caption else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
