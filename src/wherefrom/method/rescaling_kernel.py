r"""What the norm before the FFN makes of every token, and what becomes of it for every pair of them (Triton).

Of a token, in one reading of it: c u without its mean, s, and c u ⊙ γ; what is multiplied with matrices as two bfloat16
(products.py). Of a pair Value Zeroing needs two numbers:

    G_j = f_j f_jᵀ                                                        of each source, over heads
    s'² = s² + (Σ_hk α^h_ij G^hk_j α^k_ij − 2 Σ_h α^h_ij ⟨c u_i, f^h_j⟩) / d
    κ_ij = 1/s' − 1/s,  −α^h_ij / s'

f is centred as the norm reads it. No array of pairs and heads is written but the last. Places are computed in 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

if TYPE_CHECKING:
    from wherefrom.model.norm import Norm

NUMBERS = 128  # of each vector in one step of a Gram matrix
TARGETS, SOURCES = 16, 32  # of a program of pairs


@triton.jit
def _store_halves(to, t, inside, width):  # type: ignore[no-untyped-def]
    first = t.to(tl.bfloat16)
    tl.store(to, first, mask=inside)
    tl.store(to + width, (t - first.to(tl.float32)).to(tl.bfloat16), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _of_token(  # type: ignore[no-untyped-def]
    u,  # [tokens, d]
    gamma,  # [d]
    scale,  # [tokens]
    core,  # [tokens, 2 d]
    around,  # [tokens, 2 d]
    moves,  # [tokens, d]
    width,
    eps,
    CENTRES: tl.constexpr,
    MOVES: tl.constexpr,
    AGAIN: tl.constexpr,
    BD: tl.constexpr,
):
    token, d = tl.program_id(0).to(tl.int64), tl.arange(0, BD)
    inside = d < width
    x = tl.load(u + token * width + d, mask=inside, other=0.0)
    if CENTRES:
        x = tl.where(inside, x - tl.sum(x, 0) / width, 0.0)
    tl.store(scale + token, tl.sqrt(tl.sum(x * x, 0) / width + eps))
    _store_halves(core + token * 2 * width + d, x, inside, width)
    y = x * tl.load(gamma + d, mask=inside, other=0.0)
    _store_halves(around + token * 2 * width + d, y, inside, width)
    if MOVES:
        if AGAIN:
            y -= tl.sum(y, 0) / width
        tl.store(moves + token * width + d, y, mask=inside)


def of_tokens(u: Tensor, norm: Norm, onward: bool, again: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """s [B, n], the halves of c u and of c u ⊙ γ, [B n, 2 d] each; and c u ⊙ γ itself where it goes `onward`, its mean
    taken off where that happens `again`.
    """
    (batch, n, width), tokens = u.shape, len(u) * u.shape[1]
    scale, moves = u.new_empty(batch, n), torch.empty_like(u) if onward else None
    core, around = (u.new_empty(tokens, 2 * width, dtype=torch.bfloat16) for _ in range(2))
    _of_token[(tokens,)](
        *(u, norm.gamma, scale, core, around, u if moves is None else moves, width, norm.eps),
        CENTRES=norm.centres,
        MOVES=onward,
        AGAIN=again,
        BD=triton.next_power_of_2(width),
        num_warps=4,
    )
    return scale, core, around, moves


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
    seen, head = alpha + (b * H * n + i_read) * n + first + j_read, tl.cast(n, tl.int64) * n
    more = tl.zeros((BI, BJ), dtype=tl.float32)
    for h in tl.static_range(H):
        back = -2 * tl.load(cross + ((b * H + h) * n + i_read) * count + j_read)
        for k in tl.static_range(H):
            back += tl.load(seen + k * head) * tl.load(gram + (source * H + h) * H + k)
        more += tl.load(seen + h * head) * back
    more /= width
    after = tl.sqrt(tl.maximum(before * before + more, eps))
    tl.store(kappa + source * n + i, -more / (before * after * (before + after)), mask=inside)
    for h in tl.static_range(H):
        there = tl.load(gram + (source * H + h) * H + h) != 0  # else nothing is given, and nothing taken away
        gone = tl.where(there, -tl.load(seen + h * head), 0.0)
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
