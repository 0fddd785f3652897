"""What makes the book of docs/ and of what lies beside it: mkdocs calls these functions while it builds (mkdocs.yml).

Pages that are no files of docs/ are generated: one for every method, the notebooks, CONTRIBUTING, CHANGELOG and the
benchmarks. The files of docs/ link to what the repository holds, so that they can be read there; in the book such links
lead to these pages, and those to source files become plain text, since the book does not hold them. Nothing is fetched.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import methods
import notebooks
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import wherefrom

ROOT = Path(__file__).resolve().parents[2]
# Files of the repository that are pages of the book under another name.
MOVED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "bench/README.md": "speed.md",
    "docs/tour.ipynb": "tour.md",
    "docs/answer.ipynb": "answer.md",
    "docs/table.ipynb": "table.md",
    "docs/own-method.ipynb": "own-method.md",
}
LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\[\]]*(?:\[[^\[\]]*\])?[^\[\]]*)\]\((?P<to>[^)\s]+)\)")
LIVE = re.compile(r"!\[([^\]]*)\]\([^)]*\)\{ \.live \}")  # a picture in the repository, the view itself in the book
GRAPH = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REVIEW = "i really didn't like this movie. some of the actors were good, but overall the movie was boring."
SHOWN = ["deeplift", "attcat", "alti", "globenc", "attention-rollout"]  # in the view on the first page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The place in the navigation that says METHODS becomes the methods, by idea."""
    groups = [
        {idea[0].upper() + idea[1:]: [{name: f"methods/{name}.md"} for name in names]}
        for idea, names in methods.by_idea().items()
    ]
    config.nav = _replaced(config.nav, groups)
    return config


def _replaced(nav: Any, groups: list[Any]) -> Any:
    if isinstance(nav, dict):
        return {title: _replaced(under, groups) for title, under in nav.items()}
    if isinstance(nav, list):
        return [each for part in nav for each in (groups if part == "METHODS" else [_replaced(part, groups)])]
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Everything that is made rather than read."""

    def add(where: str, content: str | bytes) -> None:
        files.append(File.generated(config, where, content=content))

    def keeper(folder: str, below: str) -> Any:
        def keep(name: str, content: bytes) -> str:
            add(posixpath.join(folder, below, name), content)
            return posixpath.join(below, name)

        return keep

    for source, page in MOVED.items():
        if source.endswith(".ipynb"):
            name = Path(source).stem
            add(page, notebooks.page(ROOT / source, keeper("", f"{name}-files")))
        elif source != "README.md":
            add(page, (ROOT / source).read_text(encoding="utf-8"))
    add("methods/index.md", methods.index())
    for name in methods.names():
        add(f"methods/{name}.md", methods.page(name, keeper("methods", "img"), ROOT / "docs"))
    add("img/live.html", wherefrom.compare(REVIEW, methods=SHOWN).to_html())
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    here = page.file.src_uri
    markdown = GRAPH.sub(_told, markdown)
    markdown = LIVE.sub(r'<iframe class="view" src="img/live.html" height="680" title="\1"></iframe>', markdown)
    made = next((path for path, name in MOVED.items() if name == here), "")
    source = made if made and not (ROOT / "docs" / here).exists() else f"docs/{here}"
    return outside_code(markdown, lambda text: LINK.sub(lambda link: _turned(link, source, here, files), text))


def _told(graph: re.Match[str]) -> str:
    """A graph as a list: what draws it elsewhere is a script that the book would have to fetch."""
    arrows: dict[str, list[str]] = {}
    for start, end in re.findall(r"(\w+) --> (\w+)", graph[1]):
        arrows.setdefault(start, []).append(f"`{end}`")
    return "\n".join(f"- `{start}` imports {', '.join(ends)}" for start, ends in arrows.items())


def outside_code(markdown: str, change: Any) -> str:
    """The page with everything changed but its blocks and spans of code."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`(?!\]))", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _turned(link: re.Match[str], source: str, here: str, files: Files) -> str:
    """A link as it must be in the book: to the page that a file became, or no link where it became none."""
    to, _, anchor = link["to"].partition("#")
    if not to or re.match(r"[a-z]+:", to):
        return link.group()
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
    page = MOVED.get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
    if page == "methods.md" and (name := link["text"].strip("`")) in methods.names():
        page, anchor = f"methods/{name}.md", ""
    if page not in files.src_uris:
        if (ROOT / file).exists():
            return link["text"]
        return link.group()  # leads nowhere: mkdocs says so
    relative = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{link['mark']}[{link['text']}]({relative}{'#' + anchor if anchor else ''})"
