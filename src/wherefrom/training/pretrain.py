"""Masked-language-model pretraining (Devlin et al. 2019), from scratch or from a checkpoint.

The loss is the cross entropy of the hidden words alone; the head is applied at their positions only, which saves
four fifths of its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    set_seed,
)

from wherefrom.errors import InvalidOption
from wherefrom.training import checkpoints, corpus, loop, texts, vocabulary
from wherefrom.training.sizes import refuse_uneven

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
        "run": run.settings,
        "shape": None if model else asdict(shape),
        "reading": asdict(reading),
    }
    with loop.running(run, settings, fresh):
        set_seed(run.seed)
        longest = reading.length * reading.ratio
        words = texts.tokenizer(
            run.out, tokenizer or model, lambda: vocabulary.learn(texts.lines(sources), shape.vocabulary, longest)
        )
        ids = texts.ids(sources, run.out, words)
        network = _network(model, shape, reading, words)
        train, valid = corpus.hold_out(ids, reading.held_out, run.seed)
        if loop.on_cuda(run):
            loop.compile_blocks(network)
        task = loop.Fitting(
            model=network,
            tokenizer=words,
            train=_windows(train, words, reading, run.batch * run.steps, run),
            valid=_windows(valid, words, reading, None, run),
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


def _windows(
    ids: corpus.Ids, tokenizer: PreTrainedTokenizerFast, reading: MaskedText, total: int | None, run: loop.Schedule
) -> texts.Batches:
    if total is None:  # validation: every window once, in whole batches
        total = max(1, len(ids) // reading.length // run.batch) * run.batch
        short = total
    else:
        short = total - round(reading.long_share * total / run.batch) * run.batch
    longest = reading.length * (reading.ratio if short < total else 1)
    windows = corpus.Windows(
        walk=texts.walk(ids, tokenizer, longest, reading.length - 2, run.seed),
        known=corpus.pieces(tokenizer),
        length=reading.length,
        ratio=reading.ratio,
        short=short,
        total=total,
        rate=reading.rate,
    )
    return texts.Batches(windows)


def _network(
    model: str | None, shape: EncoderShape, reading: MaskedText, tokenizer: PreTrainedTokenizerFast
) -> PreTrainedModel:
    if model is not None:
        network: PreTrainedModel = checkpoints.network(model, checkpoints.MASKED_LM)
        _still(network)
        return network
    refuse_uneven(shape.width, shape.heads)
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


def _still(network: PreTrainedModel) -> None:
    """No dropout while pretraining: the text is seen few times. The config keeps its 0.1 for fine-tuning."""
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
