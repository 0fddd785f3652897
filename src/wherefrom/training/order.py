"""The order in which rows are read: shuffled anew each epoch, with rows of like length in the same batch.

The order follows from the seed alone, so a resumed run goes on exactly where it was killed; and a batch is padded
little, which on short texts saves more than half of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

# What may be done to a row each time it is read, e.g. hiding some words; the generator is the reading's own.
Change = Callable[[dict[str, Any], np.random.Generator], dict[str, Any]]

# Batches that are sorted by length together: enough to save padding, few enough to keep the mixture random.
TOGETHER = 50


class Ordered(Dataset):  # type: ignore[type-arg]  # items are whatever the collate function takes
    """`rows` over and over, `total` items in all, to be read from first to last."""

    def __init__(
        self, rows: Sequence[dict[str, Any]], batch: int, total: int, seed: int, change: Change | None = None
    ) -> None:
        self.rows = rows
        self.batch = batch
        self.total = total
        self.seed = seed
        self.change = change
        self._lengths = np.array([len(row["input_ids"]) for row in rows])
        # A few epochs' orders are kept: a batch may lie across the border of two.
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, place = divmod(index, len(self.rows))
        row = self.rows[int(self._order(epoch)[place])]
        return row if self.change is None else self.change(row, np.random.default_rng((self.seed, index)))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_order"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch: int) -> npt.NDArray[np.int64]:
        return shuffled(self._lengths, self.batch, self.seed, epoch)


def shuffled(lengths: npt.NDArray[np.int64], batch: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation of the rows in which each run of `batch` rows has similar lengths."""
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), batch * TOGETHER):
        group = order[start : start + batch * TOGETHER]
        group = group[np.argsort(lengths[group], kind="stable")]
        batches += [group[i : i + batch] for i in range(0, len(group), batch)]
    # The short rest stays last, so that all other batches keep their borders.
    whole = [chunk for chunk in batches if len(chunk) == batch]
    rest = [chunk for chunk in batches if len(chunk) < batch]
    mixed = [whole[i] for i in rng.permutation(len(whole))]
    return np.concatenate([*mixed, *rest])
