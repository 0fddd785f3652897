r"""The MLP probe of Value Zeroing, by which the labels of one block are coded after training on all labels before it.

    p_θ(y|x) = softmax(W₂ d₂(LayerNorm(ReLU(W₁ d₁(x) + b₁))) + b₂),        d: dropout (0.2, 0.3), W₁ x of size 128

From the authors' code (hmohebbi/ValueZeroing, probing/diagnostic_model.py and onlinecoding.py, d885a06): the network,
AdamW without weight decay at a learning rate of 0.001, batches of 128 in the order of the labels, at most 15 epochs,
an end after 5 epochs in which the block's loss did not fall, and the block's shortest code of all epochs as its
length. Choosing the epoch by the block itself saves at most log₂ 15 bits a block, which nobody is charged for.

Their code departs from equation 13 in three places, which `as_code=True` repeats:
- Softmax is taken twice, in the network and in the loss. No label then costs less than ln(1 + 1/e) = 0.313 nats.
- The first block counts bits, the others nats.
- The learning rate falls to 0 within the first epoch, so that the other 14 change nothing. Here it falls over all 15.
The first two put a guess among two classes at a compression of 1.44, and the most that can be reached at 3.14.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

HIDDEN_SIZE = 128
DROPOUT = (0.2, 0.3)  # of the input, of the hidden layer
BATCH_SIZE = 128
LEARNING_RATE = 1e-3
EPSILON = 1e-6  # of AdamW in the version of transformers that the authors pin
MAX_EPOCHS = 15
PATIENCE = 5  # epochs in a row


class BlockCode(NamedTuple):
    """The code of one block of labels."""

    length: float  # in bits; as in the authors' code in nats
    accuracy: float  # at the epoch with the shortest code


def block_code(
    vectors: NDArray[np.float64],
    labels: NDArray[np.intp],
    start: int,
    end: int,
    classes: int,
    *,
    seed: int = 0,
    as_code: bool = False,
) -> BlockCode:
    """Train on the first `start` labels and code those from `start` to `end`."""
    x, y = torch.from_numpy(vectors), torch.from_numpy(labels)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = probe_network(x.shape[1], classes)
        return _train(network, x[:start], y[:start], x[start:end], y[start:end], as_code=as_code)


def probe_network(size: int, classes: int) -> nn.Sequential:
    """The probe, up to the logits, in float64: the rounding of float32 depends on the number of threads."""
    return nn.Sequential(
        nn.Dropout(DROPOUT[0]),
        nn.Linear(size, HIDDEN_SIZE),
        nn.ReLU(),
        nn.LayerNorm(HIDDEN_SIZE),
        nn.Dropout(DROPOUT[1]),
        nn.Linear(HIDDEN_SIZE, classes),
    ).double()


def _train(network: nn.Module, x: Tensor, y: Tensor, x_next: Tensor, y_next: Tensor, *, as_code: bool) -> BlockCode:
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, eps=EPSILON, weight_decay=0.0)
    steps = math.ceil(len(x) / BATCH_SIZE) * (1 if as_code else MAX_EPOCHS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    best, last, rises = BlockCode(math.inf, 0.0), math.inf, 0
    for _ in range(MAX_EPOCHS):
        network.train()
        for first in range(0, len(x), BATCH_SIZE):
            rows = slice(first, first + BATCH_SIZE)
            optimizer.zero_grad()
            _label_costs(network(x[rows]), y[rows], as_code).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        network.eval()
        with torch.no_grad():
            logits = network(x_next)
        length = float(_label_costs(logits, y_next, as_code).sum())
        if length < best.length:
            best = BlockCode(length, float((logits.argmax(-1) == y_next).double().mean()))
        rises = rises + 1 if length >= last else 0
        if rises >= PATIENCE:
            break
        last = length
    return best if as_code else best._replace(length=best.length / math.log(2))


def _label_costs(logits: Tensor, labels: Tensor, as_code: bool) -> Tensor:
    """−ln p(y|x) of each label; `as_code` takes softmax of the probabilities once more."""
    return functional.cross_entropy(logits.softmax(-1) if as_code else logits, labels, reduction="none")
