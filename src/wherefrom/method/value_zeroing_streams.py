r"""Value Zeroing in an encoder with a decoder: what a step's output is, and the way to it from a decoder's first step.

    encoder          as in any encoder
    decoder, cross   v_j of the source zeroed in attention to it; the block's output compared
    decoder, self    v_j of the target zeroed in attention to itself; the rest of the block runs again on what is left,
                     attention to the source with it:   u' → y' → α'(y') → u₂' → o'

The three maps are each divided by their own row sums, and the last block's output of either stack is compared after the
stack's norm, where it has one (Mohebbi et al. 2023b). How much of a token stays when the source is zeroed is in none of
them, so that they are not joined by rollout or flow.

Mohebbi et al. (2023), Homophone Disambiguation Reveals Patterns of Context Mixing in Speech Transformers.
https://aclanthology.org/2023.emnlp-main.513
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wherefrom.method.normalise import standardised
from wherefrom.method.tiling import tiles
from wherefrom.model.parts import Block, Norm, promote

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

Distance = Callable[[Tensor, Tensor], Tensor]


def closing(layer: LayerTrace) -> Norm | None:
    """The norm after a stack's last block, through which its output is compared; of one stream it is not."""
    last = layer.step is not None and not isinstance(layer.block.reader, Block)
    return layer.block.next_norm if last else None


class Reading(NamedTuple):
    """A decoder's attention to one source, to be run on any states of the stream: [..., n, d] -> [..., n, d]."""

    block: Block
    keys: Tensor  # [H, S, d_h]
    values: Tensor  # [H, S, d_h]
    scaling: float

    def __call__(self, y: Tensor) -> Tensor:
        """The block's output for what its first step gave."""
        block = self.block
        query = block.projections()[0](block.source(y)).unflatten(-1, (block.heads, -1)).transpose(-3, -2)  # type: ignore[no-untyped-call]
        alpha = (query @ self.keys.mT * self.scaling).softmax(-1)
        mixed = (alpha @ self.values).transpose(-3, -2).flatten(-2)
        o = block.finish(y + block.output()(mixed))
        return o if isinstance(block.reader, Block) or block.next_norm is None else block.next_norm(o)


def reading(layer: LayerTrace, row: int) -> Reading:
    """What the second step of a decoder's block, of which `layer` is the first, reads of a sentence's source."""
    step, cross = layer.step, layer.block.reader
    assert step is not None
    assert isinstance(cross, Block)
    read = promote(step.own["read"])[row, step.streams.seen[row]]
    keys, values = (
        linear(read).unflatten(-1, (cross.heads, -1)).transpose(0, 1)  # type: ignore[no-untyped-call]
        for linear in cross.projections()[1:]
    )
    return Reading(cross, keys, values, cross.scaling)


def through_both_steps(layer: LayerTrace, distance: Distance, standardise: bool, budget: int) -> Tensor:
    """How far the output of a decoder's block moves when a value of its first step is zeroed: [B, n, n]."""
    moved = torch.zeros_like(layer.attention[:, 0])
    f = layer.f  # [B, H, n, d]
    for row, n in enumerate(layer.mask.sum(1).tolist()):
        onwards, u, alpha = reading(layer, row), layer.u[row, :n], layer.attention[row, :, :n, :n]
        o = onwards(layer.block.finish(u))
        goal, spread = standardised(o) if standardise else (o, None)
        size = n * (onwards.keys.shape[1] * layer.heads + 4 * u.shape[-1] + onwards.block.units) * u.element_size()
        for sources in tiles(n, size, budget):
            taken = torch.einsum("hij,hjd->jid", alpha[:, :, sources], f[row, :, sources])
            change = onwards(layer.block.finish(u - taken)) - o
            change = change if spread is None else change / spread
            touched = (taken != 0).any(-1)
            moved[row, :n, sources] = (distance(goal, change) * touched).T
    return moved
