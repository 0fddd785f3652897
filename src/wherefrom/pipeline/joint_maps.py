"""The maps of a whole batch joined where they are made, layer by layer: for rollout R^l = M^l R^{l-1}.

One step serves all sentences at once, on any device, and nobody waits for it. R is float64. Where a row of it leaves
the range of the maps' own numbers, or R its own, that sentence is done over from its maps on the host, with powers of
two beside the numbers (wherefrom/aggregate/rollout.py). Whatever is NaN or infinite in a map makes its row of R so, and
is never in range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.aggregate import AGGREGATIONS
from wherefrom.aggregate.types import Step
from wherefrom.method.normalise import stacked
from wherefrom.model.later import fetched, sent
from wherefrom.pipeline.fetching import Fetching, Stack
from wherefrom.pipeline.resolution import Job


@dataclass
class MapPadding:
    """Which tokens of a batch are none."""

    lengths: Sequence[int]
    seen: dict[torch.device, Tensor] = field(default_factory=dict)  # [B, n, n]

    def cleared(self, maps: Tensor) -> Tensor:
        """Zeros in the place of padding, whose rows may hold anything: [B, n, n]."""
        n = maps.shape[-1]
        if all(length == n for length in self.lengths):
            return maps
        if maps.device not in self.seen:
            lengths = sent(torch.tensor(self.lengths), maps.device)
            real = torch.arange(n, device=maps.device) < lengths[:, None]
            self.seen[maps.device] = ~(real[:, :, None] & real[:, None])
        return maps.masked_fill(self.seen[maps.device], 0)


@dataclass
class JointMaps:
    """One job's joined maps on one batch, gathered as the layers pass."""

    found: Stack
    step: Step
    joint: Tensor | None = None  # R of the layers so far: [B, n, n]
    largest: list[Tensor] = field(default_factory=list)  # of each row of R at each layer: [B, n]
    fits: Callable[[], Tensor] | None = None  # [B], under way: whose rows are all in range

    @cached_property
    def padding(self) -> MapPadding:
        return MapPadding(self.found.lengths)

    def add(self, maps: Tensor, below: Tensor | None = None) -> None:
        """One layer's maps, [B, n, n]; of one head, `below` are those of all heads, on which the next layer stands."""
        count = len(self.largest) + 1
        joint = self.step(self.joint, self.padding.cleared(maps), count)
        self.largest.append(joint.abs().amax(-1))
        self.found.add(joint.to(maps.dtype))
        self.joint = joint if below is None else self.step(self.joint, self.padding.cleared(below), count)

    def add_all(self, maps: Tensor) -> None:
        """All layers' maps of one sentence, which has no padding: [L, n, n]."""
        every: list[Tensor] = []
        for count, own in enumerate(maps.unbind(), start=1):
            every.append(self.step(every[-1] if every else None, own, count))
        joint = torch.stack(every)
        self.largest = list(joint.abs().amax(-1, keepdim=True).transpose(1, 2))
        self.found.add_all(joint.to(maps.dtype))

    def of(self, sentence: int) -> NDArray[Any] | None:
        """[L, n, n]; None where the host must do it."""
        return self.found.of(sentence) if self._in_range[sentence] else None

    def look(self) -> None:
        """Once no layer is to come, have the device say which sentences are in range; nobody waits for its answer."""
        if self.fits is not None or self.found.room is None:
            return
        most, own, n = stacked(self.largest), torch.finfo(self.found.room.dtype), max(self.found.lengths)
        fits = (most == 0) | ((most >= own.tiny / own.eps) & (most <= own.max / 2))
        self.fits = fetched(fits.all(-1).all(0) & (self.found.room.shape[-2:] == (n, n)))

    @cached_property
    def _in_range(self) -> list[bool]:
        self.look()
        assert self.fits is not None
        found: list[bool] = self.fits().tolist()
        return found


def joining(job: Job, lengths: Sequence[int], fetching: Fetching) -> JointMaps | None:
    """Where a job's maps are joined on their way; None where they are not, or all of them are needed at once."""
    reach = job.reach
    step = None if reach.aggregate is None else AGGREGATIONS[reach.aggregate].step
    whole = not reach.receptive_field and not reach.readout_only and job.head != "all" and job.keep == "maps"
    return JointMaps(Stack(lengths, reach.end - reach.start, fetching), step) if step is not None and whole else None
