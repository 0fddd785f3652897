"""The viewer's modules as one script.

The sources in `view/viewer/` are ordinary JavaScript modules; the web page imports them as they are. A document that
must open from disk cannot import files beside it, so here they are put one after the other, what is imported before
what imports it, inside one function. That is sound because of three habits that `_read` checks: imports are
`import { a, b } from "./name.js";` without renaming, exports stand before a declaration, and no two modules declare the
same name.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from wherefrom.errors import DamagedFile

FOLDER = Path(__file__).parent / "viewer"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
DECLARED = re.compile(r"^(?:async )?(?:function\*?|const|let|class) (?:(\w+)|\{([^}]*)\})", re.MULTILINE)


@cache
def script(entry: str = "viewer") -> str:
    """All modules that `entry` needs, in the order of their imports, as an expression that gives its `mount`."""
    parts: dict[str, str] = {}
    _collect(entry, parts, ())
    owner: dict[str, str] = {}
    for name, source in parts.items():
        for plain, braced in DECLARED.findall(source):
            for each in [plain] if plain else [word.strip() for word in braced.split(",")]:
                if owner.setdefault(each, name) != name:
                    raise DamagedFile(f"{owner[each]}.js and {name}.js of the viewer both declare {each!r}")
    body = "\n".join(parts.values())
    if "</script" in body.lower() or "<!--" in body:
        raise DamagedFile("the viewer's source would end its own script tag")
    return f'(() => {{\n"use strict";\n{body}\nreturn mount;\n}})()'


@cache
def style() -> str:
    return (FOLDER / "viewer.css").read_text(encoding="utf-8")


def _collect(name: str, parts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise DamagedFile(f"the viewer's modules import each other in a circle: {' > '.join((*above, name))}")
    if name in parts:
        return
    source = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
    for needed in IMPORT.findall(source):
        _collect(needed, parts, (*above, name))
    parts[name] = _plain(name, source)


def _plain(name: str, source: str) -> str:
    """A module's source without its imports and exports."""
    source = EXPORT.sub("", IMPORT.sub("", source))
    if odd := re.search(r"^(?:import|export)\b.*$", source, re.MULTILINE):
        raise DamagedFile(f"{name}.js of the viewer has a form of import or export that cannot be joined: {odd[0]}")
    return f"// {name}.js\n{source}"
