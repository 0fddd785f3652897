"""The pages of the book and their blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted([ROOT / "README.md", *DOCS.rglob("*.md")])}
# `<!-- not run: why -->` on the line above a block leaves it out.
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^>]*?) -->\n)?^```(?P<language>python|sh)\n(?P<source>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

# The file that a page's commands read.
BEFORE = {"docs/guide/dataset.md": "a deep film .\nit is dull .\n"}
COMMANDS_RUN = ("docs/guide/", "docs/start.md", "docs/viewer.md")  # elsewhere they are read: they name models and data


class Block(NamedTuple):
    page: str
    line: int
    language: str
    source: str
    why: str | None  # it is not run


def blocks(page: str, language: str) -> Iterator[Block]:
    text = PAGES[page].read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if found["language"] == language:
            line = text.count("\n", 0, found.start("source")) + 1
            yield Block(page, line, language, found["source"], found["why"])


def commands(source: str) -> Iterator[str]:
    """The commands of wherefrom in a block of the shell: one a line, several where wide gaps part them."""
    for line in source.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s{2,}(?=wherefrom )|\| ", line.partition(" #")[0]):
            if part.strip().startswith("wherefrom "):
                yield part.strip()
