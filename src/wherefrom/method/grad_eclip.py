r"""Grad-ECLIP: what each token gives the one that the head reads, weighed by how alike their query and key are.

    s_j  =  (λ_j Σ_c ∂y/∂o_ic v_jc)⁺
    λ_j  =  cos(W_O q_i + b_O, W_O k_j + b_O), scaled to [0, 1] over the tokens j ≠ i

in the last layer; i is the token that the head reads, o_i = Σ_j α_ij v_j what attention hands to W_O, all heads side by
side. As ∂y/∂α^h_ij = Σ_c ∂y/∂o^h_ic v^h_jc, the sum over c is that of the attention weights' gradients over heads. The
token that is read gets 0.

The authors' code computes the last layer anew with one head, which is another model than the one explained (its cosines
differ); here the heads are the model's own. Where every token is clamped away their code gives NaN, and this one 0.

Zhao et al. (2024), Gradient-based Visual Explanation for Transformer-based CLIP.
https://proceedings.mlr.press/v235/zhao24p.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from wherefrom.errors import NotDefined
from wherefrom.method.attention_gradients import IDEA
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import ZHAO_2024
from wherefrom.model.target import no_number
from wherefrom.work import one_backward_pass

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace


@method(
    "grad-eclip",
    symbols=("Grad-ECLIP",),
    idea=IDEA,
    paper=ZHAO_2024,
    needs={"one-stream", "attention", "queries-keys", "linear-keys", "output-projection", "read-token", "gradient"},
    checks={"batch-equals-single", "token-permutation"},
    cost=one_backward_pass,
    kind="scores",
    class_specific=True,
)
def grad_eclip(output: OutputTrace, *, of: Of = "auto") -> Scores:
    """Gradients of the last layer's attention weights, weighed by how alike queries and keys are (CLIP)."""
    others = output.mask.clone()
    for row, answer in zip(others, output.answers, strict=True):
        if answer.target.kind == "none":  # of which no other method knows more
            raise no_number(output.trace.opened)
        if answer.readout.position is None:
            raise NotDefined(
                f"grad-eclip looks at the one token that is read, and here several are ({answer.readout.why}); choose "
                f"generic-attention or gradient-x-input"
            )
        row[answer.readout.position] = False
    given = output.row(output.gradients(of, attention=True).attention[-1].sum(1))  # Σ_c ∂y/∂o_ic v_jc
    alike = output.row(likeness(output.trace.layers[-1])).to(others.device)
    low = alike.masked_fill(~others, torch.inf).amin(1, keepdim=True)
    high = alike.masked_fill(~others, -torch.inf).amax(1, keepdim=True)
    weight = (alike - low) / (high - low).clamp(min=torch.finfo(alike.dtype).tiny)
    return Scores((weight * given.to(others.device)).relu().masked_fill(~others, 0.0))


def likeness(layer: LayerTrace) -> Tensor:
    """cos(W_O q_i + b_O, W_O k_j + b_O): [B, n, n]."""
    through = [layer.block.merge(each.detach()) + layer.block.b_o for each in (layer.query, layer.key)]
    queries, keys = (functional.normalize(each, dim=-1) for each in through)
    return queries @ keys.mT
