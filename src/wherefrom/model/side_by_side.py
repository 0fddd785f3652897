"""The layers of one sentence side by side, in the place of the sentences of a batch.

    x [L, n, d] for [1, n, d],      γ [L, 1, d] for [d],      W_C [L, H, d_h, d] for [H, d_h, d]

What a formula makes of a block and a batch it then makes of all blocks, row l of the batch being layer l. Of a short
sentence an accelerator takes as long for that as for one layer: what takes time is to tell it what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.model.linear import sizes
from wherefrom.model.norm import Norm
from wherefrom.model.parts import NORMS, Block, promote

if TYPE_CHECKING:
    from wherefrom.model.trace import LayerTrace

LARGE = 2**25  # numbers: of larger W_C no second copy is kept


def one_block(blocks: Sequence[Block]) -> Block | None:
    """The weights of all blocks as those of one; None where the blocks are not alike, or large."""
    small = sum(prod(_size(each)) for each in blocks) <= LARGE
    if not blocks or not small or not all(_plain(each) and _alike(blocks[0], each) for each in blocks):
        return None
    found = replace(blocks[0], reader=_one_norm([each.next_norm for each in blocks]))
    dtype = next(blocks[0].module.parameters()).dtype
    carrier = torch.stack([each.w_c_in(dtype) for each in blocks])
    # What a block reads off its modules it looks for here first.
    vars(found).update({name: _one_norm([getattr(each, name) for each in blocks]) for name in NORMS})
    vars(found).update(w_o=promote(carrier), w_c=promote(carrier), _stored_w_c=carrier)
    vars(found)["b_o"] = torch.stack([each.b_o for each in blocks]).unsqueeze(1)
    return found


def one_layer(layers: Sequence[LayerTrace], block: Block) -> LayerTrace:
    """What all layers did with one sentence, as if it were what one did with as many."""
    first, count = layers[0], len(layers)
    ids, mask = (t.expand(count, -1) for t in (first.ids, first.mask))
    return replace(first, block=block, ids=ids, mask=mask, raw=_Gathered(layers), _shared={}, _lengths=None)


class _Gathered(dict[str, Tensor]):
    """What the layers have under each name, one after another, once somebody asks for it."""

    def __init__(self, layers: Sequence[LayerTrace]) -> None:
        super().__init__()
        self.layers = layers

    def __missing__(self, name: str) -> Tensor:
        found = self[name] = torch.cat([each.raw[name] for each in self.layers])
        return found


def _plain(block: Block) -> bool:
    """Whether attention's branch and the FFN's are added to the stream as they are, one after the other."""
    return block.after is None and not block.scaled and not block.parallel and block.feeds


def _alike(one: Block, other: Block) -> bool:
    same = one.family == other.family and one.heads == other.heads and one.device == other.device
    return (same and _size(one) == _size(other)) and all(
        _same(getattr(one, name), getattr(other, name)) for name in (*NORMS, "next_norm")
    )


def _size(block: Block) -> tuple[int, int]:
    """Of W_O."""
    return sizes(block.part(block.family.attention.output))


def _same(one: Norm | None, other: Norm | None) -> bool:
    if one is None or other is None:
        return one is other
    return one[2:] == other[2:] and one.gamma.shape == other.gamma.shape and one.gamma.dtype == other.gamma.dtype


def _one_norm(norms: Sequence[Norm | None]) -> Norm | None:
    found = [each for each in norms if each is not None]
    if not found:
        return None
    gamma, beta = (torch.stack(each).unsqueeze(1) for each in ([n.gamma for n in found], [n.beta for n in found]))
    return found[0]._replace(gamma=gamma, beta=beta)
