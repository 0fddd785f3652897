"""Measuring a trained model on a table: accuracy, overall and by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
)

from wherefrom.data.tables import cell, rows, values
from wherefrom.errors import InvalidInput
from wherefrom.training import classify, prompt
from wherefrom.training.checkpoints import locate
from wherefrom.training.labelled import Columns, examples

ALL = "all"


@dataclass(frozen=True)
class Score:
    """Right answers among `rows` of one group; `left_out` rows could not be asked.

    `balanced` is the mean of the labels' own accuracies: a model that always gives the same one of two labels has 0.5.
    """

    group: str
    right: int
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
    place = locate(model)
    network = AutoModelForSequenceClassification.from_pretrained(place, dtype=torch.float32).to(device).eval()
    classify.check_labels(asked, list(network.config.label2id), data)
    tokenizer = AutoTokenizer.from_pretrained(place)
    encoded = classify.encode(asked, network, tokenizer, longest)
    collate = DataCollatorWithPadding(tokenizer)
    right: list[bool] = []
    with torch.inference_mode():
        for start in range(0, len(encoded), batch):
            part = {key: value.to(device) for key, value in collate(encoded[start : start + batch]).items()}
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
    place = locate(model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    whole = [item for item in asked if None not in (prompt.piece(w, tokenizer) for w in (item.target, item.foil))]
    if not whole:
        raise InvalidInput(f"{data}: no row has a target and a foil that are single pieces of this vocabulary")
    network = AutoModelForMaskedLM.from_pretrained(place, dtype=torch.float32).to(device).eval()
    encoded = prompt.encode(whole, tokenizer)
    right: list[bool] = []
    collate = prompt.Pad(tokenizer)
    with torch.inference_mode():
        for start in range(0, len(encoded), batch):
            part = {k: v.to(device) for k, v in collate(encoded[start : start + batch]).items()}
            logits = prompt.compare(network, part)
            right += (logits[:, 0] > logits[:, 1]).tolist()
    scores = _scores([item.group for item in whole], right)
    total = {group: sum(item.group == group for item in asked) for group in {item.group for item in asked}}
    return [
        Score(s.group, s.right, s.rows, (len(asked) if s.group == ALL else total[s.group]) - s.rows) for s in scores
    ]


def _scores(groups: Sequence[str], right: Sequence[bool], truth: Sequence[str] | None = None) -> list[Score]:
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
