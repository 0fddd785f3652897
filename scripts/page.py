"""Take the pictures of docs/img that a browser draws (Playwright and a Chromium are needed).

python scripts/page.py                 # both, with the shipped models
python scripts/page.py page            # the page of `wherefrom serve`
python scripts/page.py said [MODEL]    # a generated sentence in which one word is chosen
"""

from __future__ import annotations

import io
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import sync_playwright

import wherefrom
from wherefrom.server.app import guarded
from wherefrom.server.catalog import opened_by_name

IMAGES = Path(__file__).parents[1] / "docs" / "img"
TEXT = "i really didn't like this movie . some of the actors were good , but overall the movie was boring ."
PROMPT = "The doctor looked at the child, and his mother asked"
CHOSEN = 19  # " doctor", the second one, which the model has said itself


def page_of_serve(browser: Any) -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(guarded(opened_by_name(["wherefrom/sentiment"])), log_level="warning", ws="none")
    )
    threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
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
    written("page", page.screenshot())
    server.should_exit = True


def said(browser: Any, model: str) -> None:
    """The viewer of a generation, one of its words chosen."""
    found = wherefrom.generate(PROMPT, model, max_new_tokens=24, do_sample=False, alternatives=4)
    page = browser.new_page(viewport={"width": 1040, "height": 450}, device_scale_factor=2)
    with tempfile.TemporaryDirectory() as folder:
        file = found.save(Path(folder) / "said.html")
        page.goto(f"{file.as_uri()}#token={CHOSEN}&map=0&theme=light")
        page.locator(".others li").first.wait_for()
        written("said", page.locator(".wherefrom").screenshot())


def written(name: str, picture: bytes) -> None:
    """With a palette of 256 colours, a third of the size: none of these has more that one could see."""
    file = IMAGES / f"{name}.png"
    drawn = Image.open(io.BytesIO(picture)).convert("RGB")
    drawn.quantize(256, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB")


def main(which: str = "", model: str = "wherefrom/lm") -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if which in ("", "page"):
            page_of_serve(browser)
        if which in ("", "said"):
            said(browser, model)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
