"""Docstrings for the reference of the API: what a function says of its arguments becomes a list, one item for each.

What stands behind >>> becomes a block of code, which Markdown would take for quotations and links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # up to an empty line
OPENS = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*)(?P<says>: | go(?:es)? to )")


class Arguments(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            known = {each.name for each in func.parameters} | {"tokenizer_kwargs", "model_kwargs"}
            func.docstring.value = listed(func.docstring.value, known)


def listed(text: str, known: set[str]) -> str:
    """The lines of a docstring, those that begin with an argument as items of a list."""
    lines: list[str] = []
    for line in text.splitlines():
        found = OPENS.match(line)
        if found and set(found["names"].split(", ")) <= known:
            opened = any(each.startswith("- ") for each in lines[-1:]) or (lines and lines[-1].startswith("    "))
            names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
            lines += ([] if opened else [""]) + [f"- {names}{found['says']}{line[found.end() :]}"]
        else:
            lines.append(line)
    return "\n".join(lines)
