"""What shares a batch: neighbours by length, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

import numpy as np


def by_length(
    lengths: Sequence[int],
    size: float = inf,
    *,
    tokens: float = inf,
    slack: float = inf,
    shapes: Sequence[tuple[int, ...]] = (),
) -> Iterator[list[int]]:
    """The places of all lengths in groups, the shortest first; equal ones stay in order.

    A group has at most `size` members, which take at most `tokens` once they are padded to the longest (one member may
    take more), and the longest is longer than the shortest by at most the share `slack`. Those of different
    `shapes` share none.

    >>> list(by_length([3, 9, 3, 4], 2)), list(by_length([3, 9, 3, 4], slack=0))
    ([[0, 2], [3, 1]], [[0, 2], [3], [1]])
    """
    if len(set(shapes)) > 1:
        order = np.array(sorted(range(len(lengths)), key=lambda i: (lengths[i], shapes[i])))
        other = np.flatnonzero([shapes[a] != shapes[b] for a, b in pairwise(order)]) + 1  # where another shape begins
    else:
        order, other = np.argsort(np.array(lengths, dtype=np.int64), kind="stable"), np.empty(0, np.int64)
    long, start = np.array(lengths, dtype=np.int64)[order], 0
    while start < len(order):
        end = min([len(order), *other[np.searchsorted(other, start, "right") :][:1]])
        first = int(long[start])
        if slack < inf:
            end = min(end, int(np.searchsorted(long, first * (1 + slack), "right")))
        end = int(min(end, start + size))
        if first * (end - start) > tokens:  # no more can fit, however long they are
            end = start + int(tokens // first) + 1
        taken = np.arange(1, end - start + 1) * long[start:end]  # once they are padded to each of them
        end = start + max(1, int(np.searchsorted(taken, tokens, "right")))
        yield order[start:end].tolist()
        start = end
