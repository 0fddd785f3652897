"""What a notebook shows of lists, runs and tables of papers; and what is said beside an explanation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tiny
import wherefrom
from wherefrom.display import Listed
from wherefrom.papers.recipe import Recipe, Table, number
from wherefrom.papers.report import Result
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanations import Explanations
from wherefrom.view.html import document
from wherefrom.view.notebook import table
from wherefrom.view.payload import payload
from wherefrom.view.terminal import show

TOKENIZER = tiny.tokenizer()


def test_methods_and_metrics_are_tables() -> None:
    shown = wherefrom.methods()._repr_html_()
    assert shown.count("<tr>") == len(wherefrom.methods()) + 1
    assert "globenc" in shown
    assert "<table>" in wherefrom.metrics()._repr_html_()
    assert isinstance(wherefrom.methods(), list)


def test_cells_are_text() -> None:
    shown = table(["<a>"], [["<script>", None, 3]], caption="a & b")
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a &amp; b" in shown


def test_a_run_is_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    data = tmp_path / "data.csv"
    data.write_text("text\na good film\nthe cat is bad\n", encoding="utf-8")
    tiny.model().save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    methods = ["attention", "random"]
    run = wherefrom.evaluate(str(data), str(tmp_path / "model"), methods=methods, metrics=["aopc"], progress=False)
    shown = run._repr_html_()
    assert shown.count("<tr>") == 3
    assert "aopc" in shown
    assert shown.count("<b>") == 1  # the better of the two
    assert "**" not in shown
    unfinished = wherefrom.Run(tmp_path)._repr_html_()
    assert "not finished" in unfinished
    assert "<Run" not in unfinished


def test_a_reproduced_table_is_a_table() -> None:
    made = Table(["<row>"], ["column"], {("<row>", "column"): number(0.25, 3)}, of="Means", used=["a model"])
    recipe = Recipe("paper/table1", "What it shows", "3 sentences", lambda _asked: made)
    shown = Listed([Result.of(recipe, made)])._repr_html_()
    assert "paper/table1" in shown
    assert "0.25" in shown
    assert "<row>" not in shown


def test_explanations_of_a_comparison_have_its_names() -> None:
    methods = ["norm", "norm(normalize=True)"]
    several = wherefrom.compare(["a good film", "a cat"], tiny.model(), TOKENIZER, methods=methods)
    own = Comparison({"before": several[0]["norm"], "after": several[1]["norm"]})
    shown = Explanations([*several, own, several[0]["norm"]])._repr_html_()
    called = re.findall(r"<td[^>]*>([^<]*norm[^<]*)</td>", shown)
    one, other = "norm · rollout", "norm · rollout · normalize=True"
    assert called == [one, other, one, other, f"before · {one}", f"after · {one}", one]


# Remarks --------------------------------------------------------------------------------------------------


def test_unknown_words_and_notes_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = wherefrom.explain("a ☃ cat ☃ ♞", tiny.model(), TOKENIZER, "attcat")
    said = "not in the vocabulary, read as unknown: ☃, ♞"
    assert found.remarks == [said]
    assert found.words().remarks == [said]
    show([found])
    assert said in capsys.readouterr().out
    assert said in document({"attcat": found})
    assert payload({"attcat": found})["explanations"][0]["remarks"] == [said]
    assert document({"attcat": found}).count(', read as unknown"') == 3
    assert wherefrom.explain("a cat", tiny.model(), TOKENIZER, "attcat").remarks == []


def test_what_was_cut_off_is_said() -> None:
    opened = wherefrom.open_model(tiny.model(), TOKENIZER)
    assert opened.max_length is not None
    text = "the cat " * opened.max_length
    found = wherefrom.explain(text, opened, method="attcat", truncate=True)
    read, size = max(span[2] for span in found.spans if span is not None), len(text.rstrip())
    (said,) = found.remarks
    assert said.startswith("cut where the model stops reading, after '")
    assert said.endswith(f": {size - read:,} of {size:,} characters are left out")
    assert found.words().remarks == [said]
    assert wherefrom.Explanation.from_dict(found.to_dict()).remarks == [said]
    assert wherefrom.explain("the cat", opened, method="attcat", truncate=True).remarks == []


def test_windows_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = wherefrom.explain("the cat is good . " * 20, tiny.model(), TOKENIZER, "attcat", long="windows")
    found.show()
    out = " ".join(capsys.readouterr().out.split())
    assert "102 tokens are more than the model reads: explained in" in out
