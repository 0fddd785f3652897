"""What must not grow with the dataset, and a time left that is true."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tiny
import wherefrom
from wherefrom.data import Dataset, Example, example
from wherefrom.evaluation import planning, summary
from wherefrom.evaluation.clock import Clock
from wherefrom.evaluation.planning import Load
from wherefrom.evaluation.task import ExampleOutcome, Record, ShardTask
from wherefrom.evaluation.worker import ComputedShard, Worker
from wherefrom.metric.base import Number
from wherefrom.result.answer import Answer, Readout, Target

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that measure nothing."""

    def begin(_: Worker, task: ShardTask) -> Callable[[], ComputedShard]:
        answer = Answer(Target("class", 0, "LABEL_0"), Readout(0, "first token"), "LABEL_0", {"LABEL_0": 0.5})
        record = Record("globenc", Number("aopc", None, 0.25))
        outcomes = [ExampleOutcome(item, "", 4, answer, None, [record]) for item, _ in task.rows]
        return lambda: ComputedShard(outcomes, {"globenc": 0.1})

    monkeypatch.setattr(Worker, "begin", begin)
    monkeypatch.setattr(planning, "WINDOW", 64)
    monkeypatch.setattr(example, "KEPT", 1000)  # characters: less than any dataset here has


@pytest.mark.usefixtures("quick")
def test_a_run_holds_a_window_and_not_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Example]] = []
    alive: list[int] = []
    packed: list[int] = []
    begin, flat = Worker.begin, summary._flat

    def examples(count: int) -> Iterator[Example]:
        for i in range(count):
            each = Example(f"all:{i}", f"a {'very ' * (i % 7)}good film")
            made.append(weakref.ref(each))
            yield each

    def counted(self: Worker, task: ShardTask) -> Callable[[], ComputedShard]:
        alive.append(sum(each() is not None for each in made))
        return begin(self, task)

    def measured(window: pa.Table, column: str) -> pa.Table:
        packed.append(pa.total_allocated_bytes())
        return flat(window, column)

    monkeypatch.setattr(Worker, "begin", counted)
    monkeypatch.setattr(summary, "_flat", measured)
    most = []
    for rows in (128, 512):
        data = Dataset("made", "all", partial(examples, rows))
        options = {"out": tmp_path / str(rows), "shard": 16, "threads": 1}
        run = wherefrom.evaluate(data, MODEL, TOKENIZER, ["globenc"], ["aopc"], **options)
        assert run.summary["globenc", "aopc", None].count == rows  # type: ignore[index]
        most.append((max(alive), max(packed)))
        alive.clear()
        packed.clear()
    assert most[1][0] <= 3 * 64  # a window, the one before it perhaps, and no more
    assert most[1][1] <= 1.5 * most[0][1] + 4096


def _simulated(seed: int, prices: tuple[float, float, float], workers: int = 1) -> list[tuple[float, float, float]]:
    """After each shard: the share of the time gone, the seconds left as estimated, and as they were."""
    random = np.random.default_rng(seed)
    lengths = random.lognormal(3, 0.7, (6, 512)).clip(3, 500).round()
    letters = lengths * random.normal(4.5, 0.3, lengths.shape)
    every = [[planning.load(part) for part in np.split(np.sort(window), 16)] for window in lengths]
    order = [planning.pending([ShardTask(str(i), ()) for i in range(16)], ())] * 6
    seconds = {
        (w, i): float(np.dot(prices, (shard.rows, shard.tokens, shard.squares))) * random.normal(1, 0.1)
        for w, shards in enumerate(every)
        for i, shard in enumerate(shards)
    }
    clock = Clock(planning.load(letters.ravel()), workers)
    left = sum(seconds.values()) / workers
    whole, found = left, []
    for w, window in enumerate(every):
        read = sum(window, Load())
        clock.reads(planning.load(letters[w]), read, read)
        for task in order[w]:
            took = seconds[w, int(task.name)]
            clock.done(window[int(task.name)], took)
            left -= took / workers
            estimate = clock.seconds_left()
            assert estimate is not None
            found.append((1 - left / whole, estimate, left))
    return found


@pytest.mark.parametrize("prices", [(1e-2, 0, 0), (1e-3, 1e-3, 0), (0, 1e-4, 1e-5), (1e-3, 1e-4, 1e-6)])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_time_left_is_true(prices: tuple[float, float, float], workers: int) -> None:
    for seed in range(3):
        for gone, estimate, left in _simulated(seed, prices, workers)[3:]:
            if gone < 0.95:
                assert estimate == pytest.approx(left, rel=0.25)


def test_shards_are_neighbours_by_length_and_spread_in_time() -> None:
    tasks = [ShardTask(str(i), ()) for i in range(11)]
    order = [int(task.name) for task in planning.pending(tasks, {"4"})]
    assert order[0] == 10  # the longest first
    assert sorted(order) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert abs(np.mean(order[:3]) - 5) < 2.5
