"""Word alignments: rows of tokens become words, links and an error rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import golden
import pairs
import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.result.alignment import alignment_error_rate, gold_links, word_rows


def pieces(line: str) -> list[list[int]]:
    """The tokens of each word, from sentencepiece's marks."""
    found: list[list[int]] = []
    for i, piece in enumerate(line.split()):
        if piece.startswith("▁"):
            found.append([])
        found[-1].append(i)
    return found


@pytest.mark.parametrize("how", ["AWO", "AWI"])
def test_links_are_the_authors(how: str) -> None:
    given, wanted = (golden.load_arrays(golden.BEYOND, "aer_deen", name) for name in ("inputs", "aer"))
    for i, expected in enumerate(wanted[f"{how}/hypothesis"]):
        source, target = pieces(str(given["src_spm"][i])), pieces(str(given["tgt_spm"][i]))
        rows = given[f"matrix{i}"]
        later = how == "AWI"
        lines = [[token + later for token in word] for word in target]
        words = word_rows(rows, source, lines, [rows.shape[1] - 1])
        alignment = wherefrom.Alignment([""] * len(source), [""] * len(target), words[None])
        assert " ".join(f"{t + 1}-{s + 1}" for s, t in alignment.links()) == str(expected)


@pytest.mark.parametrize("how", ["AWO", "AWI"])
def test_the_error_rate_is_the_authors(how: str) -> None:
    inputs, expected = (golden.load_arrays(golden.BEYOND, "aer_deen", name) for name in ("inputs", "aer"))
    if "gold" not in inputs:
        pytest.skip("RWTH's gold alignments are for research only; ../shared/golden-2 has them")
    lines = [[link.split("-") for link in line.split()] for line in expected[f"{how}/hypothesis"]]
    links = [[(int(source) - 1, int(target) - 1) for target, source in line] for line in lines]
    gold = [gold_links(str(line)) for line in inputs["gold"]]
    assert alignment_error_rate(links, gold) == pytest.approx(float(expected[f"{how}/aer"][0]), abs=1e-12)


def test_gold_links_and_their_error_rate() -> None:
    gold = gold_links("1-1 2-2 2p3")
    assert gold.sure == {(0, 0), (1, 1)}
    assert alignment_error_rate([gold.sure], [gold]) == 0
    assert alignment_error_rate([[(0, 0), (1, 2)]], [gold]) == pytest.approx(1 - (2 + 1) / (2 + 2))
    with pytest.raises(InvalidOption, match="no line of gold links"):
        gold_links("1:1")
    with pytest.raises(InvalidOption, match="gold links of an int; expected a line"):
        gold_links(5)  # type: ignore[arg-type]
    for first in (-1, 2, "0"):
        with pytest.raises(InvalidOption, match="first="):
            gold_links("2-2", first)  # type: ignore[arg-type]


def test_gold_links_that_count_from_0_are_not_taken_for_others() -> None:
    with pytest.raises(InvalidOption, match=r"'0-0 1-1' has a word before number 1, .*pass first=0"):
        gold_links("0-0 1-1")
    assert gold_links("0-0 1p2", first=0) == gold_links("1-1 2p3")


def test_error_rate_of_one_sentence_or_of_lists() -> None:
    links, gold = [(0, 0), (1, 2)], gold_links("1-1 2-2 2p3")
    assert alignment_error_rate(links, gold) == alignment_error_rate([links], [gold]) == pytest.approx(0.25)
    wrong: list[tuple[Any, Any]] = [(links, [gold, gold]), ([links], gold), ([links], ["1-1"]), ([links], [gold] * 2)]
    wrong += [(links, None), (links, 3), (3, [gold]), ([("0", "0")], gold), ([(True, 0)], gold)]
    for found, wanted in wrong:
        with pytest.raises(InvalidOption, match="of one sentence, or lists with these of each sentence"):
            alignment_error_rate(found, wanted)


@pytest.mark.parametrize("method", ["alti", "attention", "gradient-x-input"])
def test_words_of_texts(method: str) -> None:
    model, tokenizer = pairs.model("marian", dtype=torch.float32, decoder_layers=2), tiny.tokenizer()
    found = wherefrom.align("a meaningful film .", "the didn't fig", model, tokenizer, method, aggregate=None)
    assert found.source == ["a", "meaningful", "film", "."]
    assert found.target == ["the", "didn't", "fig"]
    assert found.layers.shape == (1 if method == "gradient-x-input" else 2, 3, 5)
    assert all(0 <= s < 4 for s, _ in found.links())
    if method == "gradient-x-input":
        return
    direct = wherefrom.explain(
        "a meaningful film .", model, tokenizer, method=method, target="the didn't fig", aggregate=None
    )
    s = direct.segments.count("source")
    assert direct.maps is not None
    tokens = direct.maps[-1][s:, :s]
    words = direct.words().tokens
    assert "meaningful" in words
    np.testing.assert_allclose(found.weights()[0, 0], tokens[1, 1], atol=1e-6)  # "the" after [CLS], "a" after [CLS]
    np.testing.assert_allclose(found.weights()[0, 1], tokens[1, 2:4].sum(), atol=1e-6)  # meaning ##ful


def test_auto_is_the_usual_method() -> None:
    model, tokenizer = pairs.model("marian", dtype=torch.float32), tiny.tokenizer()
    usual, auto = (wherefrom.align("a film .", "the fig", model, tokenizer, **how) for how in ({}, {"method": "auto"}))
    assert auto.method == usual.method == "alti"
    np.testing.assert_allclose(auto.layers, usual.layers, atol=1e-6)
    found = CliRunner().invoke(app, ["align", "Das stimmt", "That is true", "--method", "auto", "--layer", "0"])
    assert found.exit_code == 0, found.output


def test_the_heatmap() -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    found = wherefrom.Alignment(["das", "stimmt"], ["that", "is", "true"], np.arange(9.0).reshape(1, 3, 3) / 9)
    (axes,) = [each for each in found.plot().axes if each.get_label() not in ("key", "")] or found.plot().axes[:1]
    assert axes.figure.get_size_inches()[0] > 1


def test_words_that_are_given() -> None:
    model, tokenizer = pairs.model("marian", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.align(["a", "film", "!."], ["good", "film"], model, tokenizer)
    assert found.source == ["a", "film", "!."]
    assert found.layers.shape == (1, 2, 4)
    read = wherefrom.align(["a", "film", "!."], ["good", "film"], model, tokenizer, word="input")
    assert not np.allclose(found.layers, read.layers)
    assert str(found) == " ".join(f"{s}-{t}" for s, t in found.links())
    with pytest.raises(InvalidOption, match="reads no source and target"):
        wherefrom.align("a", "b", tiny.model("bert"), tokenizer)
    for nothing in ("", " ", []):
        with pytest.raises(InvalidInput, match="the target has no word"):
            wherefrom.align("a film", nothing, model, tokenizer)


def test_a_word_that_the_vocabulary_lacks_moves_no_other() -> None:
    model, tokenizer = pairs.model("marian", dtype=torch.float32), tiny.tokenizer()
    found = wherefrom.align("a good film", "the ξωψξωψ film is", model, tokenizer)
    direct = wherefrom.explain("a good film", model, tokenizer, method="alti", target="the ξωψξωψ film is")
    assert direct.tokens[5:9] == ["[CLS]", "[CLS]", "the", "[UNK]"]
    assert direct.aggregated is not None
    rows = direct.aggregated[-1][5:, :5]
    for word, row in enumerate((1, 2, 3, 4)):  # after [CLS], which the tokenizer puts before a target
        np.testing.assert_allclose(found.weights()[word], rows[row, 1:4], atol=1e-6)


def test_the_command(tmp_path: Path) -> None:
    pairs.model("marian", dtype=torch.float32).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    found = CliRunner().invoke(app, ["align", "a good film", "the film", "--model", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "film" in found.output
    told = CliRunner().invoke(app, ["align", "a good film", "the film", "-m", str(tmp_path), "--json", "--input"])
    assert '"links"' in told.output


def test_a_heading_that_is_cut_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Donaudampfschiff", "zwölflettern"]
    wherefrom.Alignment(words, ["a", "b"], np.arange(6.0).reshape(1, 2, 3) / 6).show()
    assert capsys.readouterr().out.splitlines()[1].split() == ["Donaudampfs…", "zwölflettern"]


def test_the_links_below_a_table_are_those_of_its_layer(capsys: pytest.CaptureFixture[str]) -> None:
    layers = np.array([[[1.0, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 0, 1]]])
    found = wherefrom.Alignment(["das", "ist"], ["this", "is"], layers)
    for layer, links in ((0, "0-0 1-1"), (1, "1-0"), (-1, "1-0")):
        found.show(layer)
        assert capsys.readouterr().out.splitlines()[-1] == links
    assert str(found) == "1-0"


def test_a_source_that_is_too_long_is_told_what_can_be_done_here() -> None:
    with pytest.raises(wherefrom.WherefromError, match=r"reads at most 256; shorten it$"):
        wherefrom.align("Das ist gut . " * 100, "That is good .")


def test_every_method_that_a_refusal_names_aligns() -> None:
    with pytest.raises(wherefrom.WherefromError) as told:
        wherefrom.align("Das ist gut .", "That is good .", method="attcat")
    for named in (
        str(told.value).partition("that is: ")[2].replace("; or one that looks at no output, as", ",").split(", ")
    ):
        assert wherefrom.align("Das ist gut .", "That is good .", method=named.strip()).links()


def test_by_default_the_translator_that_ships_aligns() -> None:
    assert wherefrom.align("Das ist gut .", "That is good .").model == "wherefrom/translate"


def test_a_layer_that_is_no_number_is_refused() -> None:
    found = wherefrom.align("Das ist gut .", "That is good .")
    for ask in (found.weights, found.links, found.plot, found.show):
        with pytest.raises(InvalidOption, match="layer="):
            ask("map")
