r"""The readout row alone: what becomes of layer maps that nobody keeps.

    rollout          R^l = M^l R^{l-1}, of which row r is wanted: M^l_r R^{l-1}; of the last map no other row
    sum, mean, last  row r of every map, and no other
    none             the same

Row r of rollout is a vector times matrices if one starts at the last layer, which needs the maps in the order in which
a pass does not give them: one would keep all of them, L n² numbers, or the blocks' inputs, L n d, and run every block
twice. From the first layer on, n² numbers are held, R, and each layer costs one product of n³ more. Beside what any map
costs (n² H d for the cheapest that looks at values) that is little while n is no larger than H d, and it gives the row
of every layer, not of the last alone. It runs where the map was made and waits for no device.

R is float64 and divided by its largest number after every few layers, as products of many maps that are not normalised
leave the range of their numbers (wherefrom/aggregate/rollout.py); of four maps in float32 none does. Few steps,
whatever they compute: on an accelerator a layer of a short text takes as long as it takes to begin twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.aggregate import AGGREGATIONS, aggregate
from wherefrom.aggregate.rollout import NOTHING, fitting, in_range, near_one, shifted, times
from wherefrom.method.normalise import stacked
from wherefrom.model.later import sent
from wherefrom.pipeline.joint_maps import MapPadding
from wherefrom.pipeline.resolution import Job
from wherefrom.result.answer import Readout

Array = np.ndarray[Any, Any]
EVERY = 4  # layers after which R of maps in float32 is brought into range


@dataclass
class ReadoutRows:
    """One job's readout rows on one batch, gathered as the layers pass."""

    job: Job
    readouts: Sequence[Readout]
    lengths: Sequence[int]
    dtype: torch.dtype = torch.float32  # of the maps
    found: list[Tensor] = field(default_factory=list)  # [B, n] each
    below: list[Tensor] = field(default_factory=list)  # the same over all heads, when one head is asked for
    joint: Tensor | None = None  # R of the layers so far: [B, n, n]
    places: dict[torch.device, Tensor] = field(default_factory=dict)  # of the readout rows: [B, 1, n]
    layers: int = 0  # that are in R
    sizes: list[tuple[int, Tensor]] = field(default_factory=list)  # what it was divided by, after how many: [B, 1, 1]

    @cached_property
    def _padding(self) -> MapPadding:
        return MapPadding(self.lengths)

    @property
    def joins(self) -> bool:
        """Whether other rows than the readout row lead to the input."""
        return self.job.reach.aggregate == "rollout"

    def alone(self, index: int) -> bool:
        """Whether of this layer's map the readout row is enough."""
        known = all(each.position is not None for each in self.readouts)
        return known and (not self.joins or index == self.job.reach.end - 1)

    def unread(self, index: int) -> bool:
        """Whether this layer's map is not looked at."""
        last = self.job.reach.aggregate == "last" and self.job.keep == "scores"
        return last and index != self.job.reach.end - 1

    def targets(self, like: Tensor) -> Tensor:
        """The readout token of each sentence: [B]."""
        return sent(torch.tensor([each.position for each in self.readouts]), like.device)

    def add(self, maps: Tensor, below: Tensor | None = None) -> None:
        """One layer's maps, [B, n, n], or their readout rows alone, [B, 1, n]; `below` all heads' maps."""
        row = maps.shape[1] == 1 < maps.shape[2]
        self.dtype = maps.dtype
        if not self.joins:
            self.found.append(maps[:, 0] if row else self._readout(self._real(maps)))
            if below is not None:
                self.below.append(self._readout(self._real(below)))
            return
        joint = times(self.joint, maps if row else self._real(maps))
        self.found.append(joint[:, 0] if row else self._readout(joint))
        if below is not None:
            joint = times(self.joint, self._real(below))
        self.joint = joint if row else self._in_range(joint, maps.dtype)

    def _in_range(self, joint: Tensor, dtype: torch.dtype) -> Tensor:
        """R divided by its largest number, which is noted, where it is time for that."""
        self.layers += 1
        if self.layers % EVERY and dtype == torch.float32 and joint.dtype == torch.float64:
            return joint
        least = torch.finfo(joint.dtype).tiny  # for a product that is all zero
        size = torch.linalg.vector_norm(joint, ord=torch.inf, dim=(1, 2), keepdim=True).clamp(min=least)
        self.sizes.append((self.layers, size))
        scaled: Tensor = joint / size
        return scaled

    def _real(self, maps: Tensor) -> Tensor:
        return self._padding.cleared(maps)

    def _readout(self, maps: Tensor) -> Tensor:
        """[B, n, n] -> [B, n]."""
        if all(each.position is not None for each in self.readouts):
            if maps.device not in self.places:  # to send them means to wait for the device
                self.places[maps.device] = self.targets(maps)[:, None, None].expand(-1, 1, maps.shape[-1])
            return maps.gather(1, self.places[maps.device])[:, 0]
        rows = [
            maps[i, each.position]
            if each.position is not None
            else maps[i, list(each.rows)].mean(0)
            if each.rows
            else maps[i].sum(0) / length
            for i, (each, length) in enumerate(zip(self.readouts, self.lengths, strict=True))
        ]
        return torch.stack(rows)

    def of(self, sentence: int) -> Array:
        """The readout row of one sentence at every layer: [L, n]."""
        n = self.lengths[sentence]
        if self.joins:
            joined, powers, whole = self._joined
            if whole is not None:
                return whole[:, sentence, :n]
            found: Array = in_range(joined[:, sentence, :n], powers[:, sentence], self.dtype).numpy()
            return found
        rows, name = self._fetched[0][:, sentence, :n].numpy(), self.job.reach.aggregate
        if name is None:
            return rows
        under = self._fetched[1][:, sentence, None, :n].numpy() if self.below else None
        return aggregate(name, rows[:, None], under)[:, 0]

    @cached_property
    def finite(self) -> bool:
        """Whether no row of any sentence holds NaN or infinite values, as far as one look at all of them tells."""
        whole = self._joined[2] is not None if self.joins else self.job.reach.aggregate in (None, "last")
        return whole and bool(self._fetched[0].isfinite().all())

    @cached_property
    def last(self) -> Array | None:
        """The row that every sentence ends with, [B, n], where all are seen to be numbers."""
        if not self.finite:
            return None
        whole = self._joined[2] if self.joins else self._fetched[0].numpy()
        return None if whole is None else whole[-1].copy()

    @cached_property
    def _fetched(self) -> list[Tensor]:
        """Rows, those below and sizes of all sentences on the host, when no layer is to come."""
        every = self.found, self.below, [size for _, size in self.sizes]
        return [stacked(each).cpu() if each else torch.empty(0) for each in every]

    @cached_property
    def _joined(self) -> tuple[Tensor, Tensor, Array | None]:
        """R's rows of all sentences, near 1 lest they vanish in float32, and their powers of two: [L, B, n], [L, B].

        Last both together, where all of that are numbers.
        """
        fractions, powers = self._cumulated()
        near, more = near_one(self._fetched[0].double() * fractions[..., None])
        powers = torch.where(more == NOTHING, NOTHING, powers + more)
        fits = fitting(powers, self.dtype)
        return near, powers, shifted(near, powers[..., None]).to(self.dtype).numpy() if fits else None

    def _cumulated(self) -> tuple[Tensor, Tensor]:
        """What R had been divided by before each layer, as fractions and powers of two: [L, B] each."""
        sizes = torch.ones(len(self.found), len(self.lengths), dtype=torch.float64)
        if self.sizes:
            sizes[[after - 1 for after, _ in self.sizes]] = self._fetched[2][:, :, 0, 0].double()
        fractions, powers = torch.ones_like(sizes), torch.zeros_like(sizes, dtype=torch.int64)
        for layer in range(1, len(sizes)):
            fractions[layer], more = torch.frexp(fractions[layer - 1] * sizes[layer - 1])
            powers[layer] = powers[layer - 1] + more
        return fractions, powers


def rows_alone(job: Job, lengths: Sequence[int], places: Callable[[], Sequence[Readout | None]]) -> ReadoutRows | None:
    """Where a job's rows are gathered on their way; None where maps are kept or all of them are needed at once.

    Flow and the correction for the receptive field need them all; and so does an answer whose place, of those that the
    function foresees, is not known before the pass is over.
    """
    name = job.reach.aggregate
    local = name is None or name == "rollout" or AGGREGATIONS[name].by_row
    if job.keep == "maps" or not job.method.by_layer or job.reach.receptive_field or job.head == "all" or not local:
        return None
    known = [each for each in places() if each is not None]
    return ReadoutRows(job, known, lengths) if len(known) == len(lengths) else None
