"""From a row of a table to an example: one function per shape of dataset, named by `wherefrom/data/sources.py`.

A function gets the row and the columns that hold its parts, and raises `BadRow` with the reason if the row cannot be
used. A column written `a|b` is called a in some copies of the dataset and b in others.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wherefrom.data import blimp
from wherefrom.data.example import MASK, Example, Spans
from wherefrom.data.inflection import other_number
from wherefrom.data.tables import BadRow, Row, label_text, shown, written

Columns = Mapping[str, str]
NUMBERS = ("singular", "plural")
SPARSE = (
    "label",
    "target",
    "foil",
    "prefix",
    "cues",
    "rationale",
    "answer",
    "attractors",
    "group",
    "region",
)  # what some rows may have and some not
ANY_CELL = ("text", "pair", "label", "target", "foil", "prefix", "group")  # parts that a number or a text can be


def plain(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """Columns named after the fields of `Example`, and `pair` for a second text.

    A row that has no target, foil, … or an empty one has none. A target belongs at the mask, or after the text where
    there is none: which of the two a model can be asked for is the model's business.
    """
    if "image" in columns:
        return picture(id, row, columns, labels)
    text = _text(row, columns, "text")
    pair = _text(row, columns, "pair") if "pair" in columns else None
    target, foil, prefix = (
        None if (value := _given(row, columns, name)) is None else written(value, columns[name])
        for name in ("target", "foil", "prefix")
    )
    last = text if pair is None else pair
    attractors, group = (_given(row, columns, name) for name in ("attractors", "group"))
    return Example(
        id,
        text if pair is None else (text, pair),
        label=_label(row, columns, labels),
        target=target,
        foil=foil,
        cues=_spans(row, columns, "cues", last),
        rationale=_spans(row, columns, "rationale", last),
        answer=_spans(row, columns, "answer", last),
        attractors=None if attractors is None else _whole(attractors, columns["attractors"]),
        group=None if group is None else str(group),
        prefix=prefix,
    )


def picture(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """A picture in the place of a text: the bytes of a file, bare or as `datasets` writes them, or its path."""
    label = _label(row, columns, labels)
    group = _given(row, columns, "group")
    return Example(
        id,
        "",
        label,
        group=None if group is None else str(group),
        image=_image(_cell(row, columns, "image"), "image"),
        region=None if (region := _given(row, columns, "region")) is None else _bytes(region),
    )


def _image(value: Any, part: str) -> bytes | str:
    found = (value.get("bytes") or value.get("path")) if isinstance(value, Mapping) else value
    if not isinstance(found, bytes | str):
        raise BadRow(f"'{part}' is {shown(value)}; expected the bytes of an image file, or its path")
    return found


def _bytes(value: Any) -> bytes:
    found = _image(value, "region")
    return found if isinstance(found, bytes) else Path(found).read_bytes()


def questions(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """QQP: a pair of questions. Rows whose source was not UTF-8 are marked `garbled` in some copies."""
    if row.get("garbled") is True:
        raise BadRow("its source was not UTF-8")
    return plain(id, row, columns, labels)


def stars(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """Reviews with 1 to 5 stars, as polarity: 1 and 2 are negative, 4 and 5 positive, 3 is neither."""
    if _first(row, columns["stars"]) is None:
        return plain(id, row, columns, labels)
    count = _whole(_cell(row, columns, "stars"), columns["stars"])
    if count not in (1, 2, 4, 5):
        raise BadRow(f"{count} stars are neither negative (1, 2) nor positive (4, 5)")
    return Example(id, _text(row, columns, "text"), label=labels[int(count > 3)])


def hatexplain(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """Posts labelled by three annotators; the label is the majority's.

    A token belongs to the human rationale when at least half of the annotators who marked a rationale marked it.
    """
    annotators = row.get("annotators")
    votes = _cell(row, columns, "labels") if annotators is None else annotators["label"]
    named = [label_text(vote, "labels") for vote in votes]
    counts = Counter(labels[int(vote)] if vote.isdigit() else vote for vote in named)
    if not counts:
        raise BadRow("it has no labels")
    (label, most), *others = counts.most_common()
    if others and others[0][1] == most:
        raise BadRow(f"the annotators do not agree: {', '.join(counts)}")
    tokens = _cell(row, columns, "tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) and token for token in tokens):
        raise BadRow(f"'tokens' is {shown(tokens)}, not a list of words")
    marks = _cell(row, columns, "rationales") or []
    if wrong := [len(each) for each in marks if len(each) != len(tokens)]:
        raise BadRow(f"a rationale has {wrong[0]} marks for {len(tokens)} tokens")
    marked = [2 * sum(each[i] for each in marks) >= max(1, len(marks)) for i in range(len(tokens))]
    return Example(id, " ".join(tokens), label=label, rationale=token_spans(tokens, marked))


def entailment(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """e-SNLI: a pair; the rationale are the words of the second text that at least half of the annotators highlighted.

    Highlights are the places of words, `0,3,4`, or `{}` for none, in columns `Sentence2_Highlighted_1` to `_3`.
    """
    found = plain(id, row, columns, labels)
    cells = [cell for name, cell in row.items() if str(name).startswith("Sentence2_Highlighted_") and cell]
    if not cells:
        return found
    words = found.text[1].split()
    marks = [{int(place) for place in str(cell).split(",") if place.strip().isdigit()} for cell in cells]
    marked = [2 * sum(at in each for each in marks) >= len(marks) for at in range(len(words))]
    return replace(found, text=(found.text[0], " ".join(words)), rationale=token_spans(words, marked))


def token_spans(tokens: Sequence[str], marked: Sequence[bool]) -> Spans:
    """Where the marked tokens stand when all are joined by spaces; neighbours become one span.

    >>> token_spans(["a", "very", "bad", "film"], [False, True, True, False])
    ((2, 10),)
    """
    spans: list[tuple[int, int]] = []
    start, before = 0, False
    for token, mark in zip(tokens, marked, strict=True):
        end = start + len(token)
        if mark and before:
            spans[-1] = (spans[-1][0], end)
        elif mark:
            spans.append((start, end))
        start, before = end + 1, mark
    return tuple(spans)


def squad(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:  # noqa: ARG001
    """A question and its context; `answer` holds every gold answer, none where there is none (v2)."""
    question, context = _text(row, columns, "question"), _text(row, columns, "context")
    answers = _cell(row, columns, "answers")
    if isinstance(answers, Mapping):  # as Hugging Face has it
        texts, starts = answers["text"], answers["answer_start"]
    else:
        texts, starts = answers, _cell(row, columns, "starts")
    spans = tuple((start, start + len(text)) for text, start in zip(texts, starts, strict=True))
    right = [context[a:b] == text for (a, b), text in zip(spans, texts, strict=True)]
    if texts and not any(right):
        a, b = spans[0]
        raise BadRow(f"answer {shown(texts[0])} does not stand at its place, where {shown(context[a:b])} does")
    kept = (span for span, fits in zip(spans, right, strict=True) if fits)
    return Example(id, (question, context), answer=tuple(dict.fromkeys(kept)))


def linzen_published(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """Read a row of Linzen's file: places are counted from 1, and the verb's other number follows from its spelling."""
    tag = _text(row, columns, "label")
    parts = {
        "sentence": _text(row, columns, "sentence"),
        "index": _whole(_cell(row, columns, "index"), columns["index"]) - 1,
        "target": (verb := _text(row, columns, "target")),
        "foil": other_number(verb, tag),
        "attractors": _cell(row, columns, "attractors"),
        "label": ("VBZ", "VBP").index(tag),
    }
    return linzen(id, parts, {name: name for name in parts}, labels)


def linzen(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:  # noqa: ARG001
    """A sentence of words joined by spaces, its verb to be masked, and the verb's other number."""
    words = _text(row, columns, "sentence").split()
    verb, wrong = _text(row, columns, "target").lower(), _text(row, columns, "foil").lower()
    index = _whole(_cell(row, columns, "index"), columns["index"])
    if not 0 <= index < len(words) or words[index].lower() != verb:
        raise BadRow(f"{verb!r} is not word {index} of the sentence")
    return Example(
        id,
        " ".join([*words[:index], MASK, *words[index + 1 :]]),
        label=_verb_number(row, columns, verb, wrong),
        target=verb,
        foil=wrong,
        attractors=_whole(_cell(row, columns, "attractors"), columns["attractors"]),
    )


def _verb_number(row: Row, columns: Columns, verb: str, wrong: str) -> str:
    """Singular or plural: the label where there is one (Goldberg's file has none), else by the verb's two forms."""
    if _first(row, columns["label"]) is None:
        return blimp.number(verb, wrong)
    return NUMBERS[_whole(_cell(row, columns, "label"), columns["label"])]


def minimal_pairs(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:  # noqa: ARG001
    """BLiMP's agreement paradigms: target, foil and cues by the paradigm's structure (wherefrom/data/blimp.py)."""
    paradigm = _text(row, columns, "group")
    found = blimp.annotate(paradigm, _text(row, columns, "good"), _text(row, columns, "bad"))
    return Example(
        id,
        found.text,
        label=found.number,
        target=found.target,
        foil=found.foil,
        cues=found.cues,
        attractors=found.attractors,
        group=paradigm,
    )


def prompts(id: str, row: Row, columns: Columns, labels: Sequence[str]) -> Example:
    """The same for a language model: the words before the one in which the sentences differ."""
    return replace(prompt(minimal_pairs(id, row, columns, labels)), label=None)


def prompt(example: Example) -> Example:
    """What stands before the mask of an example, with what decides there.

    >>> prompt(Example("1", "The cats [MASK] here.", "plural", "are", "is", cues=((4, 8),))).text
    'The cats'
    """
    before, mask, _ = str(example.text).partition(MASK)
    text = before.rstrip()
    if not mask or not text or any(end > len(text) for _, end in example.cues):
        raise BadRow("what decides does not stand before the word that is asked for")
    return replace(example, text=text)


def _first(row: Row, names: str) -> str | None:
    """Which of the column's names this row has."""
    return next((name for name in names.split("|") if name in row), None)


def _cell(row: Row, columns: Columns, part: str) -> Any:
    name = _first(row, columns[part])
    if name is None:
        raise BadRow(f"it has no column '{columns[part]}'")
    return row[name]


def _given(row: Row, columns: Columns, part: str) -> Any:
    """The cell of a part that some rows have and some do not: None where it is missing or empty."""
    name = _first(row, columns[part]) if part in columns else None
    value = None if name is None else row[name]
    return None if _empty(value) else value


def _empty(value: Any) -> bool:
    """Whether a cell says nothing: an empty text, or what pandas writes for one."""
    if isinstance(value, float):
        return math.isnan(value)
    return value == "" if isinstance(value, str) else type(value).__name__ in ("NAType", "NaTType")


def _text(row: Row, columns: Columns, part: str) -> str:
    return written(_cell(row, columns, part), columns[part])


def _whole(value: object, column: str) -> int:
    try:
        number = float(label_text(value, column))
    except (BadRow, ValueError):
        number = math.nan
    if not math.isfinite(number) or number != int(number):
        raise BadRow(f"'{column}' is {shown(value)}, not a whole number")
    return int(number)


def _label(row: Row, columns: Columns, labels: Sequence[str]) -> str | int | None:
    """The name of the class where the dataset names its classes, else its id or what stands there; None in a row of
    which no label was written.
    """
    if "label" not in columns or _first(row, columns["label"]) is None:
        return None
    raw = label_text(_cell(row, columns, "label"), columns["label"])
    if raw == "-1":
        return None  # GLUE hides the labels of its test sets so
    if not raw.isdigit():
        if labels and raw not in labels:
            raise BadRow(f"label {raw!r} is none of {', '.join(labels)}")
        return raw
    number = int(raw)
    if not labels:
        return number
    if number >= len(labels):
        raise BadRow(f"label {number} is none of {len(labels)} classes: {', '.join(labels)}")
    return labels[number]


def _spans(row: Row, columns: Columns, part: str, text: str) -> Spans:
    """Pairs (start, end) of characters; a csv writes them as JSON."""
    value = _given(row, columns, part)
    try:
        found = json.loads(value) if isinstance(value, str) else value or []
        spans = tuple((int(start), int(end)) for start, end in found)
    except (ValueError, TypeError):
        raise BadRow(f"'{columns[part]}' is {shown(value)}, not a list of (start, end)") from None
    if outside := [span for span in spans if not 0 <= span[0] < span[1] <= len(text)]:
        raise BadRow(f"span {outside[0]} of '{columns[part]}' lies outside the {len(text)} characters of the text")
    return spans
