"""Rollout of a whole batch where its maps are made, on an accelerator: R^l = M^l R^{l-1}, layer by layer.

One product of all sentences takes what it takes to begin it; on the host it is one for each sentence. R is float64.
Where a row of it leaves the range of the maps' own numbers, or R its own, the host does it over, which knows what to do
(wherefrom/aggregate/rollout.py). Whatever is NaN or infinite in a map makes its row of R so, and is never in range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

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
    """One job's rollout on one batch, gathered as the layers pass."""

    found: Stack
    joint: Tensor | None = None  # R of the layers so far: [B, n, n]
    largest: list[Tensor] = field(default_factory=list)  # of each row of R at each layer: [B, n]
    fits: Callable[[], Tensor] | None = None  # [B], under way: whose rows are all in range

    @cached_property
    def padding(self) -> MapPadding:
        return MapPadding(self.found.lengths)

    def add(self, maps: Tensor) -> None:
        """One layer's maps, [B, n, n]."""
        real = self.padding.cleared(maps).double()
        self.joint = real if self.joint is None else real @ self.joint.to(real.device)
        self.largest.append(self.joint.abs().amax(-1))
        self.found.add(self.joint.to(maps.dtype))

    def add_all(self, maps: Tensor) -> None:
        """All layers' maps of one sentence, which has no padding: [L, n, n]."""
        each = list(accumulate(maps.double(), lambda below, own: own @ below))
        joint = torch.stack(each)
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


def joining(job: Job, lengths: Sequence[int], fetching: Fetching, device: torch.device) -> JointMaps | None:
    """Where a job's maps are joined on their way; None where the host does it."""
    reach = job.reach
    whole = reach.aggregate == "rollout" and not reach.receptive_field and not reach.readout_only and job.head is None
    on_device = device.type == "cuda" and job.keep == "maps"
    return JointMaps(Stack(lengths, reach.end - reach.start, fetching)) if whole and on_device else None
