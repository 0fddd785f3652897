"""A corpus as one long row of token ids, and the windows that pretraining reads from it.

A window starts where a sentence starts, as the texts do that the model will be asked about later. Which windows an
epoch shows, in which order and what is masked in them follows from (seed, index) alone, so a resumed run sees
exactly what an undisturbed one would have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.training.vocabulary import batches

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

Ids = npt.NDArray[np.uint16]

# Of the chosen positions, BERT shows [MASK] in 80 %, a random word in 10 %, the word itself in 10 %.
SHOW_MASK, SHOW_RANDOM = 0.8, 0.1
BLOCK = 4096
ENDS, CLOSERS = ".!?", "\"')]}”’"


@dataclass(frozen=True)
class Marks:
    """The ids at which a sentence or a document ends."""

    document: int
    ends: npt.NDArray[np.int64]  # full stop, question mark, exclamation mark
    closers: npt.NDArray[np.int64]  # what may follow them inside the same sentence


def marks(tokenizer: PreTrainedTokenizerFast) -> Marks:
    """Read the vocabulary once. A piece may hold several marks: `."` in byte-level vocabularies."""
    written = {index: tokenizer.convert_tokens_to_string([piece]) for piece, index in tokenizer.get_vocab().items()}
    closers = {index: text for index, text in written.items() if text and set(text) <= set(ENDS + CLOSERS)}
    ends = [index for index, text in closers.items() if set(text) & set(ENDS)]
    return Marks(boundary(tokenizer), np.array(sorted(ends)), np.array(sorted(closers)))


def boundary(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id that stands between two documents."""
    found: int = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return found


@dataclass(frozen=True)
class Pieces:
    """What masked windows need to know of the vocabulary."""

    size: int
    cls: int
    sep: int
    mask: int
    first_word: int  # ids below are special
    inside: npt.NDArray[np.bool_]  # does this piece continue a word?


def pieces(tokenizer: PreTrainedTokenizerFast) -> Pieces:
    """Read the vocabulary once."""
    vocabulary = tokenizer.get_vocab()
    inside = np.zeros(len(vocabulary), dtype=bool)
    for piece, index in vocabulary.items():
        inside[index] = piece.startswith("##")
    return Pieces(
        size=len(vocabulary),
        cls=tokenizer.cls_token_id,
        sep=tokenizer.sep_token_id,
        mask=tokenizer.mask_token_id,
        first_word=1 + max(tokenizer.all_special_ids),
        inside=inside,
    )


def encode(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, after: str = "") -> Ids:
    """All lines joined into one row of ids, `after` each of them; an empty line ends a document, which is marked."""
    if len(tokenizer) > np.iinfo(np.uint16).max:
        raise InvalidOption(f"a vocabulary of {len(tokenizer)} pieces is too large; at most 65,535 can be used here")
    backend = tokenizer.backend_tokenizer
    found: list[Ids] = []
    end = np.array([boundary(tokenizer)], dtype=np.uint16)
    for chunk in batches(texts, 4000):
        encoded = iter(backend.encode_batch_fast([t + after for t in chunk if t.strip()], add_special_tokens=False))
        found += [np.array(next(encoded).ids, dtype=np.uint16) if text.strip() else end for text in chunk]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.uint16)


def hold_out(ids: Ids, share: float, seed: int) -> tuple[Ids, Ids]:
    """Take whole blocks out of the corpus for validation; returns (train, held out)."""
    count = len(ids) // BLOCK
    chosen = np.random.default_rng(seed).permutation(count)[: max(1, round(share * count))]
    if count < 2:
        raise InvalidInput(
            f"too little text to pretrain on: {2 * BLOCK} tokens are needed at least, not {len(ids)}; give more"
        )
    held = np.zeros(count, dtype=bool)
    held[chosen] = True
    blocks = ids[: count * BLOCK].reshape(count, BLOCK)
    return blocks[~held].ravel(), blocks[held].ravel()


def sentence_starts(ids: Ids, known: Marks) -> npt.NDArray[np.int64]:
    """Where a sentence begins: after a full stop and its closing marks, and after the end of a document."""
    ends = np.isin(ids, known.ends) | (ids == known.document)
    # A closing quote after a full stop still belongs to the sentence.
    closing = np.isin(ids, known.closers)
    over = ends.copy()
    over[1:] |= closing[1:] & ends[:-1]
    starts = np.flatnonzero(over[:-1] & ~closing[1:] & ~ends[1:]) + 1
    return np.concatenate([np.zeros(1, dtype=np.int64), starts])


@dataclass(frozen=True)
class Walk:
    """Where the windows of each epoch begin: side by side, all shifted, in an order of the epoch's own."""

    ids: Ids
    starts: npt.NDArray[np.int64]
    stride: int
    seed: int

    def read(self, numbers: npt.NDArray[np.int64], inner: int) -> npt.NDArray[np.int64]:
        """The windows with these numbers, `inner` ids each: [B, inner]."""
        per_epoch = max(1, (len(self.ids) - 2 * inner) // self.stride)
        begins = np.empty(len(numbers), dtype=np.int64)
        epochs = numbers // per_epoch
        for epoch in np.unique(epochs):
            here = epochs == epoch
            shift, order = _shuffled(per_epoch, self.stride, self.seed, int(epoch))
            begins[here] = order[numbers[here] % per_epoch] * self.stride + shift
        read: npt.NDArray[np.int64] = self.ids[self._snap(begins, inner)[:, None] + np.arange(inner)]
        return read.astype(np.int64)

    def _snap(self, begins: npt.NDArray[np.int64], inner: int) -> npt.NDArray[np.int64]:
        """Move each begin to the next start of a sentence, where one is near and leaves a full window."""
        following = self.starts[np.minimum(np.searchsorted(self.starts, begins), len(self.starts) - 1)]
        near = (following >= begins) & (following - begins <= 64) & (following + inner <= len(self.ids))
        moved: npt.NDArray[np.int64] = np.where(near, following, begins)
        return np.minimum(moved, len(self.ids) - inner)


@dataclass(frozen=True)
class RunningText:
    """Windows of running text for a language model that reads from left to right; each begins as a document does."""

    walk: Walk
    first: int
    length: int
    total: int

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """One batch: `input_ids` [B, n], and the same as `labels`."""
        import torch

        rows = np.full((len(indices), self.length), self.first, dtype=np.int64)
        rows[:, 1:] = self.walk.read(np.asarray(indices), self.length - 1)
        ids = torch.from_numpy(rows)
        return {"input_ids": ids, "labels": ids}


@dataclass(frozen=True)
class Windows:
    """Masked windows in the order of training: first `short` rows of `length`, then the same tokens in longer rows.

    An index stands for `length` tokens. After `short` indices, `ratio` of them together make one row of
    `ratio * length` tokens, so every batch holds the same number of tokens (Devlin et al. train the last tenth so).
    """

    walk: Walk  # its stride is `length` without the two marks
    known: Pieces
    length: int
    ratio: int
    short: int
    total: int
    rate: float

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """One batch: `input_ids` [B, n], the chosen `positions` [B, k] and the true `words` [B, k] there."""
        import torch

        first = indices[0]
        ratio = 1 if first < self.short else self.ratio
        numbers = np.asarray(indices)[::ratio]
        length = self.length * ratio
        rng = np.random.default_rng((self.walk.seed, first))
        rows = self._rows(numbers, length)
        positions = choose(rows, self.known, self.rate, rng)
        words = np.take_along_axis(rows, positions, axis=1)
        np.put_along_axis(rows, positions, hide(words, self.known, rng), axis=1)
        return {
            name: torch.from_numpy(a) for name, a in [("input_ids", rows), ("positions", positions), ("words", words)]
        }

    def _rows(self, numbers: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
        rows = np.empty((len(numbers), length), dtype=np.int64)
        rows[:, 0], rows[:, -1] = self.known.cls, self.known.sep
        rows[:, 1:-1] = self.walk.read(numbers, length - 2)
        return rows


@lru_cache(maxsize=4)
def _shuffled(size: int, stride: int, seed: int, epoch: int) -> tuple[int, npt.NDArray[np.int64]]:
    """An epoch's shift of all windows and their order; kept, since every batch of the epoch asks for it."""
    rng = np.random.default_rng((seed, 1 << 20, epoch))
    return int(rng.integers(0, stride)), rng.permutation(size)


def choose(rows: npt.NDArray[np.int64], known: Pieces, rate: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Choose `rate` of each row's positions, word by word: all pieces of a word are hidden together. [B, k]"""
    count = max(1, round(rate * (rows.shape[1] - 2)))
    words = np.cumsum(~known.inside[rows], axis=1)
    luck = rng.random(rows.shape, dtype=np.float32)
    scores = np.take_along_axis(luck, np.minimum(words, rows.shape[1] - 1), axis=1)
    scores[rows < known.first_word] = 2.0  # special tokens come last; a row has fewer of them than it keeps
    return np.argpartition(scores, count, axis=1)[:, :count]


def hide(words: npt.NDArray[np.int64], known: Pieces, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """What the model is shown instead of `words`."""
    luck = rng.random(words.shape, dtype=np.float32)
    random = rng.integers(known.first_word, known.size, words.shape)
    shown = np.where(luck < SHOW_MASK, known.mask, words)
    result: npt.NDArray[np.int64] = np.where((luck >= SHOW_MASK) & (luck < SHOW_MASK + SHOW_RANDOM), random, shown)
    return result


def as_is(batch: Any) -> Any:
    """The collate function of `Windows`: the batch is made already."""
    return batch
