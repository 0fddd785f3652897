"""The server looks at every block whether an answer is still wanted, and leaves its models as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from wherefrom.model import Model, undo
from wherefrom.server import bodies, handlers
from wherefrom.server.limits import Limits
from wherefrom.server.queue import Stopped, Talk

ASKED = bodies.CompareBody(inputs="the cat is good", methods=["attcat", "ablation"], evidence=True)


class Interrupt(BaseException):
    """Comes from nowhere."""


def hooks(opened: Model) -> int:
    return sum(len(block.module._forward_pre_hooks) for block in opened.blocks)


@contextmanager
def interrupted(at: int) -> Iterator[list[str]]:
    """Raise at the `at`-th line (0: never) that asking.py or borrowing.py come to while hooks go on and off."""
    seen: list[str] = []
    places = {"_interruptible", "following", "borrowed", "_locked", "_undone", "_begun", "_undo", "hook", "_unhook"}

    def trace(frame: Any, name: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in (handlers.__file__, undo.__file__) or frame.f_code.co_name not in places:
            return None
        seen.append(f"{frame.f_code.co_name}:{frame.f_lineno} {name}")
        if len(seen) == at:
            raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


def events(opened: Model, check: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    return handlers.told(ASKED, opened, Limits(), Talk(check, lambda _event: None))


def test_the_model_is_hooked_while_it_works_and_only_then(models: dict[str, Model]) -> None:
    opened, looked = models["tiny"], list[int]()
    for _ in events(opened, lambda: looked.append(hooks(opened))):
        assert hooks(opened) == 0
    assert len(looked) > 3 * len(opened.blocks)  # the pass, those of ablation, those of the evidence
    assert min(looked) >= len(opened.blocks)


def test_a_job_that_nobody_wants_is_stopped_at_the_next_block(models: dict[str, Model]) -> None:
    opened, looked = models["tiny"], list[int]()

    def check() -> None:
        looked.append(1)
        if len(looked) == 3:
            raise Stopped

    with pytest.raises(Stopped):
        list(events(opened, check))
    assert len(looked) == 3
    assert hooks(opened) == 0


def test_an_interrupt_leaves_no_hook(models: dict[str, Model]) -> None:
    opened = models["tiny"]
    found = events(opened)
    with interrupted(0) as seen:
        next(found)
    assert len(seen) > 30
    for at, place in enumerate(seen, 1):
        found = events(opened)
        with interrupted(at), suppress(Interrupt):
            next(found)
        assert (hooks(opened), undo._JOURNAL) == (0, []), place
