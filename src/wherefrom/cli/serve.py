"""`wherefrom serve`: the page in a browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from wherefrom.cli.flags import Device


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("serve")(serve_command)


def serve_command(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A model to offer; repeatable (default: the shipped models)."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own requires a token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Another host name of this server, as behind a proxy.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="WHEREFROM_TOKEN", help="The token that clients send; made up where one is needed."),
    ] = None,
    device: Device = None,
) -> None:
    """Explain in a browser: type a text, choose methods, see whether to believe them."""
    from wherefrom.extras import need

    need("fastapi", extra="serve")
    need("uvicorn", extra="serve")
    typer.echo(f"loading {', '.join(model) if model else 'the shipped models'} …")  # torch alone may take a minute
    from wherefrom.server.launch import run

    try:
        run(
            model or (),
            host=host,
            port=port,
            names=allow_host or (),
            token=token,
            browse=open_page,
            device=device,
            say=typer.echo,
        )
    except KeyboardInterrupt:
        _leave()


def _leave() -> NoReturn:
    """Out, now that everybody has been answered.

    Python's own way takes torch apart piece by piece, which takes seconds on a busy machine, and torch aborts with a
    message of its own where the worker is still in the middle of an operation.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)
