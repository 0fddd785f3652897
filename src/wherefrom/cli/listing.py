"""Lists in the terminal: a name and a sentence under headings, and beside them what else there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 120  # columns from which more than a sentence is shown


class Entry(NamedTuple):
    """One entry; `more` is shown where the terminal is wide."""

    name: str
    summary: str
    more: tuple[str, ...] = ()


def show(groups: Mapping[str, Sequence[Entry]], more: Sequence[str] = (), foot: str = "") -> None:
    """Print the groups under their titles, names in one column; `more` heads the columns of a wide terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    names = max(len(row.name) for rows in groups.values() for row in rows)
    for number, (title, rows) in enumerate(groups.items()):
        if title:
            console.print(Text(title if number == 0 else f"\n{title}", "bold"))
        console.print(_table(rows, names, more if console.width >= WIDE else (), headed=number == 0))
    if foot:
        console.print(Text(f"\n{foot}", "dim"))


def _table(rows: Sequence[Entry], names: int, more: Sequence[str], *, headed: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=headed and bool(more), expand=bool(more))
    table.add_column("", no_wrap=True, min_width=names)
    table.add_column("", ratio=3)
    for head in more:
        table.add_column(head, ratio=1, header_style="dim")
    for row in rows:  # texts, not strings: a formula's brackets are no markup
        table.add_row(*map(Text, (row.name, row.summary, *row.more[: len(more)])))
    return table
