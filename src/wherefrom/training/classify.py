"""Fine-tuning a sequence classifier (GlobEnc's setting by default: batch 32, learning rate 3e-5, 3 to 5 epochs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import DataCollatorWithPadding, set_seed

from wherefrom.data.tables import Problems
from wherefrom.errors import InvalidInput, warn
from wherefrom.model.families import candidates
from wherefrom.training import checkpoints, loop
from wherefrom.training.labelled import Columns, LabelledText, examples, split
from wherefrom.training.order import Change

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What a model is trained with if neither it nor its tokenizer says how much it can read.
LONGEST = 512


def classify(
    train: Sequence[Path],
    run: loop.Schedule,
    columns: Columns,
    model: str = "wherefrom/mlm",
    valid: Path | None = None,
    held_out: float = 0.1,
    longest: int | None = None,
    fresh: bool = False,
) -> loop.Trained:
    """Fine-tune `model` on the labelled rows of `train`; without `valid`, some of its rows are held out.

    The labels are those that occur in `train`, in the order of `columns.names` or else sorted.
    """
    settings = {
        "task": "classify",
        "train": [str(path) for path in train],
        "valid": None if valid is None else str(valid),
        "held_out": None if valid else held_out,
        "columns": asdict(columns),
        "model": model,
        "longest": longest,
        "run": run.settings,
    }
    with loop.running(run, settings, fresh):
        rows = [example for path in train for example in examples(path, columns)]
        labels = label_set(rows, columns)
        if valid is None:
            rows, checked = split(rows, held_out, run.seed)
        else:
            checked = examples(valid, columns)
            check_labels(checked, labels, valid)
        set_seed(run.seed)
        network = with_head(model, labels)
        return fit(network, checkpoints.tokenizer(model), rows, checked, run, settings, longest)


def fit(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[LabelledText],
    valid: Sequence[LabelledText],
    run: loop.Schedule,
    settings: dict[str, Any],
    longest: int | None = None,
    change: Change | None = None,
) -> loop.Trained:
    """Train a classifier whose config names the labels of the examples."""
    task = loop.Fitting(
        model=network,
        tokenizer=tokenizer,
        train=encode(train, network, tokenizer, longest),
        valid=encode(valid, network, tokenizer, longest),
        collate=DataCollatorWithPadding(tokenizer),
        best="accuracy",
        metrics=accuracy,
        change=change,
    )
    counts = {"train_rows": len(train), "valid_rows": len(valid), "parameters": network.num_parameters()}
    return loop.fit(task, run, {**settings, **counts})


def with_head(model: str, labels: Sequence[str]) -> PreTrainedModel:
    """The checkpoint with a head for these labels: its own if it has one for them, else a new one."""
    kept = getattr(checkpoints.configuration(model), "id2label", {})
    named = dict(enumerate(labels))
    network: PreTrainedModel = checkpoints.with_new_head(
        model,
        checkpoints.CLASSIFIER,
        # Padded SDPA attention under bf16 autocast was seen to end in NaN; eager was not.
        attn_implementation="eager",
        num_labels=len(labels),
        id2label=named,
        label2id={label: index for index, label in named.items()},
        ignore_mismatched_sizes=len(kept) != len(labels),
    )
    return network


def encode(
    rows: Sequence[LabelledText],
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    longest: int | None = None,
) -> list[dict[str, Any]]:
    """The examples as token ids and label ids; texts over the limit are cut, and their number is warned of."""
    limit = longest or reach(network, tokenizer)
    pairs = [row.pair for row in rows] if rows and rows[0].pair is not None else None
    whole = tokenizer(
        [row.text for row in rows], pairs, truncation=True, max_length=limit, return_overflowing_tokens=False
    )
    cut = sum(len(ids) == limit for ids in whole["input_ids"])
    if longest is None and cut:
        warn(f"{cut} of {len(rows)} texts fill the {limit} tokens that this model can read; what was longer is cut")
    names = [name for name in tokenizer.model_input_names if name in whole]
    ids = network.config.label2id
    return [{**{name: whole[name][i] for name in names}, "labels": ids[row.label]} for i, row in enumerate(rows)]


def reach(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens the model can read, by its tokenizer and its position embeddings."""
    family = candidates(network.config.model_type)[0]
    positions = family.longest(network.config, network.config.pad_token_id) or LONGEST
    return min(int(tokenizer.model_max_length), positions)


def accuracy(prediction: Any) -> dict[str, float]:
    """Trainer's hook for the validation metric."""
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def label_set(rows: Sequence[LabelledText], columns: Columns) -> list[str]:
    """The labels in a stable order."""
    present = {row.label for row in rows}
    named = [name for name in dict.fromkeys(columns.names.values()) if name in present]
    labels = named or sorted(present, key=lambda name: (0, int(name), "") if name.isdigit() else (1, 0, name))
    if len(labels) < 2:
        raise InvalidInput(f"only one label, {labels[0]!r}, occurs in the training rows; there must be two at least")
    return labels


def check_labels(rows: Sequence[LabelledText], labels: Sequence[str], path: Path) -> None:
    """Every label of the validation rows must be known from training."""
    problems = Problems(path)
    for row in rows:
        if row.label not in labels:
            problems.add(row.row, f"label {row.label!r} does not occur in training ({', '.join(labels)})")
    problems.check()
