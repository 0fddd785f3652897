"""Questions made from sentences by templates, in SQuAD's format: more training data for `wherefrom train qa`.

A phrase of a sentence becomes the answer, and the rest of its clause the question behind the question word that fits
the phrase (Lewis et al. 2019, Unsupervised Question Answering by Cloze Translation):

    Tesla arrived in New York in 1884.     When Tesla arrived in New York?     1884
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wherefrom.errors import InvalidInput
from wherefrom.files import write
from wherefrom.training.labelled import documents
from wherefrom.training.squad import read_questions

SENTENCE_END = re.compile(r"(?<=[a-z0-9)][.!?]) +(?=[A-Z\"])")
CLAUSE_END = re.compile(r"[,;:()–—]")
DROPPED = 0.1  # share of a question's words that are left out, so that questions are no copies of their sentence
SENTENCE_WORDS = (6, 40)
CLAUSE_WORDS = 4  # a clause with fewer words besides the answer gives way to the sentence
QUESTION_WORDS = 16
CONTEXT_WORDS = (25, 250)

_NAME = r"[A-Z][\w'’-]+(?:(?: of| the| de| von)* [A-Z][\w'’-]+)*"
_COUNT = r"\d[\d,.]*\d|\d|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|hundreds|thousands"
_VERB = "is|was|are|were|has|had|became|won|led|made|wrote|began|gave|took|can|may|will|would"
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_YEAR = r"(?:1\d\d\d|20[0-2]\d)"
_NO_PLACE = re.compile(rf"(?:{_MONTHS}|I|He|She|It|They|English|French|German|Latin)\b")
_NO_SUBJECT = re.compile(r"(?:He|She|It|They|We|I|You|There|This|That|These|Those|Which|Who|What|In|On|At|As|For)\b")


@dataclass(frozen=True)
class ClozeTemplate:
    """A pattern with the groups `cut` (what the question leaves out) and `answer` (a part of it)."""

    words: tuple[str, ...]  # question words, of which one is drawn
    pattern: re.Pattern[str]


TEMPLATES = (
    ClozeTemplate(
        ("When", "In what year"),
        re.compile(
            rf"\b(?P<cut>(?:[Ii]n|[Ss]ince|[Uu]ntil|[Oo]n) (?P<answer>(?:(?:{_MONTHS}) (?:\d\d?, )?)?{_YEAR}))\b"
        ),
    ),
    ClozeTemplate(("Where", "In what place"), re.compile(rf"\b(?P<cut>(?:in|at|near) (?:the )?(?P<answer>{_NAME}))")),
    ClozeTemplate(("Who", "By whom"), re.compile(rf"\b(?P<cut>by (?:the )?(?P<answer>{_NAME}))")),
    ClozeTemplate(
        ("How many",), re.compile(rf"\b(?P<cut>(?P<answer>(?:{_COUNT})(?: million| billion)?))(?= [a-z]+s\b)")
    ),
    ClozeTemplate(
        ("Why",), re.compile(r"\b(?P<cut>(?:because of|because|due to) (?P<answer>[^,;:.()]{8,60}))(?=[,;:.])")
    ),
    ClozeTemplate(
        ("What", "What name"),
        re.compile(r"\b(?:called|known as|named) (?P<cut>(?:the )?(?P<answer>[\w'’-]+(?: [\w'’-]+){0,3}))(?=[,;:.)])"),
    ),
    ClozeTemplate(
        ("What percentage", "How much"), re.compile(r"(?P<cut>(?P<answer>\d[\d.]*(?:%| percent| per cent)))")
    ),
)
SUBJECT = ClozeTemplate(
    ("Who", "What"), re.compile(rf"^(?P<cut>(?P<answer>(?:The |A |An )?[A-Z][^,;:().]{{2,40}}?)) (?=(?:{_VERB}) )")
)


@dataclass(frozen=True)
class ClozeQuestion:
    """A question, its answer, and where the answer begins in the sentence."""

    question: str
    answer: str
    start: int


def write_questions(sources: Sequence[str], out: Path, per_context: int = 4, seed: int = 0) -> int:
    """Write at most `per_context` questions for each paragraph of the sources as SQuAD's JSON; return their number."""
    rng = np.random.default_rng(seed)
    count = 0
    articles = []
    for source in sources:
        paragraphs = []
        for context in read_contexts(source):
            questions = ask_context(context, rng)
            chosen = [questions[i] for i in sorted(rng.permutation(len(questions))[:per_context])]
            qas = [
                {
                    "id": f"cloze-{count + i}",
                    "question": cloze.question,
                    "answers": [{"text": cloze.answer, "answer_start": cloze.start}],
                }
                for i, cloze in enumerate(chosen)
            ]
            count += len(qas)
            if qas:
                paragraphs.append({"context": context, "qas": qas})
        articles.append({"title": Path(source).name, "paragraphs": paragraphs})
    if not count:
        raise InvalidInput(f"no template fits a sentence of {', '.join(sources)}; expected paragraphs of English prose")
    write(out, json.dumps({"version": "cloze", "data": articles}))
    return count


def read_contexts(source: str) -> Iterator[str]:
    """Paragraphs of 25 to 250 words: the contexts of SQuAD's JSON, or the lines or rows of a text."""
    contexts: Iterable[str]
    if ".json" in Path(source).suffixes:
        contexts = dict.fromkeys(question.context for question in read_questions(source, "train"))
    else:
        contexts = map(join_punctuation, documents(source))
    for context in contexts:
        if CONTEXT_WORDS[0] <= len(context.split()) <= CONTEXT_WORDS[1]:
            yield context


def join_punctuation(text: str) -> str:
    """Undo WikiText's spaces around punctuation.

    >>> join_punctuation("the well @-@ known song ( 1999 ) , which sold 1 @,@ 200 copies .")
    'the well-known song (1999), which sold 1,200 copies.'
    """
    text = re.sub(r" @([,.-])@ ", r"\1", text.strip())
    text = re.sub(r" ([,.;:?!)%]|'s\b)", r"\1", text)
    return re.sub(r"([(]) ", r"\1", text)


def ask_context(context: str, rng: np.random.Generator) -> list[ClozeQuestion]:
    """Make every question that a template makes from a sentence of the context."""
    questions = []
    start = 0
    for sentence in SENTENCE_END.split(context):
        start = context.index(sentence, start)
        if SENTENCE_WORDS[0] <= len(sentence.split()) <= SENTENCE_WORDS[1] and "<unk>" not in sentence:
            questions += [
                ClozeQuestion(cloze.question, cloze.answer, start + cloze.start)
                for cloze in ask_sentence(sentence, rng)
            ]
    return questions


def ask_sentence(sentence: str, rng: np.random.Generator) -> list[ClozeQuestion]:
    """Make questions from one sentence, one for each place at which a template fits."""
    questions = []
    for template in TEMPLATES:
        for match in template.pattern.finditer(sentence):
            if template.words[0] == "Where" and _NO_PLACE.match(match["answer"]):
                continue
            before, after = _clause_around(sentence, match)
            word = template.words[rng.integers(len(template.words))]
            questions.append(_write_question(word, f"{before} {after}", match, rng))
    subject = SUBJECT.pattern.match(sentence)
    if subject is not None and not _NO_SUBJECT.match(subject["answer"]):
        person = re.fullmatch(r"[A-Z]\w+ (?:[A-Z]\w*\.? )?[A-Z]\w+", subject["answer"]) is not None
        rest = CLAUSE_END.split(sentence[subject.end() :])[0]
        questions.append(_write_question("Who" if person else "What", rest, subject, rng))
    return [cloze for cloze in questions if cloze is not None]


def _clause_around(sentence: str, match: re.Match[str]) -> tuple[str, str]:
    """Text before and behind the cut phrase in its clause, or in its sentence if the clause is short."""
    before, after = sentence[: match.start("cut")], sentence[match.end("cut") :]
    near = CLAUSE_END.split(before)[-1], CLAUSE_END.split(after)[0]
    return near if len(" ".join(near).split()) >= CLAUSE_WORDS else (before, after)


def _write_question(
    question_word: str, rest: str, match: re.Match[str], rng: np.random.Generator
) -> ClozeQuestion | None:
    words = rest.rstrip(" .!?").split()
    words = [word for word, draw in zip(words, rng.random(len(words)), strict=True) if draw >= DROPPED]
    if len(words) < CLAUSE_WORDS - 1:
        return None
    return ClozeQuestion(f"{question_word} {' '.join(words[:QUESTION_WORDS])}?", match["answer"], match.start("answer"))
