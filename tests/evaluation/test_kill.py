"""Kills at random moments change nothing: the tables have the same bytes, and only the shard in flight is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

import wherefrom
from wherefrom.data import Example
from wherefrom.errors import WherefromError
from wherefrom.evaluation import local, planning, steps
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.task import Item
from wherefrom.evaluation.worker import Worker

ROWS, SHARD = 40, 4
# The command, started from a process that has everything imported: what is killed is the run, not the interpreter's
# start. It counts the shards that it computes.
SERVER = """
import os, sys, torch
torch.set_num_threads(1)
import pyarrow.compute, pyarrow.parquet, rich.table, rich.text, transformers.models.bert.modeling_bert
import wherefrom.cli, wherefrom.evaluation, wherefrom.evaluation.export, wherefrom.method
transformers.AutoModelForSequenceClassification, transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast
from wherefrom.evaluation.worker import Worker
begin, log_file = Worker.begin, sys.argv[1]
def counted(self, task):
    with open(log_file, "a") as log:
        log.write(task.name + "\\n")
    return begin(self, task)
Worker.begin = counted
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        sys.argv = ["wherefrom", *line.rstrip("\\n").split("\\t")]
        out = os.open(os.devnull, os.O_WRONLY)
        os.dup2(out, 1)
        wherefrom.cli.main()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Shell:
    """Runs commands one after another; any of them can be killed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def begin(self, *arguments: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join(arguments) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    model = runs.model_folder(tmp_path / "model")
    second = runs.model_folder(tmp_path / "second", seed=3)
    data = runs.data_file(tmp_path / "data.jsonl", ROWS)
    asked = {
        "model": str(model),
        "data": str(data),
        "methods": ",".join(runs.METHODS),
        "metrics": ",".join([*runs.METRICS, *runs.AGAIN, f"consistency(model={second})"]),
        "shard": str(SHARD),
        "threads": "1",
    }
    return ["evaluate", *(part for name, value in asked.items() for part in (f"--{name}", value))]


@pytest.mark.parametrize("kills_wanted", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_at_random_moments_change_no_byte(tmp_path: Path, command: list[str], kills_wanted: int) -> None:
    log, shell, random = tmp_path / "log", Shell(tmp_path / "log"), np.random.default_rng(6)
    try:
        begin = time.perf_counter()
        shell.begin(*command, "--out", str(tmp_path / "undisturbed"))
        assert shell.end() == 0
        whole = time.perf_counter() - begin
        expected = runs.tables(tmp_path / "undisturbed")
        every = sorted(log.read_text().split())
        assert len(every) == len(set(every)) == ROWS / SHARD
        log.unlink()
        kills = killed = 0  # of all runs, of this one
        for folder in (tmp_path / f"killed{number}" for number in count()):
            while kills < kills_wanted:
                pid = shell.begin(*command, "--out", str(folder))
                time.sleep(float(random.uniform(0.05, 0.35)) * whole)  # from its start to the writing of the tables
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if shell.end() != signal.SIGKILL:
                    break  # it was done: the next kills are for another run
                kills, killed = kills + 1, killed + 1
            shell.begin(*command, "--out", str(folder))
            assert shell.end() == 0
            assert runs.tables(folder) == expected
            computed = log.read_text().split()
            assert sorted(set(computed)) == every  # nothing lost,
            assert len(computed) - len(every) <= killed  # and nothing but the shard in flight computed twice
            log.unlink()
            killed = 0
            if kills == kills_wanted:
                return
    finally:
        shell.close()


def evaluate(folder: Path, command: list[str], **options: Any) -> wherefrom.Run:
    asked = dict(zip((name.removeprefix("--") for name in command[1::2]), command[2::2], strict=True))
    return wherefrom.evaluate(
        asked["data"],
        asked["model"],
        methods=asked["methods"],
        metrics=asked["metrics"],
        shard=SHARD,
        threads=1,
        out=folder,
        **options,
    )


def test_this_process_works_while_its_workers_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker.open(Setting(str(runs.model_folder(tmp_path)), ("globenc",), ("aopc",)))
    items = [Item(row, Example(str(row), str(each["text"]))) for row, each in enumerate(runs.rows(8))]
    tasks, started = planning.cut(0, items, worker.try_read, 2), threading.Event()

    class Starting:
        def __init__(self, _setting: Setting) -> None:
            self.end = started.wait

        def compute(self, task: Any, _stop: Any) -> local.Done:
            started.wait()
            return local.compute(worker, task)

    monkeypatch.setattr(local, "_Process", Starting)
    found = []
    for done in local.beside(worker, iter(tasks), 1):
        found.append(done.task.name)
        if len(found) == len(tasks) - 1:  # all but the one that waits for its worker
            started.set()
    assert sorted(found) == [task.name for task in tasks]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    """The same shards from a worker process that is killed on the way as from this process."""
    setting = Setting(str(runs.model_folder(tmp_path)), ("globenc",), ("aopc",))
    worker = Worker.open(setting)
    items = [Item(row, Example(str(row), str(each["text"]))) for row, each in enumerate(runs.rows(24))]
    tasks = planning.cut(0, items, worker.try_read, 4)
    expected = {done.task.name: runs.shard(done.content) for done in local.here(worker, iter(tasks))}
    found = {}
    for done in local.beside(worker, iter(tasks), 1):
        found[done.task.name] = runs.shard(done.content)
        if len(found) == 2:
            (pid,) = _children("wherefrom.evaluation.local")
            os.kill(pid, signal.SIGKILL)
    assert found == expected
    assert not _children("wherefrom.evaluation.local")


@pytest.mark.slow
def test_a_worker_leaves_an_interruption_to_its_parent(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal, and only one of them should say so."""
    setting = Setting(str(runs.model_folder(tmp_path)), ("globenc",), ("aopc",))
    items = [Item(row, Example(str(row), str(each["text"]))) for row, each in enumerate(runs.rows(8))]
    first, second, *_ = planning.cut(0, items, Worker.open(setting).try_read, 4)
    process = local._Process(setting)
    try:
        assert process.compute(first, threading.Event())
        os.kill(process.process.pid, signal.SIGINT)
        assert process.compute(second, threading.Event())
    finally:
        process.end()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_workers_that_die_are_replaced_and_the_bytes_are_the_same(tmp_path: Path, command: list[str]) -> None:
    evaluate(tmp_path / "here", command)
    found: list[Any] = []
    runner = threading.Thread(target=lambda: found.append(evaluate(tmp_path / "beside", command, workers=2)))
    runner.start()
    killed = 0
    while runner.is_alive() and killed < 2:
        for pid in _children("wherefrom.evaluation.local"):
            if list((tmp_path / "beside" / "shards").glob("*.parquet")):
                os.kill(pid, signal.SIGKILL)
                killed += 1
                time.sleep(0.2)
                break
        time.sleep(0.02)
    runner.join()
    assert killed
    assert found
    assert runs.tables(tmp_path / "beside") == runs.tables(tmp_path / "here")
    assert not _children("wherefrom.evaluation.local")


def test_what_kills_every_worker_is_an_error(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wherefrom.evaluation.local.sys.executable", "/bin/false")
    with pytest.raises(WherefromError, match="ended 3 workers in a row"):
        evaluate(tmp_path / "run", command, workers=2)


def _children(name: str) -> list[int]:
    """Processes of ours whose command line has this name."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if name in line and parent == os.getpid():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_killed_ray_actor_is_replaced_and_the_bytes_are_the_same(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    evaluate(tmp_path / "here", command)
    monkeypatch.setenv("WHEREFROM_TEST", str(tmp_path))  # by which our actors are known from others
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    killed: list[int] = []
    original = steps.store.put

    def put(folder: Path, name: str, content: bytes) -> Path:
        """After the second shard, the machine of one actor goes."""
        path = original(folder, name, content)
        if len(list(folder.glob("*.parquet"))) == 2:
            for each in Path("/proc").iterdir():
                ours = b"ray::Actor" in _read(each / "cmdline") and str(tmp_path).encode() in _read(each / "environ")
                if each.name.isdigit() and ours:
                    os.kill(int(each.name), signal.SIGKILL)
                    killed.append(int(each.name))
                    break
        return path

    monkeypatch.setattr(steps.store, "put", put)
    try:
        evaluate(tmp_path / "ray", command, engine="ray", workers=2)
    finally:
        ray.shutdown()
    assert killed
    assert runs.tables(tmp_path / "ray") == runs.tables(tmp_path / "here")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
