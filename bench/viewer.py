"""How fluid the HTML viewer is in Chromium: milliseconds of script per frame, and the size of the file.

    python bench/viewer.py                 # 512 tokens × 12 layers, one method
    python bench/viewer.py --methods 3

Random maps with a residual connection; every token is hovered, then layers, top-k and the order are changed. Needs the
extra `browser` and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from wherefrom.result.explanation import Explanation
from wherefrom.view.html import document

TIMED = """
window.spent = [];
const ask = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (work) => ask((now) => {
  const begin = performance.now();
  work(now);
  const last = window.spent.at(-1);
  if (last && last.now === now) last.ms += performance.now() - begin;
  else window.spent.push({ now, ms: performance.now() - begin });
});
"""
FRAMES = "async (work) => { spent.length = 0; await eval(work)(); return spent.map((each) => each.ms); }"
FRAME = "const frame = () => new Promise((done) => setTimeout(() => requestAnimationFrame(() => done()), 0));"
ROOT = "const root = document.querySelector('[data-wherefrom]').shadowRoot;"
STEPS = {
    "hover every token": """for (const token of root.querySelector(".text").querySelectorAll(".token")) {
        token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true })); await frame(); }""",
    "hover the map": """const stage = root.querySelector(".picture.map .stage");
        const { left, top, width } = stage.getBoundingClientRect();
        for (let i = 0; i < 200; i++) { stage.dispatchEvent(new PointerEvent("pointermove",
            { clientX: left + width / 2 + i, clientY: top + i })); await frame(); }""",
    "slide over the layers": """const slider = root.querySelector("input[aria-label=Layer]");
        for (let i = 0; i < 13; i++) { slider.value = i; slider.dispatchEvent(new Event("input")); await frame(); }""",
    "slide over top-k": """const slider = root.querySelector("input[aria-label=Tokens]");
        for (let i = 0; i < 12; i++) { slider.value = i; slider.dispatchEvent(new Event("input")); await frame(); }
        slider.value = 50; slider.dispatchEvent(new Event("input")); await frame();""",
    "order by score": """const [text, score] = root.querySelectorAll('[aria-label=Order] button');
        score.click(); await frame(); text.click(); await frame();""",
}


def explanation(tokens: int, layers: int, seed: int) -> Explanation:
    generator = np.random.default_rng(seed)
    place = np.arange(tokens)
    near = np.exp(-np.abs(place[:, None] - place) / 20)
    maps = near * generator.gamma(0.5, 1.0, (layers, tokens, tokens)) + 1e-3
    maps = (0.5 * maps / maps.sum(-1, keepdims=True) + 0.5 * np.eye(tokens)).astype(np.float32)
    joined = maps.copy()
    for layer in range(1, layers):
        joined[layer] = maps[layer] @ joined[layer - 1]
    words = [f"word{i}" for i in place]
    return Explanation(words, joined[-1, 0], "attention-rollout", maps=maps, aggregated=joined, aggregate="rollout")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--methods", type=int, default=1)
    parser.add_argument("--views", default="layers map graph")
    options = parser.parse_args()
    named = {f"method {i}": explanation(options.tokens, options.layers, i) for i in range(options.methods)}
    begin = time.perf_counter()
    page_source = document(named)
    print(f"{len(page_source) / 1e6:.1f} MB, written in {time.perf_counter() - begin:.2f} s")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "viewer.html"
        file.write_text(page_source, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(TIMED)
        begin = time.perf_counter()
        page.goto(f"{file.as_uri()}#view={options.views.replace(' ', '+')}")
        page.wait_for_function("window.spent.length > 1")
        print(f"on the page after {time.perf_counter() - begin:.2f} s")
        page.wait_for_timeout(1000)
        for name, step in STEPS.items():
            work = f"(async () => {{ {FRAME} {ROOT} {step} await frame(); }})"
            spent = np.array(page.evaluate(FRAMES, work))
            middle, high, most = np.percentile(spent, [50, 95, 100])
            print(f"{name:24s} {len(spent):4d} frames, ms: median {middle:6.1f}  95% {high:6.1f}  most {most:6.1f}")
        browser.close()


if __name__ == "__main__":
    main()
