"""What is put into the document: packed numbers, colours, the script, and nothing that a parser takes for markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wherefrom
from wherefrom.result.explanation import Explanation
from wherefrom.view import bundle
from wherefrom.view.colour import DARK, hexadecimal, ink, shade
from wherefrom.view.html import document, fragment
from wherefrom.view.payload import STOPS, pack, payload

NASTY = [
    "</script><script>alert(1)</script>",
    "<!--",
    "\u2028",
    "\u2029",
    "]]>",
    "&lt;",
    "\x00",
    "\ud800",
    "<img src=x onerror=alert(1)>",
]


def unpacked(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The inverse of `pack`, as the viewer does it."""
    stored = np.frombuffer(base64.b64decode(packed["data"]), dtype=f"<{packed['type']}").astype(float)
    stored = stored.reshape(packed["shape"])
    if packed["type"] == "i1":
        stored = np.sign(stored) * (stored / 127) ** 2
    return stored * packed["scale"]


BOUNDS = {  # of the error of |x| ≤ 1
    "f8": lambda x: 0 * x,
    "f4": lambda x: x * 2.0**-24,
    "f2": lambda x: np.maximum(x * 2.0**-11, 2.0**-25),
    "i1": lambda x: np.sqrt(x) / 127 + (0.5 / 127) ** 2,  # half a step of √x
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_packed_numbers_come_back(kind: str) -> None:
    generator = np.random.default_rng(0)
    array = generator.normal(size=(3, 5, 5)) * 10.0 ** generator.integers(-3, 3, (3, 5, 5))
    largest = np.abs(array).max()
    error = np.abs(unpacked(pack(array, kind)) - array) / largest
    assert (error <= BOUNDS[kind](np.abs(array) / largest) * (1 + 1e-9)).all()
    assert not unpacked(pack(np.zeros((2, 2)), kind)).any()


def test_the_file_grows_slower_than_the_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = np.random.default_rng(0).random((2, 6, 6), dtype=np.float32)
    found = Explanation(list("abcdef"), maps[-1, 0], "m", maps=maps, aggregated=maps)
    kinds = {}
    for most in (10**6, 300, 100):
        monkeypatch.setattr("wherefrom.view.payload.BUDGET", {"f4": most, "f2": most})
        data = payload({"m": found})["explanations"][0]
        assert data["maps"]["type"] == data["aggregated"]["type"]
        assert data["pieces"]["scores"]["type"] == "f4"  # scores and rows stay as they are
        kinds[most] = data["maps"]["type"]
    assert kinds == {10**6: "f4", 300: "f2", 100: "i1"}


def test_512_tokens_of_12_layers_take_17_megabytes() -> None:
    maps = np.random.default_rng(0).random((12, 512, 512), dtype=np.float32)
    found = Explanation(["token"] * 512, maps[-1, 0], "m", maps=maps, aggregated=maps)
    size = len(document({"m": found}))
    assert 12 * 512 * 512 * 2 * 2 * 4 / 3 < size < 17.2e6  # two arrays, two bytes each, in base64


def test_colours_are_those_of_colour_py() -> None:
    data = payload({"m": Explanation.from_scores(["a"], [1.0])})["colours"]
    for theme, ground in (("light", (255, 255, 255)), ("dark", DARK)):
        for name, signed, low in (("unsigned", False, 0), ("signed", True, 1 - STOPS)):
            stops = [shade(i / (STOPS - 1), signed, ground) for i in range(low, STOPS)]
            assert data[theme][name] == "".join(hexadecimal(stop)[1:] for stop in stops)
            inks = ["#000000" if digit == "0" else "#ffffff" for digit in data[theme][f"{name}_ink"]]
            assert inks == [ink(stop) for stop in stops]


class Scripts(HTMLParser):
    """The contents of script elements, by type, and every tag's attributes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str | None, list[str]] = {}
        self.attributes: list[str] = []
        self.open: str | bool | None = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self.open = dict(attrs).get("type")
            self.found.setdefault(self.open, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.open = False

    def handle_data(self, data: str) -> None:
        if self.open is not False:
            self.found[self.open][-1] += data  # type: ignore[index]


@pytest.mark.parametrize("write", [lambda ex: document({"<b>": ex}, "<title>"), lambda ex: fragment({"<b>": ex})])
def test_text_is_data(write: Any, tmp_path: Path) -> None:
    found = Explanation.from_scores(
        NASTY, [0.1] * len(NASTY), method="</script>", model="<!--<script>", texts=("\u2028",)
    )
    page = write(found)
    (tmp_path / "x.html").write_text(page, encoding="utf-8")
    assert "\u2028" not in page.split("<p>")[0]
    parser = Scripts()
    parser.feed(page)
    assert {kind: len(each) for kind, each in parser.found.items()} == {"application/json": 1, None: 1}
    data = json.loads(parser.found["application/json"][0])
    assert data["explanations"][0]["pieces"]["tokens"] == NASTY
    assert data["explanations"][0]["record"]["model"] == "<!--<script>"
    assert not any(name.startswith("on") for name in parser.attributes)


def test_the_document_allows_its_own_script_alone() -> None:
    page = document({"m": Explanation.from_scores(["a"], [1.0])})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]  # type: ignore[index]
    for name, source in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r'(?:src|href)="(?!data:)', page)


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(wherefrom.WherefromError, match="nothing to show"):
        payload({})


def test_modules_become_one_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every: set[str] = set()
    for entry in ("viewer", "generation"):
        joined = bundle.script(entry)
        assert not re.search(r"^(?:import|export)\b", joined, re.MULTILINE)
        names = re.findall(r"^// (\w+)\.js$", joined, re.MULTILINE)
        for name in names:
            source = (bundle.FOLDER / f"{name}.js").read_text(encoding="utf-8")
            assert all(names.index(needed) < names.index(name) for needed in bundle.IMPORT.findall(source))
            assert len(source.splitlines()) < 500
        every |= set(names)
    assert every == {file.stem for file in bundle.FOLDER.glob("*.js")}  # none is left out, none idle

    monkeypatch.setattr(bundle, "FOLDER", tmp_path)
    wrong = {
        "both declare 'x'": {
            "viewer": 'import { a } from "./a.js";\nconst x = 1;\n',
            "a": "export const a = 1;\nconst x = 2;\n",
        },
        "in a circle: viewer > a > viewer": {
            "viewer": 'import { a } from "./a.js";\n',
            "a": 'import { mount } from "./viewer.js";\nexport const a = 1;\n',
        },
        "cannot be joined": {"viewer": "export default 1;\n"},
        "end its own script tag": {"viewer": 'const x = "</script>";\n'},
    }
    for message, files in wrong.items():
        bundle.script.cache_clear()
        for name, source in files.items():
            (tmp_path / f"{name}.js").write_text(source)
        with pytest.raises(wherefrom.WherefromError, match=re.escape(message)):
            bundle.script()
    bundle.script.cache_clear()
