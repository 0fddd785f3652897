"""The command line: parse, call the public API, print. Nothing is computed here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from whence import __version__
from whence.cli import estimate, evaluate, explain, models, reproduce, serve, train
from whence.errors import WhenceError

app = typer.Typer(
    name="whence",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"whence {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which whence this is.")
    ] = False,
) -> None:
    """Where a Transformer's answer comes from."""


explain.register(app)
estimate.register(app)
evaluate.register(app)
models.register(app)
reproduce.register(app)
serve.register(app)
train.register(app)


def main() -> None:
    """Run the command line; a WhenceError becomes one red line and exit status 2."""
    try:
        app()
    except WhenceError as error:
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(2)
