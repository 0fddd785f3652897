"""The explained number as entries of the output, and the way back from them to the last block's output.

A head is a chain of norms, linear layers and activations (model/head.py). With the scales of its norms and the ratios
of its activations constant it is linear but for its biases, and what it takes of each component of the last block's
output is one vector for each entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wherefrom.method.frozen_block import Approximation, linearised, norm_back
from wherefrom.model.head import Step, place_of
from wherefrom.model.parts import Linear, Norm
from wherefrom.model.target import terms

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace


class Entries(NamedTuple):
    """The entries of the output that add up to the explained number, m for each sentence, where the head computes."""

    rows: Tensor  # [B, m]: the tokens whose last states they are read from
    columns: Tensor  # [B, m]: which outputs of the head
    signs: Tensor  # [B, m]


def entries(output: OutputTrace) -> Entries:
    """Which entries of the output make the explained number of each sentence."""
    trace = output.trace
    asked = [terms(trace.opened, *each) for each in zip(trace.batch.sentences, output.answers, strict=True)]
    most = max(map(len, asked))
    # A sentence with fewer terms than its neighbours repeats one, which then counts for nothing.
    filled = [each + [each[0]._replace(sign=0)] * (most - len(each)) for each in asked]
    device = place_of(trace)

    def column(name: str) -> Tensor:
        return torch.tensor([[getattr(term, name) for term in each] for each in filled], device=device)

    return Entries(column("position"), column("column"), column("sign"))


def made(steps: list[Step]) -> Tensor:
    """The head's output at the tokens that are read: [B, m, C]."""
    part, x = steps[-1]
    assert not isinstance(part, Norm)
    return x * part if isinstance(part, Tensor) else part(x)


def head_back(read: Entries, steps: list[Step], way: Approximation) -> Tensor:
    """The gradient of the signed entries at the last block's output, biases left out: [B, m, d]."""
    g: Tensor | None = None
    factor = read.signs.to(steps[-1].x)
    for part, x in reversed(steps):
        if g is None:
            if isinstance(part, Tensor):
                factor = factor * part.gather(-1, read.columns[..., None])[..., 0]
                continue
            assert isinstance(part, Linear)  # a head ends with one
            g = part.weight.T[read.columns] * factor[..., None]
        elif isinstance(part, Linear):
            g = g @ part.weight.T
        elif isinstance(part, Norm):
            g = norm_back(part, part.scale(x), g)
        else:
            assert not isinstance(part, Tensor)
            g = g * linearised(part, x, way)[0]
    assert g is not None
    return g
