"""The page's files, read once at the start: a path is looked up in a table and never becomes a file name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from wherefrom.errors import DamagedFile
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import AGAINST, DARK, FOR, STRENGTH, WHITE, Colour, hexadecimal, ink
from wherefrom.view.html import document, page

PAGE = Path(__file__).parent / "page"
VIEWER = Path(__file__).parents[1] / "view" / "viewer"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CURRENT = ' aria-current="page"'


@dataclass(frozen=True)
class File:
    content: bytes
    kind: str


@dataclass(frozen=True)
class Tab:
    """A page on which one asks: its part of the frame that all pages have."""

    path: str
    name: str
    main: str
    script: str
    command: str  # that does the same in a terminal

    def link(self, here: bool) -> str:
        return f'<a href="{self.path}"{CURRENT if here else ""}>{self.name}</a>'

    def document(self) -> str:
        parts = {
            "title": f"{self.name} · wherefrom",
            "script": self.script,
            "ways": "".join(each.link(here=each is self) for each in TABS),
            "main": _read(PAGE / self.main).decode().rstrip(),
            "command": self.command,
        }
        return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], _read(PAGE / "frame.html").decode())


TABS = (
    Tab("/", "Explain a text", "index.html", "page.js", "explain"),
    Tab("/generate", "Let a model speak", "generate.html", "generate.js", "generate"),
)


def page_files() -> dict[str, File]:
    """Everything but the API, by its path."""
    found = {each.path: File(each.document().encode(), KINDS[".html"]) for each in TABS}
    found["/document.html"] = File(blank_document(), KINDS[".html"])
    found["/generation.html"] = File(page({"title": ""}, "", "generation").encode(), KINDS[".html"])
    found["/favicon.ico"] = _file(PAGE / "icon.svg")  # what a browser asks for where it shows an answer's JSON itself
    found["/page/colours.css"] = File(colours().encode(), KINDS[".css"])
    for prefix, folder in (("/page", PAGE), ("/viewer", VIEWER)):
        for file in sorted(folder.iterdir()):
            if file.suffix in (".css", ".js", ".svg"):
                found[f"{prefix}/{file.name}"] = _file(file)
    return found


def blank_document() -> bytes:
    """The viewer's document around no explanation in particular: the page puts its data in and offers it as a file."""
    return document({"": Explanation.from_scores([""], [0.0], texts=("",))}).encode()


def colours() -> str:
    """The page's colours in light and dark, as variables: those of every other picture."""
    light, dark = _variables(WHITE), _variables(DARK)
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f":root[data-theme='light'] {{ color-scheme: light; {light} }}\n"
        f":root[data-theme='dark'] {{ color-scheme: dark; {dark} }}\n"
    )


def _variables(ground: Colour) -> str:
    hues = {"ground": ground, "accent": STRENGTH, "for": FOR, "against": AGAINST}
    named = {**{name: hexadecimal(hue) for name, hue in hues.items()}, "full": ink(ground), "on-accent": ink(STRENGTH)}
    return " ".join(f"--{name}: {value};" for name, value in named.items())


def _file(path: Path) -> File:
    return File(_read(path), KINDS[path.suffix])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedFile(
            f"the installation of wherefrom is incomplete: {path.name} is missing ({error.strerror})"
        ) from error
