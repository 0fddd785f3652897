"""`wherefrom estimate`: what `wherefrom explain` would cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, cast

import typer

from wherefrom.cli.explain import (
    Aggregate,
    AsJson,
    Device,
    Dtype,
    FromLayer,
    Method,
    ModelName,
    Options,
    Pair,
    Receptive,
    Rows,
    ToLayer,
    Truncate,
    method_options,
)
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("estimate")(estimate_command)


def estimate_command(
    text: Annotated[str | None, typer.Argument(help="The text; or only its length with --tokens.")] = None,
    pair: Pair = None,
    tokens: Annotated[int | None, typer.Option(help="Estimate for a text of this many tokens.", min=1)] = None,
    model: ModelName = DEFAULT_MODEL,
    method: Method = DEFAULT_METHOD,
    aggregate: Aggregate = "auto",
    from_layer: FromLayer = 0,
    to_layer: ToLayer = None,
    receptive_field: Receptive = False,
    rows: Rows = "all",
    option: Options = None,
    as_json: AsJson = False,
    truncate: Truncate = False,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Say how long an explanation will take on this machine, and how much memory."""
    import wherefrom

    found = wherefrom.estimate(
        text if text is None or pair is None else (text, pair),
        model,
        method=method,
        tokens=tokens,
        aggregate=aggregate,
        layers=(from_layer, to_layer),
        receptive_field=receptive_field,
        rows=cast(Any, rows),
        truncate=truncate,
        device=device,
        dtype=dtype,
        **method_options(option or []),
    )
    if as_json:
        print(json.dumps(asdict(found)))
        return
    from rich.console import Console

    Console().print(str(found), markup=False, highlight=False)
