"""A generation in the terminal: what was said in a row, and the sources of one token of it; and plain tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wherefrom.errors import InvalidOption
from wherefrom.result.explanation import Explanation, Unit
from wherefrom.result.generation import Generation
from wherefrom.view.terminal import likely, show

OTHERS = 5  # words that might have been said instead


def show_generation(
    generation: Generation,
    token: int | None = None,
    *,
    foil: int | str | None = None,
    unit: Unit = "word",
    contrast: Explanation | None = None,
    console: Console | None = None,
) -> None:
    """The tokens that were said, each with its number, the chosen one marked; then its sources, and what else it might
    have been. `contrast` is the chosen token's explanation rather than a foil that the generation has not.
    """
    if token is None and foil is not None:
        raise InvalidOption("a foil is of one token; say with token= (--token) which one is meant, from 0")
    console = console or Console()
    explained = contrast or _explained(generation, token, foil)
    console.print(said(generation, token))
    console.print()
    show([explained if unit == "token" else explained.by(unit)], pieces=True, console=console)
    if token is not None and len(generation.steps[token].probabilities) > 1:  # of scores made elsewhere, none is known
        console.print()
        console.print(others(generation, token))


def _explained(generation: Generation, token: int | None, foil: int | str | None) -> Explanation:
    if token is None:
        return generation[:]
    return generation[token] if foil is None else generation.why_not(token, foil)


def said(generation: Generation, token: int | None) -> Text:
    """The tokens in a row, each with its number."""
    chosen = None if token is None else token % max(len(generation), 1)
    row = Text()
    for step, piece in enumerate(generation.tokens):
        row.append(f"{step}:", "dim").append(piece.strip() or repr(piece), "bold reverse" if step == chosen else "bold")
        row.append("  ")
    return row


def others(generation: Generation, token: int) -> Text:
    """What else was likely in the place of a token."""
    step = generation.steps[token]
    rest = {name: p for name, p in step.probabilities.items() if name != step.target.label}
    listed = sorted(rest.items(), key=lambda each: -each[1])[:OTHERS]
    row = Text("instead of ", "dim").append(str(step.target.label), "bold")
    row.append(f" ({likely(step.probabilities[str(step.target.label)])}): ", "dim")
    return row.append(",  ".join(f"{name} {likely(p)}" for name, p in listed))


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
