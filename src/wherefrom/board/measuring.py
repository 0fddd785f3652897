"""The runs of a benchmark: for each model and dataset a folder, which the same command resumes.

OUT/sentiment on sst2/faithful/     a run of `wherefrom evaluate`: erasure, and what people or cue words say
OUT/sentiment on sst2/sane/         another, on fewer rows: the model randomised, padding, bfloat16
OUT/sentiment on sst2/table.json    which methods were left out and why, and what each costs in forward passes
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from wherefrom.board.choosing import datasets, every_method, metrics, sane
from wherefrom.data import Dataset, Example, drawn
from wherefrom.errors import InvalidOption, NotDefined, WherefromError
from wherefrom.evaluation import Run, evaluate
from wherefrom.evaluation import manifest as run_folder
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.worker import Worker
from wherefrom.files import write
from wherefrom.model import Model, Sentence, collate, open_model
from wherefrom.model.forward import forward
from wherefrom.pipeline.execution import run
from wherefrom.pipeline.resolution import UNASKED, Question

TABLE = "table.json"
FORMAT = "wherefrom.board"
PARTS = ("faithful", "sane", "cost")
TIMED = 16  # rows in the batch whose time is taken
TRIED = 20  # examples of which one must be explained by some method
AGAIN = 1.0  # seconds: what takes less is timed three times more
FINE = 1e-4  # seconds, that a clock can tell apart


@dataclass(frozen=True)
class Measuring:
    """How much is measured."""

    rows: int = 100
    sane_rows: int = 16
    methods: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None  # of the data that is named: which column holds what
    folder: Path | None = None
    parts: tuple[str, ...] = PARTS
    batch_size: int = 16
    shard: int = 64
    workers: int = 1
    seed: int = 0
    truncate: bool = True
    opening: dict[str, Any] = field(default_factory=dict)  # device, dtype, task, prove

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise InvalidOption(f"there is no part {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
        if self.columns and not self.data:
            raise InvalidOption("--column says which column of a dataset holds what; expected --data as well")


def measure(models: Sequence[str], out: Path, how: Measuring) -> Iterator[Path]:
    """Measure each model on each dataset that suits it; the folder of each table when it is done."""
    for name in models:
        opened = open_model(name, **how.opening)
        suiting = datasets(opened, how.data, how.folder, how.columns)
        if not suiting:
            asked = f"none of {', '.join(how.data)}" if how.data else "no dataset here"
            raise NotDefined(
                f"{asked} suits {name}; name one (--data) whose labels are its classes (--column label=… says which "
                f"column holds them); for a language model, one that asks for a word; for a translator, one of texts "
                f"and their translations (text, target)"
            )
        for called, data in suiting:
            folder = out / f"{_plain(name)} on {_plain(called)}"
            _measure(name, opened, drawn(data, how.rows, how.seed), folder, how)
            yield folder


def _plain(name: str) -> str:
    """A model or a dataset in the name of a folder: without where it lies."""
    return re.sub(r"[^\w.:-]+", "-", Path(name).name)


def _measure(name: str, opened: Model, data: Dataset, folder: Path, how: Measuring) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names, refused = _able(opened, data, folder, how)
    asked: dict[str, Any] = {
        **({"model": opened} if how.workers == 1 else {"model": name, **how.opening}),  # which every worker opens
        "methods": names,
        "workers": how.workers,
        "batch_size": how.batch_size,
        "seed": how.seed,
        "truncate": how.truncate,
    }
    if "faithful" in how.parts:
        evaluate(data, metrics=metrics(opened, data), shard=how.shard, out=folder / "faithful", **asked)
    if "sane" in how.parts:
        few = drawn(data, how.sane_rows, how.seed)
        evaluate(few, metrics=sane(opened), shard=min(how.shard, how.sane_rows), out=folder / "sane", **asked)
    known = _known(folder)
    if "cost" in how.parts and "passes" not in known:
        known["passes"] = _passes(opened, data, names, how)
    write(folder / TABLE, json.dumps({"format": FORMAT, **known, "left_out": refused}, indent=1, ensure_ascii=False))


def _known(folder: Path) -> dict[str, Any]:
    path = folder / TABLE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _able(opened: Model, data: Dataset, folder: Path, how: Measuring) -> tuple[list[str], dict[str, str]]:
    """The methods that can explain one of the first examples, and why others cannot; as before in a run begun."""
    if (folder / "faithful" / run_folder.FILE).is_file():
        return list(Run(folder / "faithful").manifest["asked"]["methods"]), _known(folder).get("left_out", {})
    names, refused = every_method(opened, how.methods)
    worker, failing = _worker(opened, names, how), dict[str, str]()
    for example in islice(data, TRIED):
        failing = _failing(opened, worker, example, names)
        if len(failing) < len(names):  # else it is the example that cannot be explained
            break
    refused |= failing
    write(folder / TABLE, json.dumps({"format": FORMAT, "left_out": refused}, indent=1, ensure_ascii=False))
    return [name for name in names if name not in refused], refused


def _failing(opened: Model, worker: Worker, example: Example, names: Sequence[str]) -> dict[str, str]:
    """The methods that cannot explain an example, and why."""
    found: dict[str, str] = {}
    sentences, questions = _read(worker, [example])
    for name in names:
        try:
            run(opened, sentences, questions, {name: worker.jobs[name]}, 1)
        except Exception as error:  # whatever one method does on this machine, the others are measured
            found[name] = str(error) if isinstance(error, WherefromError) else repr(error)
    return found


def _worker(opened: Model, names: Sequence[str], how: Measuring) -> Worker:
    return Worker.open(Setting(opened, tuple(names), ("aopc",), batch_size=how.batch_size, truncate=how.truncate))


def _read(worker: Worker, examples: Any) -> tuple[list[Sentence], list[Question]]:
    """Examples as the model reads them, and what is asked of each."""
    sentences, questions = [], []
    for example in examples:
        sentences.append(worker.read(example))
        questions.append(_question(worker.opened, example))
    return sentences, questions


def _question(opened: Model, example: Example) -> Question:
    return UNASKED if opened.task == "classification" else Question(example.target, example.foil, None)


def _passes(opened: Model, data: Dataset, names: Sequence[str], how: Measuring) -> dict[str, float]:
    """What each method takes on one batch, in the model's own forward passes over it, which are timed beside every
    method: what stalls one of them stalls the measure of none.
    """
    worker = _worker(opened, names, how)
    clear = (each for each in data if not _failing(opened, worker, each, names[:1]))
    sentences, questions = _read(worker, islice(clear, min(TIMED, how.batch_size)))
    batch = collate(sentences, opened.pad_id)

    @torch.no_grad()
    def plainly() -> None:
        forward(opened, batch)

    def explaining(name: str) -> Callable[[], object]:
        return lambda: run(opened, sentences, questions, {name: worker.jobs[name]}, len(sentences))

    own, found = [_seconds(opened, plainly)], dict[str, float]()
    for name in names:
        found[name] = _seconds(opened, explaining(name))
        own.append(_seconds(opened, plainly))
    return {name: round(seconds / min(own), 2) for name, seconds in found.items()}


def _seconds(opened: Model, call: Callable[[], object]) -> float:
    """The least time of a few calls, the first one, which may set things up, not counted where calls are short."""
    first = _once(opened, call)
    return first if first > AGAIN else min(_once(opened, call) for _ in range(3))


def _once(opened: Model, call: Callable[[], object]) -> float:
    """On a processor its own time, which is not that of others at work on it, where that is counted finely."""
    fine = time.get_clock_info("process_time").resolution < FINE
    clock = time.process_time if fine and opened.device.type != "cuda" else time.perf_counter
    _wait(opened)
    begun = clock()
    call()
    _wait(opened)
    return clock() - begun


def _wait(opened: Model) -> None:
    """Until the device has done what it was given."""
    if opened.device.type == "cuda":
        torch.cuda.synchronize(opened.device)
