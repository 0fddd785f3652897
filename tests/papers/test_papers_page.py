"""docs/papers.md is filled from what `wherefrom reproduce` wrote."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from wherefrom.papers import recipes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a page of its own."""
    spec = importlib.util.spec_from_file_location("papers_script", ROOT / "scripts" / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(module, "IMAGES", tmp_path / "img" / "papers")
    return module


def test_every_result_on_the_page_is_a_recipe() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    shown = {"/".join(name.split("/")[-2:]) for name in re.findall(r"<!-- result: ([^ |]+)", page)}
    named = set(re.findall(r"`?([a-z0-9-]+/(?:figure|table)\d\w*)", page))
    known = {each.name for each in recipes()}
    assert shown
    assert shown | named <= known


def test_results_are_put_in(papers: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "p"
    folder.mkdir(parents=True)
    (folder / "t.md").write_text(
        "### p/t\n\nAbout.\n\n|  | A | B |\n| --- | --- | --- |\n| r | 1 | 2 |\n\n- So it is. **Holds here.**\n",
        encoding="utf-8",
    )
    (folder / "t-x.png").write_bytes(b"picture")
    papers.PAGE.write_text(
        "Text.\n<!-- verdicts -->\nstale\n<!-- end -->\n"
        "<!-- result: p/t | columns: B | picture: -x -->\nstale\n<!-- end -->\nEnd.\n",
        encoding="utf-8",
    )
    papers.main(tmp_path / "out")
    once = papers.PAGE.read_text(encoding="utf-8")
    assert once.startswith("Text.\n")
    assert once.endswith("End.\n")
    assert "stale" not in once
    assert "|  | B |\n| --- | --- |\n| r | 2 |" in once
    assert "| p/t | So it is. | Holds here |" in once
    assert (tmp_path / "img" / "papers" / "p-t-x.png").read_bytes() == b"picture"
    papers.main(tmp_path / "out")
    assert papers.PAGE.read_text(encoding="utf-8") == once
