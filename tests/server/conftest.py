"""Servers to ask: one in memory, one on a real port."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny
from browser import chromium, window
from wherefrom.model import Model, open_model

TEXT = "the deep film was not very good !"
Open = Callable[..., Any]
HERE = "http://127.0.0.1:8000"
NEEDED = {
    "fastapi": "the page needs the extra: pip install -e '.[serve]'",
    "uvicorn": "the page needs the extra: pip install -e '.[serve]'",
    "httpx": "the tests of the page need httpx",
}


def missing() -> str | None:
    """Why the page cannot be tested here; None if it can."""
    for name, reason in NEEDED.items():
        try:
            __import__(name)
        except ImportError:
            return reason
    return None


if not missing():
    from starlette.testclient import TestClient

    from wherefrom.server.app import guarded
    from wherefrom.server.catalog import opened_by_name
    from wherefrom.server.guard import Rules
    from wherefrom.server.launch import Server
    from wherefrom.server.limits import Limits
    from wherefrom.server.queue import JobQueue


class Untested(pytest.Module):
    """A file of tests that is skipped before it is imported. A skip in this file would stop pytest altogether."""

    def collect(self) -> Any:
        pytest.skip(str(missing()), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    return Untested.from_parent(parent, path=module_path) if missing() else None


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    """A tiny classifier, a tiny masked language model and a tiny encoder."""
    tokenizer = tiny.tokenizer()
    tasks = {"tiny": "classification", "tiny-mlm": "masked-lm", "tiny-encoder": "encoder"}
    return {name: open_model(tiny.model(task=task), tokenizer) for name, task in tasks.items()}


@pytest.fixture
def client(models: dict[str, Model]) -> Iterator[Any]:
    with client_of(models) as found:
        yield found


@pytest.fixture(scope="module")
def address(models: dict[str, Model]) -> Iterator[str]:
    """With the tiny models, which answer at once, and the one that ships."""
    with listening({**models, **opened_by_name(["wherefrom/sentiment"])}) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Open]:
    """Opens the page; at the end nothing may have gone wrong in it, nor anything have been fetched from elsewhere."""
    contexts, wrong = [], []

    def opens(*, quiet: bool = True, **options: Any) -> Any:
        context = window(browser, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if quiet:
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(known(address)) else None)
        page.goto(address)
        page.locator("html[data-ready]").wait_for(state="attached")
        return page

    yield opens
    for context in contexts:
        context.close()
    assert wrong == []


def known(address: str) -> tuple[str, ...]:
    return address, "blob:", "data:", "file:"


def explain(page: Any, text: str | None = None, methods: tuple[str, ...] = ("attcat", "globenc")) -> None:
    if text is not None:
        page.fill("#text", text)
    for chip in page.locator("#methods .chip").all():
        name = chip.inner_text()
        if (chip.get_attribute("aria-pressed") == "true") != (name in methods):
            page.locator("#methods .chip", has_text=re.compile(f"^{name}$")).click()
    page.click("#explain")
    page.locator("#status", has_text="Done in").wait_for()


@contextmanager
def client_of(models: dict[str, Model], rules: Rules | None = None, limits: Limits | None = None) -> Iterator[Any]:
    app: Any = guarded(models, rules, limits)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as found:
        yield found


@contextmanager
def listening(models: dict[str, Model], limits: Limits | None = None) -> Iterator[str]:
    """A server on a free port; gives its address."""
    bound = socket.create_server(("127.0.0.1", 0))
    limits = limits or Limits()
    line = JobQueue(limits)
    server = Server(guarded(models, None, limits, line), line, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


def until(what: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for something that happens in another thread."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
