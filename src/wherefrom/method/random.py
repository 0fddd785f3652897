"""Noise to compare with: what a score that knows nothing gets.

Uniform on [0, 1), rows divided by their sum (the baseline *Rand* of Mohebbi et al. 2023, section 4.3). The numbers
depend on the seed, the layer and the sentence's token ids alone: not on the batch, the device or the dtype.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from torch import Tensor

from wherefrom.method.base import method
from wherefrom.method.citations import MOHEBBI_2023
from wherefrom.method.normalise import to_one
from wherefrom.typecheck import least
from wherefrom.work import Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace


@method(
    "random",
    symbols=("Rand",),
    idea="to compare with",
    paper=MOHEBBI_2023,
    needs=set(),
    checks={"batch-equals-single", "rows-sum-to-one"},
    cost=lambda s, _: Work(moved=4 * s.bytes * s.pairs, calls=10, held=s.bytes * s.pairs),
    additive=False,
    aggregate="last",
    random=True,
)
def random(layer: LayerTrace, *, seed: Annotated[int, least(0)] = 0) -> Tensor:
    """Uniform noise, rows summing to one; the same for the same sentence, layer and seed."""
    noise = torch.zeros(*layer.ids.shape, layer.ids.shape[1], dtype=torch.float64)
    for sentence, (ids, mask) in enumerate(zip(layer.ids.cpu(), layer.mask.cpu(), strict=True)):
        tokens = ids[mask].tolist()
        n = len(tokens)
        noise[sentence, :n, :n] = torch.from_numpy(np.random.default_rng([seed, layer.index, *tokens]).random((n, n)))
    return to_one(noise).to(layer.x)
