"""Reading rows: every format, and what is said of rows that cannot be used."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from wherefrom.data import tables
from wherefrom.errors import DamagedFile, ResourceUnavailable, WherefromError
from wherefrom.training import labelled, prefixes
from wherefrom.training.labelled import Columns

ROWS = [{"text": "good film", "label": 1}, {"text": "bad film", "label": 0}]


PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def write(folder: Path, kind: str, packing: str = "") -> Path:
    path = folder / f"rows{kind}"
    if kind == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n")
    elif kind == ".csv":
        path.write_text("text,label\ngood film,1\nbad film,0\n")
    elif kind == ".tsv":
        path.write_text("text\tlabel\ngood film\t1\nbad film\t0\n")
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    return packed(path, packing)


def packed(path: Path, packing: str) -> Path:
    if not packing:
        return path
    to = path.with_name(path.name + packing)
    if packing == ".zst":
        arrow = pytest.importorskip("pyarrow")
        with arrow.CompressedOutputStream(str(to), "zstd") as stream:
            stream.write(path.read_bytes())
    else:
        to.write_bytes(PACKERS[packing](path.read_bytes()))
    path.unlink()
    return to


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, kind: str, packing: str) -> None:
    found = labelled.examples(write(tmp_path, kind, packing), Columns(names={"0": "negative", "1": "positive"}))
    assert [(e.row, e.text, e.label) for e in found] == [(1, "good film", "positive"), (2, "bad film", "negative")]


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
def test_a_packed_file_that_is_cut_is_damaged(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, ".gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DamagedFile, match="it cannot be unpacked, or not to its end"):
        labelled.examples(path, Columns())


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"text": "", "label": 1}, "row 2: 'text' is empty"),
        ({"text": None, "label": 1}, "row 2: 'text' is missing, not text"),
        ({"text": 7, "label": 1}, "row 2: 'text' is 7, not text"),
        ({"text": "a", "label": None}, "row 2: 'label' is empty"),
        ({"text": "a", "label": 0.5}, "row 2: 'label' is 0.5"),
        ({"text": "a", "label": "0.5"}, "row 2: 'label' is 0.5"),  # as csv has it
        ({"text": "a", "label": [1]}, r"row 2: 'label' is \[1\]"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: object, why: str) -> None:
    with pytest.raises(WherefromError, match=why):
        labelled.examples(jsonl(tmp_path, {"text": "a", "label": 1}, row), Columns())


def test_many_bad_rows_are_counted_and_the_first_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *[{"text": "", "label": 1}] * 9)
    with pytest.raises(WherefromError, match=r"9 bad rows: row 1: .*row 5: .*and 4 more"):
        labelled.examples(path, Columns())


def test_labels_without_a_name_and_columns_that_are_not_there(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": "a", "label": 2})
    with pytest.raises(WherefromError, match=r"row 1: 'label' is '2', which has no name \(named: 0, 1\)"):
        labelled.examples(path, Columns(names={"0": "no", "1": "yes"}))
    with pytest.raises(WherefromError, match="no column 'sentence'; it has: text, label"):
        labelled.examples(path, Columns(text="sentence"))


def test_broken_files_are_refused_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(WherefromError, match="row 2 is not JSON"):
        list(tables.rows(broken))
    short = tmp_path / "short.csv"
    short.write_text("text,label\na,1\nb\n")
    with pytest.raises(WherefromError, match="row 2 has 1 fields, the header 2"):
        list(tables.rows(short))
    with pytest.raises(WherefromError, match="no such file"):
        list(tables.rows(tmp_path / "none.jsonl"))
    with pytest.raises(WherefromError, match=r"expected one of \.parquet"):
        list(tables.rows(tmp_path / "rows.xls"))
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"first\nsecond\n" + "caf\xe9".encode("latin-1"))
    with pytest.raises(WherefromError, match=r"line 3 is not UTF-8: .*; save the file as UTF-8"):
        list(tables.lines(latin))
    latin.write_bytes(b"caf\xe9 noir\n")
    with pytest.raises(WherefromError, match="line 1 is not UTF-8: invalid continuation byte"):
        list(tables.lines(latin))


def test_names_merge_and_leave_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *[{"text": "a", "label": float(stars)} for stars in (1, 2, 3, 4, 5)])
    names = {"1": "negative", "2": "negative", "3": "", "4": "positive", "5": "positive"}
    assert [e.label for e in labelled.examples(path, Columns(names=names))] == ["negative"] * 2 + ["positive"] * 2


def test_until_reads_the_words_before_an_index(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": "the keys are here", "label": 1, "at": 2})
    assert labelled.examples(path, Columns(until="at"))[0].text == "the keys"
    with pytest.raises(WherefromError, match="row 1: word index 9 lies outside the 4 words"):
        labelled.examples(jsonl(tmp_path, {"text": "the keys are here", "label": 1, "at": 9}), Columns(until="at"))


def test_where_keeps_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"text": "a", "label": 1, "kind": "x"}, {"text": "b", "label": 1, "kind": "y"})
    assert [e.text for e in labelled.examples(path, Columns(where={"kind": ("y",)}))] == ["b"]
    with pytest.raises(WherefromError, match="no rows to read"):
        labelled.examples(path, Columns(where={"kind": ("z",)}))


def test_rows_replace_a_file_when_all_of_them_are_made(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    tables.write_rows(path, iter(ROWS))

    def broken() -> Iterator[dict[str, object]]:
        yield ROWS[0]
        raise KeyError

    with pytest.raises(KeyError):
        tables.write_rows(path, broken())
    assert [row for _, row in tables.rows(path)] == ROWS
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceUnavailable, match=r"cannot write '.*made.jsonl'"):
        tables.write_rows(tmp_path / "file" / "made.jsonl", iter(ROWS))


@pytest.mark.parametrize(("text", "why"), [(None, "no such file"), ("No verb here.\n", "no sentence has a verb")])
def test_prefixes_of_nothing_leave_the_table_as_it_was(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "text.txt").write_text(text)
    kept, new = tmp_path / "kept.jsonl", tmp_path / "new.jsonl"
    kept.write_text("{}\n")
    for out in (kept, new):
        with pytest.raises(WherefromError, match=why):
            prefixes.write([str(tmp_path / "text.txt")], out)
    assert kept.read_text() == "{}\n"
    assert not new.exists()


def test_written_rows_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl.xz"
    assert tables.write_rows(path, iter(ROWS)) == 2
    assert [row for _, row in tables.rows(path)] == ROWS
    with pytest.raises(WherefromError, match=r"written as \.jsonl"):
        tables.write_rows(tmp_path / "made.parquet", iter(ROWS))
