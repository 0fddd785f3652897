"""docs/gallery.md: every block makes the picture under it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.skipif(not (DOCS / "gallery.md").exists(), reason="the documentation is not beside the tests")


def script() -> ModuleType:
    pytest.importorskip("nbformat", reason="nbformat (the extra dev) is not installed")
    path = DOCS.parent / "scripts" / "pictures.py"
    if not path.exists():
        pytest.skip("scripts/pictures.py is not beside the tests")
    spec = importlib.util.spec_from_file_location("pictures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there_small_and_made_by_a_block() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    made = [image for source, image in script().blocks(DOCS / "gallery.md") if ast.parse(source) and image]
    assert len(made) > 20
    assert made == re.findall(r"!\[[^\]]*\]\((\S+?)\)", page)
    there = {path.relative_to(DOCS).as_posix() for path in (DOCS / "img" / "gallery").iterdir()}
    assert there == set(made)
    assert sum((DOCS / image).stat().st_size for image in made) < 1_500_000


@pytest.mark.slow
def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = script()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for source, image in pictures.blocks(DOCS / "gallery.md"):
        value = pictures.last_value(source, names)
        assert isinstance(value, Figure) or image is None, source
