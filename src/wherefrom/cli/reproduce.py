"""`wherefrom reproduce`: the papers' tables and figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wherefrom.cli.evaluate import named
from wherefrom.cli.flags import Device
from wherefrom.errors import InvalidOption


def complete_recipe(typed: str) -> list[str]:
    from wherefrom.index import listed

    return [each["name"] for each in listed("recipes") if each["name"].startswith(typed)]


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="PAPER/TABLE, or PAPER for all of it, with options as in 'abnar2020/table2(norm=sum)'; without it, a "
            "list.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A model instead of the recipe's own, or one for each dataset: sst2=A,mnli=B."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A dataset, or several separated by commas.")] = None,
    split: Annotated[str | None, typer.Option(help="validation, test, … (default: the recipe's).")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Which column holds what: text=review. Repeatable.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text, where a recipe shows single texts. Repeatable.")
    ] = None,
    pair: Annotated[
        list[str] | None, typer.Option(help="The second text (context, hypothesis) of each --text. Repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="How many examples, drawn by the seed.", min=1)] = None,
    train_limit: Annotated[
        int | None, typer.Option(help="How many training examples, where a recipe trains a model.", min=1)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder for csv, md and pictures; calls add to a table.")
    ] = None,
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

    def show(result: papers.Result | papers.Omission) -> None:
        if isinstance(result, papers.Result):
            result.show()
            if out is not None:
                print(f"written to {out / result.recipe.paper}")

    results = papers.reproduce(
        name,
        model=model,
        data=data,
        split=split,
        columns=named(column),
        texts=_pair_texts(text or [], pair or []),
        limit=limit,
        train_limit=train_limit,
        out=out,
        device=device,
        seed=seed,
        folder=folder,
        names=named(names, "--name 0={}"),
        on_result=show,
    )
    if isinstance(results, papers.Results) and results.left_out:
        print("\nLeft out:")
        for recipe, error in results.left_out:
            print(f"  {recipe.name}: {error}")


def _pair_texts(texts: list[str], pairs: list[str]) -> list[str | tuple[str, str]]:
    """Each text with its second text, where there are any."""
    if not pairs:
        return list(texts)
    if len(pairs) != len(texts):
        raise InvalidOption(
            f"there are {len(texts)} --text and {len(pairs)} --pair; expected one --pair for each --text"
        )
    return list(zip(texts, pairs, strict=True))


def _list() -> None:
    from wherefrom.cli.listing import Entry, show
    from wherefrom.index import listed

    groups: dict[str, list[Entry]] = {}
    for each in listed("recipes"):
        where = each["model"] + (f" on {each['data']}" if each["data"] else "")
        groups.setdefault(each["paper"], []).append(Entry(each["name"], each["summary"], (where,)))
    show(groups, ("made with",), "wherefrom reproduce NAME: our numbers beside the paper's")
