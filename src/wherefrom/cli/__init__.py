"""The command line: parse, call the public API, print. Nothing is computed here."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated, Any

import typer

from wherefrom.cli import (
    align,
    benchmark,
    cite,
    doctor,
    estimate,
    evaluate,
    explain,
    generate,
    models,
    reproduce,
    serve,
    train,
)
from wherefrom.cli.wording import in_options
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.version import __version__

app = typer.Typer(
    name="wherefrom",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"wherefrom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Where a Transformer's answer comes from."""


explain.register(app)
generate.register(app)
align.register(app)
estimate.register(app)
evaluate.register(app)
benchmark.register(app)
models.register(app)
doctor.register(app)
reproduce.register(app)
cite.register(app)
serve.register(app)
train.register(app)


def main() -> None:
    """Run the command line; an error of ours or of a file is one red line and exit status 2, a warning a yellow one."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, WherefromWarning):
            _say("warning: ", "bold yellow", str(message))
        else:
            shown(message, category, *where, **more)

    warnings.showwarning = show
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # letters that its encoding lacks (a redirect on Windows) by number
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun: within one, typer sees to it
        sys.exit(130)
    except WherefromError as error:
        _say("error: ", "bold red", str(error))
        sys.exit(2)
    except OSError as error:
        if error.filename is None:  # no file's: a pipe that is closed, for one
            raise
        _say("error: ", "bold red", f"cannot use '{error.filename}': {error.strerror}")
        sys.exit(2)
    finally:
        warnings.showwarning = shown


def _say(kind: str, style: str, message: str) -> None:
    from rich.console import Console
    from rich.text import Text

    told = in_options(message, typer.main.get_command(app), sys.argv[1:])
    Console(stderr=True).print(Text.assemble((kind, style), told))
