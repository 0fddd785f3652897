"""Value Zeroing, slowly: for every token the whole block once more with that token's value set to zero."""

from __future__ import annotations

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from oracles import globenc
from wherefrom import LayerTrace


def layer_norm(norm: object, t: Tensor) -> Tensor:
    gamma, beta = norm.gamma.double(), norm.beta.double()  # type: ignore[attr-defined]
    return torch.nn.functional.layer_norm(t, t.shape[-1:], gamma, beta, norm.eps)  # type: ignore[attr-defined]


def output(layer: LayerTrace, row: int, zeroed: int | None) -> Tensor:
    """Equations 4 to 9 with the value of one token replaced by zero: [n, d]."""
    _, s = globenc.sentence(layer, row)
    block = layer.block
    value = s["value"].clone()
    if zeroed is not None:
        value[:, zeroed] = 0
    heads = torch.cat([alpha @ v for alpha, v in zip(s["alpha"], value, strict=True)], -1)  # [n, H d_h]
    u = heads @ s["w_o"].flatten(0, 1) + block.b_o.double() + s["x"]

    def ffn(t: Tensor) -> Tensor:
        hidden = block.activation(t @ block.ffn_in.weight.double() + block.ffn_in.bias.double())
        return hidden @ block.ffn_out.weight.double() + block.ffn_out.bias.double()

    if block.norm_first:
        return u + ffn(layer_norm(block.norm2, u))
    y = layer_norm(block.norm1, u)
    return layer_norm(block.norm2, y + ffn(y))


def distance(a: Tensor, b: Tensor, metric: str) -> float:
    if metric == "euclidean":
        return float((a - b).square().sum().sqrt())
    if metric == "spearman":
        return float(1 - scipy.stats.spearmanr(a.numpy(), b.numpy()).statistic)
    return float(1 - (a @ b) / (a @ a).sqrt() / (b @ b).sqrt())


def raw(layer: LayerTrace, row: int, metric: str = "cosine", standardise: bool = False) -> Tensor:
    """Equation 10, before the rows are normalised: [n, n]."""
    original = output(layer, row, None)
    n = len(original)
    mean, spread = original.mean(0), original.std(0, unbiased=False)
    found = np.zeros((n, n))
    for j in range(n):
        changed = output(layer, row, j)
        for i in range(n):
            pair = (changed[i], original[i])
            if standardise:
                pair = ((pair[0] - mean) / spread, (pair[1] - mean) / spread)
            found[i, j] = distance(*pair, metric)
    return torch.from_numpy(found)


def value_zeroing(layer: LayerTrace, row: int, metric: str = "cosine", standardise: bool = False) -> Tensor:
    distances = raw(layer, row, metric, standardise)
    return distances / distances.sum(1, keepdim=True)
