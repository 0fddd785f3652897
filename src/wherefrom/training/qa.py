"""Fine-tuning for extractive question answering: the start and the end of the answer in a context (Devlin et al. 2019).

A context that is too long is cut into overlapping windows. A window without the answer points at the first token; the
prediction is the span with the highest sum of start and end logit over all windows of a question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import DataCollatorWithPadding, set_seed

from wherefrom.errors import InvalidInput, InvalidOption, UnsupportedModel
from wherefrom.training import checkpoints, classify, loop
from wherefrom.training.squad import AnswerScores, ContextQuestion, read_questions, score_answers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LONGEST = 384  # tokens of a window, of question and context together (BERT's setting for SQuAD)
QUESTION_TOKENS = 64  # longer questions are cut
ANSWER_TOKENS = 30  # longer answers are never predicted
EDGES = ("start_positions", "end_positions")

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WindowSize:
    """Tokens of a window, question included, and tokens that two neighboring windows share.

    None: BERT's 384 tokens, or as many as the model reads; a third of the window is shared.
    """

    longest: int | None = None
    overlap: int | None = None


@dataclass(frozen=True)
class Window:
    """One input of the model, and where its tokens lie in the context: (0, 0) outside of it."""

    question: int  # which question of the list
    row: dict[str, Any]
    offsets: npt.NDArray[np.int64]  # [tokens, 2]
    empty: int  # the token that stands for "no answer here"


def train(
    sources: Sequence[str],
    run: loop.Schedule,
    model: str = "wherefrom/mlm",
    valid: str | None = None,
    held_out: float = 0.1,
    windows: WindowSize | None = None,
    positions: int | None = None,
    fresh: bool = False,
) -> loop.Trained:
    """Fine-tune `model` on the questions of `sources`; without `valid`, some contexts are held out with all questions.

    `positions` lengthens what the model can read before training.
    """
    windows = windows or WindowSize()
    settings = {
        "task": "qa",
        "train": list(sources),
        "valid": valid,
        "held_out": None if valid else held_out,
        "model": model,
        "longest": windows.longest,
        "overlap": windows.overlap,
        "positions": positions,
        "run": run.settings,
    }
    with loop.running(run, settings, fresh):
        questions = [question for source in sources for question in read_questions(source, "train")]
        if valid is None:
            questions, valid_questions = hold_out_contexts(questions, held_out, run.seed)
        else:
            valid_questions = read_questions(valid, "validation")
        set_seed(run.seed)
        tokenizer = checkpoints.tokenizer(model)
        network = add_answer_head(model)
        if positions is not None:
            lengthen_positions(network, positions)
            tokenizer.model_max_length = positions
        train_windows = cut_windows(questions, network, tokenizer, windows)
        valid_windows = cut_windows(valid_questions, network, tokenizer, windows)
        task = loop.Fitting(
            model=network,
            tokenizer=tokenizer,
            train=[window.row for window in train_windows],
            valid=[window.row for window in valid_windows],
            collate=DataCollatorWithPadding(tokenizer),
            best="f1",
            metrics=score_predictions(valid_questions, valid_windows),
            labels=EDGES,
        )
        counts = {"train_rows": len(questions), "train_windows": len(train_windows), "valid_rows": len(valid_questions)}
        return loop.fit(task, run, {**settings, **counts, "parameters": network.num_parameters()})


def measure(
    model: str, data: str, windows: WindowSize | None = None, device: str = "cpu", batch: int = 32
) -> AnswerScores:
    """Measure exact match and F1 of a model on SQuAD's JSON, a table in its layout, or a dataset's name."""
    questions = read_questions(data, "validation")
    network = checkpoints.measured(model, checkpoints.ANSWERER, device)
    return score_answers(predict(network, checkpoints.tokenizer(model), questions, windows, batch), questions)


def predict(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[ContextQuestion],
    windows: WindowSize | None = None,
    batch: int = 32,
) -> list[str]:
    """Predict the answer to each question as it is written in its context; "" where there is none (v2)."""
    inputs = cut_windows(questions, network, tokenizer, windows or WindowSize())
    collate = DataCollatorWithPadding(tokenizer)
    order = sorted(range(len(inputs)), key=lambda i: len(inputs[i].row["input_ids"]))  # little padding
    logits: dict[int, tuple[Logits, Logits]] = {}
    with torch.inference_mode():
        for first in range(0, len(order), batch):
            places = order[first : first + batch]
            rows = [{k: v for k, v in inputs[i].row.items() if k not in EDGES} for i in places]
            output = network(**{name: value.to(network.device) for name, value in collate(rows).items()})
            starts, ends = (edge.float().cpu().numpy() for edge in (output.start_logits, output.end_logits))
            logits.update(zip(places, zip(starts, ends, strict=True), strict=True))
    return choose_answers(questions, inputs, (logits[i] for i in range(len(inputs))))


def add_answer_head(model: str) -> PreTrainedModel:
    """Open a checkpoint with its head for answers, or with a new one."""
    network: PreTrainedModel = checkpoints.with_new_head(
        model,
        checkpoints.ANSWERER,
        attn_implementation="eager",  # as for classifiers: padded SDPA under bf16 autocast was seen to end in NaN
        id2label={0: "start", 1: "end"},
        label2id={"start": 0, "end": 1},
    )
    return network


def lengthen_positions(network: PreTrainedModel, positions: int) -> None:
    """Let a model read `positions` tokens: its learned position embeddings are repeated (Beltagy et al. 2020)."""
    embeddings: Any = getattr(getattr(network, network.base_model_prefix), "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    if not isinstance(table, nn.Embedding) or table.padding_idx is not None:
        raise UnsupportedModel(
            f"a model of the type {network.config.model_type} has no position embeddings that start at 0, as BERT's "
            f"and DistilBERT's do; leave out --positions"
        )
    if positions <= table.num_embeddings:
        raise InvalidOption(f"positions={positions}; the model reads {table.num_embeddings} tokens already")
    repeats = -(-positions // table.num_embeddings)
    longer = nn.Embedding(positions, table.embedding_dim)
    longer.weight.data.copy_(table.weight.data.repeat(repeats, 1)[:positions])
    embeddings.position_embeddings = longer
    embeddings.register_buffer("position_ids", torch.arange(positions)[None], persistent=False)
    if hasattr(embeddings, "token_type_ids"):
        types = torch.zeros(1, positions, dtype=torch.long)
        embeddings.register_buffer("token_type_ids", types, persistent=False)
    network.config.max_position_embeddings = positions


def hold_out_contexts(
    questions: Sequence[ContextQuestion], share: float, seed: int
) -> tuple[list[ContextQuestion], list[ContextQuestion]]:
    """Hold out `share` of the contexts (at least one) with all their questions; the seed decides which."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    if len(contexts) < 2:
        raise InvalidInput("all questions have one context, too few to hold some out; give validation data")
    order = np.random.default_rng(seed).permutation(len(contexts))
    held = {contexts[i] for i in order[: max(1, round(share * len(contexts)))]}
    return [q for q in questions if q.context not in held], [q for q in questions if q.context in held]


# Windows --------------------------------------------------------------------------------------------------


def cut_windows(
    questions: Sequence[ContextQuestion], network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, size: WindowSize
) -> list[Window]:
    """Cut every context into windows of token ids; where a window holds the first gold answer, mark its place."""
    if not tokenizer.is_fast:
        raise UnsupportedModel(f"the tokenizer {type(tokenizer).__name__} does not say where its tokens lie in a text")
    limit = classify.reach(network, tokenizer)
    longest = min(LONGEST, limit) if size.longest is None else size.longest
    if longest > limit:
        raise InvalidOption(f"--longest is {longest}, but the model reads at most {limit} tokens")
    overlap = longest // 3 if size.overlap is None else size.overlap
    question_tokens = min(QUESTION_TOKENS, longest // 3)
    room = longest - question_tokens - tokenizer.num_special_tokens_to_add(pair=True)
    if overlap >= room:
        raise InvalidOption(
            f"--overlap is {overlap}, but a window of {longest} tokens may hold as few as {room} of the context; "
            f"choose a smaller overlap or a larger --longest"
        )
    encoded = tokenizer(
        [_shorten(question.question, tokenizer, question_tokens) for question in questions],
        [question.context for question in questions],
        truncation="only_second",
        max_length=longest,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    names = [name for name in tokenizer.model_input_names if name in encoded]
    windows = []
    for i, place in enumerate(encoded["overflow_to_sample_mapping"]):
        inside = np.array([part == 1 for part in encoded.sequence_ids(i)])
        offsets = np.where(inside[:, None], np.array(encoded["offset_mapping"][i]), 0)
        ids = encoded["input_ids"][i]
        empty = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
        start, end = locate_answer(offsets, questions[place].answers, empty)
        row = {**{name: encoded[name][i] for name in names}, EDGES[0]: start, EDGES[1]: end}
        windows.append(Window(place, row, offsets, empty))
    return windows


def _shorten(question: str, tokenizer: PreTrainedTokenizerBase, limit: int) -> str:
    """Cut a question after `limit` tokens."""
    pieces = tokenizer(
        question, add_special_tokens=False, truncation=True, max_length=limit, return_offsets_mapping=True
    )
    return question[: pieces["offset_mapping"][-1][1]] if len(pieces["input_ids"]) == limit else question


def locate_answer(offsets: npt.NDArray[np.int64], answers: Iterable[tuple[int, int]], empty: int) -> tuple[int, int]:
    """Find the first and the last token of the first gold answer; `empty` twice if the window lacks some of it."""
    answer = next(iter(answers), None)
    tokens = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if answer is None or not len(tokens):
        return empty, empty
    start, end = answer
    if start < offsets[tokens[0], 0] or end > offsets[tokens[-1], 1]:
        return empty, empty
    covered = tokens[(offsets[tokens, 1] > start) & (offsets[tokens, 0] < end)]
    return (int(covered[0]), int(covered[-1])) if len(covered) else (empty, empty)


# Predictions ----------------------------------------------------------------------------------------------


def choose_answers(
    questions: Sequence[ContextQuestion], windows: Sequence[Window], logits: Iterable[tuple[Logits, Logits]]
) -> list[str]:
    """Choose the best span over all windows of each question.

    Where some questions have no gold answer (v2), "" wins if the lowest score of "no answer here" over the windows
    is above the best span's.
    """
    may_be_empty = any(not question.answers for question in questions)
    best = [(-np.inf, "")] * len(questions)
    empty = [np.inf] * len(questions)
    for window, (starts, ends) in zip(windows, logits, strict=True):
        place = window.question
        score, first, last = best_span(starts, ends, window.offsets)
        if score > best[place][0]:
            text = questions[place].context[window.offsets[first, 0] : window.offsets[last, 1]]
            best[place] = (score, text)
        empty[place] = min(empty[place], float(starts[window.empty] + ends[window.empty]))
    chosen = zip(best, empty, strict=True)
    return ["" if may_be_empty and no_answer > score else text for (score, text), no_answer in chosen]


def best_span(starts: Logits, ends: Logits, offsets: npt.NDArray[np.int64]) -> tuple[float, int, int]:
    """Find the span of context tokens, at most 30 of them, with the highest sum of start and end logit."""
    tokens = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if not len(tokens):
        return -np.inf, 0, 0
    scores = starts[tokens, None] + ends[None, tokens]
    length = np.arange(len(tokens))[None] - np.arange(len(tokens))[:, None]
    scores = np.where((length >= 0) & (length < ANSWER_TOKENS), scores, -np.inf)
    first, last = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[first, last]), int(tokens[first]), int(tokens[last])


def score_predictions(
    questions: Sequence[ContextQuestion], windows: Sequence[Window]
) -> Callable[[Any], dict[str, float]]:
    """Make Trainer's hook for the validation metrics of these questions."""

    def score(prediction: Any) -> dict[str, float]:
        starts, ends = prediction.predictions[:2]
        scores = score_answers(choose_answers(questions, windows, zip(starts, ends, strict=True)), questions)
        return {"f1": scores.f1, "exact": scores.exact}

    return score
