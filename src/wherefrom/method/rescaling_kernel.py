r"""What the norm before the FFN becomes for every pair of tokens, of which Value Zeroing needs two numbers (Triton):

    G_j = f_j f_jᵀ                                                        of each source, over heads
    s'² = s² + (Σ_hk α^h_ij G^hk_j α^k_ij − 2 Σ_h α^h_ij ⟨c u_i, f^h_j⟩) / d
    κ_ij = 1/s' − 1/s,  −α^h_ij / s'

f is centred as the norm reads it. No array of pairs and heads is written but the last.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

NUMBERS = 128  # of each vector in one step of a Gram matrix
TARGETS, SOURCES = 16, 32  # of a program of pairs


@triton.jit  # type: ignore[untyped-decorator]
def _gram(f, out, width, H: tl.constexpr, HEADS: tl.constexpr, BD: tl.constexpr):  # type: ignore[no-untyped-def]
    """One source: f [sources, H, d] into [sources, H, H]."""
    source = tl.program_id(0).to(tl.int64)
    heads = tl.arange(0, HEADS)
    found = tl.zeros((HEADS, HEADS), dtype=tl.float32)
    for d0 in range(0, width, BD):
        d = d0 + tl.arange(0, BD)
        there = (heads[:, None] < H) & (d[None, :] < width)
        some = tl.load(f + (source * H + heads[:, None]) * width + d[None, :], mask=there, other=0.0)
        found = tl.dot(some, tl.trans(some), found, input_precision="tf32x3")
    place = out + (source * H + heads[:, None]) * H + heads[None, :]
    tl.store(place, found, mask=(heads[:, None] < H) & (heads[None, :] < H))


@triton.jit  # type: ignore[untyped-decorator]
def _rescaling(  # type: ignore[no-untyped-def]
    alpha,  # [B, H, n, n]
    cross,  # ⟨c u_i, f^h_j⟩: [B, H, n, J]
    gram,  # [B J, H, H]
    scale,  # s: [B, n]
    kappa,  # [B, J, n]
    taken,  # [B, J, n, H]
    lost,  # −α: [B, J, n, H]
    first,  # source
    count,  # J
    n,
    width,  # d
    eps,
    H: tl.constexpr,
    LOST: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
):
    b = tl.program_id(2).to(tl.int64)
    i, j = (tl.program_id(1) * BI + tl.arange(0, BI))[:, None], (tl.program_id(0) * BJ + tl.arange(0, BJ))[None, :]
    inside = (i < n) & (j < count)
    i_read, j_read = tl.minimum(i, n - 1), tl.minimum(j, count - 1)  # what is read of no pair is written nowhere
    source, before = b * count + j_read, tl.load(scale + b * n + i_read)
    seen = alpha + (b * H * n + i_read) * n + first + j_read
    more = tl.zeros((BI, BJ), dtype=tl.float32)
    for h in tl.static_range(H):
        back = -2 * tl.load(cross + ((b * H + h) * n + i_read) * count + j_read)
        for k in tl.static_range(H):
            back += tl.load(seen + k * n * n) * tl.load(gram + (source * H + h) * H + k)
        more += tl.load(seen + h * n * n) * back
    more /= width
    after = tl.sqrt(tl.maximum(before * before + more, eps))
    tl.store(kappa + source * n + i, -more / (before * after * (before + after)), mask=inside)
    for h in tl.static_range(H):
        there = tl.load(gram + (source * H + h) * H + h) != 0  # else nothing is given, and nothing taken away
        gone = tl.where(there, -tl.load(seen + h * n * n), 0.0)
        place = (source * n + i) * H + h
        tl.store(taken + place, gone / after, mask=inside)
        if LOST:
            tl.store(lost + place, gone, mask=inside)


def rescaled(
    attention: Tensor, cross: Tensor, f: Tensor, scale: Tensor, eps: float, first: int, lost: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the sources from `first` on: κ [B, J, n], −α / s' [B, J, n, H], and −α where `lost` asks for it."""
    batch, heads, n, count = cross.shape
    width, gram = f.shape[-1], f.new_empty(len(f), heads, heads)
    rows = max(16, int(triton.next_power_of_2(heads)))  # a product of matrices takes 16 or more
    _gram[(len(f),)](f, gram, width, H=heads, HEADS=rows, BD=NUMBERS, num_warps=1)
    kappa, taken = cross.new_empty(batch, count, n), cross.new_empty(batch, count, n, heads)
    gone = torch.empty_like(taken) if lost else taken
    _rescaling[(triton.cdiv(count, SOURCES), triton.cdiv(n, TARGETS), batch)](
        *(attention.contiguous(), cross.contiguous(), gram, scale, kappa, taken, gone),
        *(first, count, n, width, eps),
        H=heads,
        LOST=lost,
        BI=TARGETS,
        BJ=SOURCES,
        num_warps=4,
    )
    return kappa, taken, gone
