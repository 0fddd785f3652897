"""Files that are there whole or not at all: written beside their place, synced, and given their name at the end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wherefrom.errors import ResourceUnavailable


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, or say why it cannot be. Also after a kill or a power cut it holds the old content or the new."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a pipe or a terminal takes what comes, and cannot be replaced
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # what a link points to, not the link
    except OSError as error:
        raise ResourceUnavailable(f"cannot write '{path}': {error.strerror or error}") from error
    return path


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, beside)
        publish(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def publish(beside: Path, path: Path) -> None:
    """Give a written and synced file its name, for good."""
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
