"""CAT, AttCAT and Grad-SAM, written down once more from plain Hugging Face outputs, one sentence at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def passed(model: Any, ids: list[int], target: int) -> tuple[list[Any], list[Any], Any]:
    """Hidden states (embeddings first), attention weights and the target's logit, all in one graph."""
    model.set_attn_implementation("eager")
    output = model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    return list(output.hidden_states), list(output.attentions), output.logits[0, target]


def cat(model: Any, ids: list[int], target: int, layer: int) -> np.ndarray:
    """Equation 10 at `hidden_states[layer]`, component by component."""
    hidden, _, y = passed(model, ids, target)
    (gradient,) = torch.autograd.grad(y, hidden[layer])
    return np.array(
        [
            sum(float(gradient[0, i, k]) * float(hidden[layer][0, i, k].detach()) for k in range(gradient.shape[-1]))
            for i in range(len(ids))
        ]
    )


def attcat(model: Any, ids: list[int], target: int, layer: int) -> np.ndarray:
    """Equation 11 at block `layer`, its input as the authors' code has it."""
    _, attention, _ = passed(model, ids, target)
    received = [
        np.mean([[float(head[i, j]) for i in range(len(ids))] for head in attention[layer][0].detach()])
        for j in range(len(ids))
    ]
    return np.array(received) * cat(model, ids, target, layer)


def grad_sam(model: Any, ids: list[int], target: int) -> np.ndarray:
    """Mean over layers, heads and rows of α ⊙ ReLU(∂y/∂α)."""
    _, attention, y = passed(model, ids, target)
    gradients = torch.autograd.grad(y, attention)
    parts = [(a * g.clamp(min=0)).detach()[0].mean((0, 1)) for a, g in zip(attention, gradients, strict=True)]
    return torch.stack(parts).mean(0).numpy()
