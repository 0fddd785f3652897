"""What pages say of the repository: links lead to its files and to headings in them, and the version is its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import DOCS, ROOT

import wherefrom

pytestmark = pytest.mark.skipif(not (DOCS / "index.md").exists(), reason="the documentation is not beside the tests")
FOLDERS = (".github", "bench", "docs", "tests/fixtures")
PAGES = [
    path
    for folder in (ROOT, *(ROOT / each for each in FOLDERS))
    for path in sorted(folder.glob("*.md") if folder == ROOT else folder.rglob("*"))
    if path.suffix in (".md", ".ipynb")
]
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"\]\(([^)\s]+)\)|\b(?:href|src)=\"([^\"]+)\"")


def prose(page: Path) -> str:
    """What a reader sees of a page as text: its blocks of code left out, of a notebook what was written."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")
    return CODE.sub("", text)


def places(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead(page: Path) -> Iterator[str]:
    for found in ADDRESS.finditer(re.sub(r"`[^`\n]+`(?!\])", "", prose(page))):
        parts = urlsplit(found[1] or found[2])
        if parts.scheme or parts.netloc:
            continue
        to = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        named = to.suffix == ".md" and to.exists() and parts.fragment
        if not to.exists() or (named and unquote(parts.fragment) not in places(to)):
            yield f"{page.relative_to(ROOT)}: {found[1] or found[2]}"


def test_every_link_of_a_page_leads_somewhere() -> None:
    assert len(PAGES) > 35
    assert not [address for page in PAGES for address in dead(page)]


def test_the_readme_names_every_method() -> None:
    names = set(re.findall(r"`([\w-]+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {each.name for each in (*wherefrom.methods(), *wherefrom.presets())} <= names


def test_citation_and_changelog_name_this_version() -> None:
    cited = dict(re.findall(r"^([\w-]+): (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    changed = re.search(r"^# ([\d.]+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changed is not None
    assert (cited["version"], cited["date-released"]) == changed.groups()
    assert cited["version"] == wherefrom.__version__


def test_a_dead_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# A & B\n[here](#a--b) [`x`](page.md#none) [gone](gone.md)\n```\n[code](code.md)\n```\n", "utf-8")
    assert list(dead(page)) == ["page.md: page.md#none", "page.md: gone.md"]


@pytest.mark.parametrize("page", [each for each in PAGES if each.suffix == ".md"], ids=lambda page: page.name)
def test_rows_of_a_table_stand_under_its_head(page: Path) -> None:
    """A row after a blank line is no row any more but a line of bars."""
    lines = ["", *prose(page).splitlines(), ""]
    firsts = [i for i, line in enumerate(lines) if line.startswith("|") and not lines[i - 1].startswith("|")]
    assert [lines[i] for i in firsts if not re.fullmatch(r"\|[\s:|-]+\|", lines[i + 1])] == []
