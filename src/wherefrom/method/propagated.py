"""The explained number's gradients in the frozen pass (model/frozen_pass.py), which several methods share.

Once products are shared out, the output is linear in every state of the stream, and value times gradient is what a
token gives to it: relevance propagation and decomposition are this one thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from wherefrom.model.backward import taken_back
from wherefrom.model.capture import capture
from wherefrom.model.frozen_pass import Freezing, Shares
from wherefrom.model.output import explained, ways_of
from wherefrom.model.parts import promote
from wherefrom.model.trace import Trace
from wherefrom.model.two_streams import gathered, leaves

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
    hidden: list[Tensor]  # input of each block: L times [B, n, d]; none of two streams


def frozen_trace(output: OutputTrace, how: Freezing = USUAL) -> Trace:
    """The frozen pass: the one that all methods share where it is frozen so, else one of its own, made once."""
    trace = output.trace
    if trace.switch is not None and how == USUAL:
        return trace
    return trace.once(f"frozen {how}", lambda own: capture(own.opened, own.batch, frozen=how))


def frozen_gradients(output: OutputTrace, shares: Shares, how: Freezing = USUAL) -> FrozenGradients:
    """One backward pass through the frozen pass, shared by several numbers where they are asked for."""

    def make(outputs: list[OutputTrace]) -> list[FrozenGradients]:
        return _taken_back(outputs, frozen_trace(output, how), shares)

    return output.together(f"frozen {shares} {how}", make) if output.several else make([output])[0]


def _taken_back(outputs: Sequence[OutputTrace], trace: Trace, shares: Shares) -> list[FrozenGradients]:
    assert trace.switch is not None
    trace.switch.shares = shares

    def number(each: OutputTrace, read: Any) -> Tensor:
        return explained(trace.opened, read, each.answers, trace.batch.lengths, "logit", frozen=True)

    given, which = ways_of(outputs[0], trace, str(shares), number), [each.which for each in outputs]
    layers = trace.layers if trace.streams is None else []
    wanted, made = [*leaves(trace), *(layer.raw["x"] for layer in layers)], []
    for i, found in zip(which, taken_back(trace, given, which, wanted), strict=True):
        words, embeddings, rest = gathered(trace, [promote(g) for g in found])
        states = [gradient.to(layer.device) for gradient, layer in zip(rest, layers, strict=True)]
        made.append(FrozenGradients(given.numbers[i].detach(), words, embeddings, states))
    return made
