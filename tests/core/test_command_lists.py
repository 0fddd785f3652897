"""Lists on the command line: they read at 80 columns, use the width there is, and import no torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wherefrom
from wherefrom import index
from wherefrom.cli import app
from wherefrom.cli.flags import complete_method, complete_model
from wherefrom.cli.prose import fitted
from wherefrom.cli.reproduce import complete_recipe
from wherefrom.method import lookup

LISTS = ("methods", "metrics", "models", "reproduce")


def printed(*arguments: str, columns: int = 160) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(columns)}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_catalogue_is_up_to_date() -> None:
    made = json.loads(json.dumps(index.made()))
    assert index.stored() == made, "run: python -m wherefrom.index"


@pytest.mark.parametrize("name", LISTS)
def test_a_list_reads_at_80_columns_and_uses_160(name: str) -> None:
    narrow, wide = printed(name, columns=80), printed(name, columns=160)
    assert max(map(len, narrow.splitlines())) <= 80
    entries = len(index.stored().get({"reproduce": "recipes"}.get(name, name), "abc"))
    assert len(narrow.splitlines()) < 4 * entries + 30
    words = [len(line.split()) for line in narrow.splitlines() if line.strip()]
    assert sum(words) / len(words) > 4  # no columns of single words
    assert max(len(line.rstrip()) for line in wide.splitlines()) > 100


def test_a_models_card_reads_at_80_columns() -> None:
    card = printed("models", "wherefrom/sentiment", columns=80)
    assert max(map(len, card.splitlines())) <= 80
    commands = card.replace(" \\\n    ", " ")  # as a shell reads them
    assert "--name 0=negative --name 1=positive --held-out 0.02 --model wherefrom/mlm" in commands


@pytest.mark.parametrize("name", LISTS)
def test_a_list_needs_no_torch(name: str) -> None:
    code = (
        f"import sys; sys.argv = ['wherefrom', '{name}']\nfrom wherefrom.cli import main\ntry: main()\n"
        "except SystemExit: pass\nassert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_method_is_cited() -> None:
    for name in ("alti", "attention-rollout"):
        said = printed("methods", name, columns=200)
        method, preset = lookup(name)
        assert f"cite: {method.paper if preset is None else preset.paper}" in said
        assert "Paper(" not in said


def test_cite_prints_each_paper_once_and_braces_that_close() -> None:
    said = printed("cite", "alti", "ALTI,attention-rollout", "transformer-attribution")
    assert [line for line in said.splitlines() if line.startswith("@")] == [
        "@inproceedings{ferrando2022measuring,",
        "@inproceedings{abnar2020quantifying,",
        "@inproceedings{chefer2021transformer,",
    ]
    assert "author = {Samira Abnar and Willem Zuidema}," in said
    ours = printed("cite")
    assert f"version = {{{wherefrom.__version__}}}" in ours
    assert "author = {{The wherefrom developers}}" in ours
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"year = \{(\d+)\}", ours) == re.findall(r"date-released: (\d+)", citation)
    for each in wherefrom.methods():
        entry = lookup(each.name)[0].paper.bibtex
        assert entry.count("{") == entry.count("}")
        assert re.match(r"@(article|inproceedings)\{[a-z]+\d{4}[a-z0-9]+,\n", entry)


@pytest.mark.parametrize("columns", [80, 160])
def test_what_is_said_of_one_method_fits(columns: int) -> None:
    for each in wherefrom.methods():
        said = printed("methods", each.name, columns=columns)
        assert max(map(len, said.splitlines())) <= columns
    lines = printed("methods", "deeplift", columns=80).splitlines()
    assert "    y = σ(x), elementwise  Δy = (σ(x) − σ(x')) / (x − x') Δx" in "\n".join(lines)
    assert "    y = a b                Δy = ½(a + a') Δb + ½(b + b') Δa" in "\n".join(lines)  # in line
    assert "https://arxiv.org/abs/1704.02685" in lines


def test_prose_is_filled_up_to_its_end_and_no_further() -> None:
    assert "The other two metrics need only\nproducts: ‖y‖" in printed(
        "methods", "alti", columns=80
    )  # after |y| − |y − T|
    assert "1312.6034\nKindermans et al. (2016)" in printed("methods", "saliency", columns=80)  # the next reference


def test_a_table_of_a_method_stays_one_where_it_is_too_wide() -> None:
    said = printed("methods", "cp-lrp", columns=80)
    assert "\nA patent. The README" in said  # bold only where there is such a thing
    assert (
        "    α V              half to α, half to V                      all to V, α is\n" + 63 * " " + "constant"
        in said
    )
    table = ["    one      a sum of what is there  x", "    another  short                   y", "    third    z  w"]
    assert fitted("\n".join(table), 32).splitlines() == [
        "    one      a sum of what is  x",
        "             there",
        "    another  short             y",
        "    third    z  w",
    ]


def test_an_estimate_is_broken_between_words() -> None:
    assert max(map(len, printed("estimate", "a film .", columns=80).splitlines())) <= 80


def test_names_are_completed() -> None:
    assert complete_method("deep") == ["deeplift"]
    assert set(complete_method("alti,attention-r")) == {"alti,attention-rollout", "alti,attention-residual"}
    assert complete_model("wherefrom/s") == ["wherefrom/sentiment"]
    assert "abnar2020/table1" in complete_recipe("abnar")


def test_words_or_pieces_and_a_check() -> None:
    text = "a meaningful film ."
    assert "meaningful" in printed("explain", text, columns=100)
    pieces = printed("explain", text, "--pieces", columns=100)
    assert "meaningful" not in pieces
    assert "meaning" in pieces
    data = json.loads(printed("explain", text, "--json", "--check", columns=100))
    assert data["granularity"] == "token"
    assert data["evidence"][0].startswith("deeplift: Without its top 2 words the probability ")
    assert json.loads(printed("explain", text, "--json", "--words", columns=100))["granularity"] == "word"
    assert "deeplift: Without its top 2 words" in printed("explain", text, "--check", columns=200)
    assert "no check: " in printed("explain", "a film .", "-m", "wherefrom/mlm", "-M", "alti", "--check", columns=100)


def test_the_default_says_which_method_it_was() -> None:
    assert "deeplift" in printed("explain", "a film .", columns=100)
    assert wherefrom.explain("a film .").method == "deeplift"


def test_one_metric_is_described() -> None:
    for each in wherefrom.metrics():
        said = printed("metrics", each.name, columns=80)
        assert said.startswith(f"{each.name}: {each.summary.split()[0]}")
        assert max(map(len, said.splitlines())) <= 80
    assert "eleven points" in printed("metrics", "AOPC(by=mask)", columns=200)
    assert "compares with another method" in printed("metrics", "spearman:METHOD", columns=200)
    assert "needs of the data: a gold label" in printed("metrics", "compression", columns=200)


def test_random_scores_come_after_all_methods() -> None:
    titles = [line for line in printed("methods", columns=80).splitlines() if re.match(r"[A-Z].*: ", line)]
    assert [title.startswith("Random scores") for title in titles] == [False] * (len(titles) - 1) + [True]


def test_what_explains_without_a_mask_is_found_under_its_heading() -> None:
    result = CliRunner().invoke(app, ["explain", "a film", "--model", "wherefrom/mlm"], env={"COLUMNS": "400"})
    assert "what a token is made of" in str(result.exception or result.output)
    assert "What a token is made of" in printed("methods", columns=80)
