"""A word alignment in the terminal: a table of target words by source words."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wherefrom.result.alignment import Alignment
from wherefrom.view.terminal import style

LONG = 12  # letters of a heading, at most


def show_alignment(alignment: Alignment, layer: int = -1, console: Console | None = None) -> None:
    """Target words downwards, source words across, each cell as strong as its weight, linked words in brackets."""
    console = console or Console()
    depth = None if console.no_color else console.color_system
    weights, links = alignment.weights(layer), set(alignment.links(layer))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for word in alignment.source:
        table.add_column(Text(word if len(word) <= LONG else f"{word[: LONG - 1]}…"), justify="right")
    largest = float(weights.max()) or 1.0
    for t, word in enumerate(alignment.target):
        cells = []
        for s, weight in enumerate(weights[t]):
            said = f"[{weight:.2f}]" if (s, t) in links else f"{weight:.2f} "
            cells.append(Text(said, style(float(weight) / largest, False, depth) if depth else ""))
        table.add_row(Text(word, "bold"), *cells)
    console.print(Text(f"{alignment.method}  {alignment.model}", "dim"))
    console.print(table)
    console.print(Text(alignment.written(layer), "dim"))
