r"""Attention rollout as it is run on vision transformers: heads fused, the smallest weights discarded.

    F  =  fuse_h α^h                                                    fuse: mean, max or min over the heads
    F_ij  =  0  for the `discard` share of the smallest entries         but for F_00, what [CLS] gives itself
    W  =  rows of (F + I) / 2 divided by their sums                     rolled out

The code that most people run divides column j by the sum of row j instead, which is the same only for the mean without
discarding. `protocol="code"` does as it does; its rows do not sum to one.

Gildenblat (2020), Exploring Explainability for Vision Transformers. https://github.com/jacobgil/vit-explain
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from wherefrom.method.attention import IDEA, cost
from wherefrom.method.base import method
from wherefrom.method.citations import Paper
from wherefrom.method.normalise import identity_like, nonzero, to_one
from wherefrom.typecheck import least

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace

GILDENBLAT_2020 = Paper(
    "Jacob Gildenblat",
    2020,
    "Exploring Explainability for Vision Transformers",
    "https://github.com/jacobgil/vit-explain",
)


@method(
    "attention-fused",
    symbols=("vit-explain",),
    idea=IDEA,
    paper=GILDENBLAT_2020,
    needs={"attention"},
    checks={"batch-equals-single", "hidden-tokens"},
    cost=cost,
)
def attention_fused(
    layer: LayerTrace,
    *,
    fusion: Literal["mean", "max", "min"] = "max",
    discard: Annotated[float, least(0, 1)] = 0.9,
    protocol: Literal["text", "code"] = "text",
) -> Tensor:
    """Largest attention of any head, the smallest weights of each layer discarded, half residual connection."""
    heads = layer.attention
    fused = {"mean": heads.mean(1), "max": heads.amax(1), "min": heads.amin(1)}[fusion]
    kept = torch.stack([_kept(each, int(n), discard) for each, n in zip(fused, layer.mask.sum(-1), strict=True)])
    whole = (kept + identity_like(kept)) / 2
    return whole / nonzero(whole.sum(-1))[:, None] if protocol == "code" else to_one(whole)


def _kept(fused: Tensor, n: int, discard: float) -> Tensor:
    """One sentence's map of n tokens without its smallest entries, the first one aside: [·, ·] -> [·, ·]."""
    flat = fused[:n, :n].reshape(-1).clone()
    gone = flat.topk(int(n * n * discard), largest=False).indices
    flat[gone[gone != 0]] = 0
    found = fused.clone()
    found[:n, :n] = flat.view(n, n)
    return found
