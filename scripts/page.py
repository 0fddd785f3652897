"""Take the picture of the page in docs/img: `python scripts/page.py` (Playwright and a Chromium are needed)."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright

from wherefrom.server.app import guarded
from wherefrom.server.catalog import opened_by_name

IMAGE = Path(__file__).parents[1] / "docs" / "img" / "page.png"
TEXT = "i really didn't like this movie . some of the actors were good , but overall the movie was boring ."


def main() -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(guarded(opened_by_name(["wherefrom/sentiment"])), log_level="warning", ws="none")
    )
    threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1440})
        page.goto(f"http://127.0.0.1:{bound.getsockname()[1]}/")
        page.locator("html[data-ready]").wait_for(state="attached")
        page.fill("#text", TEXT)
        for name in ("attcat", "attention-rollout"):  # two fit: deeplift and alti stay
            page.get_by_role("button", name=name, exact=True).first.click()
        page.click("#explain")
        page.locator("#status", has_text="Done in").wait_for(timeout=120_000)
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)
        page.screenshot(path=IMAGE)
        browser.close()
    server.should_exit = True
    print(f"{IMAGE.name}: {IMAGE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
