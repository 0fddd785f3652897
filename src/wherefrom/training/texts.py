"""Text files as what a language model is pretrained on: a vocabulary, a row of ids, windows in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from wherefrom.errors import InvalidInput
from wherefrom.training import checkpoints, corpus
from wherefrom.training.labelled import documents
from wherefrom.training.loop import CHECKPOINTS, CORPUS, VOCABULARY


def lines(sources: Sequence[str]) -> Iterator[str]:
    """The sources' lines, and an empty one after each source."""
    for source in sources:
        yield from documents(source)
        yield ""


def tokenizer(out: Path, name: str | None, learn: Callable[[], PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    """The named tokenizer, or one that is learned and kept beside the checkpoints."""
    if name is not None:
        return checkpoints.tokenizer(name)
    kept = out / CHECKPOINTS / VOCABULARY
    if kept.exists():
        return AutoTokenizer.from_pretrained(kept.parent)
    made = learn()
    part = kept.parent.with_name("part")
    made.save_pretrained(part)
    part.rename(kept.parent)  # only a whole one bears the name
    return made


def ids(sources: Sequence[str], out: Path, tokenizer: PreTrainedTokenizerFast, after: str = "") -> corpus.Ids:
    """The sources as ids, kept beside the checkpoints so that a resumed run need not read the text again."""
    kept = out / CHECKPOINTS / CORPUS
    if not kept.exists():
        part = kept.with_name("part.npy")
        np.save(part, corpus.encode(lines(sources), tokenizer, after))
        part.rename(kept)  # only a whole file bears the name
    loaded: corpus.Ids = np.load(kept)
    return loaded


def walk(ids: corpus.Ids, tokenizer: PreTrainedTokenizerFast, longest: int, stride: int, seed: int) -> corpus.Walk:
    """The order in which windows of at most `longest` tokens are read."""
    if len(ids) < 3 * longest:
        raise InvalidInput(
            f"too little text for windows of {longest} tokens: {3 * longest} are needed, not {len(ids)}; give more"
        )
    return corpus.Walk(ids, corpus.sentence_starts(ids, corpus.marks(tokenizer)), stride, seed)


class Batches(Dataset):  # type: ignore[type-arg]  # batches, not items, are what it gives
    """Windows for a DataLoader, which asks for whole batches."""

    def __init__(self, windows: corpus.Windows | corpus.RunningText) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        return self.windows[indices]
