"""Optional dependencies: imported when first used, named when missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from wherefrom.errors import MissingExtra


def need(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra of wherefrom brings it.

    >>> need("json", extra="plot").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        package = module.partition(".")[0]
        if missing.name is None or missing.name.partition(".")[0] != package:
            raise  # the package is there; something inside it is not
        raise MissingExtra(
            f"this needs the package '{package}', which is not installed; "
            f"install it in the clone of wherefrom with: pip install -e '.[{extra}]'"
        ) from missing
