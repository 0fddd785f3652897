"""A loop for small networks, whose steps a GPU takes faster than Python can launch them.

One step, from picking the batch to AdamW, is recorded as a CUDA graph and played again for every batch: one launch in
the place of hundreds. What a step reads lies in tensors that stay where they are, and are filled between two steps with
what the next one needs. What is compiled is compiled in the steps before the recording, where it is not permitted: a
network must do the same whether it is recorded or not. On the CPU the same step is taken as it stands.

The learning rate rises evenly for `warmup` of the steps and falls evenly to 0. Gradients longer than 1 are cut to that.
Every check writes one file from which a killed run goes on: what is read in a step follows from its number alone.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wherefrom.files import write
from wherefrom.training.loop import (
    CHECKPOINTS,
    Schedule,
    Trained,
    finish,
    in_half,
    on_cuda,
    refuse_infinite,
    stopped_early,
)

if TYPE_CHECKING:
    from pathlib import Path

STATE = "state.pt"
LONGEST = 1.0  # gradient
TAKEN = 5  # steps as they stand before one is recorded: libraries choose their algorithms and take their memory in them
TOGETHER = 64  # steps that are prepared at a time
WATCHED = 50  # steps between two looks at the loss
RECORDED = True  # whether steps on CUDA are recorded at all


@dataclass(frozen=True)
class Replayed:
    """What to train. A batch is a few tensors, the same in number and shape for every step."""

    network: nn.Module
    batches: Callable[[int, int], tuple[Tensor, ...]]  # of the steps from one to another, on a first axis of their own
    loss: Callable[..., Tensor]  # of one batch's tensors
    accuracy: Callable[[], dict[str, float]]  # on what was held out: "accuracy" and "loss"


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0
    best: tuple[float, float] = (-1.0, 0.0)  # accuracy, and the loss below 0
    metrics: dict[str, float] = field(default_factory=dict)  # of the best check,
    weights: dict[str, Tensor] = field(default_factory=dict)  # and its weights
    since: int = 0  # checks without a better one
    resumed: bool = False


def fit(
    task: Replayed, prepared: Any, run: Schedule, steps: int, every: int, settings: dict[str, Any], started: float
) -> Trained:
    """Train, and save the folder, with what prepares the input, and its report."""
    at = learn(task, run, steps, every, STATE)
    stopped = stopped_early(run, at.step, steps)
    outcome = Trained(run.out, at.metrics, at.step, time.monotonic() - started, at.resumed, stopped)
    return finish(task.network, prepared, run, outcome, settings, task.network.device)


def learn(task: Replayed, run: Schedule, steps: int, every: int, state: str) -> Progress:
    """Train, with checkpoints in a file of this name, and leave the network with the best weights by validation."""
    device = torch.device("cuda" if on_cuda(run) else "cpu")
    network = task.network.to(device).train()
    rate = torch.zeros((), device=device)
    optimizer = _adamw(network, run, rate)
    file = run.out / CHECKPOINTS / state
    at = _resumed(file, network, optimizer, rate, device)
    beside = torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    with nullcontext() if beside is None else torch.cuda.stream(beside):  # nothing is recorded on the default stream
        player = _Player(task, run, optimizer, rate, device)
        while at.step < steps and (run.patience == 0 or at.since < run.patience):
            until = min(steps, at.step - at.step % every + every)
            loss = player.play(at.step, until, steps)
            at.step = until
            _check(task, at, run, optimizer, loss, file)
    network.load_state_dict(at.weights)
    return at


def _adamw(network: nn.Module, run: Schedule, rate: Tensor) -> torch.optim.AdamW:
    """Biases and the scales of norms do not decay. On CUDA a graph can record it."""
    cuda = rate.device.type == "cuda"
    every = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": run.weight_decay},
        {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
    ]
    found = torch.optim.AdamW(groups, lr=rate, betas=(0.9, run.beta2), fused=cuda, capturable=cuda)
    _follow(found, rate)
    return found


def _follow(optimizer: torch.optim.Optimizer, rate: Tensor) -> None:
    """The learning rate is this very tensor, which the loop fills."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def learning_rate(run: Schedule, step: int, steps: int) -> float:
    """Of one step."""
    rising = round(run.warmup * steps)
    if step < rising:
        return run.learning_rate * (step + 1) / rising
    return run.learning_rate * (steps - step) / max(1, steps - rising)


class _Player:
    """Takes steps, from a recorded one where there is one."""

    def __init__(
        self, task: Replayed, run: Schedule, optimizer: torch.optim.Optimizer, rate: Tensor, device: torch.device
    ) -> None:
        self.task, self.run, self.optimizer, self.rate, self.device = task, run, optimizer, rate, device
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.total = torch.zeros((), device=device)  # of losses, since the last look
        self.batch: tuple[Tensor, ...] = ()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.taken = 0

    def play(self, start: int, end: int, steps: int) -> float:
        """From one step to another; the mean loss at the end."""
        loss = 0.0
        watched = start
        for step, batch in self._batches(start, end):
            self.rate.fill_(learning_rate(self.run, step, steps))
            if not self.batch:
                self.batch = tuple(torch.empty_like(each) for each in batch)
            for place, each in zip(self.batch, batch, strict=True):
                place.copy_(each)
            self._take()
            if step + 1 == end or step + 1 - watched == WATCHED:
                loss = float(self.total) / (step + 1 - watched)
                refuse_infinite("training", loss, step + 1, self.run.learning_rate)
                self.total.zero_()
                watched = step + 1
        return loss

    def _batches(self, start: int, end: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        for first in range(start, end, TOGETHER):
            last = min(end, first + TOGETHER)
            several = [each.to(self.device) for each in self.task.batches(first, last)]
            for number, step in enumerate(range(first, last)):
                yield step, tuple(each[number] for each in several)

    def _take(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda" and RECORDED and self.taken == TAKEN:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self._step()
            self.graph.replay()  # to record a step is not to take it
        else:
            self._step()
            self.taken += 1

    def _step(self) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=in_half(self.run)):
            loss = self.task.loss(*self.batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.parameters, LONGEST)
        self.optimizer.step()
        self.total += loss.detach()


# Checks and checkpoints -----------------------------------------------------------------------------------


def _check(
    task: Replayed, at: Progress, run: Schedule, optimizer: torch.optim.Optimizer, loss: float, file: Path
) -> None:
    """Validate, keep the weights if they are the best so far, and write what a killed run needs to go on."""
    with _evaluated(task.network):
        found = task.accuracy()
    refuse_infinite("validation", found["loss"], at.step, run.learning_rate)
    at.since += 1
    if (found["accuracy"], -found["loss"]) > at.best:
        at.best, at.metrics, at.since = (found["accuracy"], -found["loss"]), found, 0
        at.weights = {name: each.detach().clone() for name, each in task.network.state_dict().items()}
    if run.progress:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"step {at.step}: training loss {loss:.4f}; validation {shown}", file=sys.stderr)
    packed = io.BytesIO()
    kept = {"at": vars(at), "network": task.network.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(kept, packed)
    write(file, packed.getvalue())


@contextmanager
def _evaluated(network: nn.Module) -> Iterator[None]:
    """Without gradients; and as it stands, since what was compiled for training would be compiled anew."""
    network.eval()
    with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
        yield
    network.train()


def _resumed(
    file: Path, network: nn.Module, optimizer: torch.optim.Optimizer, rate: Tensor, device: torch.device
) -> Progress:
    if not file.exists():
        return Progress()
    kept = torch.load(file, map_location=device, weights_only=True)
    network.load_state_dict(kept["network"])
    optimizer.load_state_dict(kept["optimizer"])
    _follow(optimizer, rate)
    return Progress(**{**kept["at"], "resumed": True})
