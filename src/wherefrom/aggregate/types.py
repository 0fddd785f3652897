"""The types of this room, and what its steps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Maps = NDArray[np.floating[Any]]  # [L, n, n]: row i is built, column j contributes
# What the layers so far make together, one layer's maps and how many layers that are: [..., n, n], with it.
Step = Callable[[Tensor | None, Tensor, int], Tensor]


def wide(maps: Tensor) -> Tensor:
    """Maps in float64, which Apple's GPUs have not."""
    return maps.to(torch.float32 if maps.device.type == "mps" else torch.float64)


def folded(step: Step, maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: each layer joined by `step` to those beneath it."""
    result, state = np.empty_like(maps), None
    for layer, own in enumerate(torch.tensor(maps, dtype=torch.float64)):
        found = step(state, own, layer + 1)
        result[layer] = found
        state = found if below is None else step(state, torch.tensor(below[layer], dtype=torch.float64), layer + 1)
    return result
