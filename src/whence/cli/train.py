"""`whence train`: the code that made the shipped models, for your own data."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
