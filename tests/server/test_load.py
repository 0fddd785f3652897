"""Many at once: none lost, memory bounded, the server answers meanwhile; cancelled work stops."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import wherefrom
from server.conftest import client_of, listening, until
from wherefrom.model import Model
from wherefrom.server import handlers
from wherefrom.server.guard import Guard, Rules
from wherefrom.server.limits import Limits
from wherefrom.server.queue import JobQueue

TEXT = "the cat sat on a mat"


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_many_requests_at_once_are_all_answered(models: dict[str, Model], count: int) -> None:
    """Each gets its own answer, and the server says how it is while they wait."""
    texts = [f"{'cat ' * (1 + i % 7)}{'good' if i % 2 else 'bad'} ." for i in range(count)]
    expected = [each.scores for each in wherefrom.explain(texts, models["tiny"], batch_size=1)]

    async def everything(address: str) -> tuple[list[httpx.Response], int]:
        limits = httpx.Limits(max_connections=300)
        async with httpx.AsyncClient(base_url=address, limits=limits, timeout=300) as client:
            asked = [asyncio.ensure_future(client.post("/api/explain", json={"inputs": text})) for text in texts]
            meanwhile = 0
            while not all(each.done() for each in asked):
                assert (await client.get("/api/health")).json()["status"] == "ok"
                meanwhile += not all(each.done() for each in asked)
                await asyncio.sleep(0.02)
            return [each.result() for each in asked], meanwhile

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with listening(models) as address:
        found, meanwhile = asyncio.run(everything(address))
        assert httpx.get(f"{address}/api/health").json()["unsent"] == 0
    assert [each.status_code for each in found] == [200] * count
    for response, scores in zip(found, expected, strict=True):
        assert np.allclose(response.json()["scores"], scores, atol=1e-6)
    assert meanwhile > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB


def test_a_full_line_says_when_to_come_back(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 requests to a worker that stands still, 5 wait and one is worked on; the others are told."""
    go = threading.Event()

    def slow(asked: Any, *_: Any) -> Iterator[dict[str, Any]]:
        go.wait(120)
        yield {"event": "result", "result": {"text": asked.inputs}}

    monkeypatch.setattr(handlers, "explained", slow)

    async def everything(address: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=address, timeout=300) as client:
            first = asyncio.ensure_future(client.post("/api/explain", json={"inputs": "first"}))
            while not (await client.get("/api/health")).json()["working"]:
                await asyncio.sleep(0.01)
            asked = [asyncio.ensure_future(client.post("/api/explain", json={"inputs": f"{i}"})) for i in range(29)]
            while sum(each.done() for each in asked) < 24:
                await asyncio.sleep(0.01)
            assert (await client.get("/api/health")).json()["waiting"] == 5
            go.set()
            return [await each for each in (first, *asked)]

    with listening(models, Limits(waiting=5)) as address:
        found = asyncio.run(everything(address))
    served = [each for each in found if each.status_code == 200]
    refused = [each for each in found if each.status_code == 503]
    assert (len(served), len(refused)) == (6, 24)
    assert all(each.headers["retry-after"] == "5" for each in refused)
    assert "5 requests wait already" in refused[0].json()["detail"]


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("streams", [False, True])
def test_shutting_down_tells_those_who_wait(
    models: dict[str, Model],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    streams: bool,
    looks: bool,
) -> None:
    """One under way that would take a minute and five that wait: each is told, soon, and the log says nothing.

    Also where the one under way is in the middle of a method, which does not look up.
    """
    monkeypatch.setattr("wherefrom.server.queue.GRACE", 0.2)

    def slow(_asked: Any, _opened: Any, _limits: Any, talk: Any) -> Iterator[dict[str, Any]]:
        for _ in range(600):
            time.sleep(0.1)
            if looks:
                talk.check()
        yield {"event": "done"}

    monkeypatch.setattr(handlers, "told" if streams else "compared", slow)
    headers = {"accept": "application/x-ndjson"} if streams else {}
    found: list[httpx.Response] = []

    def ask(address: str) -> None:
        found.append(httpx.post(f"{address}/api/compare", json={"inputs": TEXT}, headers=headers, timeout=60))

    with listening(models) as address:
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        until(lambda: httpx.get(f"{address}/api/health").json()["waiting"] == 5)
        begin = time.monotonic()
    for thread in threads:
        thread.join(timeout=30)
    assert time.monotonic() - begin < 30  # of a minute; it is one or two seconds where nothing else runs
    assert len(found) == 6
    for response in found:
        said = json.loads(response.text.splitlines()[-1])
        assert said["detail"] == "the server is shutting down"
        assert (said["status"] if streams else response.status_code) == 503
    assert not caplog.records
    assert not capfd.readouterr().err
    assert not [each for each in threading.enumerate() if each.name == "wherefrom-worker"]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server has seen that a client is gone."""
    seen, genuine = threading.Event(), JobQueue.leave

    def leave(self: JobQueue, job: Any) -> None:
        genuine(self, job)
        seen.set()

    monkeypatch.setattr(JobQueue, "leave", leave)
    return seen


def test_closing_the_connection_stops_the_work(models: dict[str, Model], left: threading.Event) -> None:
    """In the middle of a pass: before each block it is seen that nobody waits any more."""
    blocks: list[int] = []
    asked = {"inputs": TEXT, "method": "integrated-gradients", "options": {"n_steps": 999, "at_once": 1}}

    def slow(*_: Any) -> None:
        blocks.append(1)
        left.wait(60)

    with listening(models) as address:
        handle = models["tiny"].blocks[0].module.register_forward_pre_hook(slow)  # the model's card is written by now
        try:
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
            connection.request("POST", "/api/explain", json.dumps(asked), {"content-type": "application/json"})
            until(lambda: blocks)
            connection.close()
            until(lambda: not httpx.get(f"{address}/api/health").json()["working"])
            assert len(blocks) == 1
        finally:
            handle.remove()


def test_closing_a_stream_stops_the_work(
    models: dict[str, Model], left: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twelve methods the rest is not begun, and who waits behind is served."""
    begun: list[str] = []

    def slow(*given: Any, **named: Any) -> Any:
        for each in genuine(*given, **named):
            begun.append(each.name)
            left.wait(60)
            yield each

    genuine = handlers.attempt
    monkeypatch.setattr(handlers, "attempt", slow)
    asked = {"inputs": TEXT, "methods": [each.name for each in wherefrom.methods()][:12], "maps": False}
    headers = {"accept": "application/x-ndjson"}
    with listening(models) as address:
        with httpx.stream("POST", f"{address}/api/compare", json=asked, headers=headers, timeout=60) as response:
            lines = response.iter_lines()  # kept: let go, it would close the connection
            assert json.loads(next(lines))["event"] == "progress"
            until(lambda: begun)
        until(lambda: not httpx.get(f"{address}/api/health").json()["working"])
    assert len(begun) == 1


def test_what_takes_too_long_is_stopped(models: dict[str, Model]) -> None:
    with client_of(models, limits=Limits(seconds=0.0)) as client:
        response = client.post("/api/explain", json={"inputs": TEXT})
        assert response.status_code == 400
        assert "longer than" in response.json()["detail"]


def test_answers_nobody_takes_do_not_pile_up() -> None:
    """A client that stops reading: what waits for it stays under the limit, its job ends, and others are served."""
    made: list[int] = []

    def lots(_: Any) -> Iterator[dict[str, Any]]:
        for i in range(50):
            made.append(i)
            yield {"event": "piece", "data": "x" * 100_000}

    def little(_: Any) -> Iterator[dict[str, Any]]:
        yield {"event": "piece", "data": "x"}

    async def everything() -> None:
        line = JobQueue(Limits(unsent=250_000, patience=0.2))
        line.start()
        deaf = line.events(line.enter(lots))
        await anext(deaf)
        while line.working:
            await asyncio.sleep(0.01)
        assert 100_000 < line.unsent <= 250_000
        assert len(made) < 5
        assert [kind async for kind, _ in line.events(line.enter(little))] == ["piece"]
        await deaf.aclose()
        assert line.unsent == 0
        line.close()

    asyncio.run(asyncio.wait_for(everything(), 20))


def test_a_client_that_takes_nothing_is_dropped() -> None:
    async def speaks(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def deaf(_: Any) -> None:
        await asyncio.sleep(20)

    async def body() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(TimeoutError):
        asyncio.run(Guard(speaks, Rules(), Limits(patience=0.1))(scope, body, deaf))


def test_long_flows_are_not_begun(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver of flows cannot be stopped: of a long text one token's flows are computed, of a longer one none."""
    asked = {"inputs": "cat " * 20, "methods": ["attention-flow"]}
    monkeypatch.setattr(handlers, "LARGE_FLOW", 1000)
    refused = client.post("/api/compare", json=asked)
    assert refused.status_code == 400
    assert "rows='readout'" in refused.json()["detail"]
    found = client.post("/api/compare", json=asked, headers={"accept": "application/x-ndjson"}).text
    events = {event["event"]: event for event in map(json.loads, found.splitlines())}
    assert "readout token alone" in events["note"]["detail"]
    assert events["explanation"]["explanation"]["aggregated"] is None
    monkeypatch.setattr(handlers, "LONGEST_FLOW", 1000)
    found = client.post("/api/compare", json=asked, headers={"accept": "application/x-ndjson"}).text
    assert "choose a shorter text" in found
