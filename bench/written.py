"""Tables in bench/README.md (or another page): each benchmark writes between its own two markers, nothing else."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "README.md"


def put(name: str, text: str, place: Path = PAGE) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`; at the end of the page if nowhere."""
    page = place.read_text(encoding="utf-8") if place.exists() else "# Measured\n"
    block = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- /{re.escape(name)} -->", re.DOTALL)
    page = pattern.sub(lambda _: block, page) if pattern.search(page) else f"{page.rstrip()}\n\n{block}\n"
    place.write_text(page, encoding="utf-8")
