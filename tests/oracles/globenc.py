"""GlobEnc and the norm methods before it, slowly: every equation a loop over the n×n vectors it speaks of.

Only what the block is made of and what it was given (x, α, v, u, w) is taken from the library; nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from wherefrom import LayerTrace


def sentence(layer: LayerTrace, row: int) -> tuple[int, dict[str, Tensor]]:
    """One sentence of a layer in float64, its padding taken off."""
    n = int(layer.mask[row].sum())
    return n, {
        "x": layer.x[row, :n].double(),
        "u": layer.u[row, :n].double(),
        "w": layer.w[row, :n].double(),
        "output": layer.output[row, :n].double(),
        "alpha": layer.attention[row, :, :n, :n].double(),
        "value": layer.value[row, :, :n].double(),
        "w_o": layer.block.w_o.double(),
    }


def mean_and_scale(a: Tensor, eps: float) -> tuple[float, float]:
    """Appendix A.1, with the ε where the models have it."""
    mean = float(a.sum() / len(a))
    variance = float(((a - mean) ** 2).sum() / len(a))
    return mean, (variance + eps) ** 0.5


def through(norm: object, whole: Tensor, part: Tensor) -> Tensor:
    """Equation 6: what a LayerNorm makes of one part of its input."""
    _, scale = mean_and_scale(whole, norm.eps)  # type: ignore[attr-defined]
    mean, _ = mean_and_scale(part, 0.0)
    return (part - mean) / scale * norm.gamma.double()  # type: ignore[attr-defined]


def contributions(layer: LayerTrace, row: int, residual: bool = True) -> list[list[Tensor]]:
    """Equations 4 and 5: z_{i←j}, with the residual connection or without."""
    n, s = sentence(layer, row)
    result = []
    for i in range(n):
        line = []
        for j in range(n):
            z = torch.zeros_like(s["x"][0])
            for h in range(len(s["alpha"])):
                z = z + s["alpha"][h, i, j] * (s["value"][h, j] @ s["w_o"][h])
            line.append(z + s["x"][i] if residual and i == j else z)
        result.append(line)
    return result


def after_attention(layer: LayerTrace, row: int) -> list[list[Tensor]]:
    """Equation 7. Pre-norm, the norm that u meets first is the one before the FFN."""
    _, s = sentence(layer, row)
    norm = layer.block.norm2 if layer.block.norm_first else layer.block.norm1
    return [[through(norm, s["u"][i], t) for t in line] for i, line in enumerate(contributions(layer, row))]


def after_block(layer: LayerTrace, row: int) -> list[list[Tensor]]:
    """Equation 11. Pre-norm, the contributions reach the block's output as they are and are standardised there."""
    n, s = sentence(layer, row)
    if layer.block.norm_first:
        vectors = contributions(layer, row)
        scales = [mean_and_scale(w, layer.block.norm2.eps)[1] for w in s["w"]]
        return [[(t - t.mean()) / scales[i] for t in vectors[i]] for i in range(n)]
    vectors = after_attention(layer, row)
    return [[through(layer.block.norm2, s["w"][i], t) for t in vectors[i]] for i in range(n)]


def norms(vectors: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack([t.square().sum().sqrt() for t in line]) for line in vectors])


def ratio(vectors: list[list[Tensor]]) -> Tensor:
    """Equation 8."""
    found = []
    for i, line in enumerate(vectors):
        others = torch.zeros_like(line[0])
        for j, t in enumerate(line):
            if j != i:
                others = others + t
        a, b = others.square().sum().sqrt(), line[i].square().sum().sqrt()
        found.append(a / (a + b))
    return torch.stack(found)


VECTORS: dict[str, Callable[[LayerTrace, int], list[list[Tensor]]]] = {
    "N": lambda layer, row: contributions(layer, row, residual=False),
    "N_Res": contributions,
    "N_ResLN": after_attention,
    "N_Enc": after_block,
}


def fixed_residual(layer: LayerTrace, row: int) -> Tensor:
    """Equation 16."""
    n = norms(VECTORS["N"](layer, row))
    return torch.stack([0.5 * n[i] / n[i].sum() + 0.5 * torch.eye(len(n), dtype=n.dtype)[i] for i in range(len(n))])


def attention_residual(layer: LayerTrace, row: int) -> Tensor:
    """Equation 15, where a token that sees nobody else keeps itself."""
    n, s = sentence(layer, row)
    mean = s["alpha"].mean(0)
    r = ratio(after_block(layer, row))
    result = torch.zeros_like(mean)
    for i in range(n):
        for j in range(n):
            if i == j:
                result[i, j] = 1 - r[i]
            elif mean[i, j] > 0:
                result[i, j] = r[i] * mean[i, j] / (mean[i].sum() - mean[i, i])
    return result
