"""Finding checkpoints: a shipped model by name, anything else as transformers finds it."""

from __future__ import annotations

from typing import Any

from wherefrom import zoo
from wherefrom.errors import UnknownName


def locate(name: str) -> str:
    """The folder of a shipped model (`wherefrom/mlm`), or the name as it is: a folder or a hub id."""
    return str(zoo.path(name)) if name.startswith("wherefrom/") else name


def checkpoint(name: str) -> str:
    """The same of a model, which is there: transformers would say at length that it is not."""
    _config(name)
    return locate(name)


def task_of(name: str) -> str:
    """What a model is for, by its configuration."""
    from wherefrom.model.loading import task_in

    return task_in(_config(name))


def _config(name: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(locate(name))
    except (OSError, ValueError, KeyError) as error:
        raise UnknownName(
            f"cannot open the model '{name}': there is no configuration of one ({zoo.expected()}); a training writes "
            f"its own when it comes to its end"
        ) from error
