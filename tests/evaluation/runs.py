"""A tiny model in a folder and a small dataset, as a command line finds them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

import tiny

WORDS = [word for word in tiny.WORDS.split() if word.isalpha()]
METHODS = ("attention-rollout", "globenc", "attcat")
METRICS = ("aopc", "log-odds", "sufficiency", "spearman:saliency", "cue-dot")
AGAIN = ("randomisation", "compression")


def model_folder(folder: Path, task: str = "classification", seed: int = 0) -> Path:
    tiny.model(task=task, seed=seed).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def rows(count: int, seed: int = 0, longest: int = 12) -> list[dict[str, object]]:
    """Sentences of random words; the second word is the cue, and every tenth row is longer than the model reads."""
    random = np.random.default_rng(seed)
    found = []
    for row in range(count):
        length = 60 if row % 10 == 9 else int(random.integers(3, longest))
        words = [WORDS[i] for i in random.integers(0, len(WORDS), length)]
        start = len(words[0]) + 1
        found.append({"text": " ".join(words), "label": row % 3, "cues": [[start, start + len(words[1])]]})
    return found


def data_file(path: Path, count: int, seed: int = 0) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)), encoding="utf-8")
    return path


def tables(folder: Path) -> dict[str, bytes]:
    """The final tables, byte for byte."""
    return {path.name: path.read_bytes() for path in [*sorted(folder.glob("*.parquet")), folder / "summary.csv"]}


def shard(content: bytes) -> list[dict[str, Any]]:
    """What is in a shard, without the times it took."""
    found: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    return found
