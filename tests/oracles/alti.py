"""ALTI, slowly: equations 6, 9 and 10 vector by vector.

`component` is what the authors' code adds to every component of the difference (torch's pairwise_distance).
"""

from __future__ import annotations

import torch
from torch import Tensor

from oracles import globenc
from wherefrom import LayerTrace


def result(layer: LayerTrace, row: int, at: str) -> list[Tensor]:
    """What the contributions are compared with."""
    _, s = globenc.sentence(layer, row)
    block = layer.block
    if at == "residual":
        return list(s["u"])
    if at == "norm":
        norm = block.norm2 if block.norm_first else block.norm1
        return [globenc.through(norm, u, u) + norm.beta.double() for u in s["u"]]
    if block.norm_first:
        return [(w - w.mean()) / globenc.mean_and_scale(w, block.norm2.eps)[1] for w in s["w"]]
    return list(s["output"])


def nearness(y: Tensor, t: Tensor, metric: str, component: float) -> Tensor:
    gap = y - t + component
    if metric == "l1":
        return y.abs().sum() - gap.abs().sum()
    if metric == "l2":
        return y.square().sum().sqrt() - gap.square().sum().sqrt()
    lengths = y.square().sum().sqrt() * t.square().sum().sqrt()
    return (y * t).sum() / lengths if lengths > 0 else lengths


VECTORS = {"residual": "N_Res", "norm": "N_ResLN", "output": "N_Enc"}


def alti(layer: LayerTrace, row: int, metric: str = "l1", at: str | None = None, component: float = 0.0) -> Tensor:
    at = at or ("residual" if layer.block.norm_first else "norm")
    vectors = globenc.VECTORS[VECTORS[at]](layer, row)
    rows = []
    for i, (y, line) in enumerate(zip(result(layer, row, at), vectors, strict=True)):
        near = torch.stack([nearness(y, t, metric, component).clamp(min=0) for t in line])
        if near.sum() == 0:  # nothing to divide by: the token itself
            near[i] = 1
        rows.append(near / near.sum())
    return torch.stack(rows)
