"""Question answering: SQuAD's scores, windows, spans, a training that resumes, and questions made by templates."""

from __future__ import annotations

import json
import random
import runpy
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForQuestionAnswering
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidInput, InvalidOption, UnknownName, UnsupportedModel, WherefromWarning
from wherefrom.training import checkpoints, cloze, loop, qa, squad
from wherefrom.training.squad import ContextQuestion

OTHER_WORDS = ("a", "dog", "key", "cabinets", "to", "of", "not", "and")
FIXTURES = Path(__file__).parents[1] / "fixtures"
V1, V2 = (str(FIXTURES / f"squad-{version}.json") for version in ("v1.1", "v2.0"))


def run(out: Path, **changed: object) -> loop.Schedule:
    settings: dict[str, object] = {"device": "cpu", "progress": False, "learning_rate": 3e-3, "patience": 0}
    return loop.Schedule(out, **{"batch": 8, **settings, **changed})  # type: ignore[arg-type]


def save_start(folder: Path, **changes: Any) -> str:
    tiny.model("bert", "masked-lm", **changes).save_pretrained(folder)
    tiny.tokenizer(model_max_length=40).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny masked language model that reads 40 tokens."""
    return save_start(tmp_path_factory.mktemp("start"))


def nested(questions: list[ContextQuestion]) -> dict[str, Any]:
    """SQuAD's JSON with one paragraph per question."""
    paragraphs = [
        {
            "context": question.context,
            "qas": [
                {
                    "id": str(i),
                    "question": question.question,
                    "answers": [{"text": question.context[a:b], "answer_start": a} for a, b in question.answers],
                }
            ],
        }
        for i, question in enumerate(questions)
    ]
    return {"version": "2.0", "data": [{"title": "films", "paragraphs": paragraphs}]}


def films(count: int, *, unanswered: float = 0.0, words: int = 12) -> list[ContextQuestion]:
    """Contexts of random words; the answer is the film and what it is, where there is one."""
    rng = random.Random(7)
    questions = []
    for _ in range(count):
        context = [rng.choice(OTHER_WORDS) for _ in range(words)]
        if rng.random() >= unanswered:
            context[rng.randrange(words)] = "film good"
        text = " ".join(context)
        at = text.find("film")
        questions.append(ContextQuestion("is the film good", text, () if at < 0 else ((at, at + len("film good")),)))
    return questions


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("data") / "films.json"
    file.write_text(json.dumps(nested(films(96, unanswered=0.2))))
    return str(file)


# Scores ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "f1"),
    [
        ("Denver Broncos", "the Denver Broncos!", 1, 1),
        ("in 1871", "1871", 0, 2 / 3),  # precision 1/2, recall 1
        ("the cat the dog the cat", "cat cat cat bird", 0, 4 / 7),  # 2 of 3 predicted, 2 of 4 gold
        ("An A.F.C. title", "afc", 0, 2 / 3),
        ("Theatre", "The atre", 0, 0),  # an article inside of a word stays
        ("", "1871", 0, 0),
        ("", "", 1, 1),
        ("the", "", 1, 1),
    ],
)
def test_scores_by_hand(prediction: str, gold: str, exact: float, f1: float) -> None:
    assert squad.exact_match(prediction, gold) == exact
    assert squad.token_f1(prediction, gold) == pytest.approx(f1)


def test_the_best_gold_answer_counts_and_questions_are_averaged() -> None:
    context = "built in 1871 by Ada Lind"
    questions = [
        ContextQuestion("When?", context, ((6, 13), (9, 13))),  # "in 1871", "1871"
        ContextQuestion("Who?", context, ((17, 25),)),  # "Ada Lind"
        ContextQuestion("Why?", context, ()),
        ContextQuestion("Where?", context, ()),
    ]
    scores = squad.score_answers(["1871", "by Ada Lind", "", "Ada"], questions)
    assert scores.exact == (1 + 0 + 1 + 0) / 4
    assert scores.f1 == pytest.approx((1 + 4 / 5 + 1 + 0) / 4)  # precision 2/3, recall 1
    assert scores.questions == 4


# Reading --------------------------------------------------------------------------------------------------


def test_squads_json_is_read_in_both_versions() -> None:
    first = squad.read_questions(V1, "train")
    assert [question.answer_texts for question in first[:2]] == [
        ["1871", "in 1871"],
        ["Ada Lind", "the engineer Ada Lind"],
    ]
    second = squad.read_questions(V2, "train")
    assert [question.answer_texts for question in second] == [["1990"], [""], ["the harbor of Skarvik"]]


def test_a_folder_has_splits_and_a_bad_row_is_counted(tmp_path: Path) -> None:
    row = {"context": "It opened in 1990.", "question": "When?", "answers": ["1990"], "answer_starts": [13]}
    folder = tmp_path / "squad_v1"
    folder.mkdir()
    (folder / "train.jsonl").write_text(json.dumps(row))
    (folder / "validation.jsonl").write_text("\n".join(json.dumps({**row, "answer_starts": [at]}) for at in (13, 4)))
    assert len(squad.read_questions(str(folder), "train")) == 1
    with pytest.warns(WherefromWarning, match="1 rows left out, the first is row 2"):
        assert len(squad.read_questions(str(folder), "validation")) == 1
    with pytest.raises(InvalidInput):
        squad.read_questions("grammar", "train")
    with pytest.raises(UnknownName):
        squad.read_questions(str(tmp_path / "nothere.json"), "train")


# Windows and spans ----------------------------------------------------------------------------------------


def test_windows_overlap_cover_the_context_and_hold_the_answer(start: str) -> None:
    network, tokenizer = qa.add_answer_head(start), checkpoints.tokenizer(start)
    questions = [*films(20, words=60, unanswered=0.3), *films(3, words=6)]
    windows = qa.cut_windows(questions, network, tokenizer, qa.WindowSize(longest=20, overlap=7))
    for place, question in enumerate(questions):
        cuts = [window for window in windows if window.question == place]
        assert (len(cuts) > 1) == (len(question.context.split()) > 10)
        spans = [[(int(a), int(b)) for a, b in window.offsets if b > a] for window in cuts]
        covered = {i for window in spans for a, b in window for i in range(a, b)}
        assert covered == {i for i, letter in enumerate(question.context) if letter != " "}
        for before, after in pairwise(spans):
            assert before[-7:] == after[:7]
        for window, inside in zip(cuts, spans, strict=True):
            assert len(window.row["input_ids"]) <= 20
            first, last = window.row["start_positions"], window.row["end_positions"]
            held = [a for a in question.answers if inside[0][0] <= a[0] and a[1] <= inside[-1][1]]
            if held:
                assert question.context[window.offsets[first, 0] : window.offsets[last, 1]] == "film good"
            else:
                assert (first, last) == (0, 0)


def test_a_long_question_is_cut_and_windows_without_room_are_refused(start: str) -> None:
    network, tokenizer = qa.add_answer_head(start), checkpoints.tokenizer(start)
    long = [ContextQuestion("is the film good " * 20, "the dog", ())]
    [window] = qa.cut_windows(long, network, tokenizer, qa.WindowSize(longest=30))
    assert len(window.row["input_ids"]) == 3 + 10 + 2
    for size in (qa.WindowSize(longest=41), qa.WindowSize(longest=20, overlap=11)):
        with pytest.raises(InvalidOption):
            qa.cut_windows(long, network, tokenizer, size)


def test_the_best_span_is_the_best_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        starts, ends = rng.normal(size=(2, 70)).astype(np.float32)
        offsets = np.array([(0, 0)] * 9 + [(2 * i, 2 * i + 1) for i in range(60)] + [(0, 0)])
        pairs = {(i, j): starts[i] + ends[j] for i in range(9, 69) for j in range(i, min(i + 30, 69))}
        first, last = max(pairs, key=lambda pair: pairs[pair])
        score, *span = qa.best_span(starts, ends, offsets)
        assert span == [first, last]
        assert score == pytest.approx(pairs[first, last])


def test_the_best_window_answers_and_none_if_no_answer_scores_higher() -> None:
    offsets = np.array([(0, 0), (0, 3), (4, 7)])
    windows = [qa.Window(0, {}, offsets, 0), qa.Window(0, {}, offsets + np.array([(0, 0), (4, 4), (4, 4)]), 0)]
    answered = ContextQuestion("?", "one two six", ((0, 3),))
    unanswered = ContextQuestion("?", "one two six", ())
    logits = [(np.array([2.0, 1, 0]), np.array([2.0, 0, 1])), (np.array([1.5, 0, 2]), np.array([1.5, 0, 1.5]))]
    assert qa.choose_answers([answered], windows, logits) == ["six"]  # 2 + 1.5 > 1 + 1
    assert qa.choose_answers([unanswered], windows, logits) == ["six"]  # the lowest 1.5 + 1.5 is below 3.5
    lower = [logits[0], (np.array([1.5, 0, 1]), np.array([1.5, 0, 1.5]))]
    assert qa.choose_answers([unanswered], windows, lower) == [""]  # 3 > 2.5
    assert qa.choose_answers([answered], windows, lower) == ["six"]  # every question has an answer


# Training -------------------------------------------------------------------------------------------------


def test_training_learns_to_point_at_the_answer(data: str, tmp_path: Path) -> None:
    start = save_start(tmp_path / "start", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    outcome = qa.train([data], run(tmp_path / "out", epochs=8), start, windows=qa.WindowSize(longest=16, overlap=3))
    assert outcome.metrics["f1"] > 0.7
    report = json.loads((tmp_path / "out" / "training.json").read_text())
    assert report["train_windows"] > report["train_rows"]
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").config.num_labels == 2
    shown = CliRunner().invoke(app, ["train", "test", str(tmp_path / "out"), data, "--longest", "16"])
    assert shown.exit_code == 0, shown.output
    scores = qa.measure(str(tmp_path / "out"), data, qa.WindowSize(16))
    assert shown.output == f"exact match {scores.exact:.4f}  F1 {scores.f1:.4f}  (96 questions)\n"
    assert scores.exact > 0.7
    refused = CliRunner().invoke(app, ["train", "test", str(tmp_path / "out"), data, "--pair", "context"])
    assert isinstance(refused.exception, InvalidOption)
    example = films(1)[0]
    explanation = wherefrom.explain(
        (example.question, example.context), model=str(tmp_path / "out"), method="attcat", target="answer"
    )
    assert (explanation.target.index, explanation.target.end) == (
        explanation.tokens.index("film", 6),
        explanation.tokens.index("good", 6),
    )


def test_an_interrupted_training_resumes_and_ends_as_if_undisturbed(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(out: str) -> loop.Trained:
        settings = run(tmp_path / out, epochs=2, batch=2, learning_rate=1e-3, checks=2)
        return qa.train([V1], settings, start, valid=V2, windows=qa.WindowSize(longest=36, overlap=4))

    undisturbed = train("undisturbed")
    saves = 0

    def interrupt(*_: Any, **__: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop.FiniteLoss, "on_save", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            train("cut")
    resumed = train("cut")
    assert resumed.resumed
    assert resumed.steps == undisturbed.steps
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("undisturbed", "cut"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_held_out_contexts_keep_their_questions_together() -> None:
    questions = [ContextQuestion(f"{j}?", f"context {i}", ()) for i in range(20) for j in range(3)]
    rest, held = qa.hold_out_contexts(questions, 0.2, seed=1)
    assert len(held) == 12
    assert sorted(map(str, [*rest, *held])) == sorted(map(str, questions))
    assert not {question.context for question in rest} & {question.context for question in held}
    assert qa.hold_out_contexts(questions, 0.2, seed=1) == (rest, held)
    with pytest.raises(InvalidInput):
        qa.hold_out_contexts(questions[:3], 0.2, seed=1)


@pytest.mark.parametrize("layout", ["bert", "distilbert"])
def test_lengthened_models_read_short_texts_as_before(layout: str) -> None:
    network = tiny.model(layout, "question-answering")
    ids = torch.tensor([tiny.ids(30)])
    before = network(ids).start_logits
    table = network.get_parameter(f"{network.base_model_prefix}.embeddings.position_embeddings.weight").detach().clone()
    qa.lengthen_positions(network, 100)
    torch.testing.assert_close(network(ids).start_logits, before)
    assert network(torch.tensor([tiny.ids(100)])).start_logits.shape == (1, 100)
    now = network.get_parameter(f"{network.base_model_prefix}.embeddings.position_embeddings.weight")
    torch.testing.assert_close(now, torch.cat([table, table, table[:20]]))
    assert network.config.max_position_embeddings == 100
    with pytest.raises(InvalidOption):
        qa.lengthen_positions(network, 100)


def test_positions_that_do_not_start_at_zero_are_refused() -> None:
    with pytest.raises(UnsupportedModel):
        qa.lengthen_positions(tiny.model("roberta", "question-answering"), 100)


def test_a_lengthened_model_is_opened_again(start: str, tmp_path: Path) -> None:
    qa.train([V1], run(tmp_path / "out", steps=2), start, valid=V2, positions=90)
    explanation = wherefrom.explain(
        ("is the film good", "the dog is " * 20), model=str(tmp_path / "out"), method="attcat"
    )
    assert len(explanation.tokens) > 40
    with pytest.raises(InvalidOption):
        qa.train([V1], run(tmp_path / "short"), start, valid=V2, positions=30)
    assert not (tmp_path / "short").exists()


SCRIPT = Path(__file__).parents[2] / "scripts" / "squad.py"


@pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/squad.py is not beside the tests")
def test_articles_are_held_out_with_all_their_questions(tmp_path: Path) -> None:
    table = tmp_path / "table.jsonl"
    rows = [
        {
            "id": str(i),
            "title": f"article {i // 4}",
            "context": f"context {i // 2}",
            "question": f"{i}?",
            "answers": ["text"],
            "answer_starts": [3],
        }
        for i in range(12)
    ]
    table.write_text("\n".join(map(json.dumps, rows)))
    runpy.run_path(str(SCRIPT))["split_articles"](table, tmp_path / "cut", held_out=1, seed=0)
    rest, held = (
        squad.read_questions(str(tmp_path / "cut" / f"{name}.json"), "train") for name in ("train", "held_out")
    )
    numbers = [[int(question.question[:-1]) for question in questions] for questions in (rest, held)]
    assert sorted(numbers[0] + numbers[1]) == list(range(12))
    assert len(numbers[1]) == 4
    assert len({i // 4 for i in numbers[1]}) == 1
    assert {question.answer_texts[0] for question in held} == {"text"}


# Questions by templates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("Tesla arrived with nothing in New York in 1884.", "When Tesla arrived with nothing in New York?", "1884"),
        ("Tesla arrived with nothing in New York.", "Where Tesla arrived with nothing?", "New York"),
        ("The tower was built by Ada Lind for the town.", "Who The tower was built for the town?", "Ada Lind"),
        ("The old tower has exactly 214 steps.", "How many The old tower has exactly steps?", "214"),
        ("It closed early because of the snow.", "Why It closed early?", "the snow"),
        (
            "It opened in the winter and is called Little Sea.",
            "What It opened in the winter and is called?",
            "Little Sea",
        ),
        ("Ada Lind was the first engineer of the town.", "Who was the first engineer of the town?", "Ada Lind"),
    ],
)
def test_sentences_become_questions(sentence: str, question: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloze, "DROPPED", 0.0)

    class First(np.random.Generator):
        def integers(self, *_: Any, **__: Any) -> Any:
            return 0

    clozes = cloze.ask_sentence(sentence, First(np.random.PCG64(0)))
    assert (question, answer) in [(item.question, item.answer) for item in clozes]
    assert all(sentence[item.start :].startswith(item.answer) for item in clozes)


def test_written_questions_are_read_as_squad(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    lines = ["The tower was built by Ada Lind in 1871 . It has exactly 214 steps and a lamp @-@ room .", "too short"]
    text.write_text("\n".join([f"{lines[0]} " * 2, lines[1]]))
    out = tmp_path / "questions.json"
    shown = CliRunner().invoke(app, ["train", "questions", str(text), V1, "--out", str(out), "--per-context", "3"])
    assert shown.exit_code == 0, shown.output
    questions = squad.read_questions(str(out), "train")
    assert shown.output == f"{len(questions)} questions in {out}\n"
    contexts = [question.context for question in questions]
    assert all(contexts.count(context) <= 3 for context in contexts)
    assert any("lamp-room." in context for context in contexts)
    assert {"214", "1871"} & {question.answer_texts[0] for question in questions}
    again = tmp_path / "again.json"
    cloze.write_questions([str(text), V1], again, per_context=3)
    assert again.read_text() == out.read_text()
    shutil.copy(text, tmp_path / "short.txt")
    (tmp_path / "short.txt").write_text("nothing here")
    with pytest.raises(InvalidInput):
        cloze.write_questions([str(tmp_path / "short.txt")], again)
