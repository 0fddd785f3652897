"""What is asked of Ray, of a stand-in that computes at once; tests/evaluation/test_kill.py has the real one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import runs
import torch

import wherefrom
from wherefrom.errors import ResourceUnavailable, WherefromError
from wherefrom.evaluation import ray_cluster, steps

TEXTS = ["a good cat", "the film is not good", "the cat is not here !", "a very good film"]
ASKED: dict[str, Any] = {"methods": ["random"], "metrics": ["aopc"], "shard": 1, "threads": 1}


class Gone(Exception):
    """An actor's death, as Ray reports it."""


class Ray:
    """As much of Ray as an evaluation uses; actors of which the shards in `deadly` are the end."""

    exceptions = SimpleNamespace(RayActorError=Gone, RayTaskError=type("Failed", (Exception,), {}))

    def __init__(self, deadly: int = 0) -> None:
        self.deadly, self.resources, self.started, self.killed = deadly, list[dict[str, Any]](), 0, 0

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **resources: Any) -> Callable[[type], Any]:
        self.resources.append(resources)

        def start(made: type) -> Any:
            def actor(*args: Any) -> Any:
                self.started += 1
                own = made(*args)
                return SimpleNamespace(compute=SimpleNamespace(remote=lambda task: _Pending(own, task)))

            return SimpleNamespace(remote=actor)

        return start

    def wait(self, pending: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return pending[:num_returns], pending[num_returns:]

    def get(self, pending: _Pending) -> Any:
        if self.deadly:
            self.deadly -= 1
            raise Gone("its machine is gone")
        return pending.actor.compute(pending.task)

    def kill(self, actor: Any) -> None:
        del actor
        self.killed += 1


class _Pending:
    def __init__(self, actor: Any, task: Any) -> None:
        self.actor, self.task = actor, task


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(runs.model_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture
def evaluated(model: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def go(ray: Ray, **more: Any) -> Any:
        monkeypatch.setattr(ray_cluster, "need", lambda *_, **__: ray)
        return wherefrom.evaluate(TEXTS, model, engine="ray", **{**ASKED, **more})

    return go


@pytest.mark.parametrize("gpus", [None, 0.5, 2])
def test_every_actor_is_given_its_threads_and_its_part_of_a_gpu(evaluated: Callable[..., Any], gpus: Any) -> None:
    ray = Ray()
    found = evaluated(ray, workers=2, threads=3, num_gpus=gpus)
    assert found.finished["examples"] == len(TEXTS)
    assert ray.resources == [{"num_cpus": 3, "num_gpus": gpus or 0, "max_restarts": 0}]
    assert ray.started == 2


def test_a_device_of_cuda_asks_for_one_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which this machine may lack: how the engine is resolved, without running it."""
    seen: list[float] = []

    def resolved(*given: Any) -> Any:
        seen.append(given[3])
        raise WherefromError("enough")

    monkeypatch.setattr(steps, "_resolve_engine", resolved)
    for device in ("cuda", "cuda:1", "cpu", None):
        with pytest.raises(WherefromError, match="enough"):
            wherefrom.evaluate(TEXTS, engine="ray", device=device, **ASKED)
    assert seen == [1, 1, 0, 0]


def test_a_dead_actor_is_replaced_and_three_in_a_row_are_reported(evaluated: Callable[..., Any]) -> None:
    ray = Ray(deadly=2)
    assert evaluated(ray, workers=1).finished["examples"] == len(TEXTS)
    assert ray.started == 3
    with pytest.raises(ResourceUnavailable, match="ended 3 actors in a row"):
        evaluated(Ray(deadly=3), workers=1)


def test_gpus_of_actors_are_refused_where_there_are_none() -> None:
    with pytest.raises(WherefromError, match="num_gpus= is what Ray sets aside for each actor"):
        wherefrom.evaluate(TEXTS, num_gpus=1, **ASKED)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_two_actors_share_one_gpu(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real Ray: half a card for each, and the numbers of one process on the whole of it."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
    asked = {**ASKED, "methods": ["attcat", "globenc"], "device": "cuda"}
    started: list[dict[str, Any]] = []
    remote = ray.remote
    monkeypatch.setattr(ray, "remote", lambda **given: started.append(given) or remote(**given))
    try:
        shared = wherefrom.evaluate(TEXTS * 4, model, engine="ray", workers=2, num_gpus=0.5, **asked)
    finally:
        ray.shutdown()
    assert [each["num_gpus"] for each in started if "num_gpus" in each] == [0.5]  # Ray starts others of its own
    alone = wherefrom.evaluate(TEXTS * 4, model, **asked)
    for method in asked["methods"]:
        assert np.isclose(shared.mean(method, "aopc"), alone.mean(method, "aopc"), atol=1e-6)
