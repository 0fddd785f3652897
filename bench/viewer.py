"""How fluid the HTML viewer is in Chromium: milliseconds of script per frame, and the size of the file.

    python bench/viewer.py                 # 512 tokens × 12 layers, one method
    python bench/viewer.py --methods 3
    python bench/viewer.py --prompt 1000 --said 300      # the viewer of a generation

Random maps with a residual connection; every token is hovered, then layers, top-k and the order are changed. Of a
generation random scores: tokens are chosen one after the other, with foils, and the unit of the sources changes; what
is measured is the time from a click until the frame that shows it has been painted. Needs the extra `browser` and a
Chromium.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from wherefrom.result.answer import Target
from wherefrom.result.explanation import Explanation
from wherefrom.result.generation import Answered, Generation
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


# The same of a generation; `shown` is over when the frame after the click has been painted.
SHOWN = """const shown = async (work) => { const begin = performance.now(); work();
    await new Promise((done) => requestAnimationFrame(() => { const channel = new MessageChannel();
      channel.port1.onmessage = done; channel.port2.postMessage(0); }));
    clicks.push(performance.now() - begin); };"""
SAID_STEPS = {
    "choose every third token": """const said = [...root.querySelectorAll(".token.answer")];
        for (let i = 0; i < said.length; i += 3) await shown(() => said[i].click());""",
    "arrow keys": """const left = () => new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true });
        for (let i = 0; i < 60; i++) await shown(() => document.dispatchEvent(left()));""",
    "why not": """for (let i = 0; i < 20; i++) await shown(() => root.querySelectorAll(".why")[i % 3].click());""",
    "point at every token": """for (const token of root.querySelectorAll(".token"))
        await shown(() => token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true })));""",
    "change the unit": """const all = root.querySelectorAll('[aria-label="Sources as"] button');
        for (let i = 0; i < 12; i++) await shown(() => all[i % all.length].click());""",
}


def generation(prompt: int, said: int, foils: int = 3) -> Generation:
    """Words of two pieces, sentences of twelve words, random scores."""
    generator = np.random.default_rng(0)
    n = prompt + said
    pieces = [(" word" if i % 2 == 0 else "s." if i % 24 == 23 else "s") for i in range(n)]
    texts = "".join(pieces[:prompt]), "".join(pieces[prompt:])
    ends = [np.cumsum([0, *map(len, part)]).tolist() for part in (pieces[:prompt], pieces[prompt:])]
    spans = [(which, start, end) for which in (0, 1) for start, end in itertools.pairwise(ends[which])]
    segments = ["prompt"] * prompt + ["answer"] * said
    rows = generator.standard_normal((said, 1 + foils, n)).astype(np.float32) ** 3
    rows *= np.arange(n) < (prompt + np.arange(said))[:, None, None]
    names = [f"other{i}" for i in range(9)]
    targets = [Target("token", 10, "said", foil=i, foil_label=names[i]) for i in range(foils)]
    chances = {"said": 0.5, **dict.fromkeys(names, 0.05)}
    ids = {"said": 10, **{name: i for i, name in enumerate(names)}}
    steps = [Answered(Target("token", 10, "said"), "said", chances, -0.7, ids, tuple(targets))] * said
    phrase = Target("phrase", 10, "said", tokens=(10,) * said)
    whole = Explanation(
        pieces, rows[:, 0].sum(0), "attn-lrp", texts=texts, spans=spans, segments=segments, signed=True, additive=True,
        target=phrase,
    )  # fmt: skip
    return Generation(whole, rows[:, 0].copy(), [10] * n, steps, {}, None, rows[:, 1:].copy())


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
    parser.add_argument("--prompt", type=int, default=1000, help="with --said: tokens before the answer")
    parser.add_argument("--said", type=int, default=0, help="tokens of a generation, in place of an explanation")
    options = parser.parse_args()
    named = {f"method {i}": explanation(options.tokens, options.layers, i) for i in range(options.methods)}
    given = generation(options.prompt, options.said) if options.said else None
    begin = time.perf_counter()
    page_source = document(named) if given is None else given.to_html()
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
        if given is not None:
            elements = page.evaluate(f"() => {{ {ROOT} return root.querySelectorAll('*').length; }}")
            print(f"{elements} elements")
        for name, step in (STEPS if given is None else SAID_STEPS).items():
            work = f"(async () => {{ {FRAME} {ROOT} {step} await frame(); }})"
            if given is not None:
                work = f"(async () => {{ const clicks = []; {ROOT} {SHOWN} {step} return clicks; }})"
            spent = np.array(page.evaluate(FRAMES if given is None else "async (work) => eval(work)()", work))
            middle, high, most = np.percentile(spent, [50, 95, 100])
            what = "frames" if given is None else "times, to paint"
            print(f"{name:24s} {len(spent):4d} {what}, ms: median {middle:6.1f}  95% {high:6.1f}  most {most:6.1f}")
        browser.close()


if __name__ == "__main__":
    main()
