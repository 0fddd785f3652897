"""`whence reproduce`: the papers' tables and figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.cli.evaluate import named
from whence.cli.explain import Device


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    name: Annotated[str | None, typer.Argument(help="PAPER/TABLE, or a paper for all of it; a list if none.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="In place of the recipe's own.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset; several by commas.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many examples, drawn by the seed.", min=1)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where csv, md and pictures go.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where datasets lie; or set WHENCE_DATA.")] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", help="What the data calls a class of the model: 0=negative. Repeat.")
    ] = None,
    device: Device = None,
    seed: Annotated[int, typer.Option(help="Draws the examples.")] = 0,
) -> None:
    """Repeat a table or figure of a paper: our numbers beside the paper's; without a name, list them all."""
    from whence import papers

    if name is None:
        _list()
        return
    for recipe in papers.lookup(name):
        result = papers.reproduce(
            recipe.name,
            model=model,
            data=data,
            limit=limit,
            out=out,
            device=device,
            seed=seed,
            folder=folder,
            names=named(names),
        )
        result.show()
        if out is not None:
            print(f"written to {out / recipe.paper}")


def _list() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from whence import papers

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows, and on what")
    for each in papers.recipes():
        data = ", ".join(each.data) + (f"; without data: {each.spare}" if each.spare else "")
        where = f"\n{each.model}" + (f" on {data}" if data else "")
        table.add_row(Text(each.name), Text.assemble(each.about, (where, "dim")))
    Console().print(table)
