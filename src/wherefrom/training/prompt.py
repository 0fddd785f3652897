"""Prompt fine-tuning as in Value Zeroing (Mohebbi et al. 2023): at the mask, the target word against the foil.

The loss is the cross entropy over these two words' logits alone. The same comparison, without training, is the
masked test on BLiMP's minimal pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import set_seed

from wherefrom.data.blimp import minimal_pair
from wherefrom.data.tables import BadRow, Problems, Row, cell, keeps, kept_by, rows
from wherefrom.errors import InvalidInput, InvalidOption, warn
from wherefrom.training import checkpoints, loop

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prompt:
    """A text with one {mask}, the word that belongs there and the word that does not."""

    row: int
    before: str
    after: str
    target: str
    foil: str
    group: str = ""


@dataclass(frozen=True)
class PromptColumns:
    """Where a table keeps its prompts: `text` (with [MASK]), `target`, `foil`; or two sentences `good`, `bad`."""

    text: str = "text"
    target: str = "target"
    foil: str = "foil"
    good: str | None = None
    bad: str | None = None
    where: dict[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        if bool(self.good) != bool(self.bad):
            given, missing = ("--good", "--bad") if self.good else ("--bad", "--good")
            raise InvalidOption(
                f"{given} names one sentence of a minimal pair, and {missing} is not given; give both, or neither"
            )


def prompt(
    train: Path,
    run: loop.Schedule,
    columns: PromptColumns,
    model: str = "wherefrom/mlm",
    valid: Path | None = None,
    held_out: float = 0.1,
    skip_split: bool = False,
    fresh: bool = False,
    keep_last: bool = False,
) -> loop.Trained:
    """Fine-tune a masked language model to prefer the target; `skip_split` leaves out words of several pieces.

    keep_last: keep the weights of the last step instead of those that validate best.
    """
    settings = {
        "task": "prompt",
        "train": str(train),
        "valid": None if valid is None else str(valid),
        "held_out": None if valid else held_out,
        "columns": asdict(columns),
        "model": model,
        "skip_split": skip_split,
        "keep_last": keep_last,
        "run": run.settings,
    }
    with loop.running(run, settings, fresh):
        set_seed(run.seed)
        network = checkpoints.network(model, checkpoints.MASKED_LM, attn_implementation="eager")
        tokenizer = checkpoints.tokenizer(model)
        items = whole_words(read(train, columns), tokenizer, train, skip_split)
        if valid is None:
            order = np.random.default_rng(run.seed).permutation(len(items))
            size = max(1, round(held_out * len(items)))
            if size >= len(items):
                raise InvalidInput(f"{train}: too few rows to hold some out ({len(items)}); give more, or --valid")
            checked = [items[i] for i in order[:size]]
            items = [items[i] for i in order[size:]]
        else:
            checked = whole_words(read(valid, columns), tokenizer, valid, skip_split)
        task = loop.Fitting(
            model=network,
            tokenizer=tokenizer,
            train=encode(items, tokenizer),
            valid=encode(checked, tokenizer),
            collate=Pad(tokenizer),
            best="accuracy",
            metrics=accuracy,
            trainer=PromptTrainer,
            labels=("choices",),
            keep_last=keep_last,
        )
        return loop.fit(task, run, {**settings, "train_rows": len(items), "valid_rows": len(checked)})


def read(path: Path, columns: PromptColumns, by: str | None = None) -> list[Prompt]:
    """The prompts of a table, with the value of column `by` as their group."""
    problems = Problems(path)
    found = []
    for number, row in rows(path):
        if not keeps(row, columns.where or {}, path):
            continue
        try:
            before, after, target, foil = _parts(row, columns, path)
        except BadRow as bad:
            problems.add(number, str(bad))
            continue
        found.append(Prompt(number, before, after, target, foil, "" if by is None else str(cell(row, by, path))))
    problems.check()
    if not found:
        raise InvalidInput(f"{path}: no rows to read{kept_by(columns.where)}")
    return found


def _parts(row: Row, columns: PromptColumns, path: Path) -> tuple[str, str, str, str]:
    names = (
        (columns.good, columns.bad) if columns.good and columns.bad else (columns.text, columns.target, columns.foil)
    )
    cells = []
    for name in names:
        value = cell(row, name, path)
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f"'{name}' is empty or not text")
        cells.append(value)
    if len(cells) == 2:
        return minimal_pair(*cells)
    text, target, foil = cells
    if text.count("[MASK]") != 1:
        raise BadRow(f"'{columns.text}' has {text.count('[MASK]')} [MASK], not one")
    if target.strip().lower() == foil.strip().lower():
        raise BadRow("target and foil are the same word")
    before, _, after = text.partition("[MASK]")
    return before, after, target.strip(), foil.strip()


def whole_words(prompts: Sequence[Prompt], tokenizer: PreTrainedTokenizerBase, path: Path, skip: bool) -> list[Prompt]:
    """The prompts whose two words are single pieces of the vocabulary; others are an error unless skipped."""
    problems = Problems(path)
    kept = []
    for item in prompts:
        split = [word for word in (item.target, item.foil) if piece(word, tokenizer) is None]
        if split:
            problems.add(item.row, f"{' and '.join(map(repr, split))} is not one piece of this vocabulary")
        else:
            kept.append(item)
    if not skip:
        try:
            problems.check()
        except InvalidInput as error:
            raise InvalidInput(f"{error}; pass --skip-split to leave such rows out") from None
    if not kept:
        raise InvalidInput(f"{path}: no row has a target and a foil that are single pieces of this vocabulary")
    if problems.found:
        warn(f"{len(problems.found)} of {len(prompts)} rows left out: their words are not single pieces")
    return kept


def piece(word: str, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The id of a word that is one piece (with a space before it, where the vocabulary tells the difference)."""
    for form in (" " + word, word):
        ids = tokenizer(form, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    return None


def encode(prompts: Sequence[Prompt], tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    """Token ids, and the ids of (target, foil) as `choices`."""
    texts = [f"{item.before}{tokenizer.mask_token}{item.after}" for item in prompts]
    ids = tokenizer(texts)["input_ids"]
    choices = [[piece(item.target, tokenizer), piece(item.foil, tokenizer)] for item in prompts]
    return [{"input_ids": i, "choices": c} for i, c in zip(ids, choices, strict=True)]


@dataclass(frozen=True)
class Pad:
    """Collate prompts: pad the ids, find the mask."""

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = self.tokenizer.pad([{"input_ids": item["input_ids"]} for item in items], return_tensors="pt")
        masks = (batch["input_ids"] == self.tokenizer.mask_token_id).int().argmax(-1)
        choices = torch.tensor([item["choices"] for item in items])
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "mask_at": masks,
            "choices": choices,
        }


def compare(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits of target and foil at each mask. [B, 2]"""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    at_mask = logits[torch.arange(len(logits), device=logits.device), batch["mask_at"]]
    two: torch.Tensor = at_mask.gather(1, batch["choices"]).float()
    return two


class PromptTrainer(loop.InOrder):
    """Trainer with the loss over two words."""

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """Trainer's hook for the loss: the target is the first of the two."""
        logits = compare(model, inputs)
        loss = cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))
        return (loss, {"loss": loss, "logits": logits}) if return_outputs else loss


def accuracy(prediction: Any) -> dict[str, float]:
    """Trainer's hook: how often the target has the higher logit."""
    logits = prediction.predictions
    return {"accuracy": float(np.mean(logits[:, 0] > logits[:, 1]))}
