"""What is shown: every token, escaped, with the text's own spacing and readable colours."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import ink, intensities, shade
from wherefrom.view.html import document
from wherefrom.view.terminal import gaps, highlighted, map_grid, show

TOKENIZER = tiny.tokenizer()
NASTY = ["<script>alert(1)</script>", '"onmouseover="x', "&amp;", "<img src=x onerror=alert(1)>"]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_shows_markup_and_does_not_run_it() -> None:
    found = Explanation.from_scores(NASTY, [0.5, -0.2, 0.1, 0.9], method="<b>method</b>", model="<i>model</i>")
    for page in (found._repr_html_(), document({"<u>name</u>": found})):
        parser = Tags()
        parser.feed(page)
        allowed = {
            "html",
            "head",
            "meta",
            "title",
            "link",
            "body",
            "main",
            "div",
            "style",
            "script",
            "p",
            "span",
            "br",
            "b",
        }
        assert parser.seen <= allowed
        assert not any(name.startswith("on") for name in parser.attributes)
        assert all(token in parser.text for token in [*NASTY, "<b>method</b>", "<i>model</i>"])  # in the static version


def test_the_text_keeps_its_spacing() -> None:
    found = wherefrom.explain("Meaningful,  the film!", tiny.model(), TOKENIZER)
    assert found.pieces == ["[CLS]", "Meaning", "ful", ",", "the", "film", "!", "[SEP]"]
    shown = "".join(gap + piece for gap, piece in zip(gaps(found), found.pieces, strict=True))
    assert shown == "[CLS] Meaningful, the film! [SEP]"
    assert highlighted(found).plain == shown


@pytest.mark.parametrize("signed", [False, True])
def test_ink_is_readable_on_every_ground(signed: bool) -> None:
    def luminance(colour: tuple[int, int, int]) -> float:
        parts = [c / 255 for c in colour]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for value in np.linspace(-1 if signed else 0, 1, 41):
        ground = luminance(shade(float(value), signed))
        text = 0.0 if ink(shade(float(value), signed)) == "#000000" else 1.0
        assert (max(ground, text) + 0.05) / (min(ground, text) + 0.05) >= 4.5  # WCAG AA


def test_intensities_are_scaled_by_the_largest_score() -> None:
    assert intensities(np.array([1.0, 2.0, 4.0]), signed=False).tolist() == [0.25, 0.5, 1.0]
    assert intensities(np.array([1.0, -2.0]), signed=True).tolist() == [0.5, -1.0]
    assert intensities(np.zeros(2), signed=False).tolist() == [0.0, 0.0]
    # The readout token's own share does not set the scale.
    assert intensities(np.array([8.0, 1.0, 2.0]), signed=False, own=0).tolist() == [1.0, 0.5, 1.0]
    assert intensities(np.array([3.0]), signed=False, own=0).tolist() == [1.0]
    assert intensities(np.array([3.0, 0.0]), signed=False, own=0).tolist() == [1.0, 0.0]
    # Nor do special tokens; where there is nothing else, they do.
    special = [True, False, False]
    assert intensities(np.array([8.0, 1.0, -2.0]), signed=True, special=special).tolist() == [1.0, 0.5, -1.0]
    assert intensities(np.array([8.0, 4.0]), signed=True, special=[True, True]).tolist() == [1.0, 0.5]


def test_readout_rows_are_those_of_the_maps_at_every_layer() -> None:
    found = wherefrom.explain("the film", tiny.model(), TOKENIZER, position=1)
    assert (found.readout_rows == found.aggregated[:, 1]).all()
    raw = wherefrom.explain("the film", tiny.model(), TOKENIZER, method="raw-attention", position="mean")
    assert (raw.readout_rows == raw.maps.mean(1)).all()
    given = Explanation.from_scores(["a"], [1.0], layer_scores=np.array([[2.0], [3.0]]))
    assert given.readout_rows.tolist() == [[2.0], [3.0]]
    assert Explanation.from_scores(["a"], [1.0]).readout_rows is None


def test_the_terminal_shows_every_token_and_layer() -> None:
    model = tiny.model(task="masked-lm")
    found = wherefrom.explain("the deep [MASK] film", model, TOKENIZER, target="cat", foil="dog", method="attcat")
    console = Console(width=120, color_system=None, record=True)
    show([found], layers=True, console=console)
    text = console.export_text()
    assert "rather than 'dog'" in text
    assert "read at: mask [MASK]" in text
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.split()[:3] == ["layer", "0", "1"]]
    table = lines[heads[0] + 1 : heads[0] + 1 + len(found)]
    assert [line.split()[0] for line in table] == found.pieces
    assert all(len(re.findall(r"\d", line)) >= 3 for line in table)


def test_small_scores_are_shown_in_a_unit() -> None:
    found = Explanation.from_scores(["a", "b"], [4e-5, -2e-5], layer_scores=np.array([[4e-5, -2e-5]]))
    console = Console(width=60, color_system=None, record=True)
    show([found], layers=True, console=console)
    text = console.export_text()
    assert "all × 10^-4" in text
    assert " .400" in text
    assert "-.200" in text


def test_the_maps_of_all_layers_stand_side_by_side() -> None:
    found = wherefrom.explain("the deep film", tiny.model(), TOKENIZER, method="attention")
    wide, narrow = map_grid(found, 120), map_grid(found, 30)
    assert "rows draw on columns" in wide[1].plain
    assert [line.plain.split() for line in wide if "layer " in line.plain] == [
        ["layer", "0", "layer", "1", "layer", "2"]
    ]
    assert sum("layer " in line.plain for line in narrow) == 3
    row = next(line.plain for line in narrow if line.plain.strip().startswith("film"))
    cells = row[len("[CLS] 00 ") :]
    percent = [int(cells[3 * j : 3 * j + 3].strip() or 0) for j in range(5)]
    expected = np.rint(99 * found.maps[0, 3] / found.maps[0].max()).astype(int)
    assert np.abs(np.array(percent) - expected).max() <= 1
    assert "wider than this terminal" in map_grid(found, 12)[0].plain


def test_every_target_is_named_and_what_is_missed_is_said() -> None:
    every = wherefrom.explain("the film", tiny.model(), TOKENIZER, method="deeplift", target="all")
    console = Console(width=120, color_system=None, record=True)
    show(list(every.values()), console=console)
    text = console.export_text()
    assert all(f"class 'LABEL_{i}'" in text for i in range(3))
    assert text.count("delta ") == 3
    assert every._repr_html_().count(" · delta ") == 3


def test_markup_in_a_text_is_not_markup_in_the_terminal() -> None:
    found = Explanation.from_scores(["[bold]", "[/]", "\\[x]"], [0.1, 0.2, 0.3])
    console = Console(width=80, color_system="truecolor", record=True, force_terminal=True)
    show([found], layers=True, console=console)
    assert "[bold] [/] \\[x]" in console.export_text()


def test_every_class_is_named_where_it_is_explained(capsys: Any) -> None:
    found = wherefrom.compare("the film", tiny.model(), TOKENIZER, methods=["attcat", "alti"], target="all")
    found.show()
    head, *blocks = capsys.readouterr().out.split("\n\n")
    assert "explained" not in head
    assert [f"'LABEL_{i}'" in block.splitlines()[0] for i, block in enumerate(blocks)] == [True, True, True, False]
    static = found.to_html().partition("<p>predicts")[2]
    assert "explained" not in static.partition("</p>")[0]
    assert all(f"explained: class &#x27;LABEL_{i}&#x27;" in static for i in range(3))


def test_scores_made_elsewhere_and_outputs_of_a_regression_are_called_so(capsys: Any) -> None:
    given = Explanation.from_scores(["good", "film"], [0.9, 0.1])
    given.show()
    static = given.to_html().partition("<p>explained")[2].partition("<script")[0]
    said = capsys.readouterr().out + repr(given) + static
    assert said.count("scores made elsewhere") == 3
    assert "made of" not in said
    assert "read at" not in said
    with pytest.raises(WherefromError, match="there are no tokens; expected at least one"):
        Explanation.from_scores([], [])
    number = wherefrom.explain("the film", tiny.model(num_labels=1), TOKENIZER, method="attcat")
    assert number.explained == "output 'LABEL_0'"
