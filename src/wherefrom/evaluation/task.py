"""A shard as it is handed to a worker, and what comes of each of its examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.data import Example
from wherefrom.metric import erasure
from wherefrom.metric.base import Number
from wherefrom.model import Sentence
from wherefrom.result.answer import Answer
from wherefrom.result.explanation import Explanation


class Item(NamedTuple):
    """One example of a dataset, its number there, and the explanations that came with it."""

    row: int
    example: Example
    given: Mapping[str, Explanation] = {}


class TaskRow(NamedTuple):
    """An example as planning read it, so that nobody tokenises it again; or why it cannot be read."""

    item: Item
    read: Sentence | str

    @property
    def tokens(self) -> int:
        """0 where it cannot be read."""
        return 0 if isinstance(self.read, str) else len(self.read)


@dataclass(frozen=True)
class ShardTask:
    """A shard to be computed."""

    name: str
    rows: tuple[TaskRow, ...]

    @property
    def tokens(self) -> list[int]:
        return [row.tokens for row in self.rows]


class Record(NamedTuple):
    """One number of one method."""

    method: str
    number: Number


class MethodCurve(NamedTuple):
    """One erasure curve of one method."""

    method: str
    way: str
    curve: erasure.Curve


@dataclass
class ExampleOutcome:
    """All that came of one example."""

    item: Item
    content: str  # a hash of the example as it was read from the data
    tokens: int = 0
    answer: Answer | None = None
    failure: str | None = None
    records: list[Record] = field(default_factory=list)
    curves: list[MethodCurve] = field(default_factory=list)
    vectors: NDArray[np.float32] | None = None  # [L + 1, d], where a probe wants them
