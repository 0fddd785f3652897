r"""Attention weights and the gradients of the explained number with respect to them.

    grads                 mean_h ∂y/∂α^{h,L}, the readout row of the last layer (AttCAT's baseline Grads)
    attention-gradients   mean over layers, heads and paying tokens of α ⊙ ReLU(∂y/∂α)           (Grad-SAM)
    attention-gradcam     last layer: (mean_h w_h α^h)⁺ with w_h = mean_ij ∂y/∂α^h_ij, scaled to [0, 1] over the whole
                          map, the readout row (what AttCAT's code calls AttGrads)
    generic-attention     R^l = R^{l-1} + Ā^l R^{l-1}, R^0 = I, with Ā = mean_h (α^h ⊙ ∂y/∂α^h)⁺: the rollout of the
                          maps I + Ā, which are not normalised (Chefer et al. 2021b, equations 5 and 6); of an
                          encoder with a decoder by their rules for two streams

The gradient is taken at the weights after the softmax. Where every entry of a gradcam is clamped away, the authors'
code gives 0/0 and this one 0. Of generic-attention the authors show the readout row without its own token
(`drop_self=True`), which the identity would outweigh.

Barkan et al. (2021), Grad-SAM: Explaining Transformers via Gradient Self-Attention Maps.
https://arxiv.org/abs/2204.11073
Qiang et al. (2022), AttCAT. https://openreview.net/forum?id=cA8Zor8wFr5
Chefer, Gur & Wolf (2021), Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder
Transformers. https://arxiv.org/abs/2103.15679
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import BARKAN_2021, CHEFER_2021B, QIANG_2022
from wherefrom.method.generic_streams import over_streams
from wherefrom.method.normalise import identity_like, mean_row, stacked
from wherefrom.work import one_backward_pass

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace

IDEA = "attention and gradient"


@method(
    "grads",
    symbols=("Grads",),
    idea=IDEA,
    paper=QIANG_2022,
    needs={"one-stream", "attention", "gradient"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=one_backward_pass,
    signed=True,
    class_specific=True,
    aggregate=None,
)
def grads(output: OutputTrace, *, of: Of = "auto") -> list[Tensor]:
    """Gradient of the last layer's attention weights, mean over heads."""
    return [gradient.mean(1) for gradient in output.gradients(of, attention=True).attention]


@method(
    "attention-gradients",
    symbols=("AttGrads", "Grad-SAM"),
    idea=IDEA,
    paper=BARKAN_2021,
    needs={"one-stream", "attention", "gradient"},
    checks={"batch-equals-single", "token-permutation"},
    cost=one_backward_pass,
    kind="scores",
    additive=True,
    class_specific=True,
)
def attention_gradients(output: OutputTrace, *, of: Of = "auto") -> Scores:
    """Attention weights times their positive gradients, over all layers (Grad-SAM)."""
    paying = output.paying
    layers = stacked(
        [
            mean_row((layer.attention.detach() * gradient.relu()).mean(1), paying)
            for layer, gradient in zip(output.trace.layers, output.gradients(of, attention=True).attention, strict=True)
        ]
    )
    return Scores(layers.mean(0), layers)


@method(
    "attention-gradcam",
    idea=IDEA,
    paper=QIANG_2022,
    needs={"one-stream", "attention", "gradient"},
    checks={"batch-equals-single", "token-permutation"},
    cost=one_backward_pass,
    kind="scores",
    class_specific=True,
)
def attention_gradcam(output: OutputTrace, *, of: Of = "auto") -> Scores:
    """Grad-CAM on the last layer's attention heads."""
    attention = output.trace.layers[-1].attention.detach()
    gradient = output.gradients(of, attention=True).attention[-1]
    paying = output.paying
    real = (paying[:, :, None] & paying[:, None, :]).to(attention)  # [B, n, n]
    weight = (gradient * real[:, None]).sum((2, 3)) / real.sum((1, 2))[:, None]  # w_h
    cam = (torch.einsum("bh,bhij->bij", weight, attention) / attention.shape[1]).relu()
    low = cam.masked_fill(real == 0, torch.inf).amin((1, 2), keepdim=True)
    high = (cam * real).amax((1, 2), keepdim=True)
    scaled = torch.where(high > low, (cam - low) / (high - low).clamp(min=torch.finfo(cam.dtype).tiny), 0.0) * real
    return Scores(output.row(scaled))


@method(
    "generic-attention",
    symbols=("GenericAttention",),
    idea=IDEA,
    paper=CHEFER_2021B,
    needs={"attention", "gradient"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=one_backward_pass,
    class_specific=True,
)
def generic_attention(output: OutputTrace, *, of: Of = "auto") -> list[Tensor] | Scores:
    """Attention weights times their gradients, the positive part, with residual connection, rolled out."""
    if output.trace.streams is not None:
        return over_streams(output, of)
    maps = []
    for layer, gradient in zip(output.trace.layers, output.gradients(of, attention=True).attention, strict=True):
        given = (layer.attention.detach() * gradient).relu().mean(1)
        maps.append(given + identity_like(given))
    return maps
