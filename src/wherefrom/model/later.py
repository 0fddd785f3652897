"""Numbers of a pass that are looked at when it is over: on an accelerator, to look means to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Later:
    """What waits for the end of a pass, because a device would have to be waited for."""

    checks: list[tuple[Tensor, Callable[[], None]]] = field(default_factory=list)  # what to do where one of these holds
    over: bool = False

    def end(self) -> None:
        self.over = True
        by_device: dict[torch.device, list[tuple[Tensor, Callable[[], None]]]] = {}
        for each in self.checks:
            by_device.setdefault(each[0].device, []).append(each)
        for checks in by_device.values():
            if bool(torch.cat([flags.flatten() for flags, _ in checks]).any()):  # one look at all layers
                for flags, then in checks:
                    if bool(flags.any()):
                        then()
        self.checks.clear()
