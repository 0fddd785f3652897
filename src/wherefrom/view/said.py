"""A generation in the terminal: what was said in a row, and the sources of one token of it; and plain tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wherefrom.result.generation import Generation
from wherefrom.view.terminal import show


def show_generation(generation: Generation, token: int | None = None, *, console: Console | None = None) -> None:
    """The tokens that were said, each with its number, the chosen one marked; then its sources."""
    console = console or Console()
    chosen = None if token is None else token % max(len(generation), 1)
    explained = generation[:] if token is None else generation[token]
    row = Text()
    for step, piece in enumerate(generation.tokens):
        row.append(f"{step}:", "dim").append(piece.strip() or repr(piece), "bold reverse" if step == chosen else "bold")
        row.append("  ")
    console.print(row)
    console.print()
    show([explained], pieces=True, console=console)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """Rows of words under a title."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    console.print(Text(title))
    console.print(table)
