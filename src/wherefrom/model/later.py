"""Nothing of a pass waits for an accelerator: its numbers are looked at when it is over, its inputs sent ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor


def sent(t: Tensor, device: torch.device) -> Tensor:
    """The same on a device. From ordinary memory a copy to a GPU waits for all that this has still to do."""
    if device.type != "cuda" or t.device.type != "cpu":
        return t.to(device)
    return t.pin_memory().to(device, non_blocking=True)


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """What a GPU is asked for in here it does beside what it is asked for afterwards, on a stream of its own."""
    if device.type != "cuda":
        yield
        return
    stream = stream_for("aside", device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


@cache
def stream_for(_use: str, device: torch.device) -> Any:
    """A device's stream for one use, the same every time."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def fetched(t: Tensor) -> Callable[[], Tensor]:
    """The same on the host, under way; the function waits for it."""
    if not t.is_cuda:
        return lambda: t.cpu()
    place = torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True)
    there = torch.cuda.Event()  # type: ignore[no-untyped-call]
    there.record(torch.cuda.current_stream(t.device))

    def wait() -> Tensor:
        there.synchronize()
        return place

    return wait


Check = tuple[Tensor, Callable[[], None]]


@dataclass
class Later:
    """What waits for the end of a pass, because a device would have to be waited for."""

    checks: list[Check] = field(default_factory=list)  # what to do where one of these holds
    asked: list[tuple[Callable[[], Tensor], list[Check]]] = field(default_factory=list)  # whether one of many does
    over: bool = False

    def ask(self) -> None:
        """One look of each device at all layers, under way."""
        by_device: dict[torch.device, list[Check]] = {}
        for each in self.checks:
            by_device.setdefault(each[0].device, []).append(each)
        for checks in by_device.values():
            self.asked.append((fetched(torch.cat([flags.flatten() for flags, _ in checks]).any()), checks))
        self.checks.clear()

    def end(self) -> None:
        self.over = True
        self.ask()
        for some, checks in self.asked:
            if bool(some()):
                for flags, then in checks:
                    if bool(flags.any()):
                        then()
        self.asked.clear()
