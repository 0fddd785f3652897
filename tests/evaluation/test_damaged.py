"""Run folders and rows that are not as they should be: an error that names the file or the row, never a traceback."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.data import Dataset, Example, read
from wherefrom.data.example import Dropped, kept
from wherefrom.errors import WherefromError
from wherefrom.evaluation import Run, manifest
from wherefrom.evaluation.export import export, show
from wherefrom.evaluation.summary import Key
from wherefrom.model import open_model
from wherefrom.model.inputs import Reader
from wherefrom.training.classify import reach

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()
TEXTS = ["the film is good", "the film is not good"]
HALF = "half of a surrogate pair"


def evaluate(data: Any = TEXTS, **options: Any) -> Run:
    return wherefrom.evaluate(data, MODEL, TOKENIZER, "attention", "aopc", threads=1, **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    evaluate(out=folder)
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def folder(done: dict[str, bytes], tmp_path: Path) -> Path:
    for name, content in done.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(content)
    return tmp_path / "run"


BARE: dict[str, Any] = {"format": manifest.FORMAT, "version": manifest.VERSION}


@pytest.mark.parametrize(
    "content",
    [
        BARE,
        {**BARE, "asked": {}, "model": [], "data": {}, "versions": {}},
        {**BARE, "asked": {"methods": [], "metrics": []}, "model": {"name": "x"}, "data": {}, "versions": {}},
    ],
)
def test_a_manifest_with_missing_parts_is_refused(folder: Path, content: Any) -> None:
    (folder / manifest.FILE).write_text(json.dumps(content), encoding="utf-8")
    for call in (lambda: show(Run(folder)), lambda: evaluate(out=folder)):
        with pytest.raises(WherefromError, match=r"manifest.json' is damaged: its part '\w+' "):
            call()
    listed = CliRunner().invoke(app, ["runs", "list", str(folder.parent)])
    assert listed.exit_code == 0
    assert "is damaged" in listed.output


def test_a_run_made_under_the_former_name_resumes(folder: Path) -> None:
    """The library was called whence when the first runs were made; nothing is computed anew."""
    file = folder / manifest.FILE
    now = json.loads(file.read_text())
    then = {**now, "format": "whence.run", "model": {**now["model"], "name": "whence/sentiment"}}
    then["versions"] = {"whence" if key == "wherefrom" else key: value for key, value in now["versions"].items()}
    file.write_text(json.dumps(then))
    assert manifest.read(folder)["model"]["name"] == "wherefrom/sentiment"
    file.write_text(json.dumps({**then, "model": now["model"]}))
    shards = {each: each.stat().st_mtime_ns for each in (folder / manifest.SHARDS).iterdir()}
    assert evaluate(out=folder).finished
    assert {each: each.stat().st_mtime_ns for each in (folder / manifest.SHARDS).iterdir()} == shards


def test_a_manifest_without_threads_is_refused(folder: Path) -> None:
    known = json.loads((folder / manifest.FILE).read_text(encoding="utf-8"))
    (folder / manifest.FILE).write_text(json.dumps({**known, "threads": "two"}), encoding="utf-8")
    with pytest.raises(WherefromError, match="how many threads"):
        evaluate(out=folder)


@pytest.mark.parametrize("content", ["{}", "[1]", "nothing", '{"failures": [], "seconds": {}}'])
def test_the_same_command_mends_what_says_that_it_is_finished(folder: Path, content: str) -> None:
    (folder / manifest.FINISHED).write_text(content, encoding="utf-8")
    assert Run(folder).finished is None
    with pytest.raises(WherefromError, match="is not finished"):
        Run(folder).table()
    evaluate(out=folder)
    assert Run(folder).mean("attention", "aopc") == Run(folder).mean("attention", "aopc")
    show(Run(folder))
    assert Run(str(folder)).mean("attention", "aopc") == Run(folder).mean("attention", "aopc")  # type: ignore[arg-type]


@pytest.mark.parametrize("file", ["summary.parquet", "records.parquet"])
def test_a_damaged_table_is_named_and_mended(folder: Path, file: str, done: dict[str, bytes]) -> None:
    (folder / file).write_bytes(b"PAR1 and no more")
    with pytest.raises(WherefromError, match=f"{file}' cannot be read .*repeat the run's command"):
        Run(folder).table(file)
    evaluate(out=folder)
    assert (folder / file).read_bytes() == done[file]


def test_a_lock_that_cannot_be_taken_is_named(folder: Path) -> None:
    (folder / manifest.LOCK).unlink()
    (folder / manifest.LOCK).mkdir()
    with pytest.raises(WherefromError, match=r"cannot lock the run folder: .*lock' cannot be written"):
        evaluate(out=folder)


def test_a_folder_that_cannot_be_written_to_is_named(folder: Path) -> None:
    places = [folder, folder / manifest.SHARDS]
    for place in places:
        place.chmod(0o555)
    (folder / manifest.LOCK).chmod(0o444)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(WherefromError, match="can"):
            evaluate(out=folder)
        show(Run(folder))  # reading needs no more than that
    finally:
        for place in places:
            place.chmod(0o755)


def test_tables_that_cannot_be_written_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wherefrom.evaluation import summary

    def closed(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    (folder / manifest.FINISHED).unlink()
    monkeypatch.setattr(summary, "build", closed)
    with pytest.raises(WherefromError, match=r"cannot write the tables of .*Read-only file system"):
        evaluate(out=folder)


def test_the_summary_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(folder)
    first = run.summary
    monkeypatch.setattr(Run, "table", lambda *_: pytest.fail("read once more"))
    assert run.summary is first
    assert run.mean("attention", "aopc") == first["attention", "aopc", None].mean


def test_a_call_that_no_example_could_bear_stops_and_leaves_the_folder_free(tmp_path: Path) -> None:
    def asked(method: str) -> Run:
        out = tmp_path / "run"
        return wherefrom.evaluate(TEXTS * 40, MODEL, TOKENIZER, method, "special-rank", threads=1, out=out)

    with pytest.raises(WherefromError, match="start_layer is 99") as refused:
        asked("transformer-attribution(start_layer=99)")
    assert "could be explained" not in str(refused.value)  # it was not tried on all of them
    assert asked("transformer-attribution(start_layer=1)").finished
    with pytest.raises(WherefromError, match="holds another run"):
        asked("transformer-attribution(start_layer=2)")


# Once is enough ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [False, True])
def test_data_is_read_once_and_every_text_cut_once(draw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, cut = [], []

    def make() -> Any:
        passes.append(1)
        return (Example(str(i), text, cues=[[0, 3]]) for i, text in enumerate(TEXTS * 3))  # type: ignore[arg-type]

    read_text = Reader.text

    def counted(self: Reader, text: Any, *more: Any, **how: Any) -> Any:
        cut.append(text)
        return read_text(self, text, *more, **how)

    monkeypatch.setattr(Reader, "text", counted)
    run = evaluate(Dataset("mine", "", make), limit=5, draw=draw)
    assert len(run.table("examples")) == 5
    assert len(passes) == 1
    assert sum(text in TEXTS for text in cut) == 5  # beside the sentence of ours that is tried first


def test_the_seconds_of_all_targets_are_those_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("wherefrom.pipeline.execution.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    one = wherefrom.explain(TEXTS[0], MODEL, TOKENIZER, "saliency", target=0)
    every = wherefrom.explain(TEXTS[0], MODEL, TOKENIZER, "saliency", target="all")
    assert len(every) == 3
    own = 2.0  # of each by itself: the gradient, and putting it together
    assert one.seconds > own
    assert sum(each.seconds - own for each in every.values()) == pytest.approx(one.seconds - own)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_training_and_explaining_know_one_length(family: str) -> None:
    model = tiny.model(family)
    assert reach(model, TOKENIZER) == open_model(model, TOKENIZER).max_length


def test_what_is_too_large_to_keep_is_read_again() -> None:
    passes = []

    def make() -> Any:
        passes.append(1)
        yield from [Example("1", "good"), Dropped(2, "bad"), Example("3", "film")]

    for most, expected in ((8, 1), (7, 3)):
        passes.clear()
        data = kept(Dataset("mine", "", make), most)
        assert next(iter(data)).text == "good"  # who stops half way leaves nothing behind
        passes.clear()
        assert [each.id for _ in range(3) for each in data] == ["1", "3"] * 3
        assert len(passes) == expected
        assert [each.row for each in data.dropped] == [2]


# Rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"label": "bad \ud800"}, HALF),
        ({"group": "\udfff"}, HALF),
        ({"attractors": 2**40}, "expected a count from 0 to 2147483647"),
        ({"attractors": -1}, "expected a count"),
        ({"attractors": "inf"}, "not a whole number"),
        ({"attractors": float("inf")}, "not a whole number"),
    ],
)
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_rows_that_no_table_can_hold_are_dropped_by_their_number(tmp_path: Path, cells: Any, why: str) -> None:
    fine = {"text": "the film is good", "label": "x", "group": "g", "attractors": 1}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (fine, {**fine, **cells})), encoding="utf-8")
    data = read(str(path))
    assert [each.label for each in data] == ["x"]
    (dropped,) = data.dropped
    assert dropped.row == 2
    assert why in dropped.reason
    assert len(evaluate(data).table("examples")) == 1


@pytest.mark.parametrize(
    "example",
    [
        Example("e", "good film", label="\ud800"),
        Example("\ud800", "good film"),
        Example("e", "good film", group="a\udc00"),
        Example("e", "good film", attractors=2**31),
    ],
)
def test_examples_that_no_table_can_hold_are_refused_by_their_id(example: Example) -> None:
    for data in ([example], Dataset("mine", "", lambda: iter([example]))):
        with pytest.raises(WherefromError, match="cannot be evaluated: its"):
            evaluate(data)


def test_a_table_as_csv_that_is_empty_or_gone_is_made_anew_by_the_command(folder: Path) -> None:
    file = folder / "summary.csv"
    whole = file.read_bytes()
    for damage in (lambda: file.write_text(""), file.unlink):
        damage()
        with pytest.raises(WherefromError, match=r"summary\.csv' cannot be read .*repeat the run's command"):
            export(Run(folder), "csv")
        evaluate(out=folder)
        assert file.read_bytes() == whole
    assert Run(folder).values(("attention", "aopc", None)) == Run(folder).values(Key("attention", "aopc", None))  # type: ignore[arg-type]
