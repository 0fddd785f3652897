"""`wherefrom explain --file … --out …`: whatever becomes of the texts, no table is lost and no row missing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest

import tiny
import wherefrom
from wherefrom.cli import batch
from wherefrom.errors import InvalidInput, UnknownName, WherefromError, WherefromWarning
from wherefrom.files import uninterrupted
from wherefrom.result import tabular

explain_file = partial(batch.explain_file, words=False, method="attention")


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("texts.txt", "", "there is no text in"),
        ("texts.csv", "text,label\n", "there is no text in"),
        ("texts.txt", " \n\n", "none of the 2 texts of"),
        ("texts.jsonl", '{"id": 1}\n', "none of the 1 texts of"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_where_nothing_is_explained_the_older_table_stays(
    folder: str, tmp_path: Path, name: str, content: str, told: str, ending: str
) -> None:
    texts, out = tmp_path / name, tmp_path / f"scores.{ending}"
    texts.write_text(content, encoding="utf-8")
    out.write_text("what was there before", encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"{told} .*; '.*' was not written"):
        explain_file(texts, "text", out, model=folder)
    assert out.read_text(encoding="utf-8") == "what was there before"


def test_a_row_without_the_column_is_left_out_and_named(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = tmp_path / "texts.jsonl", tmp_path / "scores.csv"
    texts.write_text('{"id": 1}\n{"text": "a cat"}\n{"id": 3}\n{"text": "a dog"}\n', encoding="utf-8")
    with pytest.warns(
        WherefromWarning, match="2 inputs were skipped: input 0: row 1 of texts.jsonl has no column 'tex"
    ):
        explain_file(texts, "text", out, model=folder)
    assert set(pandas.read_csv(out)["input"]) == {1, 3}
    assert "2 explanations written" in (said := capsys.readouterr().out)
    assert "left out: 2 of 4 texts" in said


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
def test_a_column_that_no_row_has_is_misspelt(folder: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"review": "a cat"}\n' * 200, encoding="utf-8")
    with pytest.raises(UnknownName, match="there is no column 'text'; its columns are review: name one with --column"):
        explain_file(texts, "text", tmp_path / "scores.csv", model=folder)


def test_all_that_came_before_a_line_which_cannot_be_read_is_written(folder: str, tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "scores.csv"
    for before in (1, 30):
        texts.write_bytes(b"a cat\n" * before + b"a \xff\na dog\n")
        with pytest.raises(WherefromError, match=rf"line {before + 1} is not UTF-8: invalid start byte"):
            explain_file(texts, "text", out, model=folder)
        assert set(pandas.read_csv(out)["input"]) == set(range(before))


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_inputs_that_cannot_be_read_end_no_stream(folder: str, batch_size: int) -> None:
    texts = ["", "", "a cat", "a dog", "", " ", "a film", ""]
    found = list(wherefrom.explain_stream(texts, folder, on_error="skip", batch_size=batch_size))
    assert [each is None for each in found] == [not text.strip() for text in texts]


def test_inputs_that_cannot_be_explained_end_no_stream() -> None:
    """Unless it is the first of them: then the question is to blame."""
    asked: dict[str, Any] = {"method": "saliency", "target": 1, "position": 0, "on_error": "skip", "batch_size": 1}
    model = tiny.model(task="token-classification")
    tagged = wherefrom.explain_stream(["a cat", "a dog"], model, tiny.tokenizer(), **asked)
    assert all(each is not None for each in tagged)
    stream = wherefrom.explain_stream(
        ["a cat is good", "cat", "a dog is"], model, tiny.tokenizer(), **asked | {"position": 4}
    )
    with pytest.warns(WherefromWarning, match="1 input was skipped: input 1: "):
        assert [each is None for each in stream] == [False, True, False]
    with pytest.raises(WherefromError, match="position"):
        list(wherefrom.explain_stream(["cat", "a cat is good"], model, tiny.tokenizer(), **asked | {"position": 4}))


def test_an_open_file_that_is_no_text_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(b"a cat\n\xff\n")
    with (
        (tmp_path / "texts.txt").open(encoding="utf-8") as file,
        pytest.raises(InvalidInput, match="the inputs are not utf-8: invalid start byte"),
    ):
        wherefrom.explain(file, folder)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interruption_waits_for_what_was_begun() -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("whole")
        done.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup does
    work()
    assert done == ["whole", "whole", "not reached"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_ctrl_c_leaves_whole_explanations_as_many_as_it_says(
    folder: str, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tabular.record

    def interrupted(number: int, *rest: Any) -> dict[str, Any]:
        if number == 1:
            signal.raise_signal(signal.SIGINT)  # in the middle of the second
        return record(number, *rest)

    monkeypatch.setattr(tabular, "record", interrupted)
    texts, out = tmp_path / "texts.txt", tmp_path / f"scores.{ending}"
    texts.write_text("a cat is good\n" * 3, encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        explain_file(texts, "text", out, model=folder)
    assert "stopped; 2 explanations written to" in capsys.readouterr().err
    if ending == "jsonl":
        assert len(out.read_text(encoding="utf-8").splitlines()) == 2
        return
    table = {"csv": pandas.read_csv, "parquet": pandas.read_parquet}[ending](out)
    assert table.groupby("input").size().tolist() == [6, 6]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_first_text_says_so(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_args: Any, **_asked: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(wherefrom, "explain_stream", interrupted)
    (tmp_path / "texts.txt").write_text("a cat\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        explain_file(tmp_path / "texts.txt", "text", tmp_path / "scores.csv", model=folder)
    assert "stopped before a text was explained" in capsys.readouterr().err
