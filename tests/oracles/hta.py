"""HTA by its definition: one backward pass through the model's own block for every output component."""

from __future__ import annotations

import torch
from torch import Tensor

from wherefrom.model import LayerTrace


def jacobian(layer: LayerTrace, row: int = 0) -> Tensor:
    """∂o_i/∂x_j of the transformers block itself, for one sentence of a pass with graph: [n, d, n, d]."""
    x, output = layer.raw["x"], layer.raw["output"]
    n, d = int(layer.mask[row].sum()), x.shape[-1]
    found = torch.empty(n, d, n, d, dtype=x.dtype)
    for i in range(n):
        for component in range(d):
            (gradient,) = torch.autograd.grad(output[row, i, component], x, retain_graph=True)
            found[i, component] = gradient[row, :n]
    return found


def hta(jacobian: Tensor, x: Tensor | None = None) -> Tensor:
    """‖∂o_i/∂x_j‖_F; with x [n, d], ‖∂o_i/∂x_j ⊙ x_j‖_F (GlobEnc, equation 18)."""
    n, m = jacobian.shape[0], jacobian.shape[2]
    result = torch.empty(n, m, dtype=jacobian.dtype)
    for i in range(n):
        for j in range(m):
            block = jacobian[i, :, j, :]
            result[i, j] = torch.linalg.norm(block if x is None else block * x[j])
    return result
