"""Tables in bench/README.md: each benchmark writes between its own two markers and touches nothing else."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "README.md"


def put(name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`; at the end of the page if nowhere."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Measured\n"
    block = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- /{re.escape(name)} -->", re.DOTALL)
    page = pattern.sub(lambda _: block, page) if pattern.search(page) else f"{page.rstrip()}\n\n{block}\n"
    PAGE.write_text(page, encoding="utf-8")
