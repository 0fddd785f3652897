"""HTA by its definition: the Jacobian of the model's own block, by automatic differentiation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, jacrev

from whence.model import LayerTrace
from whence.model.capture import recording


def block_jacobian(opened: Any, layer: LayerTrace, mask: Tensor) -> Tensor:
    """∂o_i/∂x_j of the transformers module itself, for one sentence: [n, d_out, n, d_in]."""
    module = layer.block.module
    parameters = dict(module.named_parameters())

    def run(x: Tensor) -> Tensor:
        out = functional_call(module, parameters, (x[None],), {"attention_mask": mask})
        return (out[0] if isinstance(out, tuple) else out)[0]

    with recording(opened, layer.mask, lambda _: None):
        return jacrev(run)(layer.x[0])


def hta(jacobian: Tensor, x: Tensor | None = None) -> Tensor:
    """‖∂o_i/∂x_j‖_F; with x [n, d], ‖∂o_i/∂x_j ⊙ x_j‖_F (GlobEnc, equation 18)."""
    n = jacobian.shape[0]
    result = torch.empty(n, n, dtype=jacobian.dtype)
    for i in range(n):
        for j in range(n):
            block = jacobian[i, :, j, :]
            result[i, j] = torch.linalg.norm(block if x is None else block * x[j])
    return result
