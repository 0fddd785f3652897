r"""ALTI's sums over components in one kernel (Triton), which never writes a vector T_ij down.

    N_ij = Σ_d |y_id| − |y_id − T_ijd|,      T_ijd = Σ_h a^h_ij f^h_jd

A program has `TARGETS` targets and `SOURCES` sources and goes over the components `COMPONENTS` at a time: it reads y
once for all of its sources, and adds the differences up where they stand, in registers: two additions a component.
Programs that read the same f follow one another, so that it comes from the cache for all but the first.
In half precision the difference is taken block by block of components; in float32 component by component, as
min(s T, 2|y| − s T) with s the sign of y, where nothing cancels.

Two more make ready and finish: one writes α with the heads side by side, as the first reads it; one puts x's own share
on the diagonal and divides each row by its sum. Places are computed in 64 bits.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

TARGETS, SOURCES, COMPONENTS = 64, 16, 128  # of sixteen tried on an H200 the fastest, with what follows
WARPS, STAGES = 4, 3
TURNED = (4, 64)  # targets and sources whose weights are turned at once: of six tried the fastest
ROW = 1024  # numbers of a row that are finished at once


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
    i = tl.program_id(0) * BI + tl.arange(0, BI)  # counted from `first`
    j0 = tl.program_id(1) * BJ  # counted from `start`
    if CAUSAL:  # noqa: SIM102, as the one is known when this is compiled and the other is not
        if (tl.program_id(0) + 1) * BI + first <= start + j0:
            return
    seen = n - first
    heads, columns = tl.arange(0, HEADS).to(tl.int64), tl.arange(0, BJ)
    total = tl.zeros((BI, BJ), dtype=tl.float32)
    for d0 in range(0, width, BD):
        d = d0 + tl.arange(0, BD)
        inside = (i[:, None] < seen) & (d[None, :] < width)
        goal = tl.load(y + (sentence * n + first + i[:, None]) * width + d[None, :], mask=inside, other=0.0)
        length = tl.sum(tl.abs(goal), 1)
        for k in tl.range(0, BJ, num_stages=STAGES):
            source = sentence * count + j0 + k
            there = tl.where(j0 + k < count, H, 0)  # heads of that source
            weights = tl.load(
                a + (source * seen + i[:, None]) * H + heads[None, :],
                mask=(i[:, None] < seen) & (heads[None, :] < there),
                other=0.0,
            )
            vectors = tl.load(
                f + source * f_source + heads[:, None] * f_head + d[None, :],
                mask=(heads[:, None] < there) & (d[None, :] < width),
                other=0.0,
            )
            if EXACT:
                given = tl.dot(weights, vectors, input_precision="tf32x3")
                along = tl.where(goal < 0, -given, given)
                gained = tl.sum(tl.minimum(along, 2 * tl.abs(goal) - along), 1)
            else:
                gained = length - tl.sum(tl.abs(goal - tl.dot(weights, vectors)), 1)
            total += tl.where(columns[None, :] == k, gained[:, None], 0.0)
    j = j0 + columns
    place = out + (sentence * n + first + i[:, None]) * n + start + j[None, :]
    tl.store(place, total, mask=(i[:, None] < seen) & (j[None, :] < count))


@triton.jit  # type: ignore[untyped-decorator]
def _turn(  # type: ignore[no-untyped-def]
    a,  # [B, H, I, J], any strides but the last
    out,  # [B J, I, H]
    seen,  # I
    count,  # J
    a_batch,
    a_head,
    a_target,
    H: tl.constexpr,
    HEADS: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
):
    b = tl.program_id(2).to(tl.int64)
    h = tl.arange(0, HEADS)[:, None, None].to(tl.int64)
    i = (tl.program_id(1) * BI + tl.arange(0, BI))[None, :, None].to(tl.int64)
    j = (tl.program_id(0) * BJ + tl.arange(0, BJ))[None, None, :]
    there = (h < H) & (i < seen) & (j < count)
    found = tl.load(a + b * a_batch + h * a_head + i * a_target + j, mask=there, other=0.0)
    place = ((b * count + j) * seen + i) * H + h
    tl.store(
        out + tl.permute(place, (2, 1, 0)),
        tl.permute(found, (2, 1, 0)).to(out.dtype.element_ty),
        mask=tl.permute(there, (2, 1, 0)),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _share_out(  # type: ignore[no-untyped-def]
    near,  # [B, n, n]: N before any division, then the shares
    y,  # [B, n, d]
    t,  # [B, n, d]: T_ii
    scale,  # [B, n, 1], any strides
    mask,  # [B, n]
    empty,  # [B, n]: real rows without any contribution
    n,
    width,
    scale_batch,
    scale_target,
    CAUSAL: tl.constexpr,
    BJ: tl.constexpr,
    BD: tl.constexpr,
):
    b, i = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    gained = tl.zeros((BD,), dtype=tl.float32)
    for d0 in range(0, width, BD):
        d = d0 + tl.arange(0, BD)
        goal = tl.load(y + (b * n + i) * width + d, mask=d < width, other=0.0)
        given = tl.load(t + (b * n + i) * width + d, mask=d < width, other=0.0)
        along = tl.where(goal < 0, -given, given)
        gained += tl.minimum(along, 2 * tl.abs(goal) - along)
    itself = tl.sum(gained, 0)
    by = tl.load(scale + b * scale_batch + i * scale_target)
    real = tl.load(mask + b * n + i) != 0
    row = near + (b * n + i) * n
    end = i + 1 if CAUSAL else n
    total = tl.zeros((BJ,), dtype=tl.float32)
    for j0 in range(0, end, BJ):
        j = j0 + tl.arange(0, BJ)
        part = tl.where(j == i, itself, tl.load(row + j, mask=j < end, other=0.0) / by)
        total += tl.where(real, tl.maximum(part, 0.0), 0.0)
    whole = tl.sum(total, 0)
    for j0 in range(0, n, BJ):
        j = j0 + tl.arange(0, BJ)
        part = tl.where(j == i, itself, tl.load(row + j, mask=j < end, other=0.0) / by)
        share = tl.maximum(part, 0.0) / whole
        alone = tl.where((j == i) & real, 1.0, 0.0)
        tl.store(row + j, tl.where((whole > 0) & real, share, alone), mask=j < n)
    tl.store(empty + b * n + i, real & (whole <= 0))


def add_up(weights: Tensor, f: Tensor, y: Tensor, out: Tensor, start: int, first: int, causal: bool) -> None:
    """N_ij into `out`, of the sources from `start` on and the targets from `first` on; `weights` α, [B, H, I, J]."""
    batch, n, width = y.shape
    heads, seen, count = weights.shape[1:]
    rounded = max(16, triton.next_power_of_2(heads))
    assert f.stride(-1) == weights.stride(-1) == 1
    a = f.new_empty(batch * count, seen, heads)
    _turn[(triton.cdiv(count, TURNED[1]), triton.cdiv(seen, TURNED[0]), batch)](
        *(weights, a, seen, count, *weights.stride()[:3]), H=heads, HEADS=rounded, BI=TURNED[0], BJ=TURNED[1]
    )
    exact = f.dtype == torch.float32
    size = 64 if exact else COMPONENTS  # three products of float32 for one take the room of three
    _nearness[(triton.cdiv(seen, TARGETS), triton.cdiv(count, SOURCES), batch)](
        *(a, f, y, out, n, count, start, first, width, f.stride(0), f.stride(1)),
        H=heads,
        HEADS=rounded,
        CAUSAL=causal,
        EXACT=exact,
        BI=TARGETS,
        BJ=SOURCES,
        BD=size,
        STAGES=1 if exact else STAGES,
        num_warps=WARPS,
    )


def share_out(near: Tensor, y: Tensor, t: Tensor, scale: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """N into rows that sum to one, in place, with T_ii, `t`, on the diagonal; a row of zeros becomes the token's own.
    Gives back which real rows were such: [B, n].
    """
    batch, n, width = y.shape
    empty = torch.empty_like(mask)
    _share_out[(n, batch)](
        *(near, y, t, scale, mask, empty, n, width, *scale.stride()[:2]),
        CAUSAL=causal,
        BJ=min(ROW, triton.next_power_of_2(n)),
        BD=min(ROW, triton.next_power_of_2(width)),
    )
    return empty
