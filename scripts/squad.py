"""Cut a table in SQuAD's layout by article into train.json and held_out.json; score a baseline that needs no training.

python scripts/squad.py split ../shared/data/squad_v1/validation.parquet FOLDER --held-out 8
python scripts/squad.py baseline FOLDER/held_out.json
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wherefrom.data.tables import Row, rows
from wherefrom.files import write
from wherefrom.training.squad import normalize_answer, read_questions, score_answers


def split_articles(table: Path, folder: Path, held_out: int, seed: int) -> None:
    """Write the questions of `held_out` articles, drawn by the seed, to one file and the others to another."""
    questions = [row for _, row in rows(table)]
    titles = sorted({row["title"] for row in questions})
    held = {titles[i] for i in np.random.default_rng(seed).permutation(len(titles))[:held_out]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen_titles in (("train", set(titles) - held), ("held_out", held)):
        chosen = [row for row in questions if row["title"] in chosen_titles]
        write(folder / f"{name}.json", json.dumps(nest_questions(chosen)))
        print(f"{folder / name}.json: {len(chosen)} questions of {len(chosen_titles)} articles")
    print("held out:", ", ".join(sorted(held)))


def nest_questions(questions: Iterable[Row]) -> dict[str, Any]:
    """SQuAD's JSON: articles of paragraphs of questions."""
    articles: dict[str, dict[str, list[Any]]] = {}
    for row in questions:
        answers = [
            {"text": text, "answer_start": start}
            for text, start in zip(row["answers"], row["answer_starts"], strict=True)
        ]
        question = {"id": row["id"], "question": row["question"], "answers": answers}
        articles.setdefault(row["title"], {}).setdefault(row["context"], []).append(question)
    return {
        "version": "1.1",
        "data": [
            {"title": title, "paragraphs": [{"context": c, "qas": qas} for c, qas in paragraphs.items()]}
            for title, paragraphs in articles.items()
        ],
    }


def measure_baseline(source: str) -> None:
    """Answer with the sentence of the context that shares most words with the question."""
    questions = read_questions(source, "validation")
    answers = []
    for question in questions:
        words = set(normalize_answer(question.question).split())
        sentences = re.split(r"(?<=[.!?])\s+", question.context)
        answers.append(max(sentences, key=lambda text: len(words & set(normalize_answer(text).split()))))
    scores = score_answers(answers, questions)
    print(f"exact match {scores.exact:.4f}  F1 {scores.f1:.4f}  ({scores.questions} questions)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    split = commands.add_parser("split")
    split.add_argument("table", type=Path)
    split.add_argument("folder", type=Path)
    split.add_argument("--held-out", type=int, default=8)
    split.add_argument("--seed", type=int, default=0)
    commands.add_parser("baseline").add_argument("data")
    arguments = parser.parse_args()
    if arguments.command == "split":
        split_articles(arguments.table, arguments.folder, arguments.held_out, arguments.seed)
    else:
        measure_baseline(arguments.data)


if __name__ == "__main__":
    main()
