"""Measuring a trained model on a table: accuracy, overall and by the values of a column.

A masked language model is asked for the word in which a minimal pair differs; one that reads from left to right for
the log-probability of either whole sentence (Warstadt et al. 2020, BLiMP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DataCollatorWithPadding

from wherefrom.data.tables import cell, keeps, kept_by, rows, values, written
from wherefrom.errors import InvalidInput
from wherefrom.training import checkpoints, classify, corpus, prompt, texts
from wherefrom.training.labelled import Columns, examples, refuse_foreign

ALL = "all"


@dataclass(frozen=True)
class Score:
    """Right answers among `rows` of one group; `left_out` rows could not be asked.

    `balanced` is the mean of the labels' own accuracies: a model that always gives the same one of two labels has 0.5.
    """

    group: str
    right: float
    rows: int
    left_out: int = 0
    balanced: float | None = None

    @property
    def accuracy(self) -> float:
        return self.right / self.rows


def labels(
    model: str,
    data: Path,
    columns: Columns,
    by: str | None = None,
    exclude: Sequence[str] = (),
    longest: int | None = None,
    device: str = "cpu",
    batch: int = 64,
) -> list[Score]:
    """A classifier's accuracy; rows whose text occurs in an excluded `table:column` are not asked."""
    shared = frozenset().union(*(values(source) for source in exclude))
    groups: dict[int, str] = {}
    if by is not None:
        groups = {number: str(cell(row, by, data)) for number, row in rows(data)}
    asked = examples(data, columns, drop=(lambda row: row.get(columns.text) in shared) if shared else None)
    network = checkpoints.measured(model, checkpoints.CLASSIFIER, device)
    refuse_foreign((each.label for each in asked), list(network.config.label2id), data)
    tokenizer = checkpoints.tokenizer(model)
    encoded = classify.encode(asked, network, tokenizer, longest)
    right: list[bool] = []
    with torch.inference_mode():
        for part in _batches(encoded, DataCollatorWithPadding(tokenizer), batch, device):
            truth = part.pop("labels")
            right += (network(**part).logits.argmax(-1) == truth).tolist()
    return _scores([groups.get(e.row, "") for e in asked], right, [e.label for e in asked])


def prompts(
    model: str,
    data: Path,
    columns: prompt.PromptColumns,
    by: str | None = None,
    device: str = "cpu",
    batch: int = 64,
) -> list[Score]:
    """How often a masked language model prefers the target to the foil; words of several pieces are counted apart."""
    asked = prompt.read(data, columns, by)
    network = checkpoints.measured(model, checkpoints.MASKED_LM, device)
    tokenizer = checkpoints.tokenizer(model)
    whole = [item for item in asked if None not in (prompt.piece(w, tokenizer) for w in (item.target, item.foil))]
    if not whole:
        raise InvalidInput(f"{data}: no row has a target and a foil that are single pieces of this vocabulary")
    encoded = prompt.encode(whole, tokenizer)
    right: list[bool] = []
    with torch.inference_mode():
        for part in _batches(encoded, prompt.Pad(tokenizer), batch, device):
            logits = prompt.compare(network, part)
            right += (logits[:, 0] > logits[:, 1]).tolist()
    scores = _scores([item.group for item in whole], right)
    total = {group: sum(item.group == group for item in asked) for group in {item.group for item in asked}}
    return [
        Score(s.group, s.right, s.rows, (len(asked) if s.group == ALL else total[s.group]) - s.rows) for s in scores
    ]


def _batches(
    encoded: Sequence[Any], collate: Callable[..., Any], size: int, device: str
) -> Iterator[dict[str, Tensor]]:
    for start in range(0, len(encoded), size):
        yield {name: value.to(device) for name, value in collate(encoded[start : start + size]).items()}


def is_causal(model: str) -> bool:
    """Whether a model is a language model that reads from left to right."""
    return checkpoints.task_of(model) == "causal-lm"


def sentences(
    model: str,
    data: Path,
    columns: prompt.PromptColumns,
    by: str | None = None,
    device: str = "cpu",
    batch: int = 64,
) -> list[Score]:
    """How often a language model gives the good sentence of a minimal pair the higher probability."""
    groups, pairs = _minimal_pairs(data, columns, by)
    network = checkpoints.measured(model, checkpoints.CAUSAL_LM, device)
    tokenizer = checkpoints.tokenizer(model)
    encoded = [tokenizer(sentence)["input_ids"] for pair in pairs for sentence in pair]
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))  # like lengths beside each other
    found = [0.0] * len(encoded)
    for start in range(0, len(encoded), batch):
        some = order[start : start + batch]
        for i, value in zip(some, _log_probabilities(network, [encoded[i] for i in some], device), strict=True):
            found[i] = value
    return _scores(groups, _preferred(found))


def frequencies(
    tokenizer: str, sources: Sequence[str], data: Path, columns: prompt.PromptColumns, by: str | None = None
) -> list[Score]:
    """The same by how often the pieces of each sentence occur in the sources, whatever their order: the baseline."""
    words = checkpoints.tokenizer(tokenizer)
    counts = np.bincount(corpus.encode(texts.lines(sources), words), minlength=len(words)) + 1
    logs = np.log(counts / counts.sum())
    groups, pairs = _minimal_pairs(data, columns, by)
    ids = (words(sentence, add_special_tokens=False)["input_ids"] for pair in pairs for sentence in pair)
    return _scores(groups, _preferred([float(logs[each].sum()) for each in ids]))


def _minimal_pairs(
    data: Path, columns: prompt.PromptColumns, by: str | None
) -> tuple[list[str], list[tuple[str, str]]]:
    assert columns.good is not None
    assert columns.bad is not None
    groups, pairs = [], []
    for _, row in rows(data):
        if keeps(row, columns.where or {}, data):
            good, bad = (written(cell(row, name, data), name) for name in (columns.good, columns.bad))
            pairs.append((good, bad))
            groups.append("" if by is None else str(cell(row, by, data)))
    if not pairs:
        raise InvalidInput(f"{data}: no rows to read{kept_by(columns.where)}")
    return groups, pairs


@torch.inference_mode()
def _log_probabilities(network: torch.nn.Module, rows: Sequence[Sequence[int]], device: str) -> list[float]:
    """The log-probability of each row of ids after its first."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*each, *[0] * (longest - len(each))] for each in rows], device=device)
    real = torch.arange(longest, device=device) < torch.tensor([[len(each)] for each in rows], device=device)
    logits = network(input_ids=ids, attention_mask=real.long()).logits.float()
    each = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    found: list[float] = (each * real[:, 1:]).sum(1, dtype=torch.float64).tolist()
    return found


def _preferred(values: Sequence[float]) -> list[float]:
    """1 where the good sentence has more, 0 where the bad one has; a tie is half right, as a coin would be."""
    return [0.5 + 0.5 * ((good > bad) - (good < bad)) for good, bad in zip(values[::2], values[1::2], strict=True)]


def _scores(groups: Sequence[str], right: Sequence[float], truth: Sequence[str] | None = None) -> list[Score]:
    places = {group or ALL: [i for i, g in enumerate(groups) if g == group] for group in sorted(set(groups))}
    if len(places) > 1:
        places[ALL] = list(range(len(groups)))
    found = []
    for group, mine in places.items():
        balanced = None
        if truth is not None:
            labels = {truth[i] for i in mine}
            balanced = mean(mean(right[i] for i in mine if truth[i] == label) for label in labels)
        found.append(Score(group, sum(right[i] for i in mine), len(mine), balanced=balanced))
    return found
