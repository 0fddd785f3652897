"""Maps on their way from an accelerator to the host, for which nobody waits before the pass is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Fetching:
    """What one batch sends to the host. Its copies may be read after `wait`."""

    devices: set[torch.device] = field(default_factory=set)

    def take(self, t: Tensor) -> Tensor:
        """A copy on the host; from a GPU into memory that the GPU writes by itself, while the next layer runs."""
        if t.device.type != "cuda":
            return t.cpu()
        self.devices.add(t.device)
        here = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
        return here.copy_(t, non_blocking=True)

    def wait(self) -> None:
        for device in self.devices:
            torch.cuda.current_stream(device).synchronize()
        self.devices.clear()


def on_host(output: Any) -> Any:
    """A model's output with its class scores on the host: each look at a number on a device means to wait for it."""
    found = {name: getattr(output, name, None) for name in ("logits", "start_logits", "end_logits")}
    few = {name: t.detach().cpu() for name, t in found.items() if isinstance(t, Tensor) and t.ndim == 2 and t.is_cuda}
    return type(output)(**{**output, **few}) if few else output
