"""A network of convolutions that teaches a vision transformer, and is then thrown away.

    loss  =  (1 − a) CE(student, label)  +  a T² KL(softmax(teacher / T) ‖ softmax(student / T)),    a = 0.8,  T = 2

Convolutions take near pixels together from the start; a vision transformer has to learn that, from more pictures than
small sets have, or from the answers of such a network to the same changed pictures. H. Touvron et al. (2021), Training
data-efficient image transformers & distillation through attention, https://arxiv.org/abs/2012.12877 (their soft
distillation, without an extra token); G. Hinton et al. (2015), Distilling the Knowledge in a Neural Network,
https://arxiv.org/abs/1503.02531.

The network has eight convolutions and one linear layer, as D. Page's ResNet-9 (2018, How to train your ResNet).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from wherefrom.training import loop, replay

STATE = "teacher.pt"
SHARE = 0.8  # a
HEAT = 2.0  # T
BATCH, RATE, WARMUP = 512, 2e-3, 0.2  # of its own run


class Residual(nn.Module):
    """What it is given, and two convolutions of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, pixels: Tensor) -> Tensor:
        found: Tensor = pixels + self.branch(pixels)
        return found


def convolution(before: int, after: int, *, halved: bool = False) -> nn.Sequential:
    """3 × 3, normalised over the batch; the picture's sides halved if asked for."""
    layers = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if halved else []))


def network(classes: int, width: int = 64) -> nn.Sequential:
    """From pictures to logits: 6.6 million parameters for ten classes."""
    made = nn.Sequential(
        convolution(3, width),
        convolution(width, 2 * width, halved=True),
        Residual(2 * width),
        convolution(2 * width, 4 * width, halved=True),
        convolution(4 * width, 8 * width, halved=True),
        Residual(8 * width),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # torch's stubs lack it


def learnt(
    made: nn.Module,
    run: loop.Schedule,
    epochs: int,
    rows: int,
    batches: Callable[..., tuple[Tensor, ...]],  # of a batch's size, the seed and two steps
    loss: Callable[..., Tensor],
    accuracy: Callable[[], dict[str, float]],
) -> dict[str, float]:
    """Train it, or go on where a killed run stood, and leave it ready to be asked; its metrics on what was held out."""
    own = replace(run, epochs=epochs, steps=None, batch=BATCH, learning_rate=RATE, warmup=WARMUP, patience=0, checks=1)
    task = replay.Replayed(made, partial(batches, own.batch, own.seed), loss, accuracy)
    steps, every = loop.schedule(own, rows)
    at = replay.learn(task, own, steps, 5 * every, STATE)
    made.eval().requires_grad_(False)
    return at.metrics


def distilled(loss: Tensor, student: Tensor, taught: Tensor) -> Tensor:
    """The loss by the labels, and how far the student's logits are from the teacher's."""
    answered, wanted = (functional.log_softmax(each.float() / HEAT, -1) for each in (student, taught))
    apart = functional.kl_div(answered, wanted, reduction="batchmean", log_target=True)
    return (1 - SHARE) * loss + SHARE * HEAT**2 * apart
