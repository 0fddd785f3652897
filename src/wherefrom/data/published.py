"""Datasets in the files in which their authors publish them.

    sst2, qqp, mnli     GLUE's tsv: a header, and quotes that are part of the text
    yelp, amazon        csv without a header: class (1 negative, 2 positive), (title,) text
    squad_v1, squad_v2  nested JSON: articles, paragraphs, questions
    hatexplain          dataset.json, with the splits in post_id_divisions.json beside it
    blimp               one jsonl for each paradigm, read together
    linzen              agr_50_mostcommon_10K.tsv, one row for each sentence of Linzen, Dupoux & Goldberg
    linzen_lgd          lgd_dataset.tsv, Goldberg's choice of them, without a header

A layout is recognized by its first line or its keys. Each reader returns rows with the columns that
wherefrom/data/sources.py names, so that a dataset is the same in every copy.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any

from wherefrom.data.example import MASK
from wherefrom.data.tables import (
    DELIMITED,
    PACKED,
    BadRow,
    Row,
    attempts,
    first_cells,
    kind_of,
    open_packed,
    read_delimited,
    shown,
)
from wherefrom.errors import DamagedFile, UnknownName

Numbered = tuple[int, Row | BadRow]
Divide = Callable[[Row | BadRow], str]  # the split that a row belongs to
ALL = "all"  # every split of a file that holds several
DIVISIONS = "post_id_divisions.json"
GOLDBERG_MASK = "***mask***"
GOLDBERG_COLUMNS = ("n_attractors", "sentence", "masked", "verb", "wrong_verb")
LINZEN_COLUMNS = ("orig_sentence", "verb", "verb_pos", "verb_index", "n_intervening", "n_diff_intervening")


@dataclass(frozen=True)
class FileLayout:
    """How the authors of some datasets lay out a file."""

    datasets: tuple[str, ...]
    kind: str  # the file's ending
    about: str
    fits: Callable[[Sequence[str]], bool]  # by the cells of the first line, or the keys of the first JSON object
    read: Callable[[Path], Iterator[Numbered]]
    is_unmistakable: bool = True  # False: other datasets have it too, so the dataset's name is needed
    divide: Callable[[Path], Divide] | None = None  # for a file that holds several splits,
    splits: tuple[str, ...] = ()  # which are these


def find_layout(file: Path, dataset: str) -> FileLayout | None:
    """The published layout of a dataset that a file has, None for a plain table."""
    kind = kind_of(file)
    named = [each for each in LAYOUTS if dataset in each.datasets and each.kind == kind]
    if kind == ".json":  # which has no other reader: the layout's own says what is wrong with the file
        return next(iter(named), None)
    head = first_keys(file) if named else []
    return next((each for each in named if each.fits(head)), None)


def recognize(file: Path) -> str | None:
    """The name of the dataset whose published layout a file has, None where the content does not tell."""
    kind = kind_of(file)
    layouts = [each for each in LAYOUTS if each.kind == kind and each.is_unmistakable]
    head = first_keys(file) if layouts else []
    return next((each.datasets[0] for each in layouts if each.fits(head)), None)


def describe_layouts(dataset: str | None = None) -> str:
    """The published layouts of a dataset (or of all that are JSON), for an error."""
    chosen = [each for each in LAYOUTS if (dataset in each.datasets if dataset else each.kind == ".json")]
    return " or ".join(dict.fromkeys(f"{each.kind[1:]} with {each.about}" for each in chosen))


def first_keys(file: Path) -> list[str]:
    """The cells of the first line of a csv or tsv, the keys of a jsonl's first row; of JSON, its keys on two levels."""
    kind = kind_of(file)
    if kind in DELIMITED:
        return first_cells(file)
    if kind == ".jsonl":
        first = next((row for _, row in attempts(file)), None)
        return list(first) if isinstance(first, dict) else []
    data = load_json(file)
    first = next(iter(data.values()), None) if isinstance(data, dict) else None
    if isinstance(first, dict):
        return list(first)
    return [*data, str(data.get("version", ""))] if isinstance(data, dict) else []


def read_split(layout: FileLayout, files: Iterable[Path], split: str) -> Iterator[Numbered]:
    """The rows of one split of files that hold several, numbered within the split."""
    number = 0
    for file in files:
        divide = None if layout.divide is None or split == ALL else layout.divide(file)
        for _, row in layout.read(file):
            if divide is None or divide(row) == split:
                number += 1
                yield number, row


def load_json(file: Path) -> Any:
    try:
        with open_packed(file) as stream:
            return json.load(stream)
    except ValueError as error:
        raise DamagedFile(f"{file}: it is not JSON: {error}") from error


# GLUE -----------------------------------------------------------------------------------------------------


def read_glue(file: Path) -> Iterator[Numbered]:
    """GLUE's tsv: quotes are part of the text."""
    return read_delimited(file, quoting=csv.QUOTE_NONE)


# Yelp and Amazon ------------------------------------------------------------------------------------------


def starts_with_class(head: Sequence[str], cells: int) -> bool:
    return len(head) == cells and head[0] in ("1", "2")


def read_reviews(file: Path) -> Iterator[Numbered]:
    """The csv of Zhang, Zhao & LeCun (2015): class 1 is negative, 2 positive; Amazon's has titles."""
    columns = ("label", "text") if len(first_cells(file)) == 2 else ("label", "title", "text")
    for number, row in read_delimited(file, columns, csv.QUOTE_MINIMAL):
        if isinstance(row, dict) and row["label"] not in ("1", "2"):
            yield number, BadRow(f"has the class {shown(row['label'])}; expected 1 (negative) or 2 (positive)")
        elif isinstance(row, dict):
            yield number, {**row, "label": int(row["label"]) - 1}
        else:
            yield number, row


# SQuAD ----------------------------------------------------------------------------------------------------


def is_squad(head: Sequence[str]) -> bool:
    return "data" in head


def read_squad(file: Path) -> Iterator[Numbered]:
    data = load_json(file)
    number = 0
    try:
        for paragraph in (each for article in data["data"] for each in article["paragraphs"]):
            for question in paragraph["qas"]:
                number += 1
                answers = {
                    "text": [answer["text"] for answer in question["answers"]],
                    "answer_start": [answer["answer_start"] for answer in question["answers"]],
                }
                yield number, {"context": paragraph["context"], "question": question["question"], "answers": answers}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{file}: not SQuAD's JSON ({error!r}); expected {describe_layouts('squad_v1')}") from error


# HateXplain -----------------------------------------------------------------------------------------------


def read_hatexplain(file: Path) -> Iterator[Numbered]:
    posts = load_json(file)
    expected = f"expected {describe_layouts('hatexplain')}"
    if not isinstance(posts, dict) or not posts:
        raise DamagedFile(f"{file}: not HateXplain's JSON; {expected}")
    for number, (post_id, post) in enumerate(posts.items(), 1):
        if not isinstance(post, dict) or not {"annotators", "rationales", "post_tokens"} <= post.keys():
            raise DamagedFile(
                f"{file}: not HateXplain's JSON: {shown(post_id)} has {shown(post, 100)}; {expected}"
            ) from None
        row = {"post_id": post_id, "tokens": post["post_tokens"], "rationales": post["rationales"]}
        yield number, {**row, "labels": [annotator["label"] for annotator in post["annotators"]]}


def divide_hatexplain(file: Path) -> Divide:
    divisions = next((each for end in ("", *PACKED) if (each := file.with_name(DIVISIONS + end)).is_file()), None)
    if divisions is None:
        raise UnknownName(
            f"{file}: its splits are in {DIVISIONS}, which is not beside it; put it there, or read every post with "
            f"split='{ALL}' (--split {ALL})"
        )
    splits = load_json(divisions)
    if not isinstance(splits, dict) or not all(isinstance(each, list) for each in splits.values()):
        raise DamagedFile(f"{divisions}: expected lists of post ids under train, val and test; it has {shown(splits)}")
    known = {
        post_id: "validation" if split == "val" else str(split) for split, posts in splits.items() for post_id in posts
    }
    return lambda row: known.get(row["post_id"], "undecided") if isinstance(row, dict) else "undecided"


# BLiMP ----------------------------------------------------------------------------------------------------


def is_blimp(head: Sequence[str]) -> bool:
    return {"sentence_good", "sentence_bad", "UID"} <= set(head)


def divide_blimp(_: Path) -> Divide:
    return lambda _: "test"


# Linzen and Goldberg --------------------------------------------------------------------------------------


def is_goldberg(head: Sequence[str]) -> bool:
    return len(head) == len(GOLDBERG_COLUMNS) and head[0].isdigit() and GOLDBERG_MASK in head[2].split()


def read_goldberg(file: Path) -> Iterator[Numbered]:
    for number, row in read_delimited(file, GOLDBERG_COLUMNS, csv.QUOTE_NONE):
        if not isinstance(row, dict):
            yield number, row
        elif (words := row["masked"].split()).count(GOLDBERG_MASK) != 1:
            yield number, BadRow(f"has {words.count(GOLDBERG_MASK)} times {GOLDBERG_MASK}; expected it once")
        else:
            yield number, {**row, "verb_index": words.index(GOLDBERG_MASK)}


def read_linzen(file: Path) -> Iterator[Numbered]:
    return read_delimited(file, quoting=csv.QUOTE_MINIMAL)


def divide_by_sentence(_: Path) -> Divide:
    """Divide sentences by a hash, as the authors publish no splits: a tenth is for test, a tenth for validation.

    A sentence is in the same split in Linzen's file, in Goldberg's and in the parquet copy of Goldberg's.
    """

    def divide(row: Row | BadRow) -> str:
        digit = int(sha1(_masked(row).encode()).hexdigest(), 16) % 10
        return ("test", "validation")[digit] if digit < 2 else "train"

    return divide


def _masked(row: Row | BadRow) -> str:
    """The sentence with its verb masked, as it is in both files; anything fixed for a row that has none."""
    if not isinstance(row, dict):
        return str(row)
    if "masked" in row:
        return str(row["masked"]).replace(GOLDBERG_MASK, MASK)
    words = str(row["orig_sentence"]).split()
    place = int(row["verb_index"]) - 1 if str(row["verb_index"]).isdigit() else len(words)
    return " ".join([*words[:place], MASK, *words[place + 1 :]])


def _has(*names: str) -> Callable[[Sequence[str]], bool]:
    return lambda head: set(names) <= set(head)


def _of_version(version: str) -> Callable[[Sequence[str]], bool]:
    return lambda head: is_squad(head) and head[-1].startswith("v2") == (version == "v2")


_AGREEMENT_SPLITS = ("test", "validation", "train")
_SQUAD = "SQuAD's keys data → paragraphs → context, qas → question, answers"
_GLUE: Mapping[str, tuple[str, Callable[[Sequence[str]], bool], bool]] = {
    "sst2": (
        "GLUE's header sentence, label (test: index, sentence)",
        lambda head: list(head) in (["sentence", "label"], ["index", "sentence"]),
        False,
    ),
    "qqp": (
        "GLUE's header id, …, question1, question2, is_duplicate (test: without is_duplicate)",
        lambda head: {"id", "question1", "question2"} <= set(head) and len(head) in (3, 6),
        True,
    ),
    "mnli": (
        "GLUE's header index, promptID, …, sentence1, sentence2, …, gold_label (test: without gold_label)",
        _has("promptID", "genre", "sentence1", "sentence2"),
        True,
    ),
}

LAYOUTS = (
    *(FileLayout((name,), ".tsv", about, fits, read_glue, clear) for name, (about, fits, clear) in _GLUE.items()),
    FileLayout(
        ("yelp",),
        ".csv",
        "no header and two cells in a row: class (1 or 2), text",
        lambda head: starts_with_class(head, 2),
        read_reviews,
        is_unmistakable=False,
    ),
    FileLayout(
        ("amazon",),
        ".csv",
        "no header and three cells in a row: class (1 or 2), title, text",
        lambda head: starts_with_class(head, 3),
        read_reviews,
        is_unmistakable=False,
    ),
    FileLayout(("squad_v1",), ".json", _SQUAD, _of_version("v1"), read_squad),
    FileLayout(("squad_v2",), ".json", _SQUAD, _of_version("v2"), read_squad),
    FileLayout(
        ("hatexplain",),
        ".json",
        "HateXplain's {post_id: {annotators, rationales, post_tokens}}",
        _has("annotators", "rationales", "post_tokens"),
        read_hatexplain,
        divide=divide_hatexplain,
        splits=("validation", "test", "train", "undecided"),
    ),
    FileLayout(
        ("blimp", "blimp-prompts"),
        ".jsonl",
        "BLiMP's sentence_good, sentence_bad, UID",
        is_blimp,
        attempts,
        divide=divide_blimp,
        splits=("test",),
    ),
    FileLayout(
        ("linzen_lgd",),
        ".tsv",
        f"no header and five cells in a row: number of attractors, sentence, sentence with {GOLDBERG_MASK}, verb, "
        "its other form",
        is_goldberg,
        read_goldberg,
        divide=divide_by_sentence,
        splits=_AGREEMENT_SPLITS,
    ),
    FileLayout(
        ("linzen",),
        ".tsv",
        f"Linzen's header: {', '.join(LINZEN_COLUMNS)}, …",
        _has(*LINZEN_COLUMNS),
        read_linzen,
        divide=divide_by_sentence,
        splits=_AGREEMENT_SPLITS,
    ),
)
