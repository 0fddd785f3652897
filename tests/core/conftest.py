"""What several tests of the core begin with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier and its tokenizer on disk."""
    path = tmp_path_factory.mktemp("model")
    tiny.model().save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python has it: a shell's background and nohup leave it ignored, and no test of it would be one."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("Ctrl-C comes to the main thread alone")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
