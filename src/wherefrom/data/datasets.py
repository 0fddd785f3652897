"""`read`: a dataset by its name, a file, or a repository of the Hugging Face Hub.

    read("sst2")                    a dataset of wherefrom/data/sources.py, from a folder of files or from the Hub
    read("blimp:ana")               one of its groups
    read("grammar:anaphor")         our own agreement grammar; needs no data
    read("drawn")                   drawn things, whose places are known; needs no data
    read("mosaics:cifar10")         four pictures of a dataset (or of a file) as one, of which one shows the class
    read("reviews.jsonl", columns={"text": "review", "label": "stars"})
    read("hub:owner/name", split="test", columns={"text": "review"})

A folder (`folder=`, or the environment variable WHEREFROM_DATA) holds one folder per dataset, and in it one file per
split: `sst2/validation.parquet`. Where there is none, Hugging Face `datasets` is asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from wherefrom.data import eraser, grammar, pictured, rows
from wherefrom.data.example import MASK, Dataset, Dropped, Example, first, unfit
from wherefrom.data.sources import SOURCES, Source
from wherefrom.data.tables import (
    PACKED,
    TABLES,
    BadRow,
    Row,
    attempts,
    kind_of,
    label_names,
    open_packed,
    shown,
    side_by_side,
)
from wherefrom.errors import DamagedFile, InvalidOption, MissingExtra, ResourceUnavailable, UnknownName
from wherefrom.extras import need

VARIABLE = "WHEREFROM_DATA"
HUB = "hub:"
ENDINGS = tuple(kind + pack for kind in (*TABLES, ".json") for pack in ("", *PACKED))
PARTS = frozenset(each.name for each in fields(Example)) - {"id"} | {"pair"}


def read(
    source: str | os.PathLike[str],
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    without: str | None = None,
) -> Dataset:
    """A dataset, read row by row each time it is iterated over. Rows that cannot be used are in its `dropped`.

    split: "validation", "test", ...; the dataset's first one if none is given.
    columns: which column holds which part: text, pair, label, target, foil, prefix, cues, rationale, …
    limit: the first so many usable rows.
    folder: where the data lies: a folder of datasets, the dataset's own folder, or its file.
    without: another dataset; sentences that occur in any split of it are dropped.
    """
    if limit is not None and limit < 1:
        raise InvalidOption(f"limit is {limit}; expected at least one row")
    text = os.fspath(source)
    name, _, group = text.partition(":")
    if name == grammar.NAME:
        found = grammar.dataset(group or None, split)
    elif text == pictured.DRAWN and not _is_path(text):
        found = pictured.drawn_things(split)
    elif name == pictured.MOSAICS and group:
        found = pictured.mosaics(read(group, split, columns, folder=folder))
    else:
        found = _table(text, name, group, split, columns, None if folder is None else Path(folder))
    if without is not None:
        others = _read_all(without, folder)
        found = replace(found, make=partial(_without, found.make, others, without))
    return found if limit is None else first(found, limit)


def _table(
    text: str, name: str, group: str, split: str | None, columns: Mapping[str, str] | None, folder: Path | None
) -> Dataset:
    """A dataset that lies in files or on the Hub."""
    path = Path(text)
    if _is_path(text) and not (folder and text in SOURCES):  # a folder that is given comes first
        known = _known(path) if columns is None else None
        if known is None and path.is_dir():
            raise UnknownName(f"{path}: a folder, and not the folder of a dataset wherefrom knows; name a file in it")
        row = known or replace(_plain(path.name, columns), labels=label_names(path))
        folder, group, where = path, "", path
    elif text.startswith(HUB):
        row = replace(_plain(text, columns), hub=text.removeprefix(HUB))
        group, where = "", None
    elif name in SOURCES:
        row, where = SOURCES[name], _folder(SOURCES[name], folder)
        if columns is not None:
            row = replace(row, columns={**row.columns, **columns})
    else:
        raise UnknownName(
            f"there is no dataset or file {shown(text, 200)}; {SOURCES.hint(name)}"
            f"expected a file ({', '.join(TABLES)}), {HUB}owner/name, {grammar.NAME}, {', '.join(pictured.ABOUT)}, "
            f"or one of {', '.join(SOURCES)}"
        )
    wanted = _group(row, group)
    if where is None:
        split = split or (row.hub_splits or row.splits)[0]
        make = partial(_examples, row, split, wanted, partial(_hub_rows, row, split))
    else:
        split, numbered = _files(row, where, split)
        make = partial(_examples, row, split, wanted, numbered)
    called = f"{row.name}:{group}" if group else row.name
    return Dataset(called, split, make, row.labels, row.about)


def _is_path(text: str) -> bool:
    """Whether a file or folder is meant. A folder that only shares the name of a dataset, a model's say, is not."""
    path = Path(text)
    return os.path.exists(text) and not (text in SOURCES and path.is_dir() and not _splits(path))


def _plain(name: str, columns: Mapping[str, str] | None) -> Source:
    if unknown := set(columns or ()) - PARTS:
        raise InvalidOption(f"columns has {', '.join(sorted(unknown))}; expected parts of an example: {_parts()}")
    return Source(name, "", columns or {}, own=True)


def _parts() -> str:
    return ", ".join(sorted(PARTS))


def _known(path: Path) -> Source | None:
    """The dataset whose folder this is, or in whose folder this file lies."""
    folder = path if path.is_dir() else path.resolve().parent
    return next((row for row in SOURCES.values() if folder.name in (row.name, *row.folders)), None)


def _group(row: Source, asked: str) -> str | None:
    if not asked:
        return None
    if asked not in row.groups and asked not in row.groups.values():
        known = ", ".join(row.groups) or "none"
        raise UnknownName(f"{row.name} has no group '{asked}'; its groups: {known}")
    return row.groups.get(asked, asked)


# Where the rows come from ---------------------------------------------------------------------------------


def _folder(row: Source, folder: Path | None) -> Path | None:
    """The dataset's own folder or file; None where the Hub has to be asked."""
    given = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if given is not None:
        names = (row.name, *row.folders)
        for each in (given / name for name in names):
            if each.is_dir():
                return each
        if given.is_file() or given.name in names or (folder is not None and _splits(given)):
            return given
        if folder is not None:
            raise UnknownName(f"{row.name} is not in {folder}; expected a folder {' or '.join(names)} in it")
    if row.hub:
        return None
    raise UnknownName(
        f"{row.name} was not found; set {VARIABLE} or folder= to a folder with {row.name}/{row.splits[0]}.parquet"
    )


def _splits(folder: Path) -> list[str]:
    """The names of the files in a folder that may be read, without their endings."""
    if not folder.is_dir():
        return []
    files = (file.name for file in folder.iterdir() if kind_of(file) in TABLES)
    return sorted({name.partition(".")[0].partition("-0")[0] for name in files})


Numbered = tuple[int, "Row | BadRow"]


def _files(row: Source, where: Path, split: str | None) -> tuple[str, Callable[[], Iterator[Numbered]]]:
    """The split that is read, and what reads its files."""
    if where.is_file():
        own = where.name.partition(".")[0]
        if split not in (None, own):
            raise InvalidOption(f"{where} is one file and has no split '{split}'; leave split= (--split) out")
        return own, partial(_file_rows, (where,))
    for each in (split,) if split else row.splits:
        if file := _either(where, each, ENDINGS):
            return each, partial(_file_rows, (file,))
        if parts := sorted(where.glob(f"{each}-*-of-*.parquet")):  # as the Hub cuts large tables
            return each, partial(_file_rows, tuple(parts))
        lines = {name: _either(where, f"{each}.{name}", ("", *PACKED)) for name in row.columns.values()}
        if found := {name: file for name, file in lines.items() if file is not None}:  # as translations are published
            return each, partial(side_by_side, found)
    there = ", ".join(_splits(where)) or "no tables"
    raise UnknownName(f"{row.name} has no {split or 'default split'} in {where}; it holds: {there}")


def _either(where: Path, name: str, endings: Sequence[str]) -> Path | None:
    """The first file of this name that is there, with one of these endings."""
    return next((file for end in endings if (file := where / f"{name}{end}").is_file()), None)


def _file_rows(files: tuple[Path, ...]) -> Iterator[Numbered]:
    passed = 0
    for file in files:
        number = 0
        for number, row in _squad_json(file) if kind_of(file) == ".json" else attempts(file):
            yield passed + number, _plainly(row, file)
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


def _squad_json(file: Path) -> Iterator[Numbered]:
    """The nested file in which SQuAD itself is published."""
    try:
        with open_packed(file) as stream:
            data = json.load(stream)["data"]
        number = 0
        for paragraph in (each for article in data for each in article["paragraphs"]):
            for question in paragraph["qas"]:
                number += 1
                answers = {
                    "text": [answer["text"] for answer in question["answers"]],
                    "answer_start": [answer["answer_start"] for answer in question["answers"]],
                }
                yield number, {"context": paragraph["context"], "question": question["question"], "answers": answers}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{file}: not SQuAD's JSON ({error!r}); tables end in {', '.join(TABLES)}") from error


def _hub_rows(row: Source, split: str) -> Iterator[Numbered]:
    try:
        datasets = need("datasets", extra="hub")
    except MissingExtra as missing:
        raise MissingExtra(
            f"no {row.hub} on this machine, and for the Hugging Face Hub {missing}. Where the files are here, set "
            f"{VARIABLE} or folder= to the folder that holds them"
        ) from missing
    passed = 0
    for config in row.configs or (None,):
        try:
            table = datasets.load_dataset(row.hub, config, split=split)
        except (OSError, ValueError, RuntimeError) as error:
            raise ResourceUnavailable(
                f"{row.hub} ({split}) did not come from the Hugging Face Hub: {error}; for files on this machine "
                f"set {VARIABLE} or folder="
            ) from error
        number = 0
        for number, each in enumerate(table, 1):
            yield passed + number, each
        passed += number


# From rows to examples ------------------------------------------------------------------------------------


def _examples(row: Source, split: str, group: str | None, numbered: Any) -> Iterator[Example | Dropped]:
    columns = row.columns
    checked = False
    for number, cells in numbered():
        if isinstance(cells, BadRow):
            yield Dropped(number, f"it {cells}")
            continue
        if not checked:
            columns, checked = _fitting(row, cells), True
        if row.groups and not _in_groups(row, cells, group):
            continue
        yield _made(row, f"{split}:{number}", number, cells, columns)


def _made(row: Source, id: str, number: int, cells: Row, columns: Mapping[str, str]) -> Example | Dropped:
    """The example that a row makes, or why it makes none."""
    try:
        made = row.make(id, cells, columns, row.labels)
        return made if (why := unfit(made)) is None else Dropped(number, why)
    except BadRow as bad:
        return Dropped(number, str(bad))
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:  # of another shape than expected
        return Dropped(number, f"a cell is not as expected: {error!r}")


def _fitting(row: Source, cells: Row) -> Mapping[str, str]:
    """The columns to read, checked against the first row."""
    columns = {**_under_their_names(row, cells), **row.columns} if row.own else row.columns
    for part, names in row.columns.items():
        if part not in row.optional and not any(name in cells for name in names.split("|")):
            raise UnknownName(f"{row.name}: no column '{names}' for its {part}; it has: {', '.join(map(str, cells))}")
    if row.own and not {"text", "image"} & columns.keys():
        raise UnknownName(
            f"{row.name}: no column 'text' or 'image'; it has: {', '.join(map(str, cells))}. Name the columns with "
            f"columns={{'text': …}} (--column text=…)"
        )
    return columns


def _under_their_names(row: Source, cells: Row) -> dict[str, str]:
    """The parts of an example that a plain table has under their own names, and those that a later row may have.

    Where some columns are named, one of the rest is taken for its name alone only if any cell will do.
    """
    named = row.columns
    parts = sorted(PARTS if not named else rows.ANY_CELL)
    found = {part: part for part in parts if part in cells or part in rows.SPARSE}
    if "text" not in found and "sentence" in cells:
        found = {"text": "sentence", **found}
    elif "text" not in {**found, **named} and "image" in cells:
        found = {"image": "image", **found}
    taken = {*named.values()}
    return {part: column for part, column in found.items() if part not in named and column not in taken}


def from_row(id: str, number: int, cells: Row, columns: Mapping[str, str] | None = None) -> Example | Dropped:
    """The example that the cells of one row of a plain table make, or why they make none.

    >>> from_row("0", 1, {"text": "The keys to the cabinet", "target": " are", "foil": " is"}).foil
    ' is'
    >>> from_row("0", 1, {"text": ""})
    Dropped(row=1, reason="'text' is empty")
    """
    row = _plain(f"example {id}", columns)
    return _made(row, id, number, cells, _fitting(row, cells))


def _in_groups(row: Source, cells: Row, group: str | None) -> bool:
    name = next((cells[column] for column in row.group_column.split("|") if column in cells), None)
    return name == group if group else name in row.groups.values()


def _read_all(name: str, folder: Any) -> frozenset[bytes]:
    """The sentences of all splits of a dataset."""
    row = SOURCES.find(name)
    where = _folder(row, None if folder is None else Path(folder))
    splits = row.splits if where is None else [each for each in row.splits if each in _splits(where)]
    return frozenset(_sentence(example) for split in splits for example in read(name, split, folder=folder))


def _without(make: Any, others: frozenset[bytes], name: str) -> Iterator[Example | Dropped]:
    for item in make():
        if isinstance(item, Example) and _sentence(item) in others:
            yield Dropped(int(item.id.rpartition(":")[2]), f"the sentence is also in {name}")
        else:
            yield item


def _sentence(example: Example) -> bytes:
    """The words of an example without their capitals and spaces, the mask filled; short, as many are kept."""
    text = example.text if isinstance(example.text, str) else "\n".join(example.text)
    full = text.replace(MASK, example.target or MASK)
    return sha256(" ".join(full.lower().split()).encode(errors="surrogatepass")).digest()[:16]


def known() -> dict[str, str]:
    """The datasets that `read` knows by name, and what each is."""
    return {**{row.name: row.about for row in SOURCES.values()}, grammar.NAME: grammar.ABOUT, **pictured.ABOUT}


def on_this_machine(name: str, folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether `read` finds a dataset without the Hub: the grammar, a file, or one in `folder` or WHEREFROM_DATA."""
    if name.partition(":")[0] == pictured.MOSAICS:
        return on_this_machine(name.partition(":")[2], folder)
    if name == pictured.DRAWN or name.partition(":")[0] == grammar.NAME or _is_path(name):
        return True
    row = SOURCES.get(name.partition(":")[0])
    if row is None:
        return False
    try:
        return _folder(row, None if folder is None else Path(folder)) is not None
    except UnknownName:
        return False
