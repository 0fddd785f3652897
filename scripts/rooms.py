"""Which room of src/wherefrom imports which, drawn into CONTRIBUTING.md: `python scripts/rooms.py`.

Every import counts, wherever it stands: at the top, inside a function, for type checkers alone. A test,
tests/core/test_rooms.py, holds the graph to `ORDER` and says when the drawing is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "wherefrom"
SOURCE = ROOT / "src" / PACKAGE
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: drawn by scripts/rooms.py -->\n", "<!-- end of rooms -->\n"
FACADE = "the package"  # wherefrom/__init__.py, which gives every public name on first use
# Modules of one file that load nothing heavy: every room may use them.
LIGHT = (
    "version",
    "errors",
    "defaults",
    "patents",
    "extras",
    "files",
    "interrupts",
    "progress",
    "typecheck",
    "work",
    "spec",
    "registry",
    "display",
    "zoo",
)
# From the ground up: a room imports those before it and never one after it.
ORDER = (
    *LIGHT,
    "options",
    "result",
    "data",
    "aggregate",
    "model",
    "method",
    "diagnosis",
    "pipeline",
    "metric",
    "cost",
    "api",
    "streaming",
    "generating",
    "aligning",
    "lens",
    "paths",
    "analysis",
    "evaluation",
    "training",
    "view",
    "papers",
    "board",
    "index",
    "server",
    "testing",
    "cli",
)


class Import(NamedTuple):
    """One import: who, whom, what of it, and where it stands."""

    module: str
    imported: str
    name: str | None
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE.parent)}:{self.line} imports {self.imported}"


def modules() -> dict[str, Path]:
    """Every module of the package and its file."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports() -> Iterator[Import]:
    """Every import in the package, of its own modules and of others."""
    known = modules()
    for module, file in known.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (Import(module, each.name, None, file, node.lineno) for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{file}:{node.lineno} imports relatively; name the module"
                for each in node.names:
                    inner = f"{node.module}.{each.name}"
                    whole = (inner, None) if inner in known else (node.module, each.name)
                    yield Import(module, *whole, file, node.lineno)


def room(module: str) -> str:
    """The room of a module: its folder, or the file itself where it stands alone."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else FACADE


def within() -> Iterator[Import]:
    """Imports of one room by another."""
    for each in imports():
        if each.imported.split(".")[0] == PACKAGE and room(each.imported) != room(each.module):
            yield each


def drawn() -> str:
    """The graph as Mermaid; an arrow that follows from others is left out, and so are the light modules."""
    below: dict[str, set[str]] = {name: set() for name in ORDER if name not in LIGHT}
    for each in within():
        one, other = room(each.module), room(each.imported)
        if one in below and other in below:
            below[one].add(other)
    reach: dict[str, set[str]] = {}
    for name in below:  # in their order, so that what is below is known already
        reach[name] = below[name].union(*(reach.get(each, set()) for each in below[name]))
    lines = ["```mermaid", "flowchart BT"]
    present = [name for name in below if below[name] or any(name in others for others in below.values())]
    lines += [f"  {name}" for name in present]
    for name in present:
        through = set().union(*(reach[each] for each in below[name])) if below[name] else set()
        lines += [f"  {name} --> {other}" for other in ORDER if other in below[name] - through]
    light = ", ".join(f"`{name}`" for name in LIGHT)
    return "\n".join([*lines, "```", "", f"Every room may use the light modules: {light}.", ""])


def page(text: str) -> str:
    """CONTRIBUTING.md with the drawing as it is now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} lacks the marker {BEGIN!r}"
    assert end, f"{PAGE.name} lacks the marker {END!r}"
    return before + begin + drawn() + end + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"drawn into {PAGE.name}")
