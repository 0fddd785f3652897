r"""Context mixing from the norms of what tokens give to one another, through the FFN as well.

    ‖F_i(t_ij)‖,     t_ij = Σ_h α^h_ij f^h_j + 1[i=j] x_i       after the whole block, norms and residual connection

The FFN is taken apart by integrated gradients from nothing to what it reads, all parts growing together: of φ(Σ_j s_j)
the part of s_j is s_j φ(s) / s, in closed form; of a gated φ(a) b it is a_j b (φ(a) − Φ) / a + b_j Φ with
Φ = ∫₀¹ φ(t a) dt (16 points of Gauss–Legendre). Biases and β are parts of their own, which no token gets. Norms are
linear once their scale is known, as in `norm-residual-ln`. In a parallel block the FFN reads token i alone, and all
that it gives is in t_ii. This is the step from GlobEnc, in which the FFN acts through a scale alone, to DecompX, which
goes on through all blocks.

Kobayashi et al. (2024), Analyzing Feed-Forward Blocks in Transformers through the Lens of Attention Maps.
https://openreview.net/forum?id=mYWsyTuiRp
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method.base import method
from wherefrom.method.citations import KOBAYASHI_2024
from wherefrom.method.contributions import lengths, own
from wherefrom.method.decomposition import DecompositionRules, local_cost, local_norms
from wherefrom.method.frozen_block import Freeze
from wherefrom.method.normalise import to_one

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

RULES = DecompositionRules("none", Freeze(gate="integrated"), "whole")


@method(
    "norm-ffn",
    symbols=("AtbFfResLn",),
    idea="norms of what tokens give",
    paper=KOBAYASHI_2024,
    needs={"one-stream", "attention", "values", "output-projection", "block-input", "both-norms", "linear-values"},
    prefers={"ffn-matrices"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=local_cost,
)
@torch.no_grad()
def norm_ffn(layer: LayerTrace, *, normalize: bool = False) -> Tensor:
    """Norm of what tokens give after the whole block, FFN included, by integrated gradients over the parts."""
    norms = _beside(layer) if layer.block.parallel else local_norms(layer, RULES)
    return to_one(norms) if normalize else norms


def _beside(layer: LayerTrace) -> Tensor:
    """Of a parallel block."""
    norms = lengths(layer, "plain").clone()
    norms.diagonal(dim1=1, dim2=2).copy_(vector_norm(own(layer) + layer.x + layer.fed, dim=-1))
    return norms
