r"""Rollout: the maps of all layers multiplied, so that the last one reaches down to the input.

    R^0 = M^0,      R^l = M^l R^{l-1}                       (Abnar & Zuidema 2020, equation 1)

Residual connections are the layer map's business, never rollout's; nothing is renormalised (GlobEnc). For a
single head k at layer l the layers below stay averaged over their heads (appendix A.1): R^{l,k} = M^{l,k} R^{l-1}.

Products of many maps that are not normalised may leave the range of their numbers (1e38 in float32), some rows of a
layer long before others. Hence every row carries a power of two of its own from layer to layer. A layer that does not
fit is given up to a factor, and a row that is far smaller than the rest (1e-14 of the largest) up to one of its own;
the shares in a row are what they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wherefrom.aggregate.types import Maps
from wherefrom.errors import warn
from wherefrom.work import Work

Powers = NDArray[np.int64]
NOTHING = -(2**24)  # the power of two of zeros
SPARE = 24  # powers of two between the largest number of a layer that was brought into range and the largest there is


def rollout(maps: Maps, below: Maps | None = None) -> Maps:
    """[L, n, n] -> [L, n, n]: row i of entry l says what token i of layer l is made of, in input tokens.

    `below` are the maps of the layers under the one asked about, where they differ from `maps` (one head).
    """
    result = np.empty_like(maps)
    n = maps.shape[-1]
    joint, powers = np.eye(n, dtype=maps.dtype), np.zeros(n, dtype=np.int64)  # row i times 2^powers[i]: all so far
    cut = 0
    for layer, each in enumerate(maps):
        found = _product(each, joint, powers)
        result[layer], short = _fitting(*found)
        cut += short
        joint, powers = found if below is None else _product(below[layer], joint, powers)
    _warn_of_range(result, cut)
    return result


def in_range(rows: Maps, powers: Powers) -> Maps:
    """[L, n]: one row of rollout at every layer, out of rows and their powers of two."""
    together, cut = _fitting(rows, powers)
    if not cut:
        return together
    found = [_fitting(row[None], power[None]) for row, power in zip(rows, powers, strict=True)]
    _warn_of_range(rows, sum(cut for _, cut in found))
    return np.concatenate([row for row, _ in found])


def _warn_of_range(layers: Maps, cut: int) -> None:
    if cut:
        warn(
            f"the rollout leaves the range of {layers.dtype} in {cut} of {len(layers)} layers, which are given only up "
            f"to a factor: read them as shares"
        )


def through(maps: Maps, row: int | None) -> Maps:
    """[L, n, n] -> [L, n, n]: how much of row `row` of rollout (None: of the mean row) takes each edge (l, i, j).

    It reaches token i of layer l with weight r_i and goes on to j with r_i M_ij, so that the columns of the first
    layer sum to rollout's row.
    """
    n = maps.shape[-1]
    reached = np.full(n, 1 / n, dtype=maps.dtype) if row is None else np.eye(n, dtype=maps.dtype)[row]
    result, powers = np.empty_like(maps), np.zeros(len(maps), dtype=np.int64)
    power = 0  # the weights of the tokens are reached · 2^power
    for layer in range(len(maps) - 1, -1, -1):
        rows = _sizes(maps[layer])
        weights, more = np.frexp(reached)
        sizes = np.where(weights == 0, NOTHING, rows + more)  # of what goes through each token
        edges = np.ldexp(maps[layer], -rows[:, None]) * weights[:, None]
        result[layer] = np.ldexp(edges, (sizes - sizes.max())[:, None])
        powers[layer] = power + sizes.max()
        reached = result[layer].sum(0)
        left = _sizes(reached)
        power = int(powers[layer] + left) if reached.any() else 0
        reached = np.ldexp(reached, -left)
    result, cut = _fitting(result, powers)
    if cut:
        warn(f"what goes along the edges leaves the range of {maps.dtype}, and is given only up to a factor")
    return result


def _product(each: Maps, joint: Maps, powers: Powers) -> tuple[Maps, Powers]:
    """A layer's map times the product of those below it: the rows with their largest entry near 1, and their powers."""
    info = np.finfo(each.dtype)
    largest = np.full(len(powers), powers.max())
    with np.errstate(over="ignore", invalid="ignore"):
        found = each @ _scaled(joint, powers - largest)
    sizes = _sizes(found)
    if sizes.min() < info.minexp // 2 or sizes.max() > info.maxexp // 2:  # rows too far apart to share one scale
        # What is nothing beside the largest that a row adds up may vanish, but by the row's own measure.
        largest = np.where(each == 0, NOTHING, np.frexp(each)[1] + powers).max(-1)
        found = np.ldexp(each, powers - largest[:, None]) @ joint
        sizes = _sizes(found)
    return _scaled(found, -sizes), np.where(sizes == NOTHING, NOTHING, largest + sizes)


def _sizes(array: Maps) -> Powers:
    """The power of two of the largest entry along the last axis, NOTHING where all are 0."""
    most = np.abs(array).max(-1, initial=0)
    sizes = np.where(most == 0, NOTHING, np.frexp(most)[1])
    return np.where(np.isinf(most), np.finfo(array.dtype).maxexp + 1, sizes).astype(np.int64)


def _scaled(parts: Maps, powers: Powers) -> Maps:
    """parts[k] · 2^powers[k]; by multiplication, which is faster than ldexp, where these powers are numbers."""
    info = np.finfo(parts.dtype)
    aside = (slice(None), *[None] * (parts.ndim - 1))
    if powers.min() < info.minexp or powers.max() >= info.maxexp:
        return np.ldexp(parts, powers[aside])
    return parts * np.ldexp(parts.dtype.type(1), powers)[aside]


def _fitting(parts: Maps, powers: Powers) -> tuple[Maps, bool]:
    """parts[k] · 2^powers[k], and whether one did not fit: then all have a common factor, and what is tiny its own."""
    info = np.finfo(parts.dtype)
    low, high = info.minexp + info.nmant, info.maxexp - 1
    sizes = np.where(powers == NOTHING, NOTHING, _sizes(parts.reshape(len(parts), -1)) + powers)
    there = sizes[sizes > NOTHING // 2]
    if not len(there) or (there.min() >= low and there.max() <= high):
        return _scaled(parts, powers), False
    top = there.max()
    far = low + 2 * info.nmant <= top <= high  # from what is too small: nobody who adds rows up sees its own factor
    shift = np.maximum(0 if far else high - SPARE - top, low - sizes)
    return _scaled(parts, powers + shift), True


def rollout_cost(n: int, depth: int, bytes: int, rows: int) -> Work:
    """All rows are multiplied, whichever are wanted."""
    del rows
    return Work(wide=4 * depth * n**3, calls=4 * depth, held=bytes * depth * n * n)
