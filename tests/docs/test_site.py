"""The book builds strictly, leads nowhere that is not there, and fetches nothing from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import DOCS, ROOT

import wherefrom

pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="the documentation is not beside the tests")
FETCHES = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("use", "href")}


class Addresses(HTMLParser):
    """What a page fetches, where it leads, and the places in it that others may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif (tag, name) in FETCHES and value:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.leads.append(value)


def read(page: Path) -> Addresses:
    found = Addresses()
    found.feed(page.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the book needs the extra `docs`")
    pytest.importorskip("material", reason="the book needs the extra `docs`")
    pytest.importorskip("mkdocstrings", reason="the book needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    source = str(Path(wherefrom.__file__).parents[1])
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: read(path) for path in site.rglob("*.html") if path.name not in ("404.html", "live.html")}
    assert len(pages) > 60
    broken = []
    for path, found in pages.items():
        for address in (*found.fetched, *found.leads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = pages.get(to / "index.html" if to.is_dir() else to)
            missing = bool(parts.fragment) and there is not None and unquote(parts.fragment) not in there.places
            if not to.exists() or (missing and not parts.fragment.startswith(("only-", "__"))):
                broken.append(f"{path.relative_to(site)}: {address}")
    assert not broken, broken


@pytest.mark.slow
def test_nothing_comes_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [each for each in read(path).fetched if urlsplit(each).netloc], path
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", text), path


@pytest.mark.slow
def test_every_method_has_its_page(site: Path) -> None:
    for each in (*wherefrom.methods(), *wherefrom.presets()):
        page = (site / "methods" / f"{each.name}.html").read_text(encoding="utf-8")
        assert f"{each.name}-light.svg" in page
        assert "<math" in page or each.name == "random"
        assert "inproceedings" in page or "article" in page


def test_every_public_name_is_in_the_reference() -> None:
    told = set(re.findall(r"^::: wherefrom\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert told == set(wherefrom.__all__) - {"__version__"}


def test_formulas_become_mathml() -> None:
    sys.path.insert(0, str(ROOT / "scripts" / "book"))
    try:
        import formulas
    finally:
        sys.path.pop(0)
    assert (
        formulas.math("x_ij²")
        == "<msubsup><mi>x</mi><mrow><mi>i</mi><mi>j</mi></mrow><mrow><mn>2</mn></mrow></msubsup>"
    )
    assert formulas.math("g_{u_i}(t)").startswith("<msub><mi>g</mi><mrow><msub><mi>u</mi>")
    assert formulas.table("    N = x    its name").count("<td>") == 4
    headed = formulas.table("              one     two\n    softmax   kept    left")
    assert headed.startswith('<div class="formula"><table class="lines"><tr><td></td><td>')  # a head above its column
    assert headed.count("<td>") == 6
