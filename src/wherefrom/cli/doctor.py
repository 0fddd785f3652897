"""`wherefrom doctor`: whether wherefrom opens a model, and what can be had of it."""

from __future__ import annotations

from typing import Annotated

import typer

from wherefrom.cli.flags import OPENING, AsJson, Asked, complete_model, shared
from wherefrom.cli.prose import hanging


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("doctor")(doctor_command)


@shared(asked=(OPENING,))
def doctor_command(
    model: Annotated[
        str, typer.Argument(help="A shipped model, a folder, or a hub id.", autocompletion=complete_model)
    ],
    *,
    asked: Asked,
    as_json: AsJson = False,
) -> None:
    """Say whether a model opens (exit status 0) or not (1): the proof, its shape, and what each method can do."""
    import wherefrom

    found = wherefrom.doctor(model, **asked)
    if as_json:
        print(found.to_json())
    else:
        from rich.console import Console

        console = Console()
        for line in str(found).splitlines():
            console.print(hanging(line, console.width), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if found.opens else 1)
