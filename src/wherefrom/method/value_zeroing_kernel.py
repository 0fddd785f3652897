r"""Value Zeroing's n² vectors in two kernels (Triton), with W₂ between them: each number of theirs is written once.

    before W₂    h_ij = φ(p_i + κ_ij q_i + Σ_h a^h_ij g^h_j) − φ(p_i),  p_i = q_i / s_i + const         [rows, F]
    after W₂     δ = w_ij + κ_ij r_i + Σ_h b^h_ij f^h_j, through the last norm where there is one, and its distance

The rows are the pairs of tokens that exist, sentence by sentence and source by source: no padding, and in a causal
model no target that cannot see its source. A program has some targets and goes over some sources, for which it
reads what belongs to its targets once.

Where the last norm takes a mean off, the caller has taken it off W₂, r and f, so that δ has none.

Where products are split or rounded, the distance comes of sums that are taken as δ passes: |δ|², ⟨w, δ⟩, the same
weighed by γ², and ⟨γ β, δ⟩, which with ⟨γ² w, δ⟩ gives ⟨γ o, δ⟩. That takes a third of the time, but it is a difference
of squares: where δ points along o it loses digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor
from triton import knobs

from wherefrom.method.rescaling_kernel import of_tokens as of_tokens
from wherefrom.method.rescaling_kernel import rescaled as rescaled

# Of each precision what a program before W₂ has: targets, sources, units, warps, and sources that are loaded ahead. Of
# thirty on an H200 the fastest.
ENTERING = {"exact": (16, 16, 128, 4, 3), "split": (16, 16, 32, 1, 3), "fast": (16, 64, 64, 4, 4)}
NUMBERS, OVER, MEASURING = 8192, 8, 4  # of all targets of a program after W₂, its sources and its warps: of seven
SUMMING = 32, 32, 2  # where it takes sums: targets, numbers at once and warps, of twenty
DOTS = {"exact": "tf32x3", "split": "tf32x3", "fast": "tf32"}
GELUS = {"exact": 0, "split": 4, "fast": 5}  # of `_activated`
ACTIVATIONS = ("gelu", "gelu-tanh", "silu", "relu")
INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def _inverse(t):  # type: ignore[no-untyped-def]
    """1 / t to 2^-23: one instruction in place of six. An interpreter knows none."""
    if INTERPRETED:
        return 1.0 / t
    else:  # noqa: RET505, as what is not chosen is not compiled
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [t], tl.float32, True, 1)


@triton.jit
def _tanh(t):  # type: ignore[no-untyped-def]
    """To 2^-11, in one instruction."""
    if INTERPRETED:
        return 2.0 * tl.sigmoid(2.0 * t) - 1.0
    else:  # noqa: RET505
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [t], tl.float32, True, 1)


@triton.jit  # type: ignore[untyped-decorator]
def _activated(t, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 0:
        return 0.5 * t * (1.0 + tl.erf(t * 0.7071067811865476))
    elif KIND == 1:  # noqa: RET505
        return t * tl.sigmoid(1.5957691216057308 * (t + 0.044715 * t * t * t))
    elif KIND == 2:
        return t * tl.sigmoid(t)
    elif KIND == 4:  # GELU with erf to 1.5e-7 (Abramowitz and Stegun 7.1.26), where two bfloat16 come of it
        k = _inverse(1.0 + 0.23164189 * tl.abs(t))
        tail = k * (0.127414796 + k * (-0.142248368 + k * (0.7107068705 + k * (-0.7265760135 + k * 0.5307027145))))
        return tl.maximum(t, 0.0) - tl.abs(t) * tail * tl.exp2(-0.7213475204444817 * t * t)
    elif KIND == 5:  # t / 2 (1 + tanh tP(t²)): 3e-5 from GELU before tanh is 2^-11 off; where one bfloat16 comes of it
        square, half = tl.minimum(t * t, 50.0), 0.5 * t
        return half + half * _tanh(t * ((-0.00034199 * square + 0.03695984) * square + 0.79753248))
    else:
        return tl.maximum(t, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _added(weights, vectors, to, DOT: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product more. Of bfloat16, weights are taken as two of them: their rounding would be that of all units."""
    if vectors.dtype == tl.bfloat16 and not INTERPRETED:  # an interpreter multiplies none
        first = (weights.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)  # cut off, not rounded
        to = tl.dot(first.to(tl.bfloat16), vectors, to)
        return tl.dot((weights - first).to(tl.bfloat16), vectors, to)
    else:  # noqa: RET505
        return tl.dot(weights, vectors.to(tl.float32), to, input_precision=DOT)


@triton.jit  # type: ignore[untyped-decorator]
def _row(start, j, i, first, length, CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the pair of source `first + j` and target i stands, in 64 bits; its sentence's rows begin at `start`."""
    j, length = tl.cast(j, tl.int64), tl.cast(length, tl.int64)
    if CAUSAL:
        return start + j * (length - first) - j * (j - 1) // 2 + i - first - j
    else:  # noqa: RET505
        return start + j * length + i


@triton.jit  # type: ignore[untyped-decorator]
def _entering(  # type: ignore[no-untyped-def]
    a,  # [B, J, n, H]
    kappa,  # [B, J, n]
    scale,  # s: [B, n]
    g,  # [B J, H, F]
    q,  # [B, n, F]
    beside,  # [F]
    g_up,  # the same of what the gate is multiplied with
    q_up,
    beside_up,
    out,  # [rows, F], or [rows, 2 F]
    starts,  # [B]: of each sentence its first row
    lengths,  # [B]
    first,  # source
    count,  # J
    n,
    width,  # F
    H: tl.constexpr,
    HEADS: tl.constexpr,  # H, rounded up to a power of two
    KIND: tl.constexpr,
    GATED: tl.constexpr,
    CAUSAL: tl.constexpr,
    SPLIT: tl.constexpr,
    DOT: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BF: tl.constexpr,
):
    groups = tl.cdiv(count, BJ)
    b = (tl.program_id(2) // groups).to(tl.int64)
    j0 = (tl.program_id(2) % groups) * BJ
    length, start = tl.load(lengths + b), tl.load(starts + b)
    if (first + j0 >= length) | (tl.program_id(0) * BI >= length):
        return
    if CAUSAL:  # noqa: SIM102, as the one is known when this is compiled and the other is not
        if (tl.program_id(0) + 1) * BI <= first + j0:
            return
    i, f = tl.program_id(0) * BI + tl.arange(0, BI), tl.program_id(1) * BF + tl.arange(0, BF)
    heads, read = tl.arange(0, HEADS), tl.minimum(i, n - 1)  # what is read of no target is written nowhere
    inside, known = f[None, :] < width, heads < H
    own = (b * n + read[:, None]) * width + f[None, :]
    per = 1.0 / tl.load(scale + b * n + read)[:, None]
    moves = tl.load(q + own, mask=inside, other=0.0)
    base = moves * per + tl.load(beside + f[None, :], mask=inside, other=0.0)
    before = _activated(base, KIND)
    if GATED:
        moves_up = tl.load(q_up + own, mask=inside, other=0.0)
        base_up = moves_up * per + tl.load(beside_up + f[None, :], mask=inside, other=0.0)
        before = before * base_up
    pair, place = (b * count + j0) * n + read, (b * count + j0) * H + heads[:, None]
    of_pair, of_head = pair[:, None] * H + heads[None, :], place * width + f[None, :]
    for k in range(tl.minimum(tl.minimum(BJ, count - j0), length - first - j0)):
        step = tl.cast(k, tl.int64)
        weights = tl.load(a + of_pair + step * n * H, mask=known[None, :], other=0.0)
        by = tl.load(kappa + pair + step * n)[:, None]
        vectors = tl.load(g + of_head + step * H * width, mask=known[:, None] & inside, other=0.0)
        after = _activated(_added(weights, vectors, by * moves + base, DOT), KIND)
        if GATED:
            vectors = tl.load(g_up + of_head + step * H * width, mask=known[:, None] & inside, other=0.0)
            after = after * _added(weights, vectors, by * moves_up + base_up, DOT)
        j, seen = j0 + k, i < length
        if CAUSAL:
            seen = seen & (i >= first + j)
        found = after - before
        row = _row(start, j, i, first, length, CAUSAL)
        written = seen[:, None] & inside
        if SPLIT:
            rounded = found.to(tl.bfloat16)
            tl.store(out + row[:, None] * (2 * width) + f[None, :], rounded, mask=written)
            rest = (found - rounded.to(tl.float32)).to(tl.bfloat16)
            tl.store(out + row[:, None] * (2 * width) + width + f[None, :], rest, mask=written)
        else:
            tl.store(out + row[:, None] * width + f[None, :], found.to(out.dtype.element_ty), mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def _leaving(  # type: ignore[no-untyped-def]
    fed,  # [rows, d]
    weights,  # [B, J, n, H]
    kappa,  # [B, J, n]
    f,  # [B J, H, d]
    own,  # [B, n, d]: r
    w,  # [B, n, d]: what the last norm reads, centred
    o,  # [B, n, d]
    gamma,  # [d]
    out,  # [B, n, n]
    starts,
    lengths,
    first,
    count,
    n,
    width,  # d
    eps,
    H: tl.constexpr,
    OWN: tl.constexpr,
    NORM: tl.constexpr,  # whether there is a last one
    COSINE: tl.constexpr,
    CAUSAL: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
    BD: tl.constexpr,
):
    groups = tl.cdiv(count, BJ)
    b = (tl.program_id(1) // groups).to(tl.int64)
    j0 = (tl.program_id(1) % groups) * BJ
    length, start = tl.load(lengths + b), tl.load(starts + b)
    if (first + j0 >= length) | (tl.program_id(0) * BI >= length):
        return
    if CAUSAL:  # noqa: SIM102
        if (tl.program_id(0) + 1) * BI <= first + j0:
            return
    i, d = tl.program_id(0) * BI + tl.arange(0, BI), tl.arange(0, BD)
    there = (i[:, None] < length) & (d[None, :] < width)
    mine = (b * n + i[:, None]) * width + d[None, :]
    goal = tl.load(o + mine, mask=there, other=0.0)
    size = tl.sum(goal * goal, 1)
    if OWN:
        moves = tl.load(own + mine, mask=there, other=0.0)
    if NORM:
        read = tl.load(w + mine, mask=there, other=0.0)
        scales = tl.load(gamma + d, mask=d < width, other=0.0)[None, :]
        square = tl.sum(read * read, 1) / width + eps
    for k in range(BJ):
        j = j0 + k
        source, real = b * count + j, (j < count) & (first + j < length)
        # Ends and no condition of one number, which the interpreter cannot join with one of many.
        seen, known = i < tl.where(real, length, 0), d < tl.where(real, width, 0)
        if CAUSAL:
            seen = seen & (i >= first + j)
        row = _row(start, j, i, first, length, CAUSAL)
        change = tl.load(fed + row[:, None] * width + d[None, :], mask=seen[:, None] & (d[None, :] < width), other=0.0)
        if OWN:
            change += tl.load(kappa + source * n + i, mask=seen, other=0.0)[:, None] * moves
        touched = tl.zeros((BI,), dtype=tl.int32)
        for h in tl.static_range(H):  # unrolled, so that no load waits for another
            weight = tl.load(weights + (source * n + i) * H + h, mask=seen, other=0.0)
            vector = tl.load(f + (source * H + h) * width + d, mask=known, other=0.0)
            change += weight[:, None] * vector[None, :]
            touched = touched | (weight != 0).to(tl.int32)
        if NORM:
            more = tl.sum((2 * read + change) * change, 1) / width
            scale, other = tl.sqrt(square), tl.sqrt(tl.maximum(square + more, eps))
            by = -more / (scale * other * (scale + other))
            change = (change / other[:, None] + by[:, None] * read) * scales
        if COSINE:
            more = tl.sum((2 * goal + change) * change, 1)
            before, after = tl.sqrt(size), tl.sqrt(tl.maximum(size + more, 0.0))
            before, after = tl.where(before == 0, 1.0, before), tl.where(after == 0, 1.0, after)
            by = -more / (before * after * (before + after))
            apart = change / after[:, None] + by[:, None] * goal
            distance = tl.sum(apart * apart, 1) / 2
        else:
            distance = tl.sqrt(tl.sum(change * change, 1))
        place = out + (b * n + i) * n + first + j
        tl.store(place, tl.where(touched != 0, distance, 0.0), mask=seen)


@triton.jit  # type: ignore[untyped-decorator]
def _normed(square, on_w, g_square, g_on_w, on_beta, before, weighted, along_w, eps, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """|δ|² and ⟨o, δ⟩ after the last norm, from the sums before it and those of the target."""
    more = (2 * on_w + square) / width
    scale, other = tl.sqrt(before), tl.sqrt(tl.maximum(before + more, eps))
    by = -more / (scale * other * (scale + other))
    square = g_square / (other * other) + by * (2 * g_on_w / other + by * weighted)
    return square, (g_on_w / scale + on_beta) / other + by * along_w


@triton.jit
def _cosine_distance(square, along, size):  # type: ignore[no-untyped-def]
    """1 − cos(o, o + δ) from |δ|², ⟨o, δ⟩ and |o|², as half the square of what lies between them at length one."""
    more = 2 * along + square
    before, after = tl.sqrt(size), tl.sqrt(tl.maximum(size + more, 0.0))
    before, after = tl.where(before == 0, 1.0, before), tl.where(after == 0, 1.0, after)
    by = -more / (before * after * (before + after))
    return tl.maximum(square / (after * after) + by * (2 / after * along + by * size), 0.0) / 2


@triton.jit  # type: ignore[untyped-decorator]
def _leaving_by_sums(  # type: ignore[no-untyped-def]
    fed,  # [rows, d]
    weights,  # [B, J, n, H]
    kappa,  # [B, J, n]
    f,  # [B J, H, d]
    own,  # [B, n, d]: r
    w,  # [B, n, d]: what the last norm reads, centred; o where there is none
    gamma,  # [d]
    beta,  # [d]
    fixed,  # [4, B n]: what the targets have for all sources, `aim`
    out,  # [B, n, n]
    starts,
    lengths,
    first,
    sentences,
    count,
    n,
    eps,
    width: tl.constexpr,  # d
    H: tl.constexpr,
    OWN: tl.constexpr,
    NORM: tl.constexpr,
    COSINE: tl.constexpr,
    CAUSAL: tl.constexpr,
    BI: tl.constexpr,
    BD: tl.constexpr,
):
    blocks = tl.cdiv(n, BI)
    block, group = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    b, j = (group // count).to(tl.int64), group % count
    length, start = tl.load(lengths + b), tl.load(starts + b)
    if (first + j >= length) | (block * BI >= length):
        return
    if CAUSAL:  # noqa: SIM102
        if (block + 1) * BI <= first + j:
            return
    i = block * BI + tl.arange(0, BI)
    seen, source = i < length, b * count + j
    if CAUSAL:
        seen = seen & (i >= first + j)
    # What is read of no pair is written nowhere.
    row = tl.where(seen, _row(start, j, i, first, length, CAUSAL), 0)
    target, pair = b * n + tl.minimum(i, n - 1), source * n + tl.minimum(i, n - 1)
    factor, vectors = tl.load(kappa + pair)[:, None], f + source * (H * width)
    x2 = tl.zeros((BI, BD), dtype=tl.float32)  # sums over d, of x = δ: x², x w, γ² x², γ² x w and γ β x
    xw, g2, gw, gb = x2, x2, x2, x2
    for d0 in range(0, width, BD):
        d = (d0 + tl.arange(0, BD))[None, :]
        inside = (d < width) | (width % BD == 0)
        mine = target[:, None] * width + d
        read = tl.load(w + mine, mask=inside, other=0.0)
        moves = tl.load(own + mine, mask=inside, other=0.0) if OWN else read
        if NORM:
            scales = tl.load(gamma + d, mask=inside, other=0.0)
            shifts = scales * tl.load(beta + d, mask=inside, other=0.0)
            scales *= scales
            scaled = scales * read
        at = tl.max_contiguous(row[:, None] * width + d, (1, 4))  # four numbers a thread also of bfloat16, as of f
        x = tl.load(fed + at, mask=inside, other=0.0).to(tl.float32)
        if OWN:
            x += factor * moves
        for h in tl.static_range(H):  # a product of matrices that are so narrow takes longer here
            vector = tl.load(vectors + h * width + d, mask=inside, other=0.0)
            x += tl.load(weights + pair * H + h)[:, None] * vector
        x2 += x * x
        xw += x * read
        if NORM:
            g2 += x * x * scales
            gw += x * scaled
            gb += x * shifts
    square, along = tl.sum(x2, 1), tl.sum(xw, 1)  # |δ|² and ⟨o, δ⟩
    at, step = fixed + target, sentences * n
    if NORM:
        aimed = tl.load(at + step), tl.load(at + 2 * step), tl.load(at + 3 * step)
        square, along = _normed(square, along, tl.sum(g2, 1), tl.sum(gw, 1), tl.sum(gb, 1), *aimed, eps, width)
    distance = _cosine_distance(square, along, tl.load(at)) if COSINE else tl.sqrt(tl.maximum(square, 0.0))
    touched = tl.zeros((BI,), dtype=tl.int32)
    for h in tl.static_range(H):
        touched = touched | (tl.load(weights + pair * H + h) != 0).to(tl.int32)
    tl.store(out + (b * n + i) * n + first + j, tl.where(touched != 0, distance, 0.0), mask=seen)


@triton.jit  # type: ignore[untyped-decorator]
def _aimed(o, w, gamma, fixed, targets, width, eps, BD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of one target |o|², w² on the average, Σ γ² w² and Σ γ o w: each into its row of `fixed` [4, targets]."""
    target = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    goal = tl.load(o + target * width + d, mask=d < width, other=0.0)
    read = tl.load(w + target * width + d, mask=d < width, other=0.0)
    scaled = read * tl.load(gamma + d, mask=d < width, other=0.0)
    tl.store(fixed + target, tl.sum(goal * goal, 0))
    tl.store(fixed + targets + target, tl.sum(read * read, 0) / width + eps)
    tl.store(fixed + 2 * targets + target, tl.sum(scaled * scaled, 0))
    tl.store(fixed + 3 * targets + target, tl.sum(scaled * goal, 0))


def entering(
    change: tuple[Tensor, Tensor, Tensor],
    inputs: list[tuple[Tensor, Tensor, Tensor]],
    rows: Any,
    out: Tensor,
    how: dict[str, Any],
) -> None:
    """h into `out`. `change`: a, κ and s; `inputs`: g, q and what makes p of it, of a gated FFN the gate's and then the
    other's.
    """
    a, kappa, scale = change
    batch, count, n, heads = a.shape
    width, precision = inputs[0][1].shape[-1], how["precision"]
    targets, sources, units, warps, stages = ENTERING[precision]
    blocks = (triton.cdiv(n, targets), triton.cdiv(width, units), batch * triton.cdiv(count, sources))
    _entering[blocks](
        *(a, kappa, scale, *inputs[0], *inputs[-1], out, rows.starts, rows.lengths, rows.first, count, n, width),
        H=heads,
        HEADS=_padded(heads),
        KIND=GELUS[precision] if how["activation"] == 0 else how["activation"],
        GATED=len(inputs) > 1,
        CAUSAL=how["causal"],
        SPLIT=precision == "split",
        DOT=DOTS[precision],
        BI=targets,
        BJ=sources,
        BF=units,
        num_warps=warps,
        num_stages=stages,
    )


class Aim(NamedTuple):
    """What distances are measured from."""

    o: Tensor  # [B, n, d]
    read: Tensor  # what the norm after the FFN reads, centred; o where there is none
    gamma: Tensor
    beta: Tensor
    eps: float
    normed: bool  # whether there is one
    fixed: Tensor | None  # of each target |o|², w² on the average, Σ γ² w² and Σ γ o w: [4, B, n]


def aim(o: Tensor, last: Any, precision: str) -> Aim:
    """`last`: the norm after the FFN with what it reads, centred; or None."""
    norm, read = (None, o) if last is None else last
    ones = torch.ones_like(o[0, 0])
    eps, gamma, beta = (1.0, ones, ones) if norm is None else (norm.eps, norm.gamma, norm.beta)
    if precision == "exact":
        return Aim(o, read, gamma, beta, eps, last is not None, None)
    fixed, (batch, n, width) = o.new_empty(4, *o.shape[:2]), o.shape
    size = int(triton.next_power_of_2(width))
    _aimed[(batch * n,)](o, read, gamma, fixed, batch * n, width, eps, BD=size, num_warps=2)
    return Aim(o, read, gamma, beta, eps, last is not None, fixed)


def leaving(
    fed: Tensor,
    shift: tuple[Tensor, Tensor],
    f: Tensor,
    own: Tensor | None,
    to: Aim,
    out: Tensor,
    rows: Any,
    how: dict[str, Any],
) -> None:
    """Distances into `out`. `shift`: b and κ. Where the norm takes a mean off, `fed`, f and `own` have none."""
    weights, kappa = shift
    batch, count, n, heads = weights.shape
    width = to.o.shape[-1]
    given = fed, weights, kappa, f, to.read if own is None else own, to.read
    where = rows.starts, rows.lengths, rows.first
    kind = {
        "H": heads,
        "OWN": own is not None,
        "NORM": to.normed,
        "COSINE": how["metric"] == "cosine",
        "CAUSAL": how["causal"],
    }
    if to.fixed is not None:
        targets, numbers, warps = SUMMING
        sizes = {"BI": targets, "BD": numbers, "num_warps": warps}
        blocks = triton.cdiv(n, targets) * batch * count
        _leaving_by_sums[(blocks,)](
            *given, to.gamma, to.beta, to.fixed, out, *where, batch, count, n, to.eps, width, **kind, **sizes
        )
        return
    size = triton.next_power_of_2(width)
    targets = max(1, min(triton.next_power_of_2(n), NUMBERS // size))
    sizes = {"BI": targets, "BJ": OVER, "BD": size, "num_warps": MEASURING}
    _leaving[(triton.cdiv(n, targets), batch * triton.cdiv(count, OVER))](
        *given, to.o, to.gamma, out, *where, count, n, width, to.eps, **kind, **sizes
    )


def _padded(heads: int) -> int:
    """What a product of matrices takes: a power of two, 16 or more."""
    return max(16, int(triton.next_power_of_2(heads)))
