r"""ALTI's sums over components in one kernel (Triton), which never writes a vector T_ij down.

    N_ij = Σ_d |y_id| − |y_id − T_ijd|,      T_ijd = Σ_h a^h_ij f^h_jd

A program has `TARGETS` targets and `SOURCES` sources and goes over the components `COMPONENTS` at a time: it reads y
once for all of its sources, lets the tensor cores subtract it, and adds the product up where it stands, in registers.
In half precision the difference is taken block by block of components; in float32 component by component, as
min(s T, 2|y| − s T) with s the sign of y, where nothing cancels.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

TARGETS, SOURCES, COMPONENTS = 64, 16, 128  # of eleven tried on an H200 the fastest
WARPS, STAGES = 4, 3


@triton.jit  # type: ignore[untyped-decorator]
def _nearness(  # type: ignore[no-untyped-def]
    a,  # [B J, I, H]
    f,  # [B J, H, d], any strides but the last
    y,  # [B, n, d]
    out,  # [B, n, n]
    n,
    count,  # J
    start,  # the first source
    first,  # the first target
    width,  # d
    f_source,
    f_head,
    H: tl.constexpr,
    HEADS: tl.constexpr,  # H, rounded up to a power of two
    CAUSAL: tl.constexpr,
    EXACT: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BD: tl.constexpr,
    STAGES: tl.constexpr,
):
    sentence = tl.program_id(2).to(tl.int64)
    i = tl.program_id(1) * BI + tl.arange(0, BI)  # counted from `first`
    j0 = tl.program_id(0) * BJ  # counted from `start`
    if CAUSAL:  # noqa: SIM102, as the one is known when this is compiled and the other is not
        if (tl.program_id(1) + 1) * BI + first <= start + j0:
            return
    seen = n - first
    heads, columns = tl.arange(0, HEADS), tl.arange(0, BJ)
    total = tl.zeros((BI, BJ), dtype=tl.float32)
    for d0 in range(0, width, BD):
        d = d0 + tl.arange(0, BD)
        there = (i[:, None] < seen) & (d[None, :] < width)
        goal = -tl.load(y + (sentence * n + first + i[:, None]) * width + d[None, :], mask=there, other=0.0)
        length = tl.sum(tl.abs(goal), 1)
        for k in tl.range(0, BJ, num_stages=STAGES):
            source = sentence * count + j0 + k
            real = j0 + k < count
            weights = tl.load(
                a + (source * seen + i[:, None]) * H + heads[None, :],
                mask=(i[:, None] < seen) & (heads[None, :] < H) & real,
                other=0.0,
            )
            vectors = tl.load(
                f + source * f_source + heads[:, None] * f_head + d[None, :],
                mask=(heads[:, None] < H) & (d[None, :] < width) & real,
                other=0.0,
            )
            if EXACT:
                given = tl.dot(weights, vectors, input_precision="tf32x3")
                along = tl.where(goal > 0, -given, given)
                gained = tl.sum(tl.minimum(along, 2 * tl.abs(goal) - along), 1)
            else:
                gained = length - tl.sum(tl.abs(tl.dot(weights, vectors, acc=goal)), 1)
            total += tl.where(columns[None, :] == k, gained[:, None], 0.0)
    j = j0 + columns
    place = out + (sentence * n + first + i[:, None]) * n + start + j[None, :]
    tl.store(place, total, mask=(i[:, None] < seen) & (j[None, :] < count))


def add_up(weights: Tensor, f: Tensor, y: Tensor, out: Tensor, start: int, first: int, causal: bool) -> None:
    """N_ij into `out`, of the sources from `start` on and the targets from `first` on; `weights` α, [B, H, I, J]."""
    batch, n, width = y.shape
    a = weights.permute(0, 3, 2, 1).to(f.dtype).contiguous().flatten(0, 1)  # [B J, I, H]
    heads, count = a.shape[-1], a.shape[0] // batch
    assert f.stride(-1) == 1
    exact = f.dtype == torch.float32
    size = 64 if exact else COMPONENTS  # three products of float32 for one take the room of three
    grid = (triton.cdiv(count, SOURCES), triton.cdiv(n - first, TARGETS), batch)
    _nearness[grid](
        *(a, f, y, out, n, count, start, first, width, f.stride(0), f.stride(1)),
        H=heads,
        HEADS=max(16, triton.next_power_of_2(heads)),
        CAUSAL=causal,
        EXACT=exact,
        BI=TARGETS,
        BJ=SOURCES,
        BD=size,
        STAGES=1 if exact else STAGES,
        num_warps=WARPS,
    )
