"""docs/papers.md and docs/papers/*.md are written from the files of `wherefrom reproduce`."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from wherefrom.papers import recipes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of docs of its own."""
    spec = importlib.util.spec_from_file_location("papers_script", ROOT / "scripts" / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    return module


def test_the_page_has_a_row_for_each_recipe_of_a_paper() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    shown = {found[0] for found in re.findall(r"`wherefrom reproduce \"?([a-z0-9-]+/[a-z0-9-]+)(\(|`| )", page)}
    papers = set(re.findall(r"<!-- paper: ([\w-]+) -->", page))
    known = {each.name for each in recipes()}
    assert shown <= known
    assert {name for name in known if name.partition("/")[0] in papers} <= shown


def test_numbers_claims_and_pictures_are_put_in(
    papers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, docs = tmp_path / "out", tmp_path / "docs"
    (folder / "alti").mkdir(parents=True)
    (folder / "calls").mkdir()
    docs.mkdir()
    heading = "row,column,mean,deviation,interval,n,undefined,paper,paper deviation"
    (folder / "alti/table2.csv").write_text(
        f"{heading}\nALTI,SST2 BERT,0.554,0.1,0.021,9,0,0.551,0.19\nALTI,other,0.1,,,9,0,,\n", encoding="utf-8"
    )
    (folder / "alti/table2.md").write_text(
        "### alti/table2\n\nAbout.\n\n|  | A |\n| --- | --- |\n| r | 1 |\n\n"
        "- So it is (section 5). **Holds here.**\n- Or is it (section 6). **Cannot be told here.**\n",
        encoding="utf-8",
    )
    Image.new("RGB", (2000, 100), "white").save(folder / "alti/table2-x.png")
    call = {
        "recipe": "alti/table2",
        "command": "wherefrom reproduce alti/table2",
        "date": "2026-01-02",
        "seconds": 7200,
    }
    (folder / "calls/1.json").write_text(json.dumps({**call, "device": "cpu"}), encoding="utf-8")
    (docs / "papers.md").write_text("## ALTI\n\n<!-- paper: alti -->\nstale\n<!-- end -->\nEnd.\n", encoding="utf-8")
    monkeypatch.setitem(papers.DRAWN_TABLES, "alti/table2", "-x")
    monkeypatch.setitem(papers.HEADLINES, "alti/table2", (("ALTI", "SST2 BERT"),))
    for _ in range(2):  # the second time it replaces what the first has written
        papers.main(folder)
        page = (docs / "papers.md").read_text(encoding="utf-8")
        assert "stale" not in page
        assert page.endswith("<!-- end -->\nEnd.\n")
        assert page.count("`wherefrom reproduce alti/table2` (2026-01-02, 2.0 h, cpu)") == 1
        assert "ALTI, SST2 BERT: 0.55 ± 0.02 (0.55) |" in page
        assert "✓ So it is (section 5).<br>? Or is it (section 6). |" in page
    full = (docs / "papers/alti.md").read_text(encoding="utf-8")
    assert full.startswith("# ALTI: every number\n")
    assert "## alti/table2\n" in full
    assert "|  | SST2 BERT | other |\n| --- | --- | --- |\n| ALTI | 0.55 ± 0.02 (0.55) | 0.10 |\n\n- So it is" in full
    assert "../img/papers/alti-table2-x.png" in full
    assert Image.open(docs / "img/papers/alti-table2-x.png").width == papers.PICTURE_WIDTH


@pytest.mark.parametrize(
    ("name", "title"),
    [("alti/table2", "Table 2"), ("globenc/table-a1", "Table A.1"), ("attcat/figure5a", "Figure 5a"),
     ("value-zeroing/figure-a18", "Figure A.18"), ("abnar2020/evenness", "Section 4")],
)  # fmt: skip
def test_a_recipe_is_called_as_in_the_paper(papers: ModuleType, name: str, title: str) -> None:
    (recipe,) = [each for each in recipes() if each.name == name]
    assert papers.title(recipe) == title
