r"""Rollout: the maps of all layers multiplied, so that the last one reaches down to the input.

    R^0 = M^0,      R^l = M^l R^{l-1}                       (Abnar & Zuidema 2020, equation 1)

Residual connections are the layer map's business, never rollout's; nothing is renormalised (GlobEnc). For a
single head k at layer l the layers below stay averaged over their heads (appendix A.1): R^{l,k} = M^{l,k} R^{l-1}.

`times` is that step, for a whole batch on the device that its maps are on, and waits for nothing. Products of many maps
that are not normalised may leave the range of their numbers (1e38 in float32), some rows of a layer long before others.
Whoever sees that has `rollout` do it over, where every row carries a power of two of its own from layer to layer. A
layer that does not fit is given up to a factor, and a row that is far smaller than the rest (1e-14 of the largest) up
to one of its own; the shares in a row are what they were.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wherefrom.aggregate.types import Maps, wide
from wherefrom.errors import warn
from wherefrom.work import Work

NOTHING = -(2**24)  # the power of two of zeros
SPARE = 24  # powers of two between the largest number of a layer that was brought into range and the largest there is


def times(so_far: Tensor | None, maps: Tensor, count: int = 1) -> Tensor:
    """R of one layer more, or some of its rows: M^l R^{l-1}, [..., n, n]."""
    del count
    return wide(maps) if so_far is None else wide(maps) @ so_far.to(maps.device)


def rollout(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: row i of entry l says what token i of layer l is made of, in input tokens.

    `below` are the maps of the layers under the one asked about, where they differ from `maps` (one head).
    """
    result = torch.from_numpy(np.empty_like(maps))
    n = maps.shape[-1]
    joint, powers = torch.eye(n, dtype=torch.float64), torch.zeros(n, dtype=torch.int64)  # row i times 2^powers[i]
    cut = 0
    for layer, each in enumerate(maps):
        found = _product(each, joint, powers)
        result[layer], short = _brought(*found, result.dtype)
        cut += short
        joint, powers = found if below is None else _product(below[layer], joint, powers)
    _warn_of_range(result, cut)
    return result.numpy()


def in_range(rows: Tensor, powers: Tensor, dtype: torch.dtype) -> Tensor:
    """[L, n]: one row of rollout at every layer in numbers of a kind, out of rows and their powers of two."""
    together, cut = _brought(rows, powers, dtype)
    if not cut:
        return together
    found = [_brought(row[None], power[None], dtype) for row, power in zip(rows, powers, strict=True)]
    _warn_of_range(together, sum(cut for _, cut in found))
    return torch.cat([row for row, _ in found])


def near_one(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with their largest entry near 1, and the powers of two that this took: [..., n], [...]."""
    most = rows.abs().amax(-1)
    sizes = torch.where(most == 0, 0, torch.frexp(most).exponent.long())
    return shifted(rows, -sizes[..., None]), torch.where(most == 0, NOTHING, sizes)


def fitting(powers: Tensor, dtype: torch.dtype) -> bool:
    """Whether numbers of a kind hold rows near 1 times these powers of two, zeros aside."""
    low, high, _ = _range(dtype)
    there = powers[powers != NOTHING]
    return not there.numel() or bool(there.min() >= low and there.max() <= high)


def shifted(t: Tensor, powers: Tensor) -> Tensor:
    """t · 2^powers in float64: by two factors, as one could leave the range that the product keeps."""
    half = powers >> 1
    return t * _two_to(half) * _two_to(powers - half)


def _two_to(powers: Tensor) -> Tensor:
    """2^powers by the bits of a float64; not by exp2, which rounds."""
    return (powers.clamp(-1022, 1023) + 1023 << 52).view(torch.float64)


def _warn_of_range(layers: Tensor, cut: int) -> None:
    if cut:
        warn(
            f"the rollout leaves the range of {str(layers.dtype).removeprefix('torch.')} in {cut} of {len(layers)} "
            f"layers, which are given only up to a factor: read them as shares"
        )


def _product(maps: Maps, joint: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """A layer's map times the product of those below it: the rows with their largest entry near 1, and their powers.

    What is nothing beside the largest that a row adds up vanishes, by the row's own measure.
    """
    each = torch.tensor(maps, dtype=torch.float64)
    largest = torch.where(each == 0, NOTHING, torch.frexp(each).exponent + powers).amax(-1)
    found, more = near_one(shifted(each, powers - largest[:, None]) @ joint)
    return found, torch.where(more == NOTHING, NOTHING, largest + more)


def _brought(parts: Tensor, powers: Tensor, dtype: torch.dtype) -> tuple[Tensor, bool]:
    """parts[k] · 2^powers[k], and whether one did not fit: then all have a common factor, and what is tiny its own.

    The parts have their largest entry near 1.
    """
    aside = (slice(None), *[None] * (parts.ndim - 1))
    if fitting(powers, dtype):
        return shifted(parts, powers[aside]).to(dtype), False
    low, high, digits = _range(dtype)
    top = int(powers.max())
    far = low + 2 * digits <= top <= high  # from what is too small: nobody who adds rows up sees its own factor
    shift = (low - powers).clamp(min=0 if far else high - SPARE - top)
    return shifted(parts, (powers + shift)[aside]).to(dtype), True


def _range(dtype: torch.dtype) -> tuple[int, int, int]:
    """The powers of two that numbers of a kind may have without losing a digit, and their digits."""
    info = torch.finfo(dtype)
    digits = 1 - math.frexp(info.eps)[1]
    return math.frexp(info.tiny)[1] - 1 + digits, math.frexp(info.max)[1] - 1, digits


def rollout_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    """All rows are multiplied, whichever are wanted."""
    del rows
    return Work(wide=4 * depth * n**3, calls=4 * depth, held=bytes * depth * n * n)
