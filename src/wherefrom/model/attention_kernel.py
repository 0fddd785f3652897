r"""Attention and its weights in one kernel (Triton): α = softmax(scaling · q kᵀ + mask), out = α v.

A program has some queries of one head and goes over the keys twice: for the largest score and the sum of the
exponentials of each row, then for α itself, which is written once, rounded to the model's dtype, and multiplied with v
where it stands. No scores are written down. In a causal model keys after the last query are not looked at.

Places are computed in 64 bits: heads · tokens² passes 2^31 with 32 heads and 8,192 tokens.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

# Targets, sources, warps and sources that are loaded ahead: of eleven tried on an H200 the fastest.
SIZES = {torch.float32: (32, 32, 2, 2), torch.float16: (128, 64, 8, 3), torch.bfloat16: (128, 64, 8, 3)}
DOT = tl.constexpr("tf32x3")  # of float32: three products of nineteen bits each, which keep its digits


@triton.jit  # type: ignore[untyped-decorator]
def _scores(query, keys, key_step, mask, mask_step, i, j, d, n, scaling, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    key = tl.load(keys + j[None, :] * key_step + d[:, None], mask=j[None, :] < n, other=0.0)  # [d_h, J]
    scores = tl.dot(query, key, input_precision=DOT) * scaling
    if MASKED:
        inside = (i[:, None] < n) & (j[None, :] < n)
        scores += tl.load(mask + i[:, None] * mask_step + j[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.where(j[None, :] < n, scores, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    q,  # [B, H, n, d_h]; of this and the next three any strides but the last
    k,  # [B, G, n, d_h]
    v,
    mask,  # [B, H, n, n]
    weights,  # [B, H, n, n]
    out,  # [B, n, H, d_h]
    n,
    heads,
    scaling,
    q_batch,
    q_head,
    q_step,
    k_batch,
    k_head,
    k_step,
    v_batch,
    v_head,
    v_step,
    m_batch,
    m_head,
    m_step,
    SHARED: tl.constexpr,  # H / G
    WIDTH: tl.constexpr,  # d_h
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BI: tl.constexpr,
    BJ: tl.constexpr,
):
    which = tl.num_programs(0) - 1 - tl.program_id(0)  # in a causal model the last take longest
    b, h = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    i, columns, d = (which * BI + tl.arange(0, BI)).to(tl.int64), tl.arange(0, BJ).to(tl.int64), tl.arange(0, WIDTH)
    keys, values = k + b * k_batch + h // SHARED * k_head, v + b * v_batch + h // SHARED * v_head
    mask += b * m_batch + h * m_head
    query = tl.load(q + b * q_batch + h * q_head + i[:, None] * q_step + d[None, :], mask=i[:, None] < n, other=0.0)
    end = n
    if CAUSAL:
        end = tl.minimum(n, (which + 1) * BI)
    top = tl.full((BI,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BI,), dtype=tl.float32)
    for j0 in range(0, end, BJ):
        s = _scores(query, keys, k_step, mask, m_step, i, j0 + columns, d, n, scaling, MASKED)
        higher = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(s - higher[:, None]), 1)
        top = higher
    result = tl.zeros((BI, WIDTH), dtype=tl.float32)
    rows = weights + (b * heads + h) * n * n + i[:, None] * n
    for j0 in range(0, end, BJ):
        j = j0 + columns
        s = _scores(query, keys, k_step, mask, m_step, i, j, d, n, scaling, MASKED)
        a = (tl.exp(s - top[:, None]) / total[:, None]).to(weights.dtype.element_ty)
        tl.store(rows + j[None, :], a, mask=(i[:, None] < n) & (j[None, :] < n))
        value = tl.load(values + j[:, None] * v_step + d[None, :], mask=j[:, None] < n, other=0.0)
        result = tl.dot(a, value, acc=result, input_precision=DOT)
    nothing = tl.zeros((BI, BJ), dtype=weights.dtype.element_ty)
    for j0 in range((which + 1) * BI if CAUSAL else n, n, BJ):  # what causality hides
        j = j0 + columns
        tl.store(rows + j[None, :], nothing, mask=(i[:, None] < n) & (j[None, :] < n))
    place = out + ((b * n + i[:, None]) * heads + h) * WIDTH + d[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=i[:, None] < n)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention's output, [B, n, H, d_h], and its weights, [B, H, n, n]."""
    batch, heads, n, width = query.shape
    query, key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in (query, key, value))
    weights, out = query.new_empty(batch, heads, n, n), query.new_empty(batch, n, heads, width)
    shown = weights if mask is None else mask.expand(batch, heads, n, n)
    strides = [stride for t in (query, key, value, shown) for stride in t.stride()[:3]]
    targets, sources, warps, stages = SIZES[query.dtype]
    _attend[(triton.cdiv(n, targets), batch * heads)](
        *(query, key, value, shown, weights, out, n, heads, scaling),
        *strides,
        SHARED=heads // key.shape[1],
        WIDTH=width,
        MASKED=mask is not None,
        CAUSAL=causal,
        BI=targets,
        BJ=sources,
        num_warps=warps,
        num_stages=stages,
    )
    return out, weights
