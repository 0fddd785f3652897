"""A generation in the terminal: what was said in a row, and the sources of one token of it."""

from __future__ import annotations

from rich.console import Console
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
