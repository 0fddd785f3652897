"""`wherefrom align`: which source word each word of a translation comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from wherefrom.cli.flags import MODEL, AsJson, Asked, shared
from wherefrom.cli.generate import MethodChoice
from wherefrom.cli.wording import in_json
from wherefrom.defaults import TRANSLATOR
from wherefrom.errors import InvalidOption

LAST = -1
TRANSLATOR_HELP = "An encoder with a decoder: a hub id, a folder, or the one that ships, from German into English."
Layer = Annotated[int, typer.Option("--layer", help="A layer of the decoder, from 0; -1 is the last.")]
Input = Annotated[
    bool, typer.Option("--input", help="Align the word that a step has read, not the one that it puts out.")
]


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("align")(align_command)


@shared(asked=(MODEL,))
def align_command(
    source: Annotated[str, typer.Argument(help="The source text.")],
    target: Annotated[str, typer.Argument(help="What it was translated to, or summed up as.")],
    model: Annotated[str, typer.Option("--model", "-m", help=TRANSLATOR_HELP)] = TRANSLATOR,
    method: MethodChoice = "alti",
    layer: Layer = LAST,
    of_input: Input = False,
    *,
    asked: Asked,
    as_json: AsJson = False,
) -> None:
    """Align the words of a translation with those of its source, by a model that reads both."""
    import wherefrom
    from wherefrom.aligning import aligning_by, has_rows

    if (task := asked.pop("task", None)) not in (None, "seq2seq"):
        raise InvalidOption(f"only an encoder with a decoder aligns words; leave --task {task} out")
    opened = wherefrom.open_model(model, **asked)
    if layer != LAST and not has_rows(aligning_by(method)):
        raise InvalidOption(f"'{method}' scores each word of the target by itself and has no layers; leave --layer out")
    found = wherefrom.align(source, target, opened, method=method, word="input" if of_input else "output")
    if as_json:
        said = {"source": found.source, "target": found.target, "links": found.links(layer)}
        typer.echo(in_json({**said, "weights": found.weights(layer).tolist()}))
        return
    found.show(layer)
