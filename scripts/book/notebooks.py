"""A notebook as a page of the book: its prose, its code and the outputs it was saved with."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

Keep = Callable[[str, bytes], str]  # a file of this name and content, and how the page links to it
HEIGHT = 560  # pixels of a view in the page


def page(notebook: Path, keep: Keep) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for number, cell in enumerate(cells) for part in _cell(cell, number, keep))


def _cell(cell: dict[str, Any], number: int, keep: Keep) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for place, output in enumerate(cell["outputs"]):
        yield _output(output, f"{number}-{place}", keep)


def _output(output: dict[str, Any], name: str, keep: Keep) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        link = keep(f"{name}.html", _whole("".join(data["text/html"])).encode())
        return f'<iframe class="view" src="{link}" height="{HEIGHT}" title="A view"></iframe>'
    if "image/png" in data:
        return f"![A picture]({keep(f'{name}.png', base64.b64decode(''.join(data['image/png'])))}){{ .onwhite }}"
    said = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre class="output">{escape(said)}</pre>'


def _whole(html: str) -> str:
    """What a notebook shows in a cell, as a document."""
    return f'<!doctype html><meta charset="utf-8"><title>A view</title><body style="margin:0">{html}</body>'
