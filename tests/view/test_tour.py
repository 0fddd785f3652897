"""The notebooks run, and what is stored in them is what they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat (the extra dev) is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient (the extra dev) is not installed")

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {"tour.ipynb": 7, "answer.ipynb": 5, "table.ipynb": 1, "own-method.ipynb": 1}
SLOW = ("answer.ipynb", "table.ipynb")  # a kernel and a library each; two of them run by default
RUN = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PICTURES]
CALLS = {
    "tour.ipynb": ("wherefrom.explain(", "wherefrom.evaluate("),
    "answer.ipynb": ("wherefrom.generate(", "checks(", "foil=", "wherefrom.logit_lens(", "wherefrom.routes("),
    "table.ipynb": ("wherefrom.reproduce(", "wherefrom.evaluate(", "compare_methods("),
    "own-method.ipynb": ("@method(", "check_method(", "wherefrom.compare("),
}


def shapes(book: Any) -> list[list[list[str]]]:
    """The forms of every cell's outputs, warnings apart."""
    return [
        [sorted(each.get("data", {"text": ""})) for each in cell.outputs if each.get("name") != "stderr"]
        for cell in book.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not beside the tests")
@pytest.mark.parametrize("name", PICTURES)
def test_a_notebook_holds_what_it_shows_and_no_path_of_a_machine(name: str) -> None:
    book, text = nbformat.read(DOCS / name, as_version=4), (DOCS / name).read_text(encoding="utf-8")
    assert (DOCS / name).stat().st_size < 400_000
    assert not any(path in text for path in ("/home/", "/tmp/", "/usr/", "/work/", "site-packages"))
    assert sum(["image/png", "text/plain"] in outputs for outputs in shapes(book)) == PICTURES[name]
    source = "".join(cell.source for cell in book.cells)
    assert all(call in source for call in CALLS[name])


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not beside the tests")
@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs_and_shows_what_is_stored(name: str) -> None:
    stored, fresh = (nbformat.read(DOCS / name, as_version=4) for _ in range(2))
    nbclient.NotebookClient(
        fresh, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(DOCS)}}
    ).execute()
    assert shapes(fresh) == shapes(stored)


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not beside the tests")
def test_a_method_of_ones_own_is_ten_lines() -> None:
    book = nbformat.read(DOCS / "own-method.ipynb", as_version=4)
    assert "ten lines" in book.cells[0].source
    first = next(cell.source for cell in book.cells if cell.cell_type == "code")
    assert "@method(" in first
    assert len([line for line in first.splitlines() if line.strip()]) == 10
