"""Every recipe runs from end to end on a fresh clone, has the paper's rows, and prints the paper's numbers."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.data import Dataset, Example, drawn
from wherefrom.errors import InvalidOption, RunConflict, WherefromError
from wherefrom.metric.correlation import summary
from wherefrom.papers import Result, lookup, recipes
from wherefrom.papers.claims import Claim, above, all_above, averaged, best, nearly_all, rising
from wherefrom.papers.recipe import (
    Measured,
    Recipe,
    Reported,
    Table,
    number,
    over_layers,
    reported,
)
from wherefrom.papers.report import file_name
from wherefrom.papers.request import ReproduceRequest, resolve
from wherefrom.papers.samples import half, own, prompts

NAMES = [each.name for each in recipes()]
LISTED = {
    "abnar2020": "table1 table2 table3 evenness figure1 figure2 figure3 figure4 appendix-heads",
    "alti": "table2 figure6 figure7 figure3 figure4 table1 table3 table4 table5 table6 table7 table8 table9 figure1 "
    "figure2 figure5 figure8 figure9 figure10",
    "alti-logit": "blimp attractors",
    "attcat": "table1 table2 figure3 appendix-k figure4 figure5a figure5b",
    "attn-lrp": "faithfulness",
    "decompx": "aopc accuracy prediction-performance",
    "globenc": "table1 table-a1 table-a2 table2 figure3 figure4 figure5 "
    "figure1 figure-a1 figure-a2 figure-a3 figure-a4 figure-a5 figure-a6",
    "planted-facts": "lm reader",
    "value-zeroing": "table1 figure1 figure2 figure3 table2 table3 figure4 "
    + " ".join(f"figure-a{number}" for number in range(1, 19)),
    "yin-neubig": "alignment",
}


LIMITS = {"globenc/figure4": 1}  # HTA takes its time
FAST = {"n_steps": 2, "costly_limit": 1}  # gradients that start anew in every layer
SLOW = (
    "planted-facts/lm",
    "planted-facts/reader",
    "value-zeroing/figure3",
    *(f"value-zeroing/figure-a{number}" for number in range(1, 18)),
    "value-zeroing/figure2",
    "value-zeroing/table2",
    "value-zeroing/figure1",
    "value-zeroing/table3",
    "attn-lrp/faithfulness",
    "alti-logit/blimp",
    "alti-logit/attractors",
    "yin-neubig/alignment",
    "alti/figure7",
    *(f"alti/table{number}" for number in (5, 6, 7, 9)),
)  # other recipes go through the same lines


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that recipes of one paper share their runs."""
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


def test_every_table_and_figure_has_a_recipe() -> None:
    assert [f"{paper}/{name}" for paper, names in LISTED.items() for name in names.split()] == NAMES


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in NAMES]
)
def test_every_recipe_runs_without_data(name: str, out: Path) -> None:
    options = FAST if FAST.keys() <= lookup(name)[0].options.keys() else {}
    result = wherefrom.reproduce(name, limit=LIMITS.get(name, 3), train_limit=8, out=out, **options)
    assert isinstance(result, Result)
    table, told = result.table, result.recipe.reported
    assert {row for row, _ in told} <= set(table.rows)  # every row of the paper's table
    assert set(table.ours) <= {(row, column) for row in table.rows for column in table.columns}
    assert any(not math.isnan(each.mean) for each in table.ours.values())
    assert all(each.holds in (True, False, None) for each in result.verdicts)
    paper, _, stem = file_name(result.recipe, result.options).partition("/")
    lines = list(csv.DictReader((out / paper / f"{stem}.csv").open(encoding="utf-8")))
    for line in lines:
        place = line["row"], line["column"]
        assert (line["paper"] != "") == (place in told)
        if place in table.ours and line["mean"]:
            assert float(line["mean"]) == table.ours[place].mean
            assert int(line["n"]) == table.ours[place].count
    assert len(lines) == len(set(table.ours) | set(told))
    assert (out / paper / f"{stem}.md").read_text(encoding="utf-8").startswith(f"### {name}\n")
    pictures = [out / paper / f"{stem}{added}.svg" for added in table.pictures or [""]]
    assert all(each.is_file() for each in pictures)
    assert all(each.with_suffix(".png").stat().st_size > 1000 for each in pictures)


@pytest.mark.parametrize(
    ("name", "row", "column", "expected"),
    [
        ("abnar2020/table1", "Raw", "L3", Reported(-0.11, 0.49)),
        ("abnar2020/table1", "Flow", "L6", Reported(0.70, 0.22)),
        ("abnar2020/table2", "Rollout", "L4", Reported(0.47, 0.32)),
        ("abnar2020/table3", "Flow", "last", Reported(0.14, 0.21)),
        ("globenc/table1", "N_ResLN", "HateXplain", Reported(0.08, 0.28)),
        ("globenc/table1", "W_Res", "MNLI", Reported(0.27, 0.25)),
        ("globenc/table2", "N_Enc rollout", "MAX", Reported(0.78, 0.12)),
        ("value-zeroing/table2", "IG", "FT", Reported(-0.77)),
        ("value-zeroing/table2", "Attn-norm + RES", "PT", Reported(-0.35)),
        ("value-zeroing/table3", "DL", "FT", Reported(0.29)),
        ("value-zeroing/table3", "Value Zeroing", "PT", Reported(0.26)),
        ("value-zeroing/figure3", "fine-tuned", "L9", Reported(2.45)),
        ("attcat/table1", "TransAtt", "Yelp LOdds", Reported(-2.508)),
        ("attcat/table1", "AttCAT", "QQP AOPC", Reported(0.139)),
        ("attcat/table1", "Grads", "SST2 LOdds", Reported(-0.252)),
        ("attcat/table1", "CAT", "IMDB AOPC", Reported(0.406)),
        ("attcat/table2", "AttCAT", "MNLI", Reported(0.017)),
        ("attcat/table2", "PartialLRP", "Yelp", Reported(0.952)),
        ("attcat/figure4", "like", "Sum", Reported(-0.37)),
        ("alti/table2", "Norm Rollout", "SST2 RoBERTa", Reported(0.37, 0.21)),
        ("alti/table2", "ALTI", "SVA BERT", Reported(0.40, 0.16)),
        ("globenc/table2", "N indiv.", "middle", Reported(0.28, 0.23)),
    ],
)
def test_the_papers_numbers_are_as_printed(name: str, row: str, column: str, expected: Reported) -> None:
    (recipe,) = lookup(name)
    assert recipe.reported[row, column] == expected


def test_prompts_leave_something_to_choose_and_to_rank() -> None:
    """A word stands for its first piece; what begins alike, is all cue, or is decided too late is left out."""
    every = [
        Example("kept", "the cats [MASK] good .", target="are", foil="is", cues=((4, 8),)),
        Example("pieces", "the cat is", target="meaningful", foil="cabbage", cues=((4, 7),)),
        Example("alike", "the cat is", target="meaningful", foil="meaning", cues=((4, 7),)),
        Example("all cue", "cats", target="are", foil="is", cues=((0, 4),)),
        Example("late", "the [MASK] cats", target="these", foil="this", cues=((11, 15),)),
    ]
    data = Dataset("prompts", "", lambda: iter(every))
    found = {each.id: each for each in prompts(data, tiny.tokenizer())}
    assert {each.id: (each.text, each.target, each.foil) for each in found.values()} == {
        "kept": ("the cats", "are", "is"),
        "pieces": ("the cat is", "meaning", "c"),
    }
    assert [each.foil for each in prompts(data, tiny.tokenizer(), contrast=False)] == [None, None]


@pytest.mark.parametrize("ending", [".csv", ".md"])
def test_a_file_of_somebodys_own_is_not_replaced(tmp_path: Path, ending: str) -> None:
    (own_file := tmp_path / f"abnar2020/figure1{ending}").parent.mkdir()
    own_file.write_text("my,notes\n")
    with pytest.raises(RunConflict):
        wherefrom.reproduce("abnar2020", out=tmp_path)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["my,notes\n"]


def test_what_was_written_before_is_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        wherefrom.reproduce("abnar2020/figure1", out=tmp_path)


def test_runs_are_shared(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 2 reads what table 1 has measured."""
    from wherefrom.evaluation import local

    wherefrom.reproduce("abnar2020/table1", limit=3, out=out)
    monkeypatch.setattr(local, "here", lambda *_: pytest.fail("something was computed twice"))
    wherefrom.reproduce("abnar2020/table2", limit=3, out=out)


def saved(folder: Path, task: str, **changes: Any) -> str:
    tiny.model("bert", task, **changes).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def test_columns_are_the_papers_or_the_datas_own(tmp_path: Path) -> None:
    """Several datasets, one of them with a name that the paper does not know."""
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({"text": "a good film .", "label": "positive"}), encoding="utf-8")
    folder = tmp_path / "sst2"
    folder.mkdir()
    (folder / "validation.tsv").write_text("sentence\tlabel\na deep film .\t1\na bad film .\t0\n", encoding="utf-8")
    found = wherefrom.reproduce("globenc/table1", data=f"sst2,{mine}", folder=tmp_path, limit=5)
    assert list(found.table.columns) == ["SST2", str(mine)]
    assert found.table.ours["N_Enc", "SST2"].count == 2
    assert found.table.ours["N_Enc", str(mine)].count == 1
    assert [each.says.split(": ")[0] for each in found.verdicts[:2]] == ["SST2", str(mine)]


def test_a_masked_model_is_measured_on_verbs_alone(tmp_path: Path) -> None:
    found = wherefrom.reproduce("alti/table2", model="wherefrom/mlm", limit=3, out=tmp_path)
    assert list(found.table.columns) == ["SVA BERT"]


# The parts ------------------------------------------------------------------------------------------------


def test_reported_reads_a_printed_table() -> None:
    found = reported("""
           | A           | B c
    Raw    | 0.1 ± 0.2   | -1.5
    Rollout|             | .18 ± .2
    """)
    assert found == {
        ("Raw", "A"): Reported(0.1, 0.2),
        ("Raw", "B c"): Reported(-1.5),
        ("Rollout", "B c"): Reported(0.18, 0.2),
    }


def test_draw_is_by_seed_and_keeps_order() -> None:
    every = [each.id for each in own()]
    first, again, other = ([each.id for each in drawn(own(), 10, seed)] for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 10
    assert first == sorted(first, key=every.index)
    assert [each.id for each in drawn(own(), 1000, 0)] == every


def test_halves_share_nothing_and_miss_nothing() -> None:
    train, test = ({each.id for each in half(own(), test)} for test in (False, True))
    assert not train & test
    assert train | test == {each.id for each in own()}
    assert min(len(train), len(test)) > 8


def table(value: float) -> Table:
    return Table(["a", "b"], ["x"], {("a", "x"): number(value, 4)}, "Something", ["m on d: n = 4"])


def test_markdown_says_whose_number_is_whose() -> None:
    recipe = Recipe(
        "p/t",
        "What it shows.",
        "9 samples",
        make=lambda _: table(0.5),
        reported={("a", "x"): Reported(0.25), ("b", "y"): Reported(0.75, 0.1)},
        claims=(
            Claim("A is above 0.4.", "table 1", lambda t, _: t.mean("a", "x") > 0.4, tested=False),
            Claim("B is.", "section 2", best("b"), each=True),
        ),
    )
    text = Result.of(recipe, table(0.5)).markdown()
    assert "| a | 0.50 (0.25) | – |" in text
    assert "| b | – | – (0.75 ± 0.10) |" in text
    assert "m on d: n = 4" in text
    assert "9 samples" in text
    assert (
        "- A is above 0.4 (table 1). **Holds here, untested.**\n- x: B is (section 2). **Cannot be told here.**\n"
        in text
    )
    assert "**Does not hold here, untested.**" in Result.of(recipe, table(0.1)).markdown()


def test_claims_compare_rows() -> None:
    values = {("a", "x"): 0.1, ("b", "x"): 0.2, ("c", "x"): 0.3, ("a", "y"): 0.4, ("b", "y"): float("nan")}
    found = Table(["a", "b", "c"], ["x", "y", "z"], {place: number(v, 2) for place, v in values.items()}, "", [])
    assert rising("a", "b", "c")(found, "x") is True
    assert rising("a", "c", "b")(found, "x") is False
    assert rising("a", "b")(found, "y") is None
    assert best("c")(found, "x") is True
    assert best("b")(found, "x") is False
    assert best("b", "a")(found, "x") is True
    assert best("a", lowest=True)(found, "x") is True
    assert best("a")(found, "y") is None
    claim = Claim("So.", "section 1", best("a"), each=True)
    assert [each.says for each in claim.verdicts(found)] == ["x: So (section 1).", "y: So (section 1)."]
    assert [each.says for each in claim._replace(but=("x",)).verdicts(found)] == ["y: So (section 1)."]


def test_claims_are_told_from_chance() -> None:
    """A mean that is higher is not enough: the examples must bear it out."""

    def measured(values: list[float]) -> Measured:
        return Measured.of(summary(values), lambda: {str(i): value for i, value in enumerate(values)})

    rng = np.random.default_rng(0)
    low = rng.normal(0, 1, 40).tolist()
    rows = {
        "low": measured(low),
        "higher": measured([value + 0.1 + noise for value, noise in zip(low, rng.normal(0, 0.01, 40), strict=True)]),
        "noise": measured((np.array(low) + rng.normal(0.05, 1, 40)).tolist()),
        "one": measured([5.0]),
    }
    found = Table(list(rows), ["x"], {(row, "x"): each for row, each in rows.items()}, "", [])
    assert above(found, "higher", "low", ["x"]) is True
    assert above(found, "low", "higher", ["x"]) is False
    assert above(found, "noise", "low", ["x"]) is None
    assert above(found, "one", "low", ["x"]) is None
    assert above(found, "nobody", "low", ["x"]) is None
    higher, lower, noise = (rows["higher"], rows["low"]), (rows["low"], rows["higher"]), (rows["noise"], rows["low"])
    assert all_above([higher, noise]) is None
    assert all_above([higher, noise, lower]) is False
    assert all_above([higher, higher]) is True
    assert all_above([]) is None
    # Always higher by the same: no spread, so no test.
    assert all_above([(measured([2, 3]), measured([1, 2]))]) is None
    steady = Table(["a"], ["L1", "L2"], {("a", "L1"): rows["low"], ("a", "L2"): rows["higher"]}, "", [])
    assert averaged(steady, "a") == over_layers([rows["low"], rows["higher"]])
    assert averaged(steady, "b") is None
    over = over_layers([rows["low"], rows["higher"]])
    assert over.count == 40
    assert over.mean == pytest.approx((rows["low"].mean + rows["higher"].mean) / 2)


def test_a_claim_of_many_comparisons_is_not_refuted_by_chance() -> None:
    """A difference of p = 0.005 tells something alone, and nothing as one of ten (Holm)."""
    noise = np.random.default_rng(0).normal(size=30)
    noise = (noise - noise.mean()) / noise.std(ddof=1)

    def pair(t: float) -> tuple[Measured, Measured]:
        every = [dict(enumerate(values.tolist())) for values in (noise + t / np.sqrt(30), np.zeros(30))]
        upper, lower = (Measured.of(summary(each.values()), lambda each=each: each) for each in every)  # type: ignore[misc]
        return upper, lower

    assert all_above([pair(-3.04)]) is False
    assert all_above([pair(-3.04), *[pair(0)] * 9]) is None
    assert all_above([pair(-30), *[pair(0)] * 9]) is False
    assert all_above([pair(3.04)]) is True
    assert all_above([pair(3.04)] * 10) is None


def test_nearly_all() -> None:
    assert nearly_all([True] * 9 + [False]) is True
    assert nearly_all([True] * 8 + [False] * 2) is False
    assert nearly_all([True] * 8 + [None] * 2) is None


@pytest.mark.parametrize("name", [each.name for each in recipes() if each.reported and each.claims])
def test_no_claim_is_contradicted_by_the_papers_own_numbers(name: str) -> None:
    (recipe,) = lookup(name)
    rows, columns = (list(dict.fromkeys(place[i] for place in recipe.reported)) for i in (0, 1))
    theirs = Table(rows, columns, {place: number(each.mean, 1) for place, each in recipe.reported.items()}, "", [])
    verdicts = [verdict for claim in recipe.claims for verdict in claim.verdicts(theirs)]
    assert not [each.says for each in verdicts if each.holds is False]
    assert any(each.holds for each in verdicts) or rows == ["maximum"]  # AttCAT's figure 3 prints no other number


def test_every_claim_says_where_it_stands() -> None:
    known = re.compile(r"(abstract|sections? \d|figure \d|table \d|footnote \d|appendix [A-Z])")
    assert [claim.says for each in recipes() for claim in each.claims if not known.match(claim.where)] == []


def test_defaults_are_filled_in_and_wrong_requests_refused() -> None:
    (recipe,) = lookup("abnar2020/table1")
    assert resolve(recipe).data == ("grammar:distractor",)  # nothing else is at hand
    assert resolve(recipe, ReproduceRequest(data=("linzen_colorless",))).only == "linzen_colorless"
    with pytest.raises(InvalidOption):
        _ = resolve(recipe, ReproduceRequest(data=("sst2", "imdb"))).only
    with pytest.raises(InvalidOption):
        resolve(lookup("globenc/figure5")[0], ReproduceRequest(data=("sst2",)))  # weights of a model
    with pytest.raises(InvalidOption):
        resolve(recipe, ReproduceRequest(limit=0))
    with pytest.raises(WherefromError, match="did you mean 'abnar2020/table1'"):
        lookup("abnar2020/tabel1")


def test_the_command_lists_and_shows(out: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce"], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    assert all(name in listed.output for name in NAMES)
    shown = runner.invoke(
        app, ["reproduce", "abnar2020/table1", "--limit", "3", "--out", str(out)], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0, shown.output
    assert "grammar:distractor up to the mask test: n = 3" in shown.output
    assert "(0.69 ± 0.27)" in shown.output
