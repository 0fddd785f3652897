"""Finding checkpoints: a shipped model by name, anything else as transformers finds it."""

from __future__ import annotations

from wherefrom import zoo
from wherefrom.errors import UnknownName


def locate(name: str) -> str:
    """The folder of a shipped model (`wherefrom/mlm`), or the name as it is: a folder or a hub id."""
    return str(zoo.path(name)) if name.startswith("wherefrom/") else name


def checkpoint(name: str) -> str:
    """The same of a model, which is there: transformers would say at length that it is not."""
    from transformers import AutoConfig

    place = locate(name)
    try:
        AutoConfig.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        raise UnknownName(
            f"cannot open the model '{name}': there is no configuration of one (expected a shipped model: "
            f"{', '.join(zoo.names())}; a folder written by save_pretrained, or by a training that came to its end; or "
            f"a Hugging Face id that is reachable or cached)"
        ) from error
    return place
