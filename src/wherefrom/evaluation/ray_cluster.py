"""The engine on a Ray cluster: one actor for each worker, over the same shards, with the same result.

Actors send what they computed to the process that runs `evaluate`, which alone writes to the run folder: machines need
no disk in common, only the model (a shipped one, a hub id, or a folder that each of them has). An actor that dies, with
its machine perhaps, is replaced and its shard computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wherefrom.errors import ResourceUnavailable, WherefromError
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.local import ATTEMPTS, Done, compute, settle
from wherefrom.evaluation.task import ShardTask
from wherefrom.evaluation.worker import Worker
from wherefrom.extras import need


class Actor:
    """A worker, on whatever machine Ray puts it."""

    def __init__(self, setting: Setting) -> None:
        self.worker = Worker.open(setting)
        settle()

    def compute(self, task: ShardTask) -> tuple[bytes, float]:
        return compute(self.worker, task)[1:]


def actors(setting: Setting, tasks: Iterator[ShardTask], workers: int, gpus: float = 0) -> Iterator[Done]:
    """Shards as actors finish them. Ray is started on this machine unless it runs or RAY_ADDRESS names a cluster.

    Each actor has `gpus` GPUs, or a part of one, to itself, and sees no others: "cuda" is its own.
    """
    ray = need("ray", extra="ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    remote = ray.remote(num_cpus=setting.threads, num_gpus=gpus, max_restarts=0)(Actor)
    known = ray.put(setting)
    busy: dict[Any, tuple[Any, ShardTask, int]] = {}

    def start(actor: Any, task: ShardTask, attempt: int) -> None:
        busy[actor.compute.remote(task)] = (actor, task, attempt)

    try:
        for task in (next(tasks, None) for _ in range(workers)):
            if task is not None:
                start(remote.remote(known), task, 1)
        while busy:
            (ready,), _ = ray.wait(list(busy), num_returns=1)
            actor, task, attempt = busy.pop(ready)
            try:
                done = Done(task, *ray.get(ready))
            except ray.exceptions.RayActorError as error:
                if attempt == ATTEMPTS:
                    raise ResourceUnavailable(
                        f"shard {task.name} ended {ATTEMPTS} actors in a row ({error}); once that is "
                        f"mended, repeat the command to resume"
                    ) from error
                start(remote.remote(known), task, attempt + 1)
                continue
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, WherefromError):
                    raise error.cause from error
                raise
            following = next(tasks, None)
            if following is not None:
                start(actor, following, 1)
            yield done
    finally:
        for actor, _, _ in busy.values():
            ray.kill(actor)
