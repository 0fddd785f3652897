"""Next-word pretraining of a small decoder in Llama's layout, from scratch.

The loss is the mean cross entropy of every token given those before it. Text is measured in bits per byte, which does
not depend on the vocabulary:

    bits per byte = - Σ_t log2 p(token_t | before) / bytes of the text
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training import checkpoints, corpus, loop, texts, vocabulary
from wherefrom.training.labelled import documents
from wherefrom.training.sizes import refuse_uneven, warn_of_memory

LINE = "\n"  # what ends a line of the text


@dataclass(frozen=True)
class DecoderShape:
    """A new Llama's size. `groups` heads of keys and values serve all `heads` of queries.

    `dropout` is the share of what embedding, attention and FFN write to the residual stream that training drops.
    """

    layers: int = 9
    width: int = 288
    heads: int = 9
    groups: int = 3
    units: int = 768
    vocabulary: int = 8192
    dropout: float = 0.0


def pretrain(
    sources: Sequence[str],
    run: loop.Schedule,
    shape: DecoderShape | None = None,
    length: int = 512,
    held_out: float = 0.005,
    tokenizer: str | None = None,
    fresh: bool = False,
) -> loop.Trained:
    """Pretrain a new decoder on text files and `table:column` sources, with a byte-level vocabulary of its own."""
    shape = shape or DecoderShape()
    if run.steps is None:
        raise InvalidOption("pretraining is counted in steps; give --steps")
    settings = {
        "task": "lm",
        "sources": list(sources),
        "tokenizer": tokenizer,
        "run": run.settings,
        "shape": asdict(shape),
        "reading": {"length": length, "held_out": held_out},
    }
    config = llama(shape, length)
    if not loop.on_cuda(run):
        warn_of_memory(run.batch, length, kept(shape))
    with loop.running(run, settings, fresh):
        set_seed(run.seed)
        words = texts.tokenizer(
            run.out, tokenizer, lambda: vocabulary.learn_bytes(texts.lines(sources), shape.vocabulary, length)
        )
        train, valid = corpus.hold_out(texts.ids(sources, run.out, words, after=LINE), held_out, run.seed)
        config.update({"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id,
                       "pad_token_id": words.pad_token_id})  # fmt: skip
        network = LlamaForCausalLM(config)
        drop_out(network, shape.dropout)
        if loop.on_cuda(run):
            loop.compile_blocks(network)
        windows = len(valid) // length // run.batch * run.batch
        task = loop.Fitting(
            model=network,
            tokenizer=words,
            train=_rows(train, words, length, run.batch * run.steps, run.seed),
            valid=_rows(valid, words, length, max(run.batch, windows), run.seed),
            collate=corpus.as_is,
            best="loss",
        )
        return loop.fit(task, run, {**settings, "tokens": len(train), "parameters": network.num_parameters()})


def llama(shape: DecoderShape, length: int) -> LlamaConfig:
    """The configuration but for its vocabulary."""
    refuse_uneven(shape.width, shape.heads, shape.groups)
    return LlamaConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        intermediate_size=shape.units,
        max_position_embeddings=length,
        tie_word_embeddings=True,
    )


def kept(shape: DecoderShape) -> int:
    """About how many numbers a training step keeps for each token: three of every logit, and what blocks go back by."""
    return 3 * shape.vocabulary + shape.layers * (12 * shape.width + 5 * shape.units)


def drop_out(network: LlamaForCausalLM, share: float) -> None:
    """Dropout, in training, of what is written to the residual stream. Llama's layout has none of its own."""

    def dropped(module: torch.nn.Module, _: Any, written: Tensor) -> Tensor:
        return torch.nn.functional.dropout(written, share, module.training)

    if share:
        blocks = network.model.layers
        for module in (network.model.embed_tokens, *(part for b in blocks for part in (b.self_attn.o_proj, b.mlp))):
            module.register_forward_hook(dropped)


def _rows(ids: corpus.Ids, words: Any, length: int, total: int, seed: int) -> texts.Batches:
    walk = texts.walk(ids, words, length, length - 1, seed)
    return texts.Batches(corpus.RunningText(walk, corpus.boundary(words), length, total))


@dataclass(frozen=True)
class Fit:
    """How well a language model predicts a text."""

    bits: float
    bytes: int
    tokens: int

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes


def measure(model: str, sources: Sequence[str], device: str = "cpu", batch: int = 16) -> Fit:
    """Bits per byte of whole texts, read in windows that do not overlap: a token sees those of its window alone."""
    if (task := checkpoints.task_of(model)) != "causal-lm":
        raise InvalidInput(f"'{model}' is for {task}; bits per byte are those of a causal language model")
    words = checkpoints.tokenizer(model)
    network = checkpoints.measured(model, checkpoints.CAUSAL_LM, device)
    ids = np.concatenate([corpus.encode(texts.lines([source]), words, after=LINE)[:-1] for source in sources])
    if not len(ids):
        raise InvalidInput(f"{', '.join(sources)}: no text to measure on")
    size = sum(len((line + LINE).encode()) for source in sources for line in documents(source) if line.strip())
    inner = network.config.max_position_embeddings - 1
    whole = len(ids) // inner * inner
    windows = ids[:whole].reshape(-1, inner)
    parts = [windows[start : start + batch] for start in range(0, len(windows), batch)]
    rest = [ids[None, whole:]] if whole < len(ids) else []
    nats = sum(float(_nats(network, corpus.boundary(words), part, device)) for part in (*parts, *rest))
    return Fit(nats / math.log(2), size, len(ids))


@torch.inference_mode()
def _nats(network: Any, first: int, windows: corpus.Ids, device: str) -> Tensor:
    """Minus the log-probability of the windows, each read after the mark between documents."""
    ids = torch.from_numpy(np.insert(windows.astype(np.int64), 0, first, axis=1)).to(device)
    logits = network(input_ids=ids[:, :-1]).logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
