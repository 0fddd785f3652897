r"""Lengths of what tokens give, from Gram matrices, in one kernel (Triton); and what a token is given by itself.

    ‖Σ_h α^h_ij f^h_j‖² = Σ_h α^h_ij (G_j^hh α^h_ij + 2 Σ_{g<h} G_j^hg α^g_ij),      own_j = Σ_h α^h_jj f^h_j

A program has `TARGETS` targets and `SOURCES` sources. It reads α as the model wrote it, head by head; all of it that a
program needs stays in its cache. Sums are float32, places 64 bits.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

TARGETS, SOURCES, WARPS = 64, 32, 4  # of nine tried on an H200 the fastest
COMPONENTS = 512  # of own, at once


@triton.jit  # type: ignore[untyped-decorator]
def _lengths(  # type: ignore[no-untyped-def]
    a,  # [B, H, I, J], any strides but the last
    gram,  # [B J, H, H]
    out,  # [B, n, n]
    n,
    count,  # J
    start,  # the first source
    first,  # the first target
    a_batch,
    a_head,
    a_target,
    H: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
):
    b = tl.program_id(2).to(tl.int64)
    i, j = (tl.program_id(1) * BI + tl.arange(0, BI)).to(tl.int64), tl.program_id(0) * BJ + tl.arange(0, BJ)
    head = tl.cast(a_head, tl.int64)
    there = (i[:, None] < n - first) & (j[None, :] < count)
    tile = a + b * a_batch + i[:, None] * a_target + j[None, :]
    grams = gram + (b * count + j[None, :]) * H * H
    total = tl.zeros((BI, BJ), dtype=tl.float32)
    for h in range(H):
        here = tl.load(tile + h * head, mask=there, other=0.0).to(tl.float32)
        within = tl.zeros((BI, BJ), dtype=tl.float32)
        for g in range(h):
            other = tl.load(tile + g * head, mask=there, other=0.0).to(tl.float32)
            within += other * tl.load(grams + h * H + g, mask=j[None, :] < count, other=0.0)
        itself = tl.load(grams + h * H + h, mask=j[None, :] < count, other=0.0)
        total += here * (2 * within + here * itself)
    place = out + (b * n + first + i[:, None]) * n + start + j[None, :]
    tl.store(place, tl.sqrt(tl.maximum(total, 0.0)), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _own(  # type: ignore[no-untyped-def]
    a,  # [B, H, I, J]
    f,  # [B J, H, d]
    out,  # [B, n, d]
    n,
    count,  # J
    start,
    offset,  # of the target that is the first source
    width,  # d
    a_batch,
    a_head,
    a_target,
    f_source,
    f_head,
    H: tl.constexpr,
    BD: tl.constexpr,
):
    b, j = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    weight = a + b * a_batch + (offset + j) * a_target + j
    vector = f + (b * count + j) * f_source + d
    head_weight, head_vector = tl.cast(a_head, tl.int64), tl.cast(f_head, tl.int64)
    total = tl.zeros((BD,), dtype=tl.float32)
    for h in range(H):
        there = tl.load(vector + h * head_vector, mask=d < width, other=0.0).to(tl.float32)
        total += tl.load(weight + h * head_weight).to(tl.float32) * there
    tl.store(out + (b * n + start + j) * width + d, total, mask=d < width)


def lengths_into(out: Tensor, weights: Tensor, gram: Tensor, start: int, first: int) -> None:
    """Into `out`, of the sources from `start` on and the targets from `first` on; `weights` α, [B, H, I, J]."""
    batch, heads, seen, count = weights.shape
    assert weights.stride(-1) == 1
    _lengths[(triton.cdiv(count, SOURCES), triton.cdiv(seen, TARGETS), batch)](
        *(weights, gram, out, out.shape[-1], count, start, first),
        *weights.stride()[:3],
        H=heads,
        BI=TARGETS,
        BJ=SOURCES,
        num_warps=WARPS,
    )


def own_into(out: Tensor, weights: Tensor, f: Tensor, start: int, first: int) -> None:
    """What each of these sources is given by itself, into its place of `out`, [B, n, d]."""
    batch, heads, _, count = weights.shape
    n, width = out.shape[1:]
    size = min(COMPONENTS, triton.next_power_of_2(width))
    _own[(triton.cdiv(width, size), count, batch)](
        *(weights, f, out, n, count, start, start - first, width),
        *weights.stride()[:3],
        *f.stride()[:2],
        H=heads,
        BD=size,
        num_warps=4,
    )
