r"""ALTI's sums over components in one kernel (Triton), which never writes a vector T_ij down.

    N_ij = Σ_d min(s T, 2|y| − s T),      T = Σ_h a^h_ij f^h_jd,   y = y_id,   s the sign of y

A program has BI targets and BJ sources and goes over the d components BD at a time. It reads y once for all of its
sources; each product of BI × H by H × BD numbers stays in registers until it is added up.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

TARGETS, SOURCES, COMPONENTS = 128, 8, 64


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
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sentence = tl.program_id(2)
    i = tl.program_id(0) * BI + tl.arange(0, BI)  # counted from `first`
    j0 = tl.program_id(1) * BJ  # counted from `start`
    if CAUSAL:  # noqa: SIM102, as the one is known when this is compiled and the other is not
        if (tl.program_id(0) + 1) * BI + first <= start + j0:
            return
    seen = n - first
    heads, columns = tl.arange(0, HEADS), tl.arange(0, BJ)
    total = tl.zeros((BI, BJ), dtype=tl.float32)
    for d0 in range(0, width, BD):
        d = d0 + tl.arange(0, BD)
        there = (i[:, None] < seen) & (d[None, :] < width)
        goal = tl.load(y + (sentence * n + first + i[:, None]).to(tl.int64) * width + d[None, :], mask=there, other=0.0)
        for k in tl.static_range(BJ):
            source = (sentence * count + j0 + k).to(tl.int64)
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
            given = tl.dot(weights, vectors, input_precision=PRECISION)
            along = tl.where(goal < 0, -given, given)
            gained = tl.sum(tl.minimum(along, 2 * tl.abs(goal) - along), 1)
            total += tl.where(columns[None, :] == k, gained[:, None], 0.0)
    j = j0 + columns
    place = out + (sentence * n + first + i[:, None]).to(tl.int64) * n + start + j[None, :]
    tl.store(place, total, mask=(i[:, None] < seen) & (j[None, :] < count))


def add_up(a: Tensor, f: Tensor, y: Tensor, out: Tensor, start: int, first: int, causal: bool) -> None:
    """N_ij into `out`, of the sources from `start` on and the targets from `first` on."""
    batch, n, width = y.shape
    heads, count = a.shape[-1], a.shape[0] // batch
    assert f.stride(-1) == 1
    grid = (triton.cdiv(n - first, TARGETS), triton.cdiv(count, SOURCES), batch)
    _nearness[grid](
        *(a, f, y, out, n, count, start, first, width, f.stride(0), f.stride(1)),
        H=heads,
        HEADS=max(16, triton.next_power_of_2(heads)),
        CAUSAL=causal,
        BI=TARGETS,
        BJ=SOURCES,
        BD=COMPONENTS,
        PRECISION="tf32x3",  # what float32 asks for; half precision has products of its own
        num_warps=8,
    )
