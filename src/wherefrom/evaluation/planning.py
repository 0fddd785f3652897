"""Which examples make a shard: decided by the data alone, before anything is computed.

The dataset is read in windows of so many rows; within a window, rows are sorted by their length in tokens and
cut into shards. So similar lengths share a batch, memory holds a window and not the dataset, and a run that goes on
after a kill cuts the same shards again. Within a window the longest comes first (memory runs out at once or never),
then lengths in turn, so that what has been done soon tells how long the rest will take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from wherefrom.data import Example
from wherefrom.evaluation import store
from wherefrom.evaluation.task import Item, ShardTask, TaskRow
from wherefrom.model import Sentence
from wherefrom.model.batching import by_length

T = TypeVar("T")
WINDOW = 2048  # rows
PICTURE = 256  # tokens, more or less
TOKENS = 16384  # in a shard: long texts make shards of fewer rows


@dataclass(frozen=True)
class Load:
    """How much there is to do: what the time of a shard is estimated from."""

    rows: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0  # of the numbers of tokens

    def __add__(self, other: Load) -> Load:
        return Load(self.rows + other.rows, self.tokens + other.tokens, self.squares + other.squares)

    def __sub__(self, other: Load) -> Load:
        return Load(self.rows - other.rows, self.tokens - other.tokens, self.squares - other.squares)


def load(lengths: Iterable[float]) -> Load:
    every = list(lengths)
    return Load(len(every), sum(every), sum(n * n for n in every))


def characters(example: Example) -> int:
    """The length of a text before anything is known of its tokens; pictures are taken to be alike."""
    if example.image is not None:
        return PICTURE
    return len(example.text) if isinstance(example.text, str) else sum(map(len, example.text))


def windows(items: Iterable[T]) -> Iterator[tuple[int, list[T]]]:
    """The dataset in pieces, numbered."""
    iterator = iter(items)
    number = 0
    while window := list(islice(iterator, WINDOW)):
        yield number, window
        number += 1


def cut(number: int, window: list[Item], read: Callable[[Example], Sentence | str], size: int) -> list[ShardTask]:
    """The shards of one window: rows by length, at most `size` of them and TOKENS tokens each."""
    every = [TaskRow(item, read(item.example)) for item in window]
    groups = list(by_length([row.tokens for row in every], size, tokens=TOKENS))
    return [
        ShardTask(store.name(number, i, len(groups)), tuple(every[place] for place in group))
        for i, group in enumerate(groups)
    ]


def pending(tasks: list[ShardTask], done: Collection[str]) -> list[ShardTask]:
    """What is left of a window, in the order in which it is computed."""
    places = range(len(tasks))
    order = sorted(places, key=lambda i: _reversed_bits(len(tasks) - 1 - i, max(1, (len(tasks) - 1).bit_length())))
    return [tasks[i] for i in order if tasks[i].name not in done]


def _reversed_bits(value: int, bits: int) -> int:
    """0, 1, 2, … spread evenly: 0, 1/2, 1/4, 3/4, …"""
    return int(format(value, f"0{bits}b")[::-1], 2)
