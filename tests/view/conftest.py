"""The viewer on a page of its own, in a real browser that cannot reach any network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, settle, window
from wherefrom.view.bundle import FOLDER

ORIGIN = "http://wherefrom.test"  # answered from here, never looked up
TYPES = {".js": "text/javascript", ".css": "text/css"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about; empty at the end of every test that opens a page."""
    return []


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    found = window(browser, accept_downloads=True, offline=True)
    yield found
    found.close()


@pytest.fixture
def page(context: Any, complaints: list[str]) -> Iterator[Any]:
    found = context.new_page()
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    yield found
    assert complaints == []


@pytest.fixture
def opened(page: Any, tmp_path: Path) -> Callable[..., Any]:
    """Opens a document from disk, at a state; over pieces, unless words are asked for."""

    def open_document(source: str, state: str = "", units: str = "pieces") -> Any:
        file = tmp_path / "viewer.html"
        file.write_text(source, encoding="utf-8")
        page.goto("about:blank")
        page.goto(f"{file.as_uri()}#units={units}&{state}")
        page.locator(".wherefrom .text").first.wait_for()
        settle(page)
        return page

    return open_document


@pytest.fixture
def modules(page: Any) -> Any:
    """A page that may import the viewer's modules as files, under the policy of a strict server."""
    policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:"

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix(ORIGIN).split("?")[0]
        if path == "/":
            headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": policy}
            route.fulfill(
                body='<!doctype html><title>t</title><link rel="icon" href="data:,"><div></div>', headers=headers
            )
            return
        file = FOLDER / path.removeprefix("/viewer/")
        route.fulfill(body=file.read_text(encoding="utf-8"), headers={"content-type": TYPES[file.suffix]})

    page.context.set_offline(False)  # or not even routed requests are answered
    page.route("**/*", answer)
    page.goto(f"{ORIGIN}/")
    return page
