r"""The readout row alone: what becomes of layer maps that nobody keeps.

    rollout          R^l = M^l R^{l-1}, of which row r is wanted: M^l_r R^{l-1}; of the last map no other row
    sum, mean, last  row r of every map, and no other
    none             the same

Row r of rollout is a vector times matrices if one starts at the last layer, which needs the maps in the order in which
a pass does not give them: one would keep all of them, L n² numbers, or the blocks' inputs, L n d, and run every block
twice. From the first layer on, n² numbers are held, R, and each layer costs one product of n³ more. Beside what any map
costs (n² H d for the cheapest that looks at values) that is little while n is no larger than H d, and it gives the row
of every layer, not of the last alone. It runs where the map was made and waits for no device.

ReadoutRows carry a power of two of their own, as in wherefrom/aggregate/rollout.py: products of many maps that are not
normalised leave the range of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.aggregate import AGGREGATIONS, aggregate
from wherefrom.aggregate.rollout import NOTHING, in_range
from wherefrom.model import Model, Sentence, foreseen
from wherefrom.pipeline.resolution import Job, Question
from wherefrom.result.answer import Readout


@dataclass
class ReadoutRows:
    """One job's readout rows on one batch, gathered as the layers pass."""

    job: Job
    readouts: Sequence[Readout]
    lengths: Sequence[int]
    found: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # [B, n] each, and the powers of two of these [B]
    below: list[Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    joint: tuple[Tensor, Tensor] | None = None  # R of the layers so far, [B, n, n], and the powers of its rows, [B, n]

    @property
    def joins(self) -> bool:
        """Whether other rows than the readout row lead to the input."""
        return self.job.reach.aggregate == "rollout"

    def alone(self, index: int) -> bool:
        """Whether of this layer's map the readout row is enough."""
        known = all(each.position is not None for each in self.readouts)
        return known and (not self.joins or index == self.job.reach.end - 1)

    def targets(self, like: Tensor) -> Tensor:
        """The readout token of each sentence: [B]."""
        return torch.tensor([each.position for each in self.readouts], device=like.device)

    def add(self, maps: Tensor, below: Tensor | None = None) -> None:
        """One layer's maps, [B, n, n], or their readout rows alone, [B, 1, n]; `below` all heads' maps."""
        top = maps if maps.shape[1] == 1 < maps.shape[2] else self._readout(self._real(maps))
        if not self.joins:
            self.found.append((top[:, 0], top.new_zeros(len(top))))
            if below is not None:
                self.below.append(self._readout(self._real(below))[:, 0])
            return
        row, power = self._times(top)
        self.found.append((row[:, 0], power[:, 0]))
        if len(self.found) < self.job.reach.end - self.job.reach.start:
            self.joint = self._times(self._real(maps if below is None else below))

    def _times(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """ReadoutRows of this layer's map times R of those below it."""
        if self.joint is None:
            return _sized(maps, torch.zeros_like(maps[..., :1], dtype=torch.int32))
        joint, powers = (each.to(maps.device) for each in self.joint)
        return _product(maps, joint, powers)

    def _real(self, maps: Tensor) -> Tensor:
        """Without the rows of padding, which may hold anything."""
        n = maps.shape[-1]
        if all(length == n for length in self.lengths):
            return maps
        real = torch.arange(n, device=maps.device) < torch.tensor(self.lengths, device=maps.device)[:, None]
        return maps.masked_fill(~(real[:, :, None] & real[:, None]), 0)

    def _readout(self, maps: Tensor) -> Tensor:
        """[B, n, n] -> [B, 1, n]."""
        rows = [
            maps[i].sum(0) / length if each.position is None else maps[i, each.position]
            for i, (each, length) in enumerate(zip(self.readouts, self.lengths, strict=True))
        ]
        return torch.stack(rows).unsqueeze(1)

    def of(self, sentence: int) -> np.ndarray[Any, Any]:
        """The readout row of one sentence at every layer: [L, n]."""
        n = self.lengths[sentence]
        rows = np.stack([row[sentence, :n].cpu().numpy() for row, _ in self.found])
        name = self.job.reach.aggregate
        if self.joins:
            return in_range(rows, np.array([int(power[sentence]) for _, power in self.found], dtype=np.int64))
        if name is None:
            return rows
        under = np.stack([row[sentence, :n].cpu().numpy() for row in self.below])[:, None] if self.below else None
        return aggregate(name, rows[:, None], under)[:, 0]


def rows_alone(
    opened: Model, job: Job, sentences: Sequence[Sentence], questions: Sequence[Question]
) -> ReadoutRows | None:
    """Where a job's rows are gathered on their way; None where maps are kept or all of them are needed at once.

    Flow and the correction for the receptive field need them all; and so does an answer whose place is not known before
    the pass is over.
    """
    name = job.reach.aggregate
    local = name is None or name == "rollout" or AGGREGATIONS[name].by_row
    if job.keep == "maps" or not job.method.by_layer or job.reach.receptive_field or job.head == "all" or not local:
        return None
    readouts = [
        foreseen(opened, each, asked.target, asked.foil, asked.position)
        for each, asked in zip(sentences, questions, strict=True)
    ]
    places = [each for each in readouts if each is not None]
    return ReadoutRows(job, places, [len(each) for each in sentences]) if len(places) == len(readouts) else None


def _product(maps: Tensor, joint: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """[B, R, n] times the rows of `joint` times 2^powers: rows with their largest entry near 1, and their powers."""
    fraction, size = torch.frexp(maps)
    size = torch.where(fraction == 0, NOTHING, size + powers[:, None])
    largest = size.amax(-1, keepdim=True)
    return _sized((fraction * torch.exp2((size - largest).to(maps.dtype))) @ joint, largest)


def _sized(rows: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """[B, R, n] times 2^powers, [B, R, 1]: the same rows with their largest entry near 1, and their powers, [B, R]."""
    most = rows.abs().amax(-1, keepdim=True)
    more = torch.frexp(most)[1]
    powers = torch.where(most == 0, NOTHING, (powers + more).clamp(min=NOTHING))
    return rows * torch.exp2(-more.to(rows.dtype)), powers[..., 0]
