"""Rows for the training tests, from a small grammar, so that a fresh clone needs no data."""

from __future__ import annotations

import json
import random
from pathlib import Path

SUBJECTS = ["the film", "this movie", "the story", "the acting", "the ending", "the script", "the music", "the plot"]
GOOD = ["wonderful", "great", "charming", "beautiful", "excellent", "funny", "delightful", "clever"]
BAD = ["terrible", "boring", "awful", "dull", "bad", "stupid", "annoying", "ugly"]
HOW = ["very", "truly", "really", "so", "rather", "quite"]


def reviews(count: int, seed: int = 0) -> list[dict[str, object]]:
    """Short judgements, half of them good (1), half bad (0); some negated, so that one word does not decide."""
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    for index in range(count):
        label = index % 2
        negated = rng.random() < 0.2
        word = rng.choice(GOOD if label != negated else BAD)
        verb = "is not" if negated else "is"
        rows.append({"text": f"{rng.choice(SUBJECTS)} {verb} {rng.choice(HOW)} {word} .", "label": label})
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write rows as jsonl."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
