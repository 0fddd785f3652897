"""`reproduce` takes a model for each dataset, options, splits and texts, and joins the columns of several calls."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import DamagedFile, InvalidOption, WherefromError
from wherefrom.metric.correlation import summary
from wherefrom.papers import Result, Results, lookup
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.recipe import _RECIPES, Measured, RecipeCall, Table, number, recipe
from wherefrom.papers.request import ReproduceRequest, parse_models, resolve
from wherefrom.papers.samples import own


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


VALUES = {"sst2": [0.1, 0.4, 0.2], "mnli": [0.5, float("nan"), 0.9]}


@pytest.fixture
def toy() -> Iterator[None]:
    """A paper of two recipes: a table by dataset, whose numbers are known, and a figure of single texts."""

    @recipe(
        "toy/table1", "A table.", samples="few", model="wherefrom/sentiment", data=("sst2", "mnli"), spare="own",
        limit=5, columns={"sst2": "SST2", "mnli": "MNLI"}, options={"norm": ("l2", "sum"), "n_steps": 10}, joins=True,
        claims=(Claim("High is best.", "table 1", best("high"), each=True),),
    )  # fmt: skip
    def table1(call: RecipeCall) -> Table:
        if call.options["norm"] == "sum" and call.options["n_steps"] == 1:
            raise InvalidOption("one step has no sum; take more")
        ours = {}
        for name in call.data:
            for row, scale in (("high", 1.0), ("low", 0.5)):
                values = {str(i): scale * value for i, value in enumerate(VALUES.get(name, [0.3, 0.5]) * 20)}
                ours[row, call.column(name)] = Measured.of(summary(values.values()), lambda values=values: values)
        columns = [call.column(name) for name in call.data]
        used = {call.column(name): f"{call.model_for(name)} on {name}" for name in call.data}
        return Table(["high", "low"], columns, ours, "Numbers", used)

    @recipe("toy/figure1", "A figure.", samples="one", texts=("a text",), model_of="sst2", options={"target": ""})
    def figure1(call: RecipeCall) -> Table:
        rows = [str(text) for text in call.texts]
        return Table(rows, ["x"], {(row, "x"): number(1.0, 1) for row in rows}, "Numbers", [call.model])

    yield
    for name in ("toy/table1", "toy/figure1"):
        del _RECIPES._entries[name]
        del _RECIPES._names[name]


def test_models_are_named_for_datasets_or_recipes() -> None:
    keys = ("sst2", "mnli", "figure1")
    assert parse_models("my/model", keys) == (("", "my/model"),)
    assert parse_models("a,b", keys) == (("", "a,b"),)
    assert parse_models("sst2=a, mnli=b/c", keys) == (("sst2", "a"), ("mnli", "b/c"))
    assert parse_models({"sst2": "a"}, keys) == (("sst2", "a"),)
    with pytest.raises(InvalidOption):
        parse_models("sst3=a", keys)
    with pytest.raises(InvalidOption):
        parse_models(tiny.model(), keys)  # type: ignore[arg-type]


def test_a_folder_with_an_equals_sign_is_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lr=1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_models("lr=1", ("sst2",)) == (("", "lr=1"),)


@pytest.mark.usefixtures("toy")
def test_each_dataset_has_its_model() -> None:
    table = wherefrom.reproduce("toy/table1", model="sst2=a,mnli=b", data="sst2,mnli").table
    assert table.sources == ["a on sst2", "b on mnli"]
    with pytest.raises(InvalidOption):  # no model for mnli
        wherefrom.reproduce("toy/table1", model="sst2=a", data="sst2,mnli")
    assert wherefrom.reproduce("toy/figure1", model="sst2=a").table.sources == ["a"]
    assert wherefrom.reproduce("toy/figure1", model="figure1=c,sst2=a").table.sources == ["c"]


@pytest.mark.usefixtures("toy")
def test_options_are_checked_and_name_the_files(tmp_path: Path) -> None:
    assert wherefrom.reproduce("toy/table1").options == {"norm": "l2", "n_steps": 10}
    spelled = wherefrom.reproduce("toy/table1(norm=sum)", out=tmp_path)
    assert spelled.options["norm"] == "sum"
    assert (tmp_path / "toy/table1-norm=sum.csv").is_file()
    assert wherefrom.reproduce("toy/table1", norm="sum").options == spelled.options
    for wrong in ({"norm": "max"}, {"n_steps": 0}, {"nrm": "l2"}):
        with pytest.raises(InvalidOption):
            wherefrom.reproduce("toy/table1", **wrong)
        with pytest.raises(InvalidOption):
            wherefrom.reproduce("toy", **({"nrm": "l2"} if "nrm" in wrong else {**wrong, "target": 3}))


@pytest.mark.usefixtures("toy")
def test_columns_of_several_calls_are_joined(tmp_path: Path) -> None:
    both = wherefrom.reproduce("toy/table1", model="a", data="sst2,mnli")
    wherefrom.reproduce("toy/table1", model="a", data="sst2", out=tmp_path)
    joined = wherefrom.reproduce("toy/table1", model="a", data="mnli", out=tmp_path)
    assert sorted(joined.table.columns) == sorted(both.table.columns)
    assert sorted(joined.table.sources) == sorted(both.table.sources)
    assert {str(each) for each in joined.verdicts} == {str(each) for each in both.verdicts} == {"holds here"}
    for place, cell in both.table.ours.items():
        for name in ("mean", "deviation", "interval", "count", "undefined"):
            assert getattr(joined.table.ours[place], name) == getattr(cell, name)
    again = wherefrom.reproduce("toy/table1", model="b", data="sst2", out=tmp_path)  # replaces its own column alone
    assert set(again.table.sources) == {"b on sst2", "a on mnli"}
    (tmp_path / "toy/table1.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DamagedFile):
        wherefrom.reproduce("toy/table1", data="sst2", out=tmp_path)


def test_single_texts_are_drawn_from_a_dataset() -> None:
    drawn = [found.texts for limit in (None, 2) for found in [resolve_figure(data=("own",), limit=limit)]]
    assert [len(texts) for texts in drawn] == [3, 2]
    assert all(example in [each.text for each in own()] for example in drawn[0])
    assert resolve_figure(data=("own",), seed=1).texts != drawn[0]
    with pytest.raises(InvalidOption):
        resolve_figure(data=("own",), texts=("a text",))


def resolve_figure(**arguments: Any) -> RecipeCall:
    return resolve(lookup("abnar2020/figure1")[0], ReproduceRequest(**arguments))


@pytest.mark.usefixtures("toy")
def test_texts_replace_the_recipes_own() -> None:
    assert list(wherefrom.reproduce("toy/figure1").table.rows) == ["a text"]
    assert list(wherefrom.reproduce("toy/figure1", texts="mine").table.rows) == ["mine"]
    assert list(wherefrom.reproduce("toy/figure1", texts=["x", ("q", "c")]).table.rows) == ["x", "('q', 'c')"]
    with pytest.raises(InvalidOption):
        wherefrom.reproduce("toy/table1", texts="mine")
    shown = CliRunner().invoke(app, ["reproduce", "toy/figure1", "--text", "q", "--pair", "c"], env={"COLUMNS": "200"})
    assert "('q', 'c')" in shown.output
    assert CliRunner().invoke(app, ["reproduce", "toy/figure1", "--pair", "c"]).exit_code != 0


@pytest.mark.usefixtures("toy")
def test_a_paper_is_made_as_far_as_it_can_be() -> None:
    results = wherefrom.reproduce("toy", norm="sum", n_steps=1)
    assert isinstance(results, Results)
    assert [each.recipe.name for each in results] == ["toy/figure1"]
    assert [(recipe.name, error.code) for recipe, error in results.left_out] == [("toy/table1", "invalid-option")]
    results = wherefrom.reproduce("toy", data="sst2")  # a recipe without data is made all the same
    assert [each.recipe.name for each in results] == ["toy/table1", "toy/figure1"]
    results = wherefrom.reproduce("toy", texts="mine")
    assert [each.recipe.name for each in results] == ["toy/figure1"]
    shown = CliRunner().invoke(app, ["reproduce", "toy(norm=sum, n_steps=1)"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "toy/table1: one step has no sum" in shown.output
    with pytest.raises(InvalidOption):  # where nothing can be made, the reason is the error
        wherefrom.reproduce("toy", model="mnli=a", texts="x")


def test_a_classifier_of_other_labels_is_refused(tmp_path: Path) -> None:
    """A model of sentiment must not fill the column of another task."""
    folder = tmp_path / "qqp"
    folder.mkdir()
    rows = "question1\tquestion2\tlabel\nwhat is it ?\twhat is that ?\t1\nwho is it ?\twhere is it ?\t0\n"
    (folder / "validation.tsv").write_text(rows, encoding="utf-8")
    with pytest.raises(InvalidOption):
        wherefrom.reproduce("attcat/table1", data="qqp", folder=tmp_path, limit=2)
    named = wherefrom.reproduce(
        "attcat/table2", data="qqp", folder=tmp_path, limit=2, names={0: "different", 1: "duplicate"}
    )
    assert not math.isnan(named.table.mean("AttCAT", "QQP"))
    nameless = tmp_path / "model"
    tiny.model("bert", "classification", num_labels=2).save_pretrained(nameless)
    tiny.tokenizer().save_pretrained(nameless)
    assert isinstance(
        wherefrom.reproduce("attcat/table2", model=f"qqp={nameless}", data="qqp", folder=tmp_path), Result
    )


def test_splits_columns_and_files_keep_the_papers_column(tmp_path: Path) -> None:
    folder = tmp_path / "sst2"
    folder.mkdir()
    for split, texts in (("validation", ["a good film ."]), ("test", ["a bad film .", "a deep film ."])):
        rows = [json.dumps({"review": text, "label": i % 2}) for i, text in enumerate(texts)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    arguments: dict[str, Any] = {"columns": {"text": "review"}, "limit": 5}
    found = wherefrom.reproduce("globenc/table1", data="sst2", folder=tmp_path, split="test", **arguments)
    assert found.table.ours["N_Enc", "SST2"].count == 2
    path = str(folder / "validation.jsonl")
    assert wherefrom.reproduce("globenc/table1", data=path, **arguments).table.ours["N_Enc", "SST2"].count == 1
    with pytest.raises(WherefromError):
        wherefrom.reproduce("abnar2020/figure1", split="test")


def test_training_examples_have_a_limit_of_their_own() -> None:
    (figure,) = wherefrom.papers.lookup("value-zeroing/figure2")
    call = resolve(figure, ReproduceRequest(limit=7, train_limit=3))
    assert (call.limit, call.train_limit) == (7, 3)
    with pytest.raises(InvalidOption):
        ReproduceRequest(train_limit=0)
