r"""Layer-wise relevance propagation: one rule for each operation, as Chefer et al. (2021) use them (α = 1, β = 0).

R is the relevance of an operation's output, the result that of its inputs. a ⊘ b = a / (b + 10⁻⁹), and 0 where b = 0.

    linear   y = x W + b       S = R ⊘ (x⁺W⁺ + x⁻W⁻)   x⁺ ⊙ S W⁺ᵀ + x⁻ ⊙ S W⁻ᵀ; the bias gets nothing
    matmul   Y = A B           S = R ⊘ Y               ½ A ⊙ S Bᵀ  and  ½ B ⊙ Aᵀ S
    add      y = a + b         S = R ⊘ y               a ⊙ S, b ⊙ S; Σ R shared out as |Σ a⊙S| : |Σ b⊙S|
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
    # x⁺W⁺ + x⁻W⁻ = ½ (x W + |x| |W|), and likewise backwards: three matrix products instead of five. On a CPU weights
    # are converted by the tile, so that both their float64 forms stay in the cache.
    shape, x = x.shape, x.flatten(0, -2)
    absolute = x.abs()
    signed, unsigned = torch.zeros_like(x), torch.zeros_like(x)  # S Wᵀ and S |W|ᵀ
    width = weight.shape[-1] if x.is_cuda else max(1, TILE // (16 * x.shape[-1]))
    tiles = (torch.split(t, width, -1) for t in (weight, relevance.flatten(0, -2), product.flatten(0, -2)))
    for w, r, y in zip(*tiles, strict=True):
        w = w.double()
        size = w.abs()
        whole = absolute @ size
        divisor = (y + whole).div_(2)
        divisor.masked_fill_(divisor < NOTHING * whole, 0)  # where no term is positive
        s = safe_divide(r, divisor)
        signed.addmm_(s, w.T)
        unsigned.addmm_(s, size.T)
    return signed.mul_(x).add_(unsigned.mul_(absolute)).div_(2).reshape(shape)


def linear_one(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """Through one output of a linear layer, another one in each row: x [B, in], weight [B, in], relevance [B]."""
    positive = (x * weight).relu()  # x⁺w⁺ + x⁻w⁻
    return positive * safe_divide(relevance, positive.sum(-1)).unsqueeze(-1)


def matmul(a: Tensor, b: Tensor, relevance: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Through `a @ b`, whose value is `product`: half of the relevance to either factor."""
    s = safe_divide(relevance, product).div_(2)
    return a * (s @ b.mT), b * (a.mT @ s)


def add(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Through `a + b`; axis 0 counts the sentences."""
    s = safe_divide(relevance, a + b)
    to_a, to_b = a * s, b * s
    sum_a, sum_b, total = _sum(to_a), _sum(to_b), _sum(relevance)
    both = sum_a.abs() + sum_b.abs()
    to_a *= safe_divide(safe_divide(sum_a.abs(), both) * total, sum_a)
    to_b *= safe_divide(safe_divide(sum_b.abs(), both) * total, sum_b)
    return to_a, to_b


def clone(x: Tensor, *relevances: Tensor) -> Tensor:
    """Through the copies of `x`."""
    return x * safe_divide(torch.stack(relevances).sum(0), x)


def _sum(t: Tensor) -> Tensor:
    """Over each sentence: [B, …] -> [B, 1, …]."""
    return t.sum(tuple(range(1, t.ndim)), keepdim=True)
