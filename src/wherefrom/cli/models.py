"""`wherefrom models`: the models that ship inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wherefrom.cli.flags import complete_model
from wherefrom.cli.prose import folded

if TYPE_CHECKING:
    from rich.console import Console

    from wherefrom.zoo import Card


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command()(models)


def models(
    name: Annotated[
        str | None, typer.Argument(help="Print this model's whole card.", autocompletion=complete_model)
    ] = None,
) -> None:
    """List the models that ship inside, or print one's card."""
    from rich.console import Console

    from wherefrom import zoo
    from wherefrom.cli.listing import Entry, show

    if name is not None:
        _print_card(Console(), zoo.card(name))
        return
    rows = []
    for card in map(zoo.card, zoo.names()):
        best = [f"{measure}: {value:.3f}" for measure, value in list(card.measured.items())[:2]]
        rows.append(Entry(card.name, card.summary, (card.architecture, "; ".join(best))))
    show({"": rows}, ("architecture", "measured"), "wherefrom models NAME: the whole card")


def _print_card(console: Console, card: Card) -> None:
    from rich.text import Text

    def show(title: str, *lines: str) -> None:
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Text(folded(line, console.width)), soft_wrap=True)

    show(card.name, card.summary)
    show("architecture", f"{card.architecture}; {card.parameters:,} parameters")
    show("task", card.task, *([f"labels: {', '.join(card.labels)}"] if card.labels else []))
    show("data", *card.data)
    show("made", card.made, f"seed {card.seed}", *card.commands)
    show("measured", *(f"{value:.4f}  {measure}" for measure, value in card.measured.items()))
    show("measured by", *card.measured_by)
    show("limits", card.limits)
