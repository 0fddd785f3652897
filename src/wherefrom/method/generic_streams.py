r"""Generic relevancy of an encoder with a decoder: what the explained number owes to the source and to the prefix.

    Ā = mean_h (α^h ⊙ ∂y/∂α^h)⁺                                                             (equation 5)
    encoder            R^ee ← R^ee + Ā R^ee                        from I                   (6)
    decoder, self      R^dd ← R^dd + Ā R^dd,  R^de ← R^de + Ā R^de  from I and from 0        (6, 7)
    decoder, cross     R^de ← R^de + N(R^dd)ᵀ Ā N(R^ee)                                     (10)
                       N(R) = (R − I) / its row sums + I                                    (8, 9)

The answer for token t is row t of R^de and of R^dd. A row of R − I without relevance (those after t, in a decoder) is
0 / 0 in N; the authors' code makes NaN of it and then zeros of everything. Here such a row of N is that of I, so that
the whole target may stand in the decoder.

Chefer, Gur & Wolf (2021), Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder
Transformers. https://arxiv.org/abs/2103.15679
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wherefrom.method.base import Scores
from wherefrom.method.normalise import identity_like, stacked, to_one
from wherefrom.model.parts import promote

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace


def over_streams(output: OutputTrace, of: str) -> Scores:
    """The readout row over source and prefix, after each step."""
    trace, rows = output.trace, []
    streams = trace.layers[0].step.streams  # type: ignore[union-attr]
    (batch, s), t = streams.source.shape, streams.target.shape[1]
    like = trace.layers[0].x
    ee, dd = (torch.eye(n, dtype=like.dtype, device=like.device).repeat(batch, 1, 1) for n in (s, t))
    de = like.new_zeros(batch, t, s)
    for layer, gradient in zip(trace.layers, output.gradients(of, attention=True).attention, strict=True):
        assert layer.step is not None
        a = (promote(layer.step.own["attention"].detach()) * gradient).relu().mean(1)
        if layer.step.crosses:
            de = de + _normalised(dd).mT @ a @ _normalised(ee)
        elif layer.causal:
            de, dd = de + a @ de, dd + a @ dd
        else:
            ee = ee + a @ ee
        rows.append(output.row(streams.joint_map(ee, dd, de)))
    return Scores(rows[-1], stacked(rows))


def _normalised(relevance: Tensor) -> Tensor:
    """N(R)."""
    identity = identity_like(relevance)
    return to_one(relevance - identity) + identity
