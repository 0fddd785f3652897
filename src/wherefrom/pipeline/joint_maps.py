"""Rollout of a whole batch where its maps are made, on an accelerator: R^l = M^l R^{l-1}, layer by layer.

One product of all sentences takes what it takes to begin it; on the host it is one for each sentence. R is float64.
Where a row of it leaves the range of the maps' own numbers, or R its own, the host does it over, which knows what to do
(wherefrom/aggregate/rollout.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wherefrom.pipeline.fetching import Fetching
from wherefrom.pipeline.resolution import Job


@dataclass
class JointMaps:
    """One job's rollout on one batch, gathered as the layers pass."""

    lengths: Sequence[int]
    fetching: Fetching
    joint: Tensor | None = None  # R of the layers so far: [B, n, n]
    found: list[Tensor] = field(default_factory=list)  # on the host: [B, n, n] each
    fits: list[Tensor] = field(default_factory=list)  # whether R of each sentence is in range: [B] each

    def add(self, maps: Tensor) -> None:
        """One layer's maps, [B, n, n]."""
        real = without_padding(maps, self.lengths).double()
        self.joint = real if self.joint is None else real @ self.joint.to(real.device)
        range_ = torch.finfo(maps.dtype)
        most = self.joint.abs().amax(-1)
        in_range = (most == 0) | ((most >= range_.tiny / range_.eps) & (most <= range_.max / 2))
        self.found.append(self.fetching.take(self.joint.to(maps.dtype)))
        self.fits.append(self.fetching.take(in_range.all(-1)))

    def of(self, sentence: int) -> np.ndarray[Any, Any] | None:
        """[L, n, n]; None where the host must do it."""
        n = self.lengths[sentence]
        if not all(bool(each[sentence]) for each in self.fits):
            return None
        return np.stack([each[sentence, :n, :n].numpy() for each in self.found])


def without_padding(maps: Tensor, lengths: Sequence[int]) -> Tensor:
    """Zeros in the place of padding, whose rows may hold anything: [B, n, n]."""
    n = maps.shape[-1]
    if all(length == n for length in lengths):
        return maps
    real = torch.arange(n, device=maps.device) < torch.tensor(lengths, device=maps.device)[:, None]
    return maps.masked_fill(~(real[:, :, None] & real[:, None]), 0)


def joining(job: Job, lengths: Sequence[int], fetching: Fetching, device: torch.device) -> JointMaps | None:
    """Where a job's maps are joined on their way; None where the host does it."""
    reach = job.reach
    whole = reach.aggregate == "rollout" and not reach.receptive_field and not reach.readout_only and job.head is None
    on_device = device.type == "cuda" and job.keep == "maps" and job.method.by_layer
    return JointMaps(lengths, fetching) if whole and on_device else None
