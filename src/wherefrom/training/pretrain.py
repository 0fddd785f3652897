"""Masked-language-model pretraining (Devlin et al. 2019), from scratch or from a checkpoint.

The loss is the cross entropy of the hidden words alone; the head is applied at their positions only, which saves
four fifths of its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    set_seed,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training import corpus, loop, vocabulary
from wherefrom.training.checkpoints import locate
from wherefrom.training.labelled import documents

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class EncoderShape:
    """A new BERT's size."""

    layers: int = 8
    width: int = 256
    heads: int = 8
    vocabulary: int = 8192


@dataclass(frozen=True)
class MaskedText:
    """How the text is read: windows of `length`, at the end `ratio` times as long, `rate` of the words hidden."""

    length: int = 128
    ratio: int = 1
    long_share: float = 0.0
    rate: float = 0.15
    held_out: float = 0.005


def pretrain(
    sources: Sequence[str],
    run: loop.Schedule,
    shape: EncoderShape | None = None,
    reading: MaskedText | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    fresh: bool = False,
) -> loop.Trained:
    """Pretrain on text files and `table:column` sources (name one twice to read it twice).

    A new BERT of the given shape, with a new vocabulary unless `tokenizer` names one; or `model` as it is.
    """
    shape, reading = shape or EncoderShape(), reading or MaskedText()
    if run.steps is None:
        raise InvalidOption("pretraining is counted in steps; give --steps")
    if run.batch % reading.ratio:
        raise InvalidOption(f"a batch of {run.batch} rows cannot be read as rows {reading.ratio} times as long")
    settings = {
        "task": "pretrain",
        "sources": list(sources),
        "model": model,
        "tokenizer": tokenizer,
        "run": {**asdict(run), "out": None, "progress": None, "workers": None},
        "shape": None if model else asdict(shape),
        "reading": asdict(reading),
    }
    loop.prepare(run.out, settings, fresh)
    set_seed(run.seed)
    words = _tokenizer(sources, run.out, shape, reading, tokenizer or model)
    ids = _ids(sources, run.out, words)
    network = _network(model, shape, reading, words)
    train, valid = corpus.hold_out(ids, reading.held_out, run.seed)
    known = corpus.pieces(words)
    if loop.on_cuda(run):
        compile_blocks(network)
    task = loop.Fitting(
        model=network,
        tokenizer=words,
        train=_windows(train, known, reading, run.batch * run.steps, run),
        valid=_windows(valid, known, reading, None, run),
        collate=corpus.as_is,
        best="loss",
        trainer=MaskedTrainer,
        labels=("words",),
    )
    return loop.fit(task, run, {**settings, "tokens": len(train), "parameters": network.num_parameters()})


def masked_loss(
    model: PreTrainedModel, input_ids: torch.Tensor, positions: torch.Tensor, words: torch.Tensor
) -> torch.Tensor:
    """Mean cross entropy of `words` [B, k] at `positions` [B, k] of `input_ids` [B, n]."""
    if model.config.model_type == "bert":
        hidden = model.base_model(input_ids=input_ids).last_hidden_state
        return _head_loss(model.cls, hidden, positions, words)
    # Other families keep their head elsewhere: apply it everywhere.
    return _head_loss(torch.nn.Identity(), model(input_ids=input_ids).logits, positions, words)


def _head_loss(
    head: torch.nn.Module, hidden: torch.Tensor, positions: torch.Tensor, words: torch.Tensor
) -> torch.Tensor:
    logits = head(hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1])))
    return cross_entropy(logits.float().flatten(0, 1), words.flatten())


class MaskedTrainer(loop.InOrder):
    """Trainer over ready-made masked batches."""

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """Trainer's hook for the loss."""
        with self.accelerator.autocast():
            loss = masked_loss(model, inputs["input_ids"], inputs["positions"], inputs["words"])
        return (loss, {"loss": loss}) if return_outputs else loss


def _windows(ids: corpus.Ids, known: corpus.Pieces, reading: MaskedText, total: int | None, run: loop.Schedule) -> Any:
    if total is None:  # validation: every window once, in whole batches
        total = max(1, len(ids) // reading.length // run.batch) * run.batch
        short = total
    else:
        short = total - round(reading.long_share * total / run.batch) * run.batch
    longest = reading.length * (reading.ratio if short < total else 1)
    if len(ids) < 3 * longest:
        raise InvalidInput(f"{len(ids)} tokens are too few for windows of {longest}; give more text")
    windows = corpus.Windows(
        ids=ids,
        starts=corpus.sentence_starts(ids, known),
        known=known,
        length=reading.length,
        ratio=reading.ratio,
        short=short,
        total=total,
        rate=reading.rate,
        seed=run.seed,
    )
    return _AsDataset(windows)


class _AsDataset(Dataset):  # type: ignore[type-arg]  # batches, not items, are what it gives
    """`Windows` for a DataLoader, which asks for whole batches."""

    def __init__(self, windows: corpus.Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        return self.windows[indices]


def _tokenizer(
    sources: Sequence[str], out: Path, shape: EncoderShape, reading: MaskedText, name: str | None
) -> PreTrainedTokenizerFast:
    if name is not None:
        return AutoTokenizer.from_pretrained(locate(name))
    kept = out / loop.CHECKPOINTS / "vocabulary"
    if (kept / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(kept)
    made = vocabulary.learn(_text(sources), shape.vocabulary, reading.length * reading.ratio)
    made.save_pretrained(kept)
    return made


def _ids(sources: Sequence[str], out: Path, tokenizer: PreTrainedTokenizerFast) -> corpus.Ids:
    """The corpus as ids, kept beside the checkpoints so that a resumed run need not read the text again."""
    kept = out / loop.CHECKPOINTS / "corpus.npy"
    if not kept.exists():
        ids = corpus.encode(_text(sources), tokenizer)
        part = kept.with_name("part.npy")
        np.save(part, ids)
        part.rename(kept)  # only a whole file bears the name
    loaded: corpus.Ids = np.load(kept)
    return loaded


def _text(sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        yield from documents(source)
        yield ""


def _network(
    model: str | None, shape: EncoderShape, reading: MaskedText, tokenizer: PreTrainedTokenizerFast
) -> PreTrainedModel:
    if model is not None:
        network = AutoModelForMaskedLM.from_pretrained(locate(model), dtype=torch.float32)
        _still(network)
        return network
    if shape.width % shape.heads:
        raise InvalidOption(f"a width of {shape.width} cannot be shared by {shape.heads} heads")
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=reading.length * reading.ratio,
        pad_token_id=tokenizer.pad_token_id,
    )
    network = BertForMaskedLM(config)
    _still(network)
    return network


def compile_blocks(network: PreTrainedModel) -> None:
    """Compile the Transformer's blocks, not the whole model: they share one graph, made in seconds, not a minute."""
    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile(dynamic=False)


def _still(network: PreTrainedModel) -> None:
    """No dropout while pretraining: the text is seen few times. The config keeps its 0.1 for fine-tuning."""
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
