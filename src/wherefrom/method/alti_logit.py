r"""ALTI-Logit: what the attention of each layer adds to the logit, followed down to the input tokens.

    z_w  =  ⟨ρ, x^1_i⟩ + Σ_l Σ_j Δ^l_j + Σ_l ⟨ρ, FFN^l_i⟩ + biases          ρ = W_U[w] through the last norm, at token i
    Δ^l_j = ⟨ρ, Σ_h α^h_ij f^h_j⟩                                          what token j gives in layer l, by its sign
    score_j = Σ_l Σ_k Δ^l_k M^{l−1}_kj ,   M^l = C^l M^{l−1} ,  M^0 = I      C^l: ALTI's map of layer l (alti.py)

A pre-norm model's last state is a sum of what its sublayers gave, and the last norm, its scale being known, is linear:
so the logit is a sum, too. Only what attention brings is followed to tokens. What the token that is read had from the
beginning, the FFNs and the biases add belongs to no source, and so the scores do not add up to the logit: `arrived`
says what part of it they are. With a foil ρ is the difference of two, and the scores are exactly those of a difference.

C compares with the stream after attention, in parallel blocks too (`alti(at="mid")`). `mixing="none"` leaves C out:
Σ_l Δ^l, what each *position* gives; `mixing="rollout"` takes attention with half a residual connection for C (the
ablations of the paper). A soft-capped logit (Gemma 2) is explained before its cap, which keeps the order of words.

ρ goes through W_O first, ρ^h = W_O^h ρ, so that Δ needs no vectors f: Δ^l_j = Σ_h α^h_ij ⟨v^h_j, ρ^h⟩.

Ferrando et al. (2023), Explaining How Transformers Use Context to Build Predictions.
https://aclanthology.org/2023.acl-long.301
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from wherefrom.errors import Unsuited
from wherefrom.method.alti import alti
from wherefrom.method.alti import cost as alti_cost
from wherefrom.method.attention import attention_fixed_residual
from wherefrom.method.attention import cost as attention_cost
from wherefrom.method.base import Scores, method
from wherefrom.method.citations import FERRANDO_2023
from wherefrom.method.normalise import part_of
from wherefrom.method.readout import Entries, entries, head_back, made
from wherefrom.model.head import Step, at_rows
from wherefrom.model.head import head as head_of
from wherefrom.model.parts import Linear, Norm
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace

Mixing = Literal["alti", "rollout", "none"]


def _cost(s: BatchShape, options: Options) -> Work:
    step = alti_cost(s, options) if options["mixing"] == "alti" else attention_cost(s, options)
    return step.times(s.depth)


@method(
    "alti-logit",
    symbols=("ALTI-Logit",),
    idea="parts of the logit",
    paper=FERRANDO_2023,
    needs={
        "one-stream",
        "attention",
        "values",
        "output-projection",
        "block-input",
        "layers",
        "bare-stream",
        "linear-head",
        "head",
        "read-token",
    },
    checks={"batch-equals-single", "sign-flips-with-foil"},
    cost=_cost,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
@torch.no_grad()
def alti_logit(output: OutputTrace, *, mixing: Mixing = "alti") -> Scores:
    """What each token adds to the logit through attention, followed to the input by ALTI.

    mixing: how a layer's tokens are followed down to the input, "alti", "rollout" (attention rollout) or "none".
    `layer_scores` are what the attention of each layer adds.
    """
    trace = output.trace
    read = entries(output)
    steps = before_cap(head_of(trace, read.rows))
    rho = linear_reading(output, read, steps)
    followed: list[Tensor] = []  # one row for each layer above, followed down to the layer at hand: [B, n] each
    for layer in reversed(trace.layers):
        if mixing != "none" and followed:
            step = layer.once(f"mixing {mixing}", _MIXING[mixing])  # one for all tokens of an answer
            followed = list((torch.stack(followed, 1) @ step.to(rho.device)).unbind(1))
        followed.append(given(layer, read, rho.to(layer.device)).to(rho.device))
    layers = torch.stack(followed[::-1])
    scores = layers.sum(0)
    logit = (read.signs * made(steps).gather(-1, read.columns[..., None])[..., 0]).sum(1)
    return Scores(scores, layers, arrived=part_of(scores, logit))


_MIXING: dict[str, Callable[[LayerTrace], Tensor]] = {
    "alti": lambda layer: alti(layer, at="mid"),
    "rollout": lambda layer: attention_fixed_residual(layer),
}


def given(layer: LayerTrace, read: Entries, rho: Tensor) -> Tensor:
    """`Δ_j`, what token j adds to the number through this layer's attention: [B, n]."""
    through = torch.einsum("bmd,hkd->bmhk", rho, layer.block.w_c)
    seen = torch.einsum("bhjk,bmhk->bmhj", layer.value, through)
    weights = at_rows(layer.weights.transpose(1, 2), read.rows)  # [B, m, H, n]
    return (weights * seen).sum((1, 2))


def before_cap(steps: list[Step]) -> list[Step]:
    """The head without a soft-cap; a factor that is one for all outputs stays."""
    part = steps[-1].part
    capped = isinstance(part, Tensor) and float(part.max() - part.min()) > 1e-3 * float(part.max())
    return steps[:-1] if capped else steps


def linear_reading(output: OutputTrace, read: Entries, steps: list[Step]) -> Tensor:
    """ρ: what the number takes of each component of the last block's output: [B, m, d]."""
    if not all(isinstance(part, Linear | Norm | Tensor) for part, _ in steps):
        raise Unsuited(
            f"alti-logit needs a head that is linear but for its norm, and that of {output.trace.opened.name} has an "
            f"activation; decompx, attn-lrp and cp-lrp go through it"
        )
    return head_back(read, steps, "zero-origin")
