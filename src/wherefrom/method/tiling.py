"""Work cut into pieces whose intermediate tensors stay under a byte budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from wherefrom.typecheck import least

Budget = Annotated[int, least(1)] | None  # bytes for one tile, an option of several methods

# On a CPU a tile should stay in the cache, on an accelerator it should keep all its units busy.
CPU_BYTES = 5 * 2**19
DEVICE_BYTES = 256 * 2**20


def free_memory(device: torch.device) -> int:
    """Bytes that a GPU still has, those included that torch holds for later."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def tiles(total: int, each: int, budget: int) -> Iterator[slice]:
    """Slices of nearly one size that cover `range(total)`; no more items in one than fit, but at least one."""
    count = -(-total // max(1, budget // max(1, each)))
    step = -(-total // max(1, count))
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def budget_for(t: Tensor, budget: int | None, cpu: int = CPU_BYTES) -> int:
    """The caller's budget in bytes, or what suits the device of `t`."""
    if budget is None:
        return cpu if t.device.type == "cpu" else DEVICE_BYTES
    return budget
