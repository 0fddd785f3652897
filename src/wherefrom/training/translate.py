"""Translation by a small encoder with a decoder in Marian's layout (Junczys-Dowmunt et al. 2018), from scratch.

    loss  =  − mean_t [ (1 − ε) log p(y_t | y_<t, x)  +  ε mean_v log p(v | y_<t, x) ],        ε = 0.1 in training

Source x and target y share one vocabulary, whose embeddings are those of encoder, decoder and output. A model that has
seen short sentences alone does not find its way in a long one, so most rows are several pairs joined, source to source
and target to target (Kondo et al. 2021), half of the joints without the mark and the capital letter that would show
them. Which ones follows from the seed and the number of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerFast, set_seed

from wherefrom.data.tables import BadRow, Problems, cell, rows, write_rows, written
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training import loop, texts, vocabulary
from wherefrom.training.sizes import refuse_uneven

SMOOTHING = 0.1
JOINED, MOST = 0.6, 8  # the share of rows that are several pairs, and the most pairs in one
SEAMLESS = 0.5  # of the joints
MARKS = (".", "!", "?")
NO_TOKEN = -100  # where a target has ended

Row = dict[str, list[int]]


@dataclass(frozen=True)
class TranslatorShape:
    """A new Marian's size. `dropout` is the share of what is written to the residual streams that training drops."""

    layers: int = 4
    decoder_layers: int = 3
    width: int = 256
    heads: int = 8
    vocabulary: int = 5000
    dropout: float = 0.3


@dataclass(frozen=True)
class PairColumns:
    """Which columns of a table hold source and target."""

    source: str = "source"
    target: str = "target"


@dataclass(frozen=True)
class TextPair:
    """A text and its translation."""

    source: str
    target: str


def train(
    data: Sequence[Path],
    run: loop.Schedule,
    columns: PairColumns | None = None,
    shape: TranslatorShape | None = None,
    length: int = 256,
    held_out: float = 0.02,
    test: float = 0.0,
    tokenizer: str | None = None,
    fresh: bool = False,
) -> loop.Trained:
    """Train a new translator on the pairs of `data`, with a vocabulary of its own.

    held_out, test: shares of the pairs, none of whose sources and targets is in training: to validate on, and to be
    left alone until the end, as test.jsonl in the model's folder.
    """
    columns, shape = columns or PairColumns(), shape or TranslatorShape()
    if run.steps is None:
        raise InvalidOption("the training of a translator is counted in steps; give --steps")
    settings = {
        "task": "translate",
        "train": [str(path) for path in data],
        "columns": asdict(columns),
        "tokenizer": tokenizer,
        "shape": asdict(shape),
        "reading": {"length": length, "held_out": held_out, "test": test},
        "run": run.settings,
    }
    config = marian(shape, length)
    with loop.running(run, settings, fresh):
        pairs = [pair for path in data for pair in read(path, columns)]
        if test:
            pairs, last = part(pairs, test, run.seed)
        seen, checked = part(pairs, held_out, run.seed)
        set_seed(run.seed)
        words = texts.tokenizer(
            run.out,
            tokenizer,
            lambda: vocabulary.learn_pieces((t for p in seen for t in (p.source, p.target)), shape.vocabulary, length),
        )
        network = MarianMTModel(with_words(config, words))
        network.generation_config = generation(words, length)
        train_rows = encode(seen, words)
        task = loop.Fitting(
            model=network,
            tokenizer=words,
            train=train_rows,
            valid=encode(checked, words),
            collate=Padding(words.pad_token_id),
            best="accuracy",
            metrics=accuracy,
            trainer=Smoothed,
            change=Concatenated(train_rows, encode(continuing(seen), words), mark_ids(words), length),
        )
        counts = {"train_rows": len(seen), "valid_rows": len(checked), "parameters": network.num_parameters()}
        if test:
            write_rows(run.out / "test.jsonl", (asdict(pair) for pair in last))
        return loop.fit(task, run, {**settings, **counts})


def marian(shape: TranslatorShape, length: int) -> MarianConfig:
    """The configuration but for its vocabulary."""
    refuse_uneven(shape.width, shape.heads)
    if shape.width % 2:
        raise InvalidOption(f"a width of {shape.width} is odd, and half of it are sines; expected an even one")
    return MarianConfig(
        d_model=shape.width,
        encoder_layers=shape.layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=4 * shape.width,
        decoder_ffn_dim=4 * shape.width,
        max_position_embeddings=length,
        activation_function="swish",
        dropout=shape.dropout,
        scale_embedding=True,
        init_std=shape.width**-0.5,  # embeddings are scaled by √width: then of variance one
    )


def with_words(config: MarianConfig, words: PreTrainedTokenizerFast) -> MarianConfig:
    """The configuration with this vocabulary; what the decoder reads first is the padding, as in all of Marian's."""
    pad, end = words.pad_token_id, words.eos_token_id
    known = {"vocab_size": len(words), "decoder_vocab_size": len(words), "pad_token_id": pad, "eos_token_id": end}
    config.update({**known, "decoder_start_token_id": pad, "forced_eos_token_id": end})
    return config


def generation(words: PreTrainedTokenizerFast, length: int) -> GenerationConfig:
    """How `generate` writes: greedily, and no padding before the end."""
    pad, end = words.pad_token_id, words.eos_token_id
    return GenerationConfig(
        max_length=length,
        decoder_start_token_id=pad,
        pad_token_id=pad,
        eos_token_id=end,
        forced_eos_token_id=end,
        bad_words_ids=[[pad]],
    )


# Reading --------------------------------------------------------------------------------------------------


def read(path: Path, columns: PairColumns) -> list[TextPair]:
    """The pairs of a table. All bad rows are counted and the first of them named in one error."""
    problems = Problems(path)
    found: list[TextPair] = []
    for number, row in rows(path):
        try:
            source, target = (written(cell(row, c, path), c) for c in (columns.source, columns.target))
        except BadRow as bad:
            problems.add(number, str(bad))
            continue
        found.append(TextPair(source, target))
    problems.check()
    if not found:
        raise InvalidInput(f"{path}: no rows to read")
    return found


def part(pairs: Sequence[TextPair], share: float, seed: int) -> tuple[list[TextPair], list[TextPair]]:
    """Hold out `share` of the pairs (one at least), and leave those out that have a source or a target with one of
    them in common, be it in other case or with other marks. Returns (the others, held out).
    """
    if len(pairs) < 2:
        raise InvalidInput(f"{len(pairs)} pair is too few to hold some out; give more")
    order = np.random.default_rng(seed).permutation(len(pairs))
    held = [pairs[i] for i in order[: max(1, round(share * len(pairs)))]]
    sources, targets = {key(pair.source) for pair in held}, {key(pair.target) for pair in held}
    others = [p for p in pairs if key(p.source) not in sources and key(p.target) not in targets]
    if not others:
        raise InvalidInput(f"every pair shares its source or its target with one of the {len(held)} held out")
    return others, held


def key(text: str) -> str:
    """What two texts have in common that differ in case and marks alone.

    >>> key("Geh jetzt!") == key("geh jetzt.")
    True
    """
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())


def encode(pairs: Sequence[TextPair], words: PreTrainedTokenizerFast) -> list[Row]:
    """Ids of source and target, each with its end; cut where they are longer than the model reads."""
    sources, targets = (
        words([getattr(pair, side) for pair in pairs], truncation=True)["input_ids"] for side in ("source", "target")
    )
    return [{"input_ids": s, "labels": t} for s, t in zip(sources, targets, strict=True)]


def continuing(pairs: Sequence[TextPair]) -> list[TextPair]:
    """The pairs as they would go on inside of a sentence: without a capital letter, unless the word always has it.

    >>> continuing([TextPair("Das Haus brennt.", "Tom saw that."), TextPair("Ist das alles?", "That is all.")])[1]
    TextPair(source='Ist das alles?', target='that is all.')
    """

    def lowered(texts: Sequence[str]) -> list[str]:
        inside = {word.rstrip("".join(MARKS)) for text in texts for word in text.split()[1:]}
        small = [text[:1].lower() + text[1:] for text in texts]
        return [s if s.split()[0] in inside else text for s, text in zip(small, texts, strict=True)]

    sides = (lowered([getattr(pair, side) for pair in pairs]) for side in ("source", "target"))
    return [TextPair(source, target) for source, target in zip(*sides, strict=True)]


def mark_ids(words: PreTrainedTokenizerFast) -> frozenset[int]:
    """The pieces that end a sentence."""
    return frozenset(words.convert_tokens_to_ids(list(MARKS)))


@dataclass(frozen=True)
class Concatenated:
    """Most rows followed by others, as long as there is room; some of the joints cannot be seen."""

    rows: Sequence[Row]
    inside: Sequence[Row]  # the same ones as they go on inside of a sentence
    marks: frozenset[int]
    length: int

    def __call__(self, row: dict[str, Any], drawn: np.random.Generator) -> dict[str, Any]:
        """Called for each row that is read."""
        if drawn.random() >= JOINED:
            return row
        for i in drawn.integers(len(self.rows), size=int(drawn.integers(1, MOST))):
            seamless = drawn.random() < SEAMLESS
            more = (self.inside if seamless else self.rows)[i]
            longer = {name: [*self._open(ids, seamless), *more[name]] for name, ids in row.items()}
            if max(map(len, longer.values())) > self.length:
                break
            row = longer
        return row

    def _open(self, ids: list[int], seamless: bool) -> list[int]:
        """Without its end, of which there is one for all; and without its mark."""
        return ids[:-2] if seamless and len(ids) > 2 and ids[-2] in self.marks else ids[:-1]


@dataclass(frozen=True)
class Padding:
    """Rows as a batch. The decoder reads the padding first, and then the target but for its end."""

    pad: int

    def __call__(self, batch: Sequence[Row]) -> dict[str, Tensor]:
        """Called by the DataLoader."""
        said = [row["labels"] for row in batch]
        ids = self.filled([row["input_ids"] for row in batch], self.pad)
        return {
            "input_ids": ids,
            "attention_mask": (ids != self.pad).long(),
            "decoder_input_ids": self.filled([[self.pad, *target[:-1]] for target in said], self.pad),
            "labels": self.filled(said, NO_TOKEN),
        }

    @staticmethod
    def filled(rows: Sequence[Sequence[int]], value: int) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


# Learning -------------------------------------------------------------------------------------------------


class Smoothed(loop.InOrder):
    """Trainer whose labels are smoothed in training, and which keeps of a validation what was said, not all logits."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """Called by Trainer."""
        labels = inputs["labels"]
        logits = model(**{name: t for name, t in inputs.items() if name != "labels"}, use_cache=False).logits
        loss = functional.cross_entropy(
            logits.float().flatten(0, 1),
            labels.flatten(),
            ignore_index=NO_TOKEN,
            label_smoothing=SMOOTHING if model.training else 0.0,
        )
        return (loss, {"loss": loss, "said": logits.argmax(-1)}) if return_outputs else loss


def accuracy(found: Any) -> dict[str, float]:
    """The share of the target's tokens that are said, each after the right ones: Trainer's hook for the metric."""
    asked = found.label_ids != NO_TOKEN
    return {"accuracy": float((found.predictions == found.label_ids)[asked].mean())}
