"""Requests wait in line for one worker thread, which alone touches the models.

A job is a function that yields events. They travel to the event loop as lines of JSON, already encoded, and their bytes
are counted until the client has taken them: where too many are on the way the worker waits. So memory is bounded by the
length of the line, the size of a request and the bytes unsent, however many clients there are. A job whose client is
gone leaves the line, or is stopped at the next block of the model's pass.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wherefrom.errors import OverLimit, WherefromError
from wherefrom.server.limits import Limits
from wherefrom.server.refusals import BROKEN, CLOSING, refusal

Event = dict[str, Any]
CLOSED: Event = {"event": "error", **CLOSING}
PULSE = 0.5  # seconds between two words about the place in line
GRACE = 1.0  # seconds that a job under way has left when the server shuts down, ...
PATIENCE = 1.5  # ... and then to come to the end of the operation that it is in

log = logging.getLogger("wherefrom.server")


class Full(Exception):
    """No more requests may wait."""


class Closed(BaseException):
    """The server is shutting down. As with an interrupt, nobody on the way may take it for an error of their own."""


class Stopped(Exception):
    """Nobody waits for this job any more, or it took too long."""


class Talk(NamedTuple):
    """What a job has of the server while it works, beside the events that it yields."""

    check: Callable[[], None]  # raises `Stopped` when nobody waits for the answer any more
    say: Callable[[Event], None]  # an event in the middle of a pass, where nothing can be yielded


Work = Callable[[Talk], Iterator[Event]]


@dataclass(eq=False)
class Waiting:
    """One request on its way through the worker."""

    work: Work
    loop: asyncio.AbstractEventLoop
    outbox: asyncio.Queue[tuple[str, bytes] | None] = field(default_factory=asyncio.Queue)
    started: bool = False
    gone: bool = False  # the client
    unsent: int = 0  # bytes


class JobQueue:
    """The queue and its worker."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unsent = 0
        self._jobs: deque[Waiting] = deque()
        self._working: Waiting | None = None
        self._changed = threading.Condition()
        self._ends: float | None = None  # when the job under way is stopped; None while the server is open
        self._thread = threading.Thread(target=self._run, name="wherefrom-worker", daemon=True)
        self._interrupter = threading.Timer(GRACE, self._interrupt)
        self._interrupter.daemon = True

    def start(self) -> None:
        self._thread.start()

    def shut(self) -> None:
        """Tell those who wait that the server shuts down; the job under way may finish within the grace."""
        with self._changed:
            if self._ends is None:
                self._ends = time.monotonic() + GRACE
                self._interrupter.start()
            waiting = list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
        for job in waiting:
            self._post(job, ("error", encoded(CLOSED)))
            self._post(job, None)

    def close(self) -> None:
        """End the worker after the operation under way; one that takes longer is left to die with the process."""
        self.shut()
        if self._thread.is_alive() and self._ends is not None:
            self._thread.join(timeout=max(0.0, self._ends + PATIENCE - time.monotonic()))
        self._interrupter.cancel()

    def _interrupt(self) -> None:
        """Stop a method between two blocks too: models are borrowed so that they bear it (`wherefrom.model.undo`)."""
        with self._changed:
            if self._working is not None and self._thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(Closed))

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    @property
    def working(self) -> bool:
        return self._working is not None

    # The side of the event loop ---------------------------------------------------------------------------

    def enter(self, work: Work) -> Waiting:
        """Wait in line; raises `Full` or `Closed`."""
        job = Waiting(work, asyncio.get_running_loop())
        with self._changed:
            if self._ends is not None:
                raise Closed
            if len(self._jobs) >= self.limits.waiting:
                raise Full
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    async def events(self, job: Waiting) -> AsyncIterator[tuple[str, bytes]]:
        """What the job says, as (kind, line of JSON); while it waits, its place. Ends the job when nobody reads on."""
        try:
            while True:
                try:
                    found = await asyncio.wait_for(job.outbox.get(), PULSE)
                except TimeoutError:
                    if self._ends is not None and time.monotonic() > self._ends + PATIENCE:  # the worker is stuck
                        yield "error", encoded(CLOSED)
                        return
                    if not job.started:
                        yield "waiting", encoded({"event": "waiting", "ahead": self._ahead(job)})
                    continue
                if found is None:
                    return
                yield found
                self._taken(job, len(found[1]))
        finally:
            self.leave(job)

    def _ahead(self, job: Waiting) -> int:
        with self._changed:
            place = self._jobs.index(job) if job in self._jobs else 0
            return place + (self._working is not None)

    def _taken(self, job: Waiting, size: int) -> None:
        with self._changed:
            job.unsent -= size
            self.unsent -= size
            self._changed.notify_all()

    def leave(self, job: Waiting) -> None:
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
        with suppress(Closed):  # one that comes when the job has just ended
            self._work()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._ends is not None)
                if self._ends is not None:
                    return
                job = self._working = self._jobs.popleft()
                job.started = True
            try:
                self._do(job)
            finally:
                with self._changed:
                    self._working = None

    def _do(self, job: Waiting) -> None:
        deadline = time.monotonic() + self.limits.seconds

        def check() -> None:
            if job.gone:
                raise Stopped
            if self._ends is not None and time.monotonic() > self._ends:
                raise Closed
            if time.monotonic() > deadline:
                raise OverLimit(
                    f"this took longer than the {self.limits.seconds:.0f} seconds that one request may take; choose "
                    f"fewer or faster methods, a shorter text or fewer tokens to be said"
                )

        def say(event: Event) -> None:
            check()
            self._put(job, event)

        try:
            for event in job.work(Talk(check, say)):
                say(event)
        except Stopped:
            pass
        except Closed:
            self._fail(job, CLOSED)
        except WherefromError as error:
            self._fail(job, {"event": "error", **refusal(error)})
        except Exception:
            log.exception("a request failed")
            self._fail(job, {"event": "error", **BROKEN})
        self._post(job, None)

    def _fail(self, job: Waiting, event: Event) -> None:
        try:
            self._put(job, event)
        except Stopped:
            log.info("an error that nobody waits for: %s", event["detail"])

    def _put(self, job: Waiting, event: Event) -> None:
        """Hand an event over, when there is room for it; the result of a request without events goes as it is."""
        line = encoded(event["result"] if event["event"] == "result" else event)
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

    def _post(self, job: Waiting, found: tuple[str, bytes] | None) -> None:
        try:
            job.loop.call_soon_threadsafe(job.outbox.put_nowait, found)
        except RuntimeError:  # the server has shut down meanwhile
            job.gone = True


def encoded(event: Any) -> bytes:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
