"""How long the rest will take, from what the shards done so far took:

    seconds of a shard  ≈  a · rows + b · Σ n + c · Σ n²,      a, b, c ≥ 0 by least squares

with n the tokens of a row: rows cost something each, most of a model is linear in n, maps are quadratic. Rows come
sorted by length, so a share of rows done says little of the time that is left. Of windows not read yet only the
characters are known; tokens per character are taken from those that are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from scipy.optimize import nnls

from wherefrom.evaluation.planning import Load

DOUBT = 0.03


@dataclass
class Clock:
    """What is done and what is left, and how long it takes."""

    unread: Load  # in characters: the windows not cut into shards yet
    workers: int = 1
    left: Load = field(default_factory=Load)  # in tokens: shards of windows read
    read_characters: float = 0.0
    read_tokens: float = 0.0
    rows_done: int = 0
    _seen: deque[tuple[Load, float]] = field(default_factory=lambda: deque(maxlen=512))
    _one: Lock = field(default_factory=Lock, repr=False)  # windows are cut in another thread than shards are kept

    def reads(self, characters: Load, tokens: Load, waiting: Load) -> None:
        """A window was cut: its characters are known as tokens now, of which `waiting` are still to be computed."""
        with self._one:
            self.unread -= characters
            self.read_characters += characters.tokens
            self.read_tokens += tokens.tokens
            self.left += waiting
            self.rows_done += int(tokens.rows - waiting.rows)  # before a kill

    def skips(self, characters: Load) -> None:
        """A window that was finished before."""
        with self._one:
            self.unread -= characters

    def done(self, load: Load, seconds: float) -> None:
        """A shard took so many seconds."""
        with self._one:
            self.left -= load
            self.rows_done += int(load.rows)
            self._seen.append((load, seconds))

    def seconds_left(self) -> float | None:
        """None until something is known."""
        if not self._seen:
            return None
        # Divided by its tokens, each shard counts alike, and not the longest alone.
        sizes = np.array([max(load.tokens, load.rows) for load, _ in self._seen])
        design = np.stack([_row(load) for load, _ in self._seen]) / sizes[:, None]
        scale, took = design.max(0).clip(1e-12), np.array([seconds for _, seconds in self._seen]) / sizes
        # While few shards leave it open what a second was spent on, it was spent on tokens.
        doubt = np.diag([DOUBT, 0.0, DOUBT])
        prices = nnls(np.vstack([design / scale, doubt]), np.append(took, np.zeros(3)))[0] / scale
        ratio = self.read_tokens / self.read_characters if self.read_characters else 0.25
        unread = Load(self.unread.rows, self.unread.tokens * ratio, self.unread.squares * ratio**2)
        return float(max(0.0, prices @ _row(self.left + unread)) / self.workers)


def _row(load: Load) -> Any:
    return np.array([load.rows, load.tokens, load.squares])


def span(seconds: float | None) -> str:
    """Seconds as people write them.

    >>> span(8), span(95), span(7320)
    ('8 s', '1 min 35 s', '2 h 02 min')
    """
    if seconds is None:
        return "…"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def bar(total: int, before: int, shown: bool) -> Iterator[Any]:
    """A function that shows rows done and the time left; or one that shows nothing."""
    if not shown:
        yield lambda _clock: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
        TextColumn("· {task.fields[left]} left"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, completed=before, left="…")
        yield lambda clock: progress.update(task, completed=before + clock.rows_done, left=span(clock.seconds_left()))
