"""Finding checkpoints: a shipped model by name, anything else as transformers finds it."""

from __future__ import annotations

from wherefrom import zoo


def locate(name: str) -> str:
    """The folder of a shipped model (`wherefrom/mlm`), or the name as it is: a folder or a hub id."""
    return str(zoo.path(name)) if name.startswith("wherefrom/") else name
