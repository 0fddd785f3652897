"""What shares a batch: neighbours by length, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    take more), and the longest is longer than the shortest by at most the share `slack`. Pictures of different `shapes`
    share none.

    >>> list(by_length([3, 9, 3, 4], 2)), list(by_length([3, 9, 3, 4], slack=0))
    ([[0, 2], [3, 1]], [[0, 2], [3], [1]])
    """
    group: list[int] = []
    if len(set(shapes)) > 1:
        order = sorted(range(len(lengths)), key=lambda i: (lengths[i], shapes[i]))
    else:
        order, shapes = np.argsort(np.array(lengths, dtype=np.int64), kind="stable").tolist(), [()] * len(lengths)
    for i in order:
        full = len(group) >= size or (len(group) + 1) * lengths[i] > tokens
        if group and (full or shapes[i] != shapes[group[0]] or lengths[i] > lengths[group[0]] * (1 + slack)):
            yield group
            group = []
        group.append(i)
    if group:
        yield group
