"""ERASER's format: a row names documents beside it, and the tokens of them that people marked as evidence.

    {"annotation_id": "a", "classification": "NEG", "query": "…",
     "evidences": [[{"docid": "a", "start_token": 4, "end_token": 6}]]}

Documents are files of `docs/` beside the table, or rows {"docid": …, "document": …} of `docs.jsonl`; their tokens stand
between blanks. A row becomes the cells of a plain one: `text` is the document, `pair` the second of two (e-SNLI's
hypothesis), `label`, `rationale` what any evidence marks in the last of them; `query` is kept for columns={"text":
"query", "pair": "text"}.

DeYoung et al. (2020), ERASER: A Benchmark to Evaluate Rationalized NLP Models. ACL. https://arxiv.org/abs/1911.03429
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from wherefrom.data.rows import token_spans
from wherefrom.data.tables import BadRow, Row

SIDES = ("_premise", "_hypothesis")


def is_eraser(row: Row) -> bool:
    return "annotation_id" in row and "evidences" in row


def cells(row: Row, folder: Path) -> Row:
    """The row as a plain table would have it."""
    marks: dict[str, list[tuple[int, int]]] = {}
    for each in (one for group in row["evidences"] or [] for one in group):
        marks.setdefault(each["docid"], []).append((each["start_token"], each["end_token"]))
    names = _documents(row, marks)
    words = [_document(folder, name).split() for name in names]
    found: dict[str, Any] = {"text": " ".join(words[0]), "label": row["classification"], "query": row.get("query")}
    if len(names) == 2:
        found["pair"] = " ".join(words[1])
    spans = marks.get(names[-1], [])
    marked = [any(start <= at < end for start, end in spans) for at in range(len(words[-1]))]
    return {**found, "rationale": token_spans(words[-1], marked)}


def _documents(row: Row, marks: dict[str, list[tuple[int, int]]]) -> list[str]:
    """The documents that a row is about: one, or both sides of a pair."""
    names = list(row.get("docids") or marks or [row["annotation_id"]])
    for name in names:
        for side in SIDES:
            if name.endswith(side):
                return [name.removesuffix(side) + each for each in SIDES]
    if len(set(names)) > 2:
        raise BadRow(f"has evidence in {len(set(names))} documents; expected one, or two that are a pair")
    return list(dict.fromkeys(names))


def _document(folder: Path, name: str) -> str:
    known = _table(folder / "docs.jsonl")
    if name in known:
        return known[name]
    path = folder / "docs" / name
    if Path(name).name != name or not path.is_file():
        raise BadRow(f"names the document {name!r}, which is neither in docs/ nor in docs.jsonl beside the table")
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def _table(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return {row["docid"]: row["document"] for row in rows}
