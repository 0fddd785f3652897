r"""Context mixing from attention weights alone.

    W           =  mean_h α^h                      attention            (raw attention)
    W_FixedRes  =  ½ mean_h α^h + ½ I              attention-fixed-residual

The residual connection carries x_i past the attention: V_{l+1} = V_l + W_att V_l, renormalised to
A = ½ W_att + ½ I (Abnar & Zuidema 2020, section 3). Rolled out, the second is *attention rollout*.

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. https://aclanthology.org/2020.acl-main.385
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from wherefrom.method.base import Preset, method, preset
from wherefrom.method.citations import ABNAR_2020
from wherefrom.method.normalise import halfway, one_hot
from wherefrom.work import BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

IDEA = "attention weights"


def heads(layer: LayerTrace) -> Tensor:
    return layer.attention


def heads_fixed_residual(layer: LayerTrace) -> Tensor:
    return halfway(layer.attention)


def row(layer: LayerTrace, tokens: Tensor) -> Tensor:
    return layer.attention_row(tokens).mean(1)


def row_fixed_residual(layer: LayerTrace, tokens: Tensor) -> Tensor:
    found = row(layer, tokens)
    return 0.5 * found + 0.5 * one_hot(tokens, found)


def cost(s: BatchShape, _: Options) -> Work:
    return Work(moved=2 * s.bytes * s.pairs * s.heads, calls=6, held=s.bytes * 2 * s.pairs)


@method(
    "attention",
    symbols=("W", "Attn"),
    idea=IDEA,
    paper=ABNAR_2020,
    needs={"attention"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=cost,
    heads=heads,
    row=row,
    side_by_side=True,
)
def attention(layer: LayerTrace) -> Tensor:
    """Attention weights, mean over heads."""
    return layer.attention.mean(1)


@method(
    "attention-fixed-residual",
    symbols=("W_FixedRes",),
    idea=IDEA,
    paper=ABNAR_2020,
    needs={"attention"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=cost,
    heads=heads_fixed_residual,
    row=row_fixed_residual,
    side_by_side=True,
)
def attention_fixed_residual(layer: LayerTrace) -> Tensor:
    """Half attention, half residual connection: ½ mean_h α + ½ I."""
    return halfway(layer.attention.mean(1))


preset(
    Preset(
        "attention-rollout",
        method="attention-fixed-residual",
        aggregate="rollout",
        paper=ABNAR_2020,
        summary="Product over layers of ½ attention + ½ I.",
        symbols=("rollout",),
    )
)
preset(
    Preset(
        "attention-flow",
        method="attention-fixed-residual",
        aggregate="flow",
        paper=ABNAR_2020,
        summary="Maximum flow to each input with ½ attention + ½ I as capacities.",
        symbols=("flow",),
    )
)
preset(
    Preset(
        "raw-attention",
        method="attention",
        aggregate=None,
        paper=ABNAR_2020,
        summary="The last layer's attention, mean over heads, as it is.",
        symbols=("RawAtt",),
    )
)
