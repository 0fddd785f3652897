r"""Gradients of the explained number y with respect to the input.

    saliency              ‖∂y/∂e_i‖₂      (l1: ‖·‖₁;  sum: |Σ_k ∂y/∂e_ik|, Abnar & Zuidema's code)
    gradient-x-input      Σ_k ∂y/∂e_ik e_ik      (abs: its magnitude;  l2: ‖∂y/∂e_i ⊙ e_i‖₂, GlobEnc equation 17)

e_i is what the embedding module gives for token i, word, position and type together, of the true model; with
`at="word"` the word embedding alone. y is a logit, or with `of="probability"` a probability. The same at the input of
block l is `layer_scores[l]` (Value Zeroing's layer-wise gradient scores).

A LayerNorm removes whatever all components have in common, so where it is all that reads e_i (pre-norm blocks, or the
word embeddings of BERT), Σ_k ∂y/∂e_ik = 0 and its size is rounding noise. `norm="sum"` is refused there.

Simonyan et al. (2014), Deep Inside Convolutional Networks. https://arxiv.org/abs/1312.6034
Kindermans et al. (2016), Investigating the Influence of Noise and Distractors. https://arxiv.org/abs/1611.07270
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from wherefrom.errors import Unsuited
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import KINDERMANS_2016, SIMONYAN_2014
from wherefrom.method.normalise import stacked
from wherefrom.model.parts import promote
from wherefrom.work import one_backward_pass

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace

IDEA = "gradients"
Place = Literal["embeddings", "word"]  # everything that the embedding module adds up, or the word's part
PLACES = {"embeddings": "embeddings", "word": "word embeddings"}
SALIENCY: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda g: g.norm(dim=-1),
    "l1": lambda g: g.abs().sum(-1),
    "sum": lambda g: g.sum(-1).abs(),
}
# The largest |Σ_k ∂y/∂e_ik| that may be rounding, as a share of the largest ‖∂y/∂e_i‖₂. Behind a LayerNorm it is at
# most 4 eps (0.6 eps in half precision), elsewhere a tenth and more.
SUM_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 2e-2}
PRODUCT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dot": lambda g, e: (g * e).sum(-1),
    "abs": lambda g, e: (g * e).sum(-1).abs(),
    "l2": lambda g, e: (g * e).norm(dim=-1),
}


@method(
    "saliency",
    symbols=("grad-l2", "sensitivity"),
    idea=IDEA,
    paper=SIMONYAN_2014,
    needs={"gradient"},
    checks={"batch-equals-single", "token-permutation"},
    cost=one_backward_pass,
    kind="scores",
    class_specific=True,
)
def saliency(
    output: OutputTrace, *, norm: Literal["l2", "l1", "sum"] = "l2", at: Place = "embeddings", of: Of = "auto"
) -> Scores:
    """Size of the gradient with respect to each token's embedding."""
    reduce = SALIENCY[norm]
    gradient = output.gradients(of)
    _, g = _input(output, at, of)
    layers = gradient.hidden[:-1]
    if norm == "sum":
        if _is_sum_negligible(output, g):
            raise Unsuited(
                f"saliency(norm=sum) is zero at the {PLACES[at]} of {output.trace.opened.name}: only a LayerNorm reads "
                f"them, and it removes what all components have in common; choose norm=l2 or norm=l1, or "
                f"gradient-x-input"
            )
        if any(_is_sum_negligible(output, each) for each in layers):
            layers = []
    return Scores(reduce(g), _stacked([reduce(each) for each in layers]))


def _is_sum_negligible(output: OutputTrace, gradient: Tensor) -> bool:
    """Tell whether the sums over components [B, n, d] -> [B, n] are rounding noise in every sentence of the batch."""
    real = output.mask.to(gradient.device)
    sums, sizes = (SALIENCY[norm](gradient).where(real, 0.0).amax(-1) for norm in ("sum", "l2"))
    tolerance = SUM_TOLERANCE.get(output.trace.opened.pretrained.dtype, SUM_TOLERANCE[torch.bfloat16])
    return bool((sizes > 0).any()) and bool((sums <= tolerance * sizes).all())


@method(
    "gradient-x-input",
    symbols=("GradXinput", "input-x-gradient"),
    idea=IDEA,
    paper=KINDERMANS_2016,
    needs={"gradient"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=one_backward_pass,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def gradient_x_input(
    output: OutputTrace, *, norm: Literal["dot", "abs", "l2"] = "dot", at: Place = "embeddings", of: Of = "auto"
) -> Scores:
    """Gradient times embedding, summed over the embedding's components."""
    reduce = PRODUCT[norm]
    e, g = _input(output, at, of)
    states = [layer.x for layer in output.trace.layers]
    layers = [reduce(g_l, x) for g_l, x in zip(output.gradients(of).hidden, states, strict=False)]
    return Scores(reduce(g, e), _stacked(layers), signed=norm == "dot")


def _stacked(layers: list[Tensor]) -> Tensor | None:
    """Stack the layers' scores; None where there are none."""
    return stacked(layers) if layers else None


def _input(output: OutputTrace, at: Place, of: Of) -> tuple[Tensor, Tensor]:
    """The embeddings and the gradient with respect to them."""
    gradient = output.gradients(of)
    where = {
        "embeddings": (output.trace.embeddings, gradient.embeddings),
        "word": (output.trace.words, gradient.words),
    }
    e, g = where[at]
    return promote(e.detach()), g
