"""The notebook runs, and what is stored in it is what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat (the extra dev) is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient (the extra dev) is not installed")

TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"


def shapes(book: Any) -> list[list[list[str]]]:
    """The forms of every cell's outputs, warnings apart."""
    return [
        [sorted(each.get("data", {"text": ""})) for each in cell.outputs if each.get("name") != "stderr"]
        for cell in book.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.skipif(not TOUR.exists(), reason="the documentation is not beside the tests")
def test_the_tour_runs_and_shows_what_is_stored() -> None:
    stored = nbformat.read(TOUR, as_version=4)
    assert TOUR.stat().st_size < 400_000
    assert not any(path in TOUR.read_text(encoding="utf-8") for path in ("/home/", "/tmp/", "/usr/", "site-packages"))
    fresh = nbformat.read(TOUR, as_version=4)
    nbclient.NotebookClient(
        fresh, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(TOUR.parent)}}
    ).execute()
    assert shapes(fresh) == shapes(stored)
    assert sum(["image/png", "text/plain"] in outputs for outputs in shapes(fresh)) == 7
    source = "".join(cell.source for cell in fresh.cells)
    assert "wherefrom.explain(" in source
    assert "wherefrom.evaluate(" in source
