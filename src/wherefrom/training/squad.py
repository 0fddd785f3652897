"""Questions with their contexts in SQuAD's format, and the two scores of SQuAD's evaluation: exact match and token F1.

Rajpurkar et al. 2016 (v1.1), 2018 (v2, with questions that the context does not answer).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wherefrom.data import read
from wherefrom.data.example import Spans
from wherefrom.errors import InvalidInput, warn

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class ContextQuestion:
    """A question about a context; `answers` are the places of every gold answer, none where there is none (v2)."""

    question: str
    context: str
    answers: Spans

    @property
    def answer_texts(self) -> list[str]:
        """Gold answers as SQuAD's evaluation reads them: the empty text where the context has no answer."""
        return [self.context[start:end] for start, end in self.answers] or [""]


@dataclass(frozen=True)
class AnswerScores:
    """Mean exact match and token F1 over questions, both from 0 to 1."""

    exact: float
    f1: float
    questions: int


def read_questions(source: str, split: str) -> list[ContextQuestion]:
    """Read SQuAD's JSON, a table in its layout, a folder of splits, or a dataset's name such as squad_v1."""
    path = Path(source)
    # A file may hold either version: v2's layout holds v1.1's rows.
    inside = split if path.is_dir() else None
    data = read("squad_v2", inside, folder=path) if path.exists() else read(source, split)
    questions = [
        ContextQuestion(*text, example.answer)
        for example in data.surveyed()
        if not isinstance(text := example.text, str)
    ]
    if not questions:
        raise InvalidInput(f"{source} holds no questions with contexts; expected SQuAD's JSON, squad_v1 or squad_v2")
    if data.dropped:
        first = data.dropped[0]
        warn(f"{source}: {len(data.dropped)} rows left out, the first is row {first.row}: {first.reason}")
    return questions


def score_answers(predictions: Sequence[str], questions: Sequence[ContextQuestion]) -> AnswerScores:
    """Score each prediction against its best gold answer, and average over questions."""
    exact = f1 = 0.0
    for prediction, question in zip(predictions, questions, strict=True):
        exact += max(exact_match(prediction, gold) for gold in question.answer_texts)
        f1 += max(token_f1(prediction, gold) for gold in question.answer_texts)
    return AnswerScores(exact / len(questions), f1 / len(questions), len(questions))


def normalize_answer(text: str) -> str:
    """Lowercase, and drop punctuation, articles and repeated spaces, as SQuAD's evaluation does.

    >>> normalize_answer("The  Broncos' (AFC) title!")
    'broncos afc title'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1 if both texts are equal once normalized, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def token_f1(prediction: str, gold: str) -> float:
    """Harmonic mean of precision and recall of the normalized words, counted with repetitions.

    >>> token_f1("the Denver Broncos", "Broncos")
    0.6666666666666666
    """
    predicted, expected = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if not predicted or not expected:
        return float(predicted == expected)
    common = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * common / (len(predicted) + len(expected))
