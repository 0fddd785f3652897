"""`wherefrom estimate`: what `wherefrom explain` would cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from wherefrom.cli.explain import method_options
from wherefrom.cli.flags import (
    MAPS,
    MODEL,
    QUESTION,
    READING,
    AsJson,
    Asked,
    Method,
    ModelName,
    Options,
    Pair,
    shared,
)
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("estimate")(estimate_command)


@shared(asked=(QUESTION, MAPS, READING, MODEL))
def estimate_command(
    text: Annotated[str | None, typer.Argument(help="The text, or give its length with --tokens.")] = None,
    pair: Pair = None,
    tokens: Annotated[int | None, typer.Option(help="Estimate for a text of this many tokens.", min=1)] = None,
    model: ModelName = DEFAULT_MODEL,
    method: Method = DEFAULT_METHOD,
    *,
    asked: Asked,
    option: Options = None,
    as_json: AsJson = False,
) -> None:
    """Estimate how long an explanation will take on this machine, and how much memory."""
    import wherefrom

    given: Any = text if text is None or pair is None else (text, pair)
    asked |= method_options(option or [])
    found = wherefrom.estimate(given, model, method=method, tokens=tokens, **asked)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    from rich.console import Console

    Console().print(str(found), markup=False, highlight=False)
