"""The files of a dataset: its folder, the file of each split under the names that copies and authors give it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from wherefrom.data import eraser, published
from wherefrom.data.published import FileLayout, Numbered
from wherefrom.data.sources import Source
from wherefrom.data.tables import PACKED, TABLES, BadRow, Row, attempts, kind_of, side_by_side
from wherefrom.errors import InvalidOption, UnknownName

VARIABLE = "WHEREFROM_DATA"
PACKINGS = ("", *PACKED)
ENDINGS = tuple(kind + packing for kind in (*TABLES, ".json") for packing in PACKINGS)
VALIDATION = ("validation", "dev", "val", "valid")  # names of one split
ReadRows = Callable[[], Iterator[Numbered]]


def find_folder(row: Source, folder: Path | None) -> Path | None:
    """The dataset's own folder or file; None where the Hub has to be asked."""
    given = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if given is not None:
        names = (row.name, *row.folders)
        folders = [each for name in names if (each := given / name).is_dir()]
        if folders:
            return next((each for each in folders if list_tables(each) or published_files(row, each)), folders[0])
        if given.is_file() or is_folder_of(row, given) or published_files(row, given):
            return given
        if folder is not None and list_tables(folder):
            return folder
        if folder is not None:
            files = " or ".join((*row.pooled_files, *(form.format("dev") for form in row.split_files)))
            raise UnknownName(
                f"{row.name} is not in {folder}; expected a folder {' or '.join(names)} in it"
                f"{f', or {files}' if files else ''}"
            )
    if row.hub:
        return None
    raise UnknownName(
        f"{row.name} was not found; set {VARIABLE} or folder= to a folder with {row.name}/{row.splits[0]}.parquet"
    )


def list_tables(folder: Path) -> list[str]:
    """The names of the files in a folder that may be read, without their endings."""
    if not folder.is_dir():
        return []
    files = (file.name for file in folder.iterdir() if kind_of(file) in TABLES)
    return sorted({name.partition(".")[0].partition("-0")[0] for name in files})


def published_files(row: Source, folder: Path) -> list[Path]:
    """The files in a folder that are called as the dataset's authors call them and have their layout."""
    names = [form.format(split) for form in row.split_files for split in ("train", "test", *VALIDATION)]
    if files := [file for name in names if (file := _first_file(folder, name, PACKINGS))]:
        return files
    for pattern in row.pooled_files:
        found = sorted(file for end in PACKINGS for file in folder.glob(pattern + end))
        if files := [file for file in found if published.find_layout(file, row.name)]:
            return files if "*" in pattern else files[:1]
    return []


def split_names(row: Source, split: str) -> list[str]:
    """The names that a split may have in the dataset: validation for dev, and MNLI's validation_matched for both."""
    first, _, rest = split.partition("_")
    if first in VALIDATION and split not in row.splits and not row.own:
        split = "_".join(filter(None, (VALIDATION[0], rest)))
    return [split, *(each for each in row.splits if each == f"{split}_matched")]


def _file_names(row: Source, split: str) -> list[str]:
    """The names that a split's file may have, without its ending: validation, dev, dev-v1.1."""
    first, _, rest = split.partition("_")
    heads = dict.fromkeys((first, *VALIDATION)) if first in VALIDATION and not row.own else (first,)
    names = ["_".join(filter(None, (head, rest))) for head in heads]
    return [*names, *(form.format(name).removesuffix(".json") for form in row.split_files for name in names)]


def find_split(row: Source, where: Path, split: str | None) -> tuple[str, ReadRows]:
    """The name of a split (None: the dataset's first), and the function that reads its rows."""
    names = split_names(row, split) if split else list(row.splits)
    if where.is_file():
        layout = published.find_layout(where, row.name)
        if layout and layout.divide:
            return _pooled(layout, [where], names[0])
        own = _split_of(row, where)
        if split and own not in names:
            raise InvalidOption(f"{where} is one file and has no split '{split}'; leave split= (--split) out")
        return own, partial(_file_rows, row, (where,))
    for each in names:
        if found := _read_files(row, where, each):
            return each, found
    files = published_files(row, where)
    if files and (layout := published.find_layout(files[0], row.name)) and layout.divide:
        return _pooled(layout, files, names[0])
    there = ", ".join([*list_tables(where), *(file.name for file in files)]) or "no tables"
    raise UnknownName(f"{row.name} has no {split or 'default split'} in {where}; it holds: {there}")


def _pooled(layout: FileLayout, files: list[Path], split: str) -> tuple[str, ReadRows]:
    """One split of files that hold several."""
    if split not in (*layout.splits, published.ALL):
        raise UnknownName(
            f"{files[0]} has no split '{split}'; its splits: {', '.join((*layout.splits, published.ALL))}"
        )
    if split != published.ALL and layout.divide:
        layout.divide(files[0])  # raises where the file that names the splits is missing
    return split, partial(published.read_split, layout, tuple(files), split)


def _split_of(row: Source, file: Path) -> str:
    """The split whose file this is, or the file's own name."""
    splits = (each for each in row.splits if any(file.name.startswith(f"{name}.") for name in _file_names(row, each)))
    return next(splits, file.name.partition(".")[0])


def _read_files(row: Source, where: Path, split: str) -> ReadRows | None:
    """The function that reads the files of one split, None where there are none."""
    for name in _file_names(row, split):
        if file := _first_file(where, name, ENDINGS):
            return partial(_file_rows, row, (file,))
        if parts := sorted(where.glob(f"{name}-*-of-*.parquet")):  # as the Hub cuts large tables
            return partial(_file_rows, row, tuple(parts))
        files = ((column, _first_file(where, f"{name}.{column}", PACKINGS)) for column in row.columns.values())
        if lines := {column: file for column, file in files if file is not None}:  # as translations are published
            return partial(side_by_side, lines)
    return None


def _first_file(where: Path, name: str, endings: Sequence[str]) -> Path | None:
    """The first file of this name that is there, with one of these endings."""
    return next((file for end in endings if (file := where / f"{name}{end}").is_file()), None)


def _file_rows(row: Source, files: tuple[Path, ...]) -> Iterator[Numbered]:
    passed = 0
    for file in files:
        number = 0
        layout = published.find_layout(file, row.name)
        for number, cells in layout.read(file) if layout else attempts(file):
            yield passed + number, _plainly(cells, file)
        passed += number


def _plainly(row: Row | BadRow, file: Path) -> Row | BadRow:
    """A row in ERASER's format as the cells that it stands for; any other as it is."""
    if isinstance(row, BadRow) or not eraser.is_eraser(row):
        return row
    try:
        return eraser.cells(row, file.parent)
    except BadRow as bad:
        return bad
    except (KeyError, TypeError, ValueError, OSError) as error:
        return BadRow(f"is no row of ERASER's: {error!r}")


def is_folder_of(row: Source, folder: Path) -> bool:
    """Whether a folder has the dataset's name, or one that its authors gave it: blimp, blimp/data."""
    return any(folder.parts[-len(name.split("/")) :] == tuple(name.split("/")) for name in (row.name, *row.folders))


def list_splits(row: Source, where: Path) -> list[str]:
    """The splits that can be read from a folder or file."""
    found = [each for each in row.splits if _read_files(row, where, each)] if where.is_dir() else []
    return found or [find_split(row, where, published.ALL if row.pooled_files else None)[0]]
