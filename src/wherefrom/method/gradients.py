r"""Gradients of the explained number y with respect to the input.

    saliency              ‖∂y/∂e_i‖₂      (l1: ‖·‖₁;  sum: |Σ_k ∂y/∂e_ik|, Abnar & Zuidema's sensitivity)
    gradient-x-input      Σ_k ∂y/∂e_ik e_ik      (abs: its magnitude;  l2: ‖∂y/∂e_i ⊙ e_i‖₂, GlobEnc equation 17)

e_i is what the embedding module gives for token i, word, position and type together, of the true model; with
`at="word"` the word embedding alone. y is a logit, or with `of="probability"` a probability. The same at the input of
block l is `layer_scores[l]` (Value Zeroing's layer-wise gradient scores).

Simonyan et al. (2014), Deep Inside Convolutional Networks. https://arxiv.org/abs/1312.6034
Kindermans et al. (2016), Investigating the Influence of Noise and Distractors. https://arxiv.org/abs/1611.07270
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import KINDERMANS_2016, SIMONYAN_2014
from wherefrom.method.normalise import stacked
from wherefrom.model.parts import promote
from wherefrom.work import one_backward_pass

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace

IDEA = "gradients"
Place = Literal["embeddings", "word"]  # everything that the embedding module adds up, or the word's part
SALIENCY: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda g: g.norm(dim=-1),
    "l1": lambda g: g.abs().sum(-1),
    "sum": lambda g: g.sum(-1).abs(),
}
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
    return Scores(reduce(g), _stacked([reduce(hidden) for hidden in gradient.hidden[:-1]]))


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
    """None where the model's blocks are not known."""
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
