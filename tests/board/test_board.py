"""`wherefrom benchmark` and `wherefrom leaderboard` on a tiny model: measured, resumed, ranked and written."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import golden

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

import runs

import wherefrom
from wherefrom import board
from wherefrom.board import measuring
from wherefrom.board.choosing import FAITHFUL, LEFT_OUT, datasets, every_method, metrics, plain_name, sane
from wherefrom.board.reading import BoardTable
from wherefrom.board.writing import _absent, _columns, _going, _methods, _opening, _table
from wherefrom.cli import app
from wherefrom.errors import InvalidOption, NotDefined, UnknownName
from wherefrom.method import lookup
from wherefrom.model import open_model
from wherefrom.papers.samples import midway, own_pairs

pytest.importorskip("pyarrow", reason="evaluating needs the extra `eval`")
SHARED = golden.SHARED / "data"
METHODS = ("gradient-x-input", "attention-rollout", "random")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A finished benchmark and the command that made it."""
    here = tmp_path_factory.mktemp("board")
    runs.model_folder(here / "tiny")
    data = runs.data_file(here / "reviews.jsonl", 12)
    asked = ["benchmark", "--out", str(here / "out"), "--model", str(here / "tiny"), "--data", str(data)]
    asked += ["--methods", ",".join(METHODS), "--rows", "8", "--sane-rows", "2"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "measured: tiny on reviews.jsonl" in found.output
    return here / "out", asked


def test_a_pass_that_stalls_makes_no_method_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = wherefrom.open_model(runs.model_folder(tmp_path / "tiny"))
    data = wherefrom.data.read(runs.data_file(tmp_path / "reviews.jsonl", 4))
    taken = iter([90.0, 2.0, 1.0, 3.0, 40.0])  # the pass alone, and after each method
    monkeypatch.setattr(measuring, "_seconds", lambda *_: next(taken))
    found = measuring._passes(opened, data, METHODS[:2], measuring.Measuring())
    assert found == {METHODS[0]: 2.0, METHODS[1]: 3.0}


def test_the_same_command_computes_nothing_twice(measured: tuple[Path, list[str]]) -> None:
    out, asked = measured
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix in (".parquet", ".csv")}
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_workers_change_no_number(measured: tuple[Path, list[str]], tmp_path: Path) -> None:
    out, asked = measured
    beside = [*asked, "--parts", "faithful,sane", "--workers", "2", "--shard", "4"]
    beside[beside.index("--out") + 1] = str(tmp_path)
    found = CliRunner().invoke(app, beside)
    assert found.exit_code == 0, found.output
    (one,), (two,) = (board.read_board(each).tables for each in (out, tmp_path))
    for before, after in ((one.values, two.values), (one.sane, two.sane)):
        assert list(before) == list(after)
        for metric in before:
            for method in METHODS:
                assert after[metric][method] == pytest.approx(before[metric][method], abs=1e-5, nan_ok=True)


def test_a_board_knows_every_question_that_the_data_can_answer(measured: tuple[Path, list[str]]) -> None:
    found = board.read_board(measured[0])
    assert set(found.methods) == set(METHODS)
    assert list(found.standings) == ["faithful", "cues"]  # the sentences have cue words and no rationale
    (table,) = found.tables
    assert set(table.passes) == set(METHODS)
    assert all(count > 0 for count in table.passes.values())
    record = found.record()["methods"]["random"]
    assert -1 <= record["randomised"] <= 1
    assert record["padding"] < 1e-4
    assert record["faithful"]["of"] == 3


def test_the_page_is_written_from_saved_results_alone(measured: tuple[Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    out, _ = measured
    page, record = tmp_path / "board.md", tmp_path / "record.json"
    found = CliRunner().invoke(app, ["leaderboard", str(out), "--page", str(page), "--record", str(record)])
    assert found.exit_code == 0, found.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Which method should I trust?")
    assert "What this cannot tell" in text
    assert "tiny on reviews.jsonl | 8 | 2 |" in text
    assert "--data sst2" not in text  # of which nothing was measured
    assert ".md)" not in text  # no page of the book lies beside it
    assert str(tmp_path.parent) not in text  # nobody's folders
    assert (tmp_path / "img" / "leaderboard-faithful.svg").stat().st_size > 1000
    assert list(json.loads(record.read_text(encoding="utf-8"))["methods"]) == list(board.read_board(out).methods)
    alone = tmp_path / "alone.json"
    found = CliRunner().invoke(app, ["leaderboard", str(out), "--record", str(alone)])
    assert found.exit_code == 0, found.output
    assert alone.read_text(encoding="utf-8") == record.read_text(encoding="utf-8")


def test_the_order_is_shown_in_the_terminal(measured: tuple[Path, list[str]]) -> None:
    found = CliRunner().invoke(app, ["leaderboard", str(measured[0]), "--question", "cues"])
    assert found.exit_code == 0
    assert all(name in found.output for name in METHODS)
    refused = CliRunner().invoke(app, ["leaderboard", str(measured[0]), "--question", "plausible"])
    assert isinstance(refused.exception, InvalidOption)
    assert "expected faithful, cues" in str(refused.exception)
    unknown = CliRunner().invoke(app, ["leaderboard", str(measured[0]), "--question", "truth"])
    assert "expected one of faithful, map, plausible, cues" in str(unknown.exception)


def test_both_commands_take_the_same_questions(measured: tuple[Path, list[str]]) -> None:
    said = {}
    for name in ("faithful", "output", "map"):
        found = CliRunner().invoke(app, ["leaderboard", str(measured[0]), "--question", name])
        said[name] = found.output
        assert found.exit_code == 0, found.output
        assert CliRunner().invoke(app, ["methods", "recommend", "--question", name]).exit_code == 0
    assert said["faithful"] == said["output"]  # its old name
    maps = [name for name in METHODS if not lookup(name)[0].class_specific]
    assert 0 < len(maps) < len(METHODS)
    assert [name for name in METHODS if f"\n{name} " in f"\n{said['map']}"] == maps
    for command in (["leaderboard"], ["methods"]):
        shown = " ".join(CliRunner().invoke(app, [*command, "--help"]).output.replace("│", " ").split())
        assert "faithful, map, plausible or cues" in shown


def test_its_runs_are_listed(measured: tuple[Path, list[str]], tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["runs", "list", str(measured[0])])
    assert found.output.count(", finished") == 2
    assert all(str(Path("tiny on reviews.jsonl", part)) in found.output for part in ("faithful", "sane"))
    assert "no run of `wherefrom evaluate` lies in" in CliRunner().invoke(app, ["runs", "list", str(tmp_path)]).output


def test_columns_of_ones_own_are_named_as_for_evaluate(tmp_path: Path) -> None:
    runs.model_folder(tmp_path / "tiny")
    data = tmp_path / "reviews.csv"
    data.write_text("review,stars\n" + "the film is good,1\nthe dog is bad,0\n" * 2, encoding="utf-8")
    asked = ["benchmark", "--out", str(tmp_path / "out"), "--model", str(tmp_path / "tiny"), "--methods", "random"]
    asked += ["--rows", "2", "--parts", "faithful"]
    columns = ["--column", "text=review", "--column", "label=stars"]
    refused = CliRunner().invoke(app, [*asked, "--data", str(data)])
    assert "(--column text=…)" in str(refused.exception)
    assert "expected --data as well" in str(CliRunner().invoke(app, [*asked, *columns]).exception)
    found = CliRunner().invoke(app, [*asked, "--data", str(data), *columns])
    assert "measured: tiny on reviews.csv" in found.output, found.output


def test_what_ships_is_enough_where_there_is_no_data() -> None:
    sentiment, words = open_model("wherefrom/sentiment"), open_model("wherefrom/mlm")
    assert [name for name, _ in datasets(sentiment, ("own", "grammar"), None)] == ["own"]
    ((name, data),) = datasets(words, ("own", "grammar"), None)
    assert name == "grammar"
    assert metrics(words, data)[-2:] == ("cue-ap@scores", "cue-mrr@scores")
    assert metrics(words, data)[0] == "aopc(by=mask)"
    every, refused = every_method(sentiment, ())
    assert {"deeplift", "attention-flow", "random"} <= set(every)
    assert not set(every) & set(refused)
    assert set(LEFT_OUT) <= set(refused)
    assert {each.name for each in wherefrom.methods() if each.pairs} == {"ablation-pairs"} <= set(LEFT_OUT)


def test_a_method_that_is_not_defined_on_a_model_is_left_out_with_the_reason() -> None:
    opened = open_model("wherefrom/lm")
    with pytest.warns(wherefrom.WherefromWarning, match="not measured on wherefrom/lm: partial-lrp: it needs"):
        every, refused = every_method(opened, ("alti", "partial-lrp"))
    assert every == ["alti"]
    assert "an FFN without a gate" in refused["partial-lrp"]
    with pytest.raises(wherefrom.errors.NotDefined, match="none of the methods is defined on wherefrom/lm"):
        every_method(opened, ("partial-lrp",))


def test_an_example_that_nothing_can_explain_leaves_no_method_out(tmp_path: Path) -> None:
    """A word of several tokens at a mask."""
    rows = [("all is [MASK] .", "unfathomably", "well"), ("the key [MASK] here .", "is", "are")]
    data = tmp_path / "words.jsonl"
    data.write_text("".join(json.dumps({"text": text, "target": a, "foil": b}) + "\n" for text, a, b in rows))
    how = board.Measuring(rows=2, methods=("random",), data=(str(data),), parts=("cost",))
    (folder,) = board.measure(["wherefrom/mlm"], tmp_path / "out", how)
    assert json.loads((folder / "table.json").read_text())["left_out"] == {}


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no part nonsense"):
        board.Measuring(parts=("nonsense",))
    with pytest.raises(UnknownName, match="no finished table of the part 'faithful', by which methods are ranked"):
        board.read_board(tmp_path)


def pictured(table: BoardTable) -> BoardTable:
    """The same table as if patches had been painted over, with numbers of another size."""
    values = {plain_name(name): found for name, found in table.values.items()}
    painted = {
        f"{name}(by=mean)": {method: each + 1 for method, each in found.items()} for name, found in values.items()
    }
    asked = {**table.about["asked"], "metrics": list(painted)}
    return replace(table, name="another", values=painted, about={**table.about, "asked": asked})


def test_pictures_are_ranked_beside_texts_and_not_averaged_with_them(measured: tuple[Path, list[str]]) -> None:
    (table,) = board.read_board(measured[0]).tables
    texts, both = board.Board((table,)), board.Board((table, pictured(table)))
    assert both.mean("random", "aopc") == table.mean("random", "aopc")
    assert both.standings["faithful"].examples == 16
    assert both.record()["tables"]["another"]["pictures"]
    assert not both.record()["tables"][table.name]["pictures"]
    assert "of classifiers of texts" in _columns(both)
    assert "classifiers" not in _columns(texts)
    assert _table(pictured(table))[3] == "painting patches with the mean colour"
    assert _table(table)[3] == "deletion"


def test_the_page_says_of_what_there_is_no_table(measured: tuple[Path, list[str]]) -> None:
    (table,) = board.read_board(measured[0]).tables
    both = board.Board((table, pictured(table)))
    assert "".join(_absent(board.Board((table,)))).startswith("**Pictures and translations.**")
    assert "".join(_absent(both)).startswith("**Translations.**")
    assert _going(board.Board((table,))) == ""
    assert _going(both) == " (of a picture its patches)"


def test_pictures_are_asked_about_some_of_their_classes_and_never_padded() -> None:
    model = open_model("wherefrom/picture")
    assert [name for name, _ in datasets(model, (), None)] == ["drawn"]  # what ships
    ((name, data),) = datasets(model, ["drawn", "own"], None)
    assert name == "drawn"
    assert metrics(model, data)[0] == "aopc(by=mean)"
    assert sane(model) == ("randomisation", "stability(against=bfloat16)")


def test_a_translator_is_asked_for_a_word_in_the_middle() -> None:
    model = open_model("wherefrom/translate")
    ((name, data),) = datasets(model, ("own", "grammar", "drawn", "own-pairs"), None)
    assert name == "own-pairs"
    whole = {each.id: str(each.target) for each in own_pairs()}
    for example in data:
        begun, said = str(example.prefix).split(), whole[example.id].split()
        assert said[: len(begun)] == begun
        assert 0 < len(begun) < len(said) - 1
        assert example.target is None  # what the model writes next is explained
    assert len({len(str(example.prefix).split()) for example in data}) > 2
    assert [each.prefix for each in data] == [each.prefix for each in midway(own_pairs())]
    assert metrics(model, data) == FAITHFUL  # by deletion
    assert "stability(against=padding)" in sane(model)
    assert datasets(open_model("wherefrom/lm"), ("own-pairs",), None) == []


@pytest.mark.filterwarnings("ignore:not measured on wherefrom/translate")
def test_a_translator_is_measured(tmp_path: Path) -> None:
    how = board.Measuring(rows=3, sane_rows=2, methods=("alti", "ablation", "decompx", "random"), data=("own-pairs",))
    (folder,) = board.measure(["wherefrom/translate"], tmp_path, how)
    found = board.read_board(tmp_path)
    (table,) = found.tables
    assert table.task == "seq2seq"
    assert set(table.values) == set(FAITHFUL)
    assert {len(each) for every in table.values.values() for each in every.values()} == {3}
    assert not any(np.isnan(each).any() for every in table.values.values() for each in every.values())
    assert found.mean("alti", "stability padding") < 1e-4
    assert found.mean("alti", "randomisation embeddings") is not None
    assert "one stream of tokens" in table.left_out["decompx"]
    assert _table(table)[3] == "deletion, of the source"
    assert "".join(_absent(found)).startswith("**Pictures.**")
    assert set(table.passes) == {"alti", "ablation", "random"}
    assert folder.name == "translate on own-pairs"


@pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs ../shared/data/multi30k")
def test_captions_suit_a_translator_and_no_classifier() -> None:
    ((name, data),) = datasets(open_model("wherefrom/translate"), ("multi30k", "sst2"), SHARED)
    assert (name, len(data)) == ("multi30k", 1000)
    assert datasets(open_model("wherefrom/sentiment"), ("multi30k",), SHARED) == []


@pytest.mark.slow
def test_pictures_are_measured_on_some_of_their_classes(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="pictures are read by the extra `image`")
    how = board.Measuring(
        rows=2, sane_rows=2, methods=("saliency", "random"), data=("drawn",), parts=("faithful", "sane")
    )
    (folder,) = board.measure(["wherefrom/picture"], tmp_path, how)
    assert folder.name == "picture on drawn"
    (table,) = board.read_board(tmp_path).tables
    assert {"aopc(by=mean)", "lerf-morf"} <= set(table.values)
    assert "stability(against=bfloat16)" in table.sane
    with pytest.raises(NotDefined, match="none of own suits wherefrom/picture"):
        next(board.measure(["wherefrom/picture"], tmp_path, board.Measuring(data=("own",))))


def test_a_page_ends_as_what_it_is(measured: tuple[Path, list[str]]) -> None:
    refused = CliRunner().invoke(app, ["leaderboard", str(measured[0]), "--page", "board.txt"])
    assert isinstance(refused.exception, InvalidOption)


def test_a_method_that_a_table_lacks_carries_a_star(measured: tuple[Path, list[str]]) -> None:
    (table,) = board.read_board(measured[0]).tables
    fewer = {
        metric: {name: each for name, each in found.items() if name != "random"}
        for metric, found in table.values.items()
    }
    page = _methods(board.Board((table, replace(table, name="another", values=fewer)), ()))
    starred = [line.split(" |")[0] for line in page.splitlines() if r"\*" in line]
    assert starred == [r"| [`random`](methods.md) \* (1 of 2)"]


def test_what_is_not_told_from_chance_is_not_recommended(measured: tuple[Path, list[str]]) -> None:
    """Eight examples of a random model tell nothing."""
    opening = _opening(board.read_board(measured[0]))
    assert "from chance: measure more of them before you choose" in opening
    assert "If you have to choose" not in opening
