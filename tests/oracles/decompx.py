"""DecompX after the paper and the authors' code, vector by vector: no tiles, no way back, no shortcut for any layer.

Attention, block inputs and the parts of a block are those of the captured pass, which other tests hold to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Parts = Tensor  # [n, n, d]: what of token i comes from token k


def shares(parts: Tensor, bias: Tensor, rule: str) -> Tensor:
    """Equation 5 and its variants for one row of parts [n, d]."""
    if rule == "none":
        return parts
    n = len(parts)
    weights = torch.zeros(n, dtype=parts.dtype)
    for k, part in enumerate(parts):
        seen = bool((part != 0).any())
        if rule == "absdot":
            weights[k] = abs(float(part @ bias))
        elif rule == "abssim":
            weights[k] = abs(float(part @ bias)) / float(part.norm() * bias.norm()) if seen and bias.any() else 0
        elif rule == "norm":
            weights[k] = part.norm()
        elif rule == "equal":
            weights[k] = float(seen)
        elif rule == "cls":
            weights[k] = float(k == 0)
    total = weights.sum()
    return parts + (weights / total if total else weights)[:, None] * bias


def biased(parts: Parts, bias: Tensor, rule: str) -> Parts:
    rows = bias if bias.ndim == 2 else bias.expand(len(parts), -1)
    return torch.stack([shares(row, b, rule) for row, b in zip(parts, rows, strict=True)])


def normed(norm: Any, parts: Parts, real: Tensor, rule: str) -> Parts:
    """Each part centred by its own mean, divided by the scale of the real vector."""
    if norm is None:
        return parts
    scale = [float((norm.centred(x).square().mean() + norm.eps).sqrt()) for x in real]
    found = [[norm.centred(part) * norm.gamma / s for part in row] for row, s in zip(parts, scale, strict=True)]
    return biased(torch.stack([torch.stack(row) for row in found]), norm.beta, rule)


def applied(norm: Any, t: Tensor) -> Tensor:
    return t if norm is None else norm(t)


def activated(act: Callable[[Tensor], Tensor], parts: Parts, z: Tensor, way: str, rule: str) -> Parts:
    """By the ratio, or by the tangent with its intercept shared out."""
    if way == "zero-origin":
        return parts * (act(z) / z)[:, None]
    point = z.clone().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(act(point).sum(), point)
    return biased(parts * slope[:, None], (act(z) - slope * z).detach(), rule)


def fed(block: Any, parts: Parts, t: Tensor, way: str, gate: str, rule: str) -> Parts:
    """The FFN without its norms."""
    up = biased(parts @ block.ffn_in.weight, block.ffn_in.bias, rule)
    if block.ffn_gate is None:
        hidden = activated(block.activation, up, block.ffn_in(t), way, rule)
    else:
        a, b = block.ffn_gate(t), block.ffn_in(t)
        hidden = block.activation(a)[:, None] * up
        if gate == "half":
            through = biased(parts @ block.ffn_gate.weight, block.ffn_gate.bias, rule)
            hidden = hidden / 2 + activated(lambda z: block.activation(z) * b / 2, through, a, way, rule)
    return biased(hidden @ block.ffn_out.weight, block.ffn_out.bias, rule)


def attended(layer: Any, parts: Parts, first: bool, value_bias: str) -> tuple[Parts, Tensor]:
    """What attention gives of the parts, head by head and source by source, and the bias that is left to share out."""
    block, alpha, n = layer.block, layer.attention[0], parts.shape[0]
    bias_v = block.projections()[2].bias.view(block.groups, -1).repeat_interleave(block.heads // block.groups, 0)
    given = torch.zeros_like(parts)
    left = block.b_o.expand(n, -1).clone()
    for h in range(block.heads):
        for i in range(n):
            for j in range(n):
                values = parts[j] @ block.w_v[h]  # [n, d_h], one for each k
                if first and value_bias == "kept":
                    values[j] += bias_v[h]
                else:
                    left[i] += alpha[h, i, j] * bias_v[h] @ block.w_o[h]
                given[i] += alpha[h, i, j] * values @ block.w_o[h]
    return given, left


def decomposed(
    layers: Any,
    *,
    bias: str = "absdot",
    activation: str = "zero-origin",
    ffn: bool = True,
    gate: str = "half",
    value_bias: str = "kept",
) -> list[Parts]:
    """x_{i⇐k} after each block, of a batch of one sentence."""
    n, d = layers[0].x.shape[1:]
    parts = torch.zeros(n, n, d, dtype=layers[0].x.dtype)
    for i in range(n):
        parts[i, i] = layers[0].x[0, i]
    found = []
    for number, layer in enumerate(layers):
        block, x, u = layer.block, layer.x[0], layer.u[0]
        read = normed(block.before, parts, x, bias)
        given, left = attended(layer, read, number == 0, value_bias)
        if block.after is None:
            stream = biased(given + parts, left, bias)
        else:
            real = block.attended(layer.attention, layer.value)[0]
            stream = normed(block.after, biased(given, left, bias), real, bias) + parts
        y = normed(block.post, stream, u, bias)
        t, into = (x, parts) if block.parallel else (applied(block.post, u), y)
        if ffn:
            real = applied(block.ffn_before, t)
            made = fed(block, normed(block.ffn_before, into, t, bias), real, activation, gate, bias)
            y = y + normed(block.ffn_after, made, block.ffn(real), bias)
        parts = normed(block.ffn_post, y, layer.w[0], bias)
        found.append(parts)
    return found
