r"""Class activation tokens: features times their gradients, weighted by attention, summed over layers.

    CAT_i^l     =  Σ_k (∂y/∂h_i^l ⊙ h_i^l)_k                                     (equation 10)
    AttCAT_i^l  =  ā_i^l CAT_i^l,      ā_j^l = mean_h mean_i α^{h,l}_ij             (equation 11)
    score_i     =  Σ_l (·)_i^l                                                     (equation 12)

h^l is the input of block l, embeddings included and the last output left out, and ā the attention a token receives: so
does the authors' code, which made their tables. `at="output"` takes the output of block l, as their text has it. Scores
below zero speak against the target: the Impact Score's magnitude and direction are `Explanation.magnitude` and
`.direction`. In a causal model the tokens i that pay attention end at the one that is read. `join="rollout"` multiplies
the layers instead, M^L … M^1 with M^l_ij = mean_h α_ij CAT_j, which their figure 4 argues against.

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
https://openreview.net/forum?id=cA8Zor8wFr5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor

from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import QIANG_2022
from wherefrom.method.normalise import mean_row, stacked
from wherefrom.work import one_backward_pass

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace

IDEA = "class activation tokens"
Side = Literal["input", "output"]  # of the blocks


@method(
    "cat",
    symbols=("CAT",),
    idea=IDEA,
    paper=QIANG_2022,
    needs={"one-stream", "hidden-states", "gradient"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=one_backward_pass,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def cat(output: OutputTrace, *, at: Side = "input", of: Of = "auto") -> Scores:
    """Hidden states times their gradients, summed over layers."""
    layers = _activations(output, at, of)
    return Scores(layers.sum(0), layers)


@method(
    "attcat",
    symbols=("AttCAT",),
    idea=IDEA,
    paper=QIANG_2022,
    needs={"one-stream", "attention", "hidden-states", "gradient"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=one_backward_pass,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def attcat(
    output: OutputTrace, *, at: Side = "input", of: Of = "auto", join: Literal["sum", "rollout"] = "sum"
) -> Scores:
    """Hidden states times their gradients times the attention they receive, summed over layers."""
    activations, paying = _activations(output, at, of), output.paying
    layers = activations * stacked([received(layer, paying) for layer in output.trace.layers])
    if join == "sum":
        return Scores(layers.sum(0), layers)
    joint = None
    for layer, activation in zip(output.trace.layers, activations, strict=True):
        step = layer.attention.detach().mean(1).to(activation) * activation[:, None]  # M^l
        joint = step if joint is None else step @ joint
    assert joint is not None
    return Scores(mean_row(joint, paying), layers)


def received(layer: LayerTrace, paying: Tensor) -> Tensor:
    """ā_j: the attention that token j receives, mean over heads and over the tokens that pay it: [B, n]."""
    return mean_row(layer.attention.detach().mean(1), paying)


def _activations(output: OutputTrace, at: Side, of: Of) -> Tensor:
    """CAT of every layer: [L, B, n]."""
    gradients = output.gradients(of).hidden
    layers = output.trace.layers
    if at == "input":
        pairs = [(g, layer.x) for g, layer in zip(gradients[:-1], layers, strict=True)]
    else:
        pairs = [(g, layer.output) for g, layer in zip(gradients[1:], layers, strict=True)]
    return stacked([(g * h.detach()).sum(-1) for g, h in pairs])
