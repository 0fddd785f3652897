"""Numbers of a pass that are looked at when it is over: on an accelerator, to look means to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Later:
    """What waits for the end of a pass, because a device would have to be waited for."""

    checks: list[Callable[[], None]] = field(default_factory=list)
    over: bool = False

    def end(self) -> None:
        self.over = True
        for check in self.checks:
            check()
        self.checks.clear()
