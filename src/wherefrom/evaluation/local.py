"""The engine on one machine: this process, or several worker processes beside it.

Workers are started as `python -c "…local.serve()"` and take pickled tasks on their standard input: nothing of the
caller's main module is imported, so that it works in scripts and notebooks alike. They take seconds to start, in which
this process computes shards itself. A worker whose parent is gone ends at once. One that dies is replaced and its shard
computed again; what kills three in a row is reported.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, TypeVar

import torch

from wherefrom.errors import OutOfMemory, WherefromError
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.task import ShardTask
from wherefrom.evaluation.worker import Worker
from wherefrom.pipeline.fetching import one_ahead

T = TypeVar("T")
ATTEMPTS = 3
# Objects made between two searches for garbage: a shard makes a million, nearly none of them such.
SELDOM = (50_000, 50, 50)
SIZE = struct.Struct(">Q")
# Ctrl-C in a terminal reaches workers too; their parent ends them, and nobody reads the traceback of each.
UNINTERRUPTED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
SERVE = f"{UNINTERRUPTED}; from wherefrom.evaluation.local import serve; serve()"


class Done(NamedTuple):
    """A computed shard."""

    task: ShardTask
    content: bytes
    seconds: float


def compute(worker: Worker, task: ShardTask) -> Done:
    """One shard, computed and packed."""
    (done,) = filter(None, _computed(worker, task))
    return done


def _computed(worker: Worker, task: ShardTask) -> Iterator[Done | None]:
    """One shard; and None before, when a device has been told what it is to do for it."""
    from wherefrom.evaluation.store import pack

    begin = time.perf_counter()
    with _memory(worker, task):
        end = worker.begin(task)
    begun = time.perf_counter() - begin
    yield None
    begin = time.perf_counter()
    with _memory(worker, task):
        content = pack(*end())
    yield Done(task, content, begun + time.perf_counter() - begin)


@contextmanager
def _memory(worker: Worker, task: ShardTask) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"the device's memory is too small for {worker.setting.batch_size} sentences of {max(task.tokens)} tokens; "
            f"begin another run with a smaller batch size"
        ) from error


def here(worker: Worker, tasks: Iterator[ShardTask]) -> Iterator[Done]:
    """One shard after another, in this process, whose random numbers and threads stay the caller's.

    A device is told of the next before what it found of the last is read.
    """
    runs = (_as_it_was(_computed(worker, task)) for task in ahead(tasks))
    for run in runs if worker.opened.device.type == "cpu" else one_ahead(runs):
        yield from filter(None, run)


def ahead(tasks: Iterator[ShardTask]) -> Iterator[ShardTask]:
    """The same; while one is computed, a thread reads the next, and so its window where it is the first of one."""
    with ThreadPoolExecutor(1, "wherefrom-reads") as thread:
        following = thread.submit(next, tasks, None)
        while (task := following.result()) is not None:
            following = thread.submit(next, tasks, None)
            yield task


def settle(freeze: bool = True) -> None:
    """In a process that computes shards: garbage is searched for seldom, and not among what is there now."""
    if freeze:
        gc.freeze()
    gc.set_threshold(*SELDOM)


@contextmanager
def settled() -> Iterator[None]:
    """The same for as long as this lasts: with torch, a search of everything takes a tenth of a second."""
    mine, often = not gc.get_freeze_count(), gc.get_threshold()
    settle(freeze=mine)
    try:
        yield
    finally:
        gc.set_threshold(*often)
        if mine:
            gc.unfreeze()


def _as_it_was(run: Iterator[T]) -> Iterator[T]:
    """The same; between two items the process has its own number of threads and random numbers."""
    while True:
        threads, state = torch.get_num_threads(), torch.get_rng_state()
        try:
            item = next(run)
        except StopIteration:
            return
        finally:
            torch.set_num_threads(threads)
            torch.set_rng_state(state)
        yield item


def beside(worker: Worker, tasks: Iterator[ShardTask], workers: int) -> Iterator[Done]:
    """Shards as worker processes finish them, and as this one does until the first of them has."""
    results: queue.Queue[Done | BaseException | None] = queue.Queue(maxsize=2 * workers)
    source, stop = threading.Lock(), threading.Event()

    def following() -> ShardTask | None:
        with source:
            return None if stop.is_set() else next(tasks, None)

    threads = [
        threading.Thread(target=_attend, args=(worker.setting, following, results, stop), daemon=True)
        for _ in range(workers)
    ]
    for thread in threads:
        thread.start()
    ended, starting = 0, True
    try:
        while ended < workers:
            if starting and results.empty() and (task := following()) is not None:
                yield from filter(None, _as_it_was(_computed(worker, task)))
                continue
            found, starting = results.get(), False
            if isinstance(found, BaseException):
                raise found
            if found is None:
                ended += 1
            else:
                yield found
    finally:
        stop.set()
        while any(thread.is_alive() for thread in threads):
            try:
                results.get(timeout=0.05)
            except queue.Empty:
                continue


def _attend(setting: Setting, following: Any, results: queue.Queue[Any], stop: threading.Event) -> None:
    """Keep one worker busy; put what it finishes, an exception, or None at the end."""
    process: _Process | None = None
    try:
        while (task := following()) is not None:
            for _ in range(ATTEMPTS):
                process = process or _Process(setting)
                found = process.compute(task, stop)
                if found is not None:
                    break
                process.end()
                process = None
                if stop.is_set():
                    return
            else:
                raise OutOfMemory(
                    f"shard {task.name} ({len(task.rows)} rows, up to {max(task.tokens)} tokens) ended {ATTEMPTS} "
                    f"workers in a row, probably for want of memory; repeat the command to resume, with fewer workers "
                    f"perhaps, or begin another run with a smaller batch size"
                )
            results.put(found)
        results.put(None)
    except BaseException as error:
        results.put(error)
    finally:
        if process is not None:
            process.end()


class _Process:
    """A worker process, seen from its parent."""

    def __init__(self, setting: Setting) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(setting.threads)}
        command = [sys.executable, "-c", SERVE]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._send((list(sys.path), pickle.dumps(setting)))

    def _send(self, what: Any) -> bool:
        assert self.process.stdin is not None
        try:
            _put(self.process.stdin, pickle.dumps(what))
        except OSError:  # it is dead
            return False
        return True

    def compute(self, task: ShardTask, stop: threading.Event) -> Done | None:
        """The finished shard; None if the worker died. Ends the worker when `stop` is set meanwhile."""
        if not self._send(task):
            return None
        watching = threading.Event()
        threading.Thread(target=self._watch, args=(stop, watching), daemon=True).start()
        assert self.process.stdout is not None
        packed = _take(self.process.stdout)
        watching.set()
        if packed is None:
            return None
        kind, value = pickle.loads(packed)
        if kind == "error":
            raise value
        if kind == "broken":
            raise RuntimeError(f"a worker failed on shard {task.name}:\n{value}")
        return Done(task, *value)

    def _watch(self, stop: threading.Event, watching: threading.Event) -> None:
        while not watching.wait(0.1):
            if stop.is_set():
                self.process.kill()
                return

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what it never read is thrown away
                if pipe is not None:
                    pipe.close()


def _put(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(SIZE.pack(len(content)) + content)
    pipe.flush()


def _take(pipe: IO[bytes]) -> bytes | None:
    """A whole message, or None if the other side is gone."""
    head = pipe.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    size = SIZE.unpack(head)[0]
    content = pipe.read(size)
    return content if len(content) == size else None


def serve() -> None:
    """A worker process: settings and tasks come in, shards go out."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the terminal, and not among the results
    tasks: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        while (packed := _take(sys.stdin.buffer)) is not None:
            tasks.put(packed)
        os._exit(0)  # the parent is gone: what is being computed has nobody to go to

    threading.Thread(target=listen, daemon=True).start()
    worker: Worker | None = None
    sys.path[:], packed = pickle.loads(tasks.get())  # before what is imported from there
    while True:
        content = tasks.get()
        try:
            if worker is None:
                worker = Worker.open(pickle.loads(packed))
                settle()
            task: ShardTask = pickle.loads(content)
            answer: tuple[str, Any] = ("done", compute(worker, task)[1:])
        except WherefromError as error:
            answer = ("error", error)
        except Exception:
            answer = ("broken", traceback.format_exc())
        _put(out, pickle.dumps(answer))
