"""GlobEnc's tables by family, figure 3's panels over several datasets, and figures of single texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import InvalidOption
from wherefrom.papers import Result, Results, lookup
from wherefrom.papers.recipe import Reported, Table, number

LABELS = {0: "negative", 1: "positive"}


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tiny classifier of two classes of each family."""
    found = {}
    for family in ("bert", "electra", "roberta"):
        folder = tmp_path_factory.mktemp(family)
        tiny.model(family, "classification", num_labels=2, id2label=LABELS).save_pretrained(folder)
        tiny.tokenizer().save_pretrained(folder)
        found[family] = str(folder)
    return found


def data_folder(folder: Path) -> Path:
    """A folder with a small SST-2."""
    (folder / "sst2").mkdir()
    rows = ["a good film .\t1", "a bad film .\t0", "the film is not good .\t0", "the cats are very good .\t1"]
    (folder / "sst2" / "validation.tsv").write_text("\n".join(["sentence\tlabel", *rows]), encoding="utf-8")
    return folder


def data_file(path: Path) -> str:
    lines = [
        {"text": text, "label": label} for text, label in (("the cat is good .", "positive"), ("bad dog .", "negative"))
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def made(name: str, **options: Any) -> Result:
    found = wherefrom.reproduce(name, **options)
    assert isinstance(found, Result)
    return found


def answers(name: str, table: Table) -> list[bool | None]:
    return [verdict.holds for claim in lookup(name)[0].claims for verdict in claim.verdicts(table)]


# Families -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row", "column", "expected"),
    [
        ("globenc/table-a1", "W", "SST2", Reported(-0.38, 0.16)),
        ("globenc/table-a1", "W_Res", "MNLI", Reported(0.33, 0.23)),
        ("globenc/table-a1", "N_Enc", "HateXplain", Reported(0.76, 0.17)),
        ("globenc/table-a2", "N_ResLN", "MNLI", Reported(-0.16, 0.24)),
        ("globenc/table-a2", "N_FixedRes", "HateXplain", Reported(0.28, 0.26)),
        ("globenc/table-a2", "N_Enc", "SST2", Reported(0.64, 0.15)),
    ],
)
def test_each_familys_numbers_are_as_printed(name: str, row: str, column: str, expected: Reported) -> None:
    assert lookup(name)[0].reported[row, column] == expected


def test_an_electra_has_its_own_table(models: dict[str, str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": "sst2", "folder": data_folder(tmp_path), "limit": 4}
    with pytest.raises(InvalidOption, match="globenc/table-a2"):
        made("globenc/table1", model=models["electra"], **options)
    found = made("globenc/table-a2", model=models["electra"], **options)
    assert list(found.table.columns) == ["SST2"]
    assert found.reported["N_Enc", "SST2"] == Reported(0.64, 0.15)
    with pytest.raises(InvalidOption, match="globenc/table1"):
        made("globenc/table-a2", model=models["bert"], **options)


@pytest.mark.parametrize("name", ["globenc/table1", "globenc/table2"])
def test_no_number_of_bert_stands_beside_another_family(name: str, models: dict[str, str], tmp_path: Path) -> None:
    family = "roberta" if name == "globenc/table1" else "electra"
    found = made(name, model=models[family], data="sst2", folder=data_folder(tmp_path), limit=4)
    assert not found.reported
    assert not any("(" in cell for line in found.grid()[1:] for cell in line[1:])
    assert all(line.split(",")[-2] == "" for line in found.csv().splitlines()[1:])
    assert "of other models" in found.markdown()
    assert all(column.lower().endswith(family) for column in found.table.columns)


def test_the_shipped_model_stands_in_and_says_so() -> None:
    found = made("globenc/table-a1", limit=2)
    assert list(found.table.columns) == ["own BERT"]
    assert any("stands in for BERT-large" in note for note in found.table.notes)
    assert ("N_Enc", "SST2") in found.reported


# Several datasets -----------------------------------------------------------------------------------------


def test_one_table_and_one_picture_for_several_datasets(models: dict[str, str], tmp_path: Path) -> None:
    folder, mine = data_folder(tmp_path), data_file(tmp_path / "mine.jsonl")
    out = tmp_path / "out"
    first = made("globenc/figure3", model=models["bert"], data="sst2", folder=folder, out=out, limit=4)
    assert list(first.table.columns) == ["SST2 L1", "SST2 L2", "SST2 L3"]
    both = made("globenc/figure3", model=models["electra"], data=mine, folder=folder, out=out, limit=4)
    title = f"{mine} ELECTRA"
    assert list(both.table.columns) == [*first.table.columns, *(f"{title} L{layer}" for layer in (1, 2, 3))]
    assert both.table.mean("N_Enc", "SST2 L2") == pytest.approx(first.table.mean("N_Enc", "SST2 L2"))
    assert [axes.get_title() for axes in both.plot().axes] == ["SST2", title]
    assert len(both.table.sources) == 2
    table = made("globenc/table1", model=models["bert"], data="sst2", folder=folder, out=out, limit=4).table
    assert table.mean("N_Enc", "SST2") == pytest.approx(first.table.mean("N_Enc", "SST2 L3"))


def test_data_with_other_labels_is_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "mnli").mkdir()
    rows = ["premise\thypothesis\tlabel", "a cat .\ta dog .\tneutral"]
    (tmp_path / "mnli" / "validation_matched.tsv").write_text("\n".join(rows), encoding="utf-8")
    found = made("globenc/table1", data="own,mnli", folder=tmp_path, limit=2)
    assert list(found.table.columns) == ["own"]
    assert any("mnli" in note for note in found.table.notes)
    with pytest.raises(InvalidOption):
        made("globenc/table1", data="mnli", folder=tmp_path, limit=2)


def test_the_claims_of_figure_3_follow_the_curves() -> None:
    rows = ("W", "W_FixedRes", "W_Res", "N", "N_FixedRes", "N_Res", "N_ResLN", "N_Enc")
    ends = {"W": -0.1, "W_FixedRes": -0.2, "W_Res": 0.2, "N": 0.4, "N_FixedRes": 0.45, "N_Res": 0.7, "N_ResLN": -0.2}
    ends["N_Enc"] = 0.8
    columns = [f"{name} L{layer}" for name in ("SST2", "MNLI") for layer in range(1, 13)]

    def cells(change: float) -> dict[tuple[str, str], Any]:
        found = {}
        for row in rows:
            for column in columns:
                layer = int(column.split("L")[-1])
                value = ends[row] - (change * (12 - layer) if row == "W_Res" or layer < 4 else 0)
                found[row, column] = number(value, 9)
        return found

    assert answers("globenc/figure3", Table(rows, columns, cells(0.01), "", [])) == [True] * 4
    worse = cells(-0.01) | {("W", column): number(0.9, 9) for column in columns}
    worse[("N", "MNLI L6")] = number(0.6, 9)
    assert answers("globenc/figure3", Table(rows, columns, worse, "", [])) == [False] * 4


def test_single_layers_and_rollout_without_layer_norm_have_a_best_row() -> None:
    def holds(name: str, start: str, cells: dict[tuple[str, str], float], column: str = "") -> bool | None:
        (claim,) = [claim for claim in lookup(name)[0].claims if claim.says.startswith(start)]
        rows, columns = (list(dict.fromkeys(place[i] for place in cells)) for i in (0, 1))
        ours = {place: number(value, 9) for place, value in cells.items()}
        return claim.holds(Table(rows, columns, ours, "", []), column)

    layers = {("N_Res", "L1"): 0.5, ("N_Res", "L2"): 0.2, ("N_ResLN", "L1"): 0.1, ("N_ResLN", "L2"): 0.1}
    for last, expected in ((0.5, True), (0.2, False)):
        cells = layers | {("N_Enc", "L1"): 0.4, ("N_Enc", "L2"): last}
        assert holds("globenc/figure4", "In single layers", cells) is expected
    rows = {(row, "SST2"): 0.3 for row in ("W", "W_FixedRes", "W_Res", "N", "N_FixedRes")} | {("N_Enc", "SST2"): 0.9}
    for value, expected in ((0.4, True), (0.2, False)):
        assert holds("globenc/table1", "Without layer norm", rows | {("N_Res", "SST2"): value}, "SST2") is expected


def test_a_paper_is_made_as_far_as_the_data_go(models: dict[str, str], tmp_path: Path) -> None:
    found = wherefrom.reproduce("globenc", model=models["bert"], data="sst2", folder=data_folder(tmp_path), limit=2)
    assert isinstance(found, Results)
    made_here = {result.recipe.short for result in found}
    assert {"table1", "table2", "figure1", "figure3", "figure4", "figure5", "figure-a1", "figure-a2"} <= made_here
    assert {omission.recipe.short for omission in found.left_out} == {"table-a1", "table-a2"}  # the model is a BERT


# Single texts ---------------------------------------------------------------------------------------------


def test_figure_1_holds_shares_of_every_layer_and_answers_its_claims() -> None:
    found = made("globenc/figure1")
    for sentence in ("1. ", "2. "):
        rows = [row for row in found.table.rows if row.startswith(sentence)]
        assert found.table.matrix(rows).sum(0) == pytest.approx(1)
    assert [verdict.holds for verdict in found.verdicts] == [True, True]
    rows = ["1. [CLS]", "1. a", "1. meaning", "1. ful", "1. film", "2. [CLS]", "2. waste", "2. of"]
    values = {"L1": [0.4, 0.1, 0.1, 0.1, 0.3, 0.6, 0.2, 0.2], "L2": [0.2, 0.1, 0.2, 0.2, 0.3, 0.1, 0.8, 0.1]}
    ours = {(row, column): number(v, 1) for column, every in values.items() for row, v in zip(rows, every, strict=True)}
    assert answers("globenc/figure1", Table(rows, ["L1", "L2"], ours, "", [])) == [True, True]
    ours[("1. film", "L2")] = number(0.5, 1)
    ours[("2. [CLS]", "L1")] = number(0.1, 1)
    assert answers("globenc/figure1", Table(rows, ["L1", "L2"], ours, "", [])) == [False, False]
    assert [verdict.holds for verdict in made("globenc/figure1", texts="a film .").verdicts] == [None, None]


def test_figure_a1_shows_what_the_model_gets_wrong(models: dict[str, str], tmp_path: Path) -> None:
    folder = data_folder(tmp_path)
    found = made("globenc/figure-a1(n_examples=1)", model=models["bert"], data="sst2", folder=folder)
    data = wherefrom.data.read("sst2", folder=folder)
    wrong = []
    for example in data:
        prediction = wherefrom.explain(str(example.text), models["bert"], method="attention").prediction
        wrong += [example.text] * (prediction != example.label)
    assert wrong
    assert [source.split("“")[1].split("”")[0] for source in found.table.sources] == wrong[:1]
    assert len(found.table.notes) == len(wrong[:1])
    own = made("globenc/figure-a1", model=models["bert"], texts="the film .")
    assert "“the film .”" in own.table.sources[0]


def test_figures_take_texts_pairs_and_data(models: dict[str, str], tmp_path: Path) -> None:
    pair = ("the cat is good .", "the dog is bad .")
    shown = made("globenc/figure-a5", model=models["electra"], texts=[pair])
    assert "“the cat is good .” / “the dog is bad .”" in shown.table.sources[0]
    assert not shown.table.notes
    assert shown.table.matrix().sum(0) == pytest.approx(1)
    assert "ELECTRA" in made("globenc/figure-a5", model=models["bert"], texts=[pair]).table.notes[0]
    drawn = made("globenc/figure-a2", model=models["bert"], data="sst2", folder=data_folder(tmp_path), limit=2)
    assert list(drawn.table.pictures) == ["-1", "-2"]
    maps = made("globenc/figure-a3", model=models["bert"], texts="a good film .")
    assert np.isclose(maps.table.matrix(columns=["W", "N_Enc"]).sum(0), 1).all()
    assert len([axes for axes in maps.plot().axes if axes.images]) >= 8
