"""The verb-number model of Abnar & Zuidema (2020): GPT-2 blocks without the causal mask, read at a CLS token.

It is a plain `GPT2ForSequenceClassification` with `is_causal = False`. That head reads the last token, so the
tokenizer puts [CLS] at the end of the prefix. The blocks are always trained from scratch; the word embeddings may
start from another model's, so that rare nouns have a number before the first prefix shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    set_seed,
)

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training import checkpoints, classify, loop, texts, vocabulary
from wherefrom.training.labelled import Columns, LabelledText, examples
from wherefrom.training.prefixes import PLURAL, SINGULAR
from wherefrom.training.sizes import refuse_uneven

LABELS = (SINGULAR, PLURAL)
EMBEDDING_DEVIATION = 0.03  # a little above GPT-2's own 0.02: these mean something from the start


@dataclass(frozen=True)
class AgreementShape:
    """The paper's size; `positions` is the longest prefix in tokens."""

    layers: int = 6
    width: int = 128
    heads: int = 8
    vocabulary: int = 8192
    positions: int = 128
    dropout: float = 0.1


def agree(
    prefixes: Sequence[Path],
    run: loop.Schedule,
    columns: Columns,
    extra: Path | None = None,
    extra_columns: Columns | None = None,
    repeat: int = 1,
    tokenizer: str | None = None,
    embeddings: str | None = None,
    shape: AgreementShape | None = None,
    held_out: float = 0.02,
    hide: float = 0.0,
    fresh: bool = False,
) -> loop.Trained:
    """Train from scratch on tables of prefixes labelled singular and plural (`wherefrom train prefixes` makes them).

    `extra` rows (Linzen's, say) are used for training alone, `repeat` times. Held-out prefixes are balanced
    between the labels and share no text with training; in training, the rarer label is repeated to balance, and
    a share `hide` of the words is masked, others each time: the model learns fewer prefixes by heart.
    """
    shape = shape or AgreementShape()
    refuse_uneven(shape.width, shape.heads)
    settings = {
        "task": "agree",
        "prefixes": [str(path) for path in prefixes],
        "columns": asdict(columns),
        "extra": None if extra is None else str(extra),
        "extra_columns": None if extra_columns is None else asdict(extra_columns),
        "repeat": repeat,
        "tokenizer": tokenizer,
        "embeddings": embeddings,
        "shape": asdict(shape),
        "held_out": held_out,
        "hide": hide,
        "run": run.settings,
    }
    with loop.running(run, settings, fresh):
        rows = [example for path in prefixes for example in examples(path, columns)]
        classify.check_labels(rows, LABELS, prefixes[0])
        train, valid = hold_out(rows, held_out, run.seed)
        added = [] if extra is None else examples(extra, extra_columns or columns)
        if extra is not None:
            classify.check_labels(added, LABELS, extra)
        words = _tokenizer(rows, shape, run.out, tokenizer)
        set_seed(run.seed)
        change = partial(hidden, share=hide, mask=words.mask_token_id, kept=words.all_special_ids) if hide else None
        model = network(shape, words)
        if embeddings is not None:
            start_from(model, words, embeddings)
        return classify.fit(model, words, balance(train) + added * repeat, valid, run, settings, change=change)


def start_from(network: GPT2ForSequenceClassification, tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    """Give the network another model's word embeddings, reduced to its width by principal components."""
    if checkpoints.tokenizer(name).get_vocab() != tokenizer.get_vocab():
        raise InvalidOption(f"{name} has another vocabulary; pass --tokenizer {name} to take its embeddings")
    ours: torch.Tensor = network.get_input_embeddings().weight
    theirs = (
        AutoModel.from_pretrained(checkpoints.locate(name), dtype=torch.float32).get_input_embeddings().weight.detach()
    )
    if theirs.shape[1] < ours.shape[1]:
        raise InvalidOption(f"{name} has width {theirs.shape[1]}; expected at least the new model's {ours.shape[1]}")
    basis, sizes, _ = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    reduced = (basis * sizes)[:, : ours.shape[1]]
    with torch.no_grad():
        ours.copy_(reduced / reduced.std() * EMBEDDING_DEVIATION)


def hidden(
    row: dict[str, Any], rng: np.random.Generator, share: float, mask: int, kept: Sequence[int]
) -> dict[str, Any]:
    """The row with a share of its tokens masked; those the tokenizer added stay."""
    gone = rng.random(len(row["input_ids"])) < share
    ids = [mask if g and i not in kept else i for i, g in zip(row["input_ids"], gone, strict=True)]
    return {**row, "input_ids": ids}


def network(shape: AgreementShape, tokenizer: PreTrainedTokenizerFast) -> GPT2ForSequenceClassification:
    """An untrained model of the given shape that sees both sides of every token."""
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=shape.positions,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own function, computed in one step instead of eight
        resid_pdrop=shape.dropout,
        embd_pdrop=shape.dropout,
        attn_pdrop=shape.dropout,
        is_causal=False,
        use_cache=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
        # With SDPA and no padding, transformers falls back on the module's own causal flag.
        attn_implementation="eager",
    )
    return GPT2ForSequenceClassification(config)


def hold_out(rows: Sequence[LabelledText], share: float, seed: int) -> tuple[list[LabelledText], list[LabelledText]]:
    """(train, held out): as many singular as plural prefixes held out, none of which occurs in training."""
    order = np.random.default_rng(seed).permutation(len(rows))
    wanted = max(1, round(share * len(rows) / 2))
    held: list[LabelledText] = []
    count: Counter[str] = Counter()
    texts: set[str] = set()
    for index in order:
        row = rows[index]
        if count[row.label] < wanted and row.text not in texts:
            held.append(row)
            texts.add(row.text)
            count[row.label] += 1
    if len(count) < 2 or len(held) >= len(rows):
        there = Counter(row.label for row in rows)
        said = ", ".join(f"{there[label]} {label}" for label in LABELS)
        raise InvalidInput(f"too few prefixes of both numbers to hold some out: {said}; give more of the rarer")
    return [row for row in rows if row.text not in texts], held


def balance(rows: Sequence[LabelledText]) -> list[LabelledText]:
    """Repeat the rows of the rarer label until both are about as many."""
    by = {label: [row for row in rows if row.label == label] for label in LABELS}
    most = max(map(len, by.values()))
    return [row for group in by.values() if group for row in (group * (-(-most // len(group))))[:most]]


def _tokenizer(
    rows: Sequence[LabelledText], shape: AgreementShape, out: Path, name: str | None
) -> PreTrainedTokenizerFast:
    learned = partial(vocabulary.learn, (row.text for row in rows), shape.vocabulary, shape.positions)
    return vocabulary.cls_at_end(texts.tokenizer(out, name, learned), shape.positions)
