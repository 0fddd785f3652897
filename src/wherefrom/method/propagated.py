"""The explained number's gradients in the frozen pass (model/freeze.py), which several methods share.

Once products are shared out, the output is linear in every state of the stream, and value times gradient is what a
token gives to it: relevance propagation and decomposition are this one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wherefrom.model.capture import Trace, capture
from wherefrom.model.freeze import Freezing, Shares
from wherefrom.model.output import explained
from wherefrom.model.parts import promote

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace

USUAL = Freezing()
# q·k halves what the softmax gives back, which is half of what α·v got: a quarter each, and a half to v.
HALVES = Shares(query=0.25, key=0.25, value=0.5, gate=0.5, gated=0.5, router=0.5, routed=0.5)
# Attention, gates and routers are constants.
VALUES = Shares(query=0, key=0, value=1, gate=0, gated=1, router=0, routed=1)


class FrozenGradients(NamedTuple):
    """∂y/∂· in the frozen pass; float32 or float64."""

    number: Tensor  # y [B]
    words: Tensor  # word embeddings [B, n, e]
    embeddings: Tensor  # output of the embedding module [B, n, e]
    hidden: list[Tensor]  # input of each block: L times [B, n, d]
    more: list[Tensor]  # of what was asked for beside these


def frozen_trace(output: OutputTrace, how: Freezing = USUAL) -> Trace:
    """The frozen pass: the one that all methods share where it is frozen so, else one of its own, made once."""
    trace = output.trace
    if trace.switch is not None and how == USUAL:
        return trace
    return trace.once(f"frozen {how}", lambda own: capture(own.opened, own.batch, frozen=how))


def frozen_gradients(
    output: OutputTrace, shares: Shares, how: Freezing = USUAL, more: Sequence[Tensor] = ()
) -> FrozenGradients:
    """One backward pass through the frozen pass; `more` are further tensors of it."""
    trace = frozen_trace(output, how)
    number = explained(trace.opened, trace.output, output.answers, trace.batch.lengths, "logit", frozen=True)
    hidden = [layer.raw["x"] for layer in trace.layers]
    wanted = [trace.words, trace.embeddings, *hidden, *more]
    assert trace.switch is not None
    trace.switch.shares = shares
    # Sentences do not see each other, so the gradient of the sum is each one's own.
    found = torch.autograd.grad(number.sum(), wanted, retain_graph=True)
    words, embeddings, *rest = [promote(g) for g in found]
    states = [gradient.to(layer.device) for gradient, layer in zip(rest, trace.layers, strict=False)]
    return FrozenGradients(number.detach(), words, embeddings, states, rest[len(hidden) :])
