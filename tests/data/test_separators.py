"""Tables as people have them: separators, quotes, line breaks and packings."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest

from wherefrom.data import Dataset, Example, read
from wherefrom.errors import WherefromError


def only(data: Dataset) -> Example:
    (example,) = data
    return example


def test_a_table_with_another_separator_is_told_from_one_without_the_column(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("text;label\na fine, calm film;1\n")
    with pytest.raises(WherefromError, match=r"separated by ';': its first line is 'text;label'; separate .* by ','"):
        list(read(table))
    table.write_text("text\na fine film; I liked it\n")  # a semicolon in a text is no separator
    assert [row.text for row in read(table)] == ["a fine film; I liked it"]


def test_blanks_beside_a_separator_are_no_part_of_a_columns_name(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("text, label\na film,1\n", encoding="utf-8")
    assert only(read(table)) == Example("mine:1", "a film", 1)
    table.write_text("text,label,label\na film,1,0\n", encoding="utf-8")
    with pytest.raises(WherefromError, match="two columns are called 'label'"):
        list(read(table))


@pytest.mark.parametrize("packing", [gzip, lzma, bz2])
def test_a_packed_file_that_is_damaged_is_named(packing: Any, tmp_path: Path) -> None:
    ending = {gzip: "gz", lzma: "xz", bz2: "bz2"}[packing]
    plain, cut = tmp_path / f"plain.csv.{ending}", tmp_path / f"cut.csv.{ending}"
    plain.write_bytes(b"text,label\na film,1\n")
    whole = packing.compress(b"text,label\n" + b"a film,1\n" * 5000)
    cut.write_bytes(whole[: len(whole) // 2])
    for each in (plain, cut):
        with pytest.raises(WherefromError, match=rf"{each.name}: it cannot be unpacked, or not to its end"):
            list(read(each))


def test_a_cell_may_be_a_whole_book(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("text,label\n" + "word " * 40_000 + ",1\n", encoding="utf-8")
    assert len(only(read(table)).text) == 200_000


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_break_inside_a_cell_stays(end: str, tmp_path: Path) -> None:
    for ending, between in (("csv", ","), ("tsv", "\t")):
        table = tmp_path / f"mine.{ending}"
        rows = [f"text{between}label", f'"not bad{end}at all"{between}1', f"a film{between}0", ""]
        table.write_bytes(end.join(rows).encode())
        assert [(each.text, each.label) for each in read(table)] == [("not bad\nat all", 1), ("a film", 0)]


def test_quotes_that_are_not_in_order_swallow_no_rows_of_a_tsv(tmp_path: Path) -> None:
    table = tmp_path / "mine.tsv"
    texts = ['"great" they said', '"a film', "a plot", 'the 5" disk', 'and so on"']
    table.write_text("text\tlabel\n" + "".join(f"{text}\t1\n" for text in texts), encoding="utf-8")
    assert [each.text for each in read(table)] == texts
