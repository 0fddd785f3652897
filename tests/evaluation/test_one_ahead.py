"""A device is told of the next shard before what it found of the last is read; a processor takes one after another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wherefrom.evaluation import local, store
from wherefrom.evaluation.worker import ComputedShard


class Working:
    """In a worker's place: writes down when a shard is begun and when it is ended."""

    def __init__(self, device: str, fails: int | None = None) -> None:
        self.opened = SimpleNamespace(device=torch.device(device))
        self.setting = SimpleNamespace(batch_size=1)
        self.fails, self.seen = fails, list[str]()

    def begin(self, task: int) -> Callable[[], ComputedShard]:
        self.seen.append(f"begin {task}")
        torch.set_num_threads(1)
        torch.manual_seed(task)
        if task == self.fails:
            raise RuntimeError("on the way")

        def end() -> ComputedShard:
            self.seen.append(f"end {task}")
            return ComputedShard([], {})

        return end


@pytest.fixture(autouse=True)
def _packs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "pack", lambda *_: b"")


def gone_through(worker: Any, count: int = 3) -> list[Any]:
    return [done.task for done in local.here(worker, iter(range(count)))]  # type: ignore[arg-type]


def test_a_device_is_told_one_shard_ahead() -> None:
    worker, threads, state = Working("meta"), torch.get_num_threads(), torch.get_rng_state()
    assert gone_through(worker) == [0, 1, 2]
    assert worker.seen == ["begin 0", "begin 1", "end 0", "begin 2", "end 1", "end 2"]
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_processor_takes_one_after_another() -> None:
    worker = Working("cpu")
    assert gone_through(worker) == [0, 1, 2]
    assert worker.seen == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


def test_what_fails_loses_nothing_of_the_shard_before_it() -> None:
    runs = local.here(Working("meta", fails=1), iter(range(3)))  # type: ignore[arg-type]
    assert next(runs).task == 0
    with pytest.raises(RuntimeError, match="on the way"):
        next(runs)
