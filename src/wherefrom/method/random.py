"""Noise to compare with: what a score that knows nothing gets.

Uniform on [0, 1), rows divided by their sum (the baseline *Rand* of Mohebbi et al. 2023, section 4.3). The numbers
depend on the seed, the layer and the sentence's token ids alone: not on the batch, the device or the dtype.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.method.base import method
from wherefrom.method.citations import MOHEBBI_2023
from wherefrom.method.normalise import to_one
from wherefrom.typecheck import least
from wherefrom.work import Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace


def _drawn(layer: LayerTrace, tokens: Tensor, seed: int) -> Iterator[NDArray[np.float64]]:
    """The rows of each sentence up to that of its token: [token + 1, n]."""
    # Together, lest a device be waited for three times.
    known = torch.cat([layer.mask.sum(1, keepdim=True), tokens[:, None], layer.ids], 1).cpu().numpy()
    # As default_rng makes them of [seed, layer, token, …]: of words of 32 bits it need not look at one by one.
    words = [seed >> bits & 0xFFFFFFFF for bits in range(0, max(1, seed.bit_length()), 32)]
    starts = np.concatenate([np.tile([*words, layer.index], (len(known), 1)), known[:, 2:]], 1).astype(np.uint32)
    for start, (n, token) in zip(starts, known[:, :2].tolist(), strict=True):
        yield np.random.default_rng(start[: len(words) + 1 + n]).random((token + 1, n))


def row(layer: LayerTrace, tokens: Tensor, *, seed: int = 0) -> Tensor:
    noise = np.zeros(tuple(layer.ids.shape))
    for sentence, rows in enumerate(_drawn(layer, tokens, seed)):
        noise[sentence, : rows.shape[1]] = rows[-1]
    return to_one(torch.from_numpy(noise)).to(layer.x)


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
    row=row,
    random=True,
)
def random(layer: LayerTrace, *, seed: Annotated[int, least(0)] = 0) -> Tensor:
    """Uniform noise, rows summing to one; the same for the same sentence, layer and seed."""
    noise = np.zeros((*layer.ids.shape, layer.ids.shape[1]))
    for sentence, rows in enumerate(_drawn(layer, layer.mask.sum(1) - 1, seed)):
        noise[sentence, : len(rows), : len(rows)] = rows
    return to_one(torch.from_numpy(noise)).to(layer.x)
