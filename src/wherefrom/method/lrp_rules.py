r"""Layer-wise relevance propagation: one rule for each operation, as Chefer et al. (2021) use them (α = 1, β = 0).

R is the relevance of an operation's output, the result that of its inputs. a ⊘ b = a / (b + 10⁻⁹), and 0 where b = 0.

    linear   y = x W + b       S = R ⊘ (x⁺W⁺ + x⁻W⁻)   x⁺ ⊙ S W⁺ᵀ + x⁻ ⊙ S W⁻ᵀ; the bias gets nothing
    matmul   Y = A B           S = R ⊘ Y               ½ A ⊙ S Bᵀ  and  ½ B ⊙ Aᵀ S
    add      y = a + b         S = R ⊘ y               a ⊙ S, b ⊙ S; Σ R shared out as |Σ a⊙S| : |Σ b⊙S|
    masked   y = a + 0                                 the same
    clone    y₁ = … = y_k = x                          x ⊙ (Σ R_k ⊘ x)
    GELU, tanh, softmax, LayerNorm, dropout            R

All of them conserve relevance, Σ R_in = Σ R, up to the 10⁻⁹ and to entries whose divisor is 0. The sums of add are
over one sentence (the authors' code, made for one, sums over the batch), so that a batch gives what single sentences
give.

Add and matmul divide by sums that cancel, so these functions want float64 (weights may be single: they are converted).

Bach et al. (2015), On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation.
Chefer, Gur & Wolf (2021), Transformer Interpretability Beyond Attention Visualization. https://arxiv.org/abs/2012.09838
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

EPSILON = 1e-9
TILE = 4 * 2**20  # bytes of float64 weights at a time
NOTHING = 1e-13  # of a sum of absolute values: below that, a sum is nothing but rounding


def safe_divide(a: Tensor, b: Tensor) -> Tensor:
    """`a / (b + ε)`, 0 where b is 0."""
    divisor = b + EPSILON
    return torch.div(a, divisor, out=divisor).masked_fill_(b == 0, 0)


def linear(x: Tensor, weight: Tensor, relevance: Tensor, product: Tensor) -> Tensor:
    """Through `x @ weight`, whose value is `product` (without bias)."""
    # x⁺W⁺ + x⁻W⁻ = ½ (x W + |x| |W|), and likewise backwards: three matrix products instead of five, and the two halves
    # cancel. On a CPU weights are converted by the tile, so that both their float64 forms stay in the cache.
    shape, x = x.shape, x.flatten(0, -2)
    absolute = x.abs()
    width = weight.shape[-1] if x.is_cuda else max(1, TILE // (16 * x.shape[-1]))
    tiles = (torch.split(t, width, -1) for t in (weight, relevance.flatten(0, -2), product.flatten(0, -2)))
    found: list[Tensor] = []  # ½ S Wᵀ and ½ S |W|ᵀ
    for w, r, y in zip(*tiles, strict=True):
        w = w.double()
        size = w.abs()
        whole = absolute @ size
        twice = y + whole
        none = twice <= 2 * NOTHING * whole  # where no term is positive
        s = torch.div(r, twice.add_(2 * EPSILON), out=twice).masked_fill_(none, 0)
        found = [s @ w.T, s @ size.T] if not found else [found[0].addmm_(s, w.T), found[1].addmm_(s, size.T)]
    return found[0].mul_(x).addcmul_(found[1], absolute).reshape(shape)


def linear_one(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """Through one output of a linear layer, another one in each row: x [B, in], weight [B, in], relevance [B]."""
    positive = (x * weight).relu()  # x⁺w⁺ + x⁻w⁻
    return positive * safe_divide(relevance, positive.sum(-1)).unsqueeze(-1)


def matmul(a: Tensor, b: Tensor, relevance: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Through `a @ b`, whose value is `product`: half of the relevance to either factor."""
    s = safe_divide(relevance, product).div_(2)
    return (s @ b.mT).mul_(a), (a.mT @ s).mul_(b)


def add(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through `a + b`; axis 0 counts the sentences."""
    s = safe_divide(relevance, a + b)
    to_a, to_b = a * s, b * s
    sums = torch.stack([_sum(to_a), _sum(to_b)])
    sizes = sums.abs()
    shares = safe_divide(sizes, sizes.sum(0).expand_as(sizes)).mul_(_sum(relevance))
    by_a, by_b = safe_divide(shares, sums)
    return to_a.mul_(by_a), to_b.mul_(by_b)


def masked(a: Tensor, relevance: Tensor) -> Tensor:
    """Through `a + mask`, a number that is 0 wherever relevance arrives: `add` of nothing."""
    to_a = safe_divide(relevance, a).mul_(a)
    there = _sum(to_a)
    size = there.abs()
    return to_a.mul_(safe_divide(safe_divide(size, size).mul_(_sum(relevance)), there))


def clone(x: Tensor, *relevances: Tensor) -> Tensor:
    """Through the copies of `x`."""
    return safe_divide(reduce(torch.add, relevances), x).mul_(x)


def _sum(t: Tensor) -> Tensor:
    """Over each sentence: [B, …] -> [B, 1, …]."""
    return t.sum(tuple(range(1, t.ndim)), keepdim=True)
