"""`wherefrom reproduce`: the papers' tables and figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wherefrom.cli.evaluate import named
from wherefrom.cli.flags import Device


def complete_recipe(typed: str) -> list[str]:
    from wherefrom.index import listed

    return [each["name"] for each in listed("recipes") if each["name"].startswith(typed)]


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    name: Annotated[
        str | None,
        typer.Argument(help="PAPER/TABLE, or PAPER for all of it; without it, a list.", autocompletion=complete_recipe),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model instead of the recipe's own.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset, or several separated by commas.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many examples, drawn by the seed.", min=1)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder for csv, md and pictures.")] = None,
    folder: Annotated[Path | None, typer.Option(help="The folder of datasets; or set WHEREFROM_DATA.")] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="What the data calls a class of the model: 0=negative. Repeatable."),
    ] = None,
    device: Device = None,
    seed: Annotated[int, typer.Option(help="The seed that draws the examples.")] = 0,
) -> None:
    """Reproduce a table or figure of a paper, our numbers beside the paper's; without a name, list them all."""
    if name is None:
        _list()
        return
    from wherefrom import papers

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
            names=named(names, "--name 0={}"),
        )
        for each in result if isinstance(result, list) else [result]:
            each.show()
        if out is not None:
            print(f"written to {out / recipe.paper}")


def _list() -> None:
    from wherefrom.cli.listing import Entry, show
    from wherefrom.index import listed

    groups: dict[str, list[Entry]] = {}
    for each in listed("recipes"):
        where = each["model"] + (f" on {each['data']}" if each["data"] else "")
        groups.setdefault(each["paper"], []).append(Entry(each["name"], each["summary"], (where,)))
    show(groups, ("made with",), "wherefrom reproduce NAME: our numbers beside the paper's")
