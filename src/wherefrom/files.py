"""Files that are there whole or not at all: written beside their place, synced, and given their name at the end."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wherefrom.errors import ResourceUnavailable


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, or say why it cannot be. Also after a kill or a power cut it holds the old content or the new."""
    with writing(path), replacing(path) as place, place.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file it was that could not be written."""
    if "\0" in str(path):  # Python would raise a ValueError, which is not of files alone
        raise ResourceUnavailable(f"cannot write {str(path)!r}: it holds a character that no name of a file can have")
    try:
        yield
    except OSError as error:
        raise ResourceUnavailable(f"cannot write '{path}': {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to become the file: beside it. If that fails, the file is as it was, or not there."""
    if path.exists() and not path.is_file():  # a pipe or a terminal takes what comes, and cannot be replaced
        yield path
        return
    place = path.resolve()  # what a link points to, not the link
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        yield beside
        _sync(beside)
        if place.exists():
            shutil.copymode(place, beside)
        publish(beside, place)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until what was begun is whole. It comes to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *seen: came.append(seen))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
        if came and callable(before):
            before(*came[0])


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def publish(beside: Path, path: Path) -> None:
    """Give a written and synced file its name, for good."""
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
