r"""A matrix product to as many digits as were asked for. With x = x₁ + x₂ + …, each of the parts bfloat16:

    exact    x W                       in the dtype of x
    split    x₁ W₁ + x₁ W₂ + x₂ W₁     parts of 2^-16 of a product are left out
    fast     x₁ W₁                     of 2^-8

Sums are float32 in all three. A GPU multiplies bfloat16 many times as fast as float32, and three products of it still
some times as fast. Elsewhere nothing is gained, and numbers are rounded all the same: `precision` means the same digits
on every device. torch.set_float32_matmul_precision calls these "highest", "high" and "medium".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["exact", "split", "fast"]


def halves(t: Tensor) -> tuple[Tensor, Tensor]:
    """The two bfloat16 that add up to t, but for 2^-17 of it."""
    first = t.bfloat16()
    return first, (t - first.to(t.dtype)).bfloat16()


def product(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
    """`x @ weight`: [..., F] and [F, d] -> [..., d]."""
    if precision == "exact":
        return x @ weight
    rows = x.flatten(0, -2)
    if precision == "fast":
        found = _times(rows.bfloat16(), weight.bfloat16(), weight.dtype)
    else:
        found = of_halves(torch.cat(halves(rows), 1), weight)
    return found.view(*x.shape[:-1], -1)


def of_halves(both: Tensor, weight: Tensor) -> Tensor:
    """The same of rows that are split already, both halves side by side: [R, 2 F] and [F, d] -> [R, d]."""
    first, second = halves(weight)
    found, left = _times(both, torch.cat([first, first]), weight.dtype), both[:, : len(weight)]
    if both.is_cuda and weight.dtype == torch.float32:  # added where it is made: no third array of that size
        return torch.addmm(found, left, second, out_dtype=torch.float32, out=found)
    return found.add_(_times(left, second, weight.dtype))


def products_by_head(
    x: Tensor, weights: Sequence[Tensor], precision: Precision, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """The same of matrices one by one, of which the rows are short: [H, R, k] and [H, k, d] each -> [R, H, d] each."""
    if precision == "exact":
        return [_by_head(x, weight, x, weight, dtype) for weight in weights]
    if precision == "fast":
        rounded = x.bfloat16()
        return [_by_head(x, weight, rounded, weight.bfloat16(), dtype) for weight in weights]
    first, second = halves(x)
    rows, found = torch.cat([first, second, first], -1), []  # the three products as one
    for weight in weights:
        b1, b2 = halves(weight)
        found.append(_by_head(x, weight, rows, torch.cat([b1, b1, b2], -2), dtype))
    return found


def _by_head(x: Tensor, weight: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> Tensor:
    """`a @ b` of parts of `x` and `weight`."""
    found = x.new_empty(x.shape[1], len(x), weight.shape[-1], dtype=dtype or x.dtype)
    by_head = found.transpose(0, 1)
    if a.dtype == found.dtype:
        torch.bmm(a, b, out=by_head)
    elif a.is_cuda:
        torch.bmm(a, b, out_dtype=found.dtype, out=by_head)
    else:
        by_head.copy_(a.to(x.dtype) @ b.to(x.dtype))
    return found


def _times(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """A product of bfloat16 with sums in more digits."""
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32).to(dtype)
    return a.to(dtype) @ b.to(dtype)
