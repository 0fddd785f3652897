"""`read`: a dataset by its name, a file, or a repository of the Hugging Face Hub.

    read("sst2")                    a dataset of wherefrom/data/sources.py, from a folder of files or from the Hub
    read("blimp:ana")               one of its groups
    read("blimp:balanced")          all of them, one with as many singular as plural sentences, as its authors have it
    read("grammar:anaphor")         our own agreement grammar; needs no data
    read("drawn")                   drawn things, whose places are known; needs no data
    read("mosaics:cifar10")         four pictures of a dataset (or of a file) as one, of which one shows the class
    read("reviews.jsonl", columns={"text": "review", "label": "stars"})
    read("hub:owner/name", split="test", columns={"text": "review"})

A folder (`folder=`, or the environment variable WHEREFROM_DATA) holds one folder per dataset, and in it one file per
split: `sst2/validation.parquet`; or the files in which its authors publish a dataset (wherefrom/data/published.py).
Where there is none, Hugging Face `datasets` is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from wherefrom.data import grammar, pictured, published, rows
from wherefrom.data.example import MASK, Dataset, Dropped, Example, balance_labels, first, unfit
from wherefrom.data.location import (
    VARIABLE,
    find_folder,
    find_split,
    is_folder_of,
    list_splits,
    list_tables,
    published_files,
    split_names,
)
from wherefrom.data.published import Numbered
from wherefrom.data.sources import SOURCES, Source
from wherefrom.data.tables import TABLES, BadRow, Row, kind_of, label_names, shown
from wherefrom.errors import InvalidOption, MissingExtra, ResourceUnavailable, UnknownName
from wherefrom.extras import need

HUB = "hub:"
BALANCED = "balanced"
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

    split: "validation" (or "dev"), "test", ...; the dataset's first one if none is given.
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
        if known is None and kind_of(path) == ".json":
            raise UnknownName(
                f"{path}: no known layout; it has the keys {shown(published.first_keys(path), 200)}, expected "
                f"{published.describe_layouts()}, or a table ({', '.join(TABLES)})"
            )
        row = known or replace(_plain(path.name, columns), labels=label_names(path))
        folder, group, where = path, "", path
    elif text.startswith(HUB):
        row = replace(_plain(text, columns), hub=text.removeprefix(HUB))
        group, where = "", None
    elif name in SOURCES:
        row, where = SOURCES[name], find_folder(SOURCES[name], folder)
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
        split = split_names(row, split)[-1] if split else (row.hub_splits or row.splits)[0]
        make = partial(_examples, row, split, wanted, partial(_hub_rows, row, split))
    else:
        split, numbered = find_split(row, where, split)
        make = partial(_examples, row, split, wanted, numbered)
    called = f"{row.name}:{group}" if group else row.name
    data = Dataset(called, split, make, row.labels, row.about)
    return balance_labels(data, row.balanced_group) if _is_balanced(row, group) else data


def _is_path(text: str) -> bool:
    """Whether a file or folder is meant. A folder that only shares the name of a dataset, a model's say, is not."""
    path = Path(text)
    if text in SOURCES and path.is_dir():
        return bool(list_tables(path) or published_files(SOURCES[text], path))
    return os.path.exists(text)


def _plain(name: str, columns: Mapping[str, str] | None) -> Source:
    if unknown := set(columns or ()) - PARTS:
        raise InvalidOption(f"columns has {', '.join(sorted(unknown))}; expected parts of an example: {_parts()}")
    return Source(name, "", columns or {}, own=True)


def _parts() -> str:
    return ", ".join(sorted(PARTS))


def _known(path: Path) -> Source | None:
    """The dataset whose folder this is, in whose folder this file is, or whose published layout the file has."""
    folder = (path if path.is_dir() else path.parent).resolve()
    known = next((row for row in SOURCES.values() if is_folder_of(row, folder)), None)
    if path.is_file() and (known is None or published.find_layout(path, known.name) is None):
        return SOURCES.get(published.recognize(path) or "") or (known if kind_of(path) != ".json" else None)
    return known


def _is_balanced(row: Source, group: str) -> bool:
    return bool(row.balanced_group) and group == BALANCED


def _group(row: Source, asked: str) -> str | None:
    if not asked or _is_balanced(row, asked):
        return None
    if asked not in row.groups and asked not in row.groups.values():
        known = ", ".join([*row.groups, *([BALANCED] if row.balanced_group else [])]) or "none"
        raise UnknownName(f"{row.name} has no group '{asked}'; its groups: {known}")
    return row.groups.get(asked, asked)


# Where the rows come from ----------------------------------------------------------------------------------


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
            columns, checked = _fitting(row, cells, split), True
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


def _fitting(row: Source, cells: Row, split: str = "") -> Mapping[str, str]:
    """The columns to read, checked against the first row."""
    columns = {**_under_their_names(row, cells), **row.columns} if row.own else row.columns
    optional = (*row.optional, "label") if row.hides_test_labels and split.startswith("test") else row.optional
    for part, names in row.columns.items():
        if part not in optional and not any(name in cells for name in names.split("|")):
            raise UnknownName(
                f"{row.name}: no column '{names}' for its {part}; it has: {_names(cells)}{_expected(row)}"
            )
    if row.own and not {"text", "image"} & columns.keys():
        raise UnknownName(
            f"{row.name}: no column 'text' or 'image'; it has: {_names(cells)}. Name the columns with "
            f"columns={{'text': …}} (--column text=…){_without_header(row, cells)}"
        )
    return columns


def _names(cells: Row) -> str:
    """The names of a row's columns, shortened where texts stand in the place of names."""
    return ", ".join(name if len(name) < 40 else shown(name) for name in map(str, cells))


def _without_header(row: Source, cells: Row) -> str:
    """How to read Yelp's and Amazon's csv, whose first row would be taken for the names of columns."""
    if not published.starts_with_class(list(cells), len(cells)) or len(cells) not in (2, 3):
        return ""
    name = "yelp" if len(cells) == 2 else "amazon"
    return f"; if it is the published csv of {name}, which has no header, use read('{name}', folder='…/{row.name}')"


def _expected(row: Source) -> str:
    """The columns and the published layouts of a dataset that wherefrom knows, at the end of an error."""
    if row.own:
        return ""
    columns = ", ".join(names for part, names in row.columns.items() if part not in row.optional)
    layouts = published.describe_layouts(row.name)
    return f"; expected the columns {columns}{f', or {layouts}' if layouts else ''}"


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
    where = find_folder(row, None if folder is None else Path(folder))
    splits = row.splits if where is None else list_splits(row, where)
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


def dataset_name(source: str) -> str | None:
    """The name of the dataset that a source belongs to, None for a table of one's own.

    >>> dataset_name("blimp:ana")
    'blimp'
    """
    if not _is_path(source):
        return source.partition(":")[0]
    row = _known(Path(source))
    return None if row is None else row.name


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
        return find_folder(row, None if folder is None else Path(folder)) is not None
    except UnknownName:
        return False
