"""Requests wait in line for one worker thread, which alone touches the models.

A job is a function that yields events. They travel to the event loop as lines of JSON, already encoded, and their bytes
are counted until the client has taken them: where too many are on the way the worker waits. So memory is bounded by the
length of the line, the size of a request and the bytes unsent, however many clients there are. A job whose client is
gone leaves the line, or is stopped at the next block of the model's pass.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from whence.errors import WhenceError
from whence.serve.limits import Limits

Check = Callable[[], None]  # raises `Stopped` when nobody waits for the answer any more
Work = Callable[[Check], Iterator[dict[str, Any]]]
PULSE = 1.0  # seconds between two words about the place in line

log = logging.getLogger("whence.serve")


class Full(Exception):
    """The line is as long as it may get."""


class Stopped(Exception):
    """Nobody waits for this job any more, or it took too long."""


@dataclass(eq=False)
class Job:
    """One request on its way through the worker."""

    work: Work
    loop: asyncio.AbstractEventLoop
    outbox: asyncio.Queue[tuple[str, bytes] | None] = field(default_factory=asyncio.Queue)
    started: bool = False
    gone: bool = False  # the client
    unsent: int = 0  # bytes


class Line:
    """The queue and its worker."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unsent = 0
        self._jobs: deque[Job] = deque()
        self._working: Job | None = None
        self._changed = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="whence-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop after the block that is being computed."""
        with self._changed:
            self._open = False
            for job in (*self._jobs, *([self._working] if self._working else [])):
                job.gone = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def working(self) -> bool:
        return self._working is not None

    # The side of the event loop ---------------------------------------------------------------------------

    def enter(self, work: Work) -> Job:
        """Stand in line, or `Full`."""
        job = Job(work, asyncio.get_running_loop())
        with self._changed:
            if len(self._jobs) >= self.limits.waiting:
                raise Full
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    async def events(self, job: Job) -> AsyncIterator[tuple[str, bytes]]:
        """What the job says, as (kind, line of JSON); while it waits, its place. Ends the job when nobody reads on."""
        try:
            while True:
                try:
                    found = await asyncio.wait_for(job.outbox.get(), PULSE)
                except TimeoutError:
                    if not job.started:
                        yield "waiting", encoded({"event": "waiting", "ahead": self._ahead(job)})
                    continue
                if found is None:
                    return
                yield found
                self._taken(job, len(found[1]))
        finally:
            self.leave(job)

    def _ahead(self, job: Job) -> int:
        with self._changed:
            place = self._jobs.index(job) if job in self._jobs else 0
            return place + (self._working is not None)

    def _taken(self, job: Job, size: int) -> None:
        with self._changed:
            job.unsent -= size
            self.unsent -= size
            self._changed.notify_all()

    def leave(self, job: Job) -> None:
        """Nobody waits for this job any more."""
        with self._changed:
            job.gone = True
            if job in self._jobs:
                self._jobs.remove(job)
            self.unsent -= job.unsent
            job.unsent = 0
            self._changed.notify_all()

    # The side of the worker -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or not self._open)
                if not self._open:
                    return
                job = self._working = self._jobs.popleft()
                job.started = True
            try:
                self._do(job)
            finally:
                with self._changed:
                    self._working = None

    def _do(self, job: Job) -> None:
        deadline = time.monotonic() + self.limits.seconds

        def check() -> None:
            if job.gone:
                raise Stopped
            if time.monotonic() > deadline:
                raise WhenceError(
                    f"this took longer than the {self.limits.seconds:.0f} seconds that one request may take; choose "
                    f"fewer methods or a shorter text"
                )

        try:
            for event in job.work(check):
                check()
                self._put(job, event)
        except Stopped:
            pass
        except WhenceError as error:
            self._say(job, 400, str(error))
        except Exception:
            log.exception("a request failed")
            self._say(job, 500, "something went wrong inside whence; the server's log says what")
        self._post(job, None)

    def _say(self, job: Job, status: int, detail: str) -> None:
        try:
            self._put(job, {"event": "error", "status": status, "detail": detail})
        except Stopped:
            log.info("an error that nobody waits for: %s", detail)

    def _put(self, job: Job, event: dict[str, Any]) -> None:
        """Hand an event over, when there is room for it."""
        line = encoded(event)
        size, most = len(line), self.limits.unsent
        with self._changed:
            fits = self._changed.wait_for(
                lambda: job.gone or self.unsent == 0 or self.unsent + size <= most, timeout=self.limits.patience
            )
            if job.gone or not fits:
                raise Stopped
            job.unsent += size
            self.unsent += size
        self._post(job, (event["event"], line))

    def _post(self, job: Job, found: tuple[str, bytes] | None) -> None:
        try:
            job.loop.call_soon_threadsafe(job.outbox.put_nowait, found)
        except RuntimeError:  # the server has shut down meanwhile
            job.gone = True


def encoded(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
