"""The house: which room may import which, and what is loaded when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIGHT = """
import sys
from pathlib import Path
from wherefrom import Comparison, Explanation, Explanations

folder = Path(sys.argv[1])
one = Explanation.from_scores(["good", "film"], [0.9, -0.1])
both = Comparison({"a": one, "b": one})
for ending in ("json", "npz", "html", "csv", "jsonl"):
    one.save(folder / f"one.{ending}")
for ending in ("json", "npz"):
    assert Explanation.load(folder / f"one.{ending}").tokens == one.tokens
both.save(folder / "both.json")
assert list(Comparison.load(folder / "both.json")) == ["a", "b"]
for each in (one, both, Explanations([one])):
    each.show()
    assert each._repr_html_()
one.words(), str(one), repr(one), one.to_dict(), one.to_html(), both.to_html()
heavy = {"torch", "transformers", "matplotlib"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
DRAWN = """
one.plot(), one.plot("bars"), both.plot("tokens"), one.save(folder / "one.png")
assert not {"torch", "transformers"} & set(sys.modules)
"""


def alone(script: str, folder: Path) -> None:
    """Run a script in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert found.returncode == 0, found.stderr


def test_results_are_saved_loaded_and_shown_without_torch(tmp_path: Path) -> None:
    alone(LIGHT, tmp_path)


def test_results_are_drawn_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    alone(LIGHT + DRAWN, tmp_path)
