"""A real browser for the tests of what is drawn: the system's Chromium or Playwright's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120_000  # milliseconds that anything may take on a busy machine; an idle one needs a few


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or a skipped test that says what is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="no browser: Playwright is not installed")
    with api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next((path for name in NAMES if (path := shutil.which(name))), own if Path(own).exists() else None)
        if found is None:
            pytest.skip("no browser: neither Chromium nor Chrome is on the PATH, nor has Playwright its own")
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE)
        except api.Error as error:  # as where `chromium` only says which package would install it
            pytest.skip(f"no browser: {found} does not start: {str(error).splitlines()[0]}")
        api.expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


def window(browser: Any, **options: Any) -> Any:
    """A context of its own, in which everything may take its time."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(PATIENCE)
    return context


def expect(found: Any) -> Any:
    """Playwright's assertions, which wait until they hold."""
    from playwright import sync_api

    return sync_api.expect(found)


def settle(page: Any) -> None:
    """Until what was asked for has been drawn: in the next frame, and in the one after it what a new size moves."""
    page.evaluate(
        """async () => {
        for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    }"""
    )
