"""`evaluate`: methods and measures over a dataset, into a folder that a kill does no harm to."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from wherefrom.data import MASK, Dataset, Example, drawn
from wherefrom.data import read as read_data
from wherefrom.data.example import first, kept, unfit
from wherefrom.data.tables import first_few, shown
from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import WherefromError, warn
from wherefrom.evaluation import local, manifest, planning, store, summary
from wherefrom.evaluation.clock import Clock, bar
from wherefrom.evaluation.config import (
    LABEL,
    Setting,
    check,
    check_model,
    check_needs,
    check_second,
    count_needs,
    listed,
)
from wherefrom.evaluation.gold import gold_classes
from wherefrom.evaluation.run import Run
from wherefrom.evaluation.worker import Item, ShardTask, Worker
from wherefrom.extras import need
from wherefrom.files import write
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checks_arguments, least
from wherefrom.typecheck import shown as shown_value

ENGINES = ("local", "ray")
SHARD = 64  # rows
LABELS = 1000  # gold labels beyond which no more are looked at: they are no classes
GIVEN = "given"  # the name of a list of texts or examples


@checks_arguments
def evaluate(
    data: Any = None,
    model: Any = DEFAULT_MODEL,
    tokenizer: Any | None = None,
    methods: str | Iterable[str] = (),
    metrics: str | Iterable[str] = ("aopc", "log-odds"),
    *,
    explanations: Mapping[str, Sequence[Explanation]] | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    limit: Annotated[int, least(1)] | None = None,
    draw: bool = False,
    out: str | os.PathLike[str] | None = None,
    target: int | str | None = None,
    names: Mapping[Any, str] | None = None,
    batch_size: Annotated[int, least(1)] = 16,
    shard: Annotated[int, least(1)] = SHARD,
    truncate: bool = False,
    seed: Annotated[int, least(0)] = 0,
    workers: Annotated[int, least(1, 4096)] | None = None,
    threads: Annotated[int, least(1, 4096)] | None = None,
    engine: str = "local",
    task: str | None = None,
    device: Any = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Run:
    """Measure methods on a dataset. The result is a `Run`: a folder with tables, which `out` names.

    data: what `wherefrom.data.read` takes (a name, a file; with split, columns, folder), a Dataset, or a list of texts
        or Examples.
    methods: names from `wherefrom.methods()`, with options in brackets: "integrated-gradients(n_steps=50)".
    metrics: names from `wherefrom.metrics()`: "aopc(by=mask)", "spearman:saliency@layers", "cue-dot".
    explanations: scores made elsewhere, by name: one Explanation for each example, in their order.
    target: the class that is explained; "label" for each example's gold one; by default the word that the example
        names, or what the model predicts.
    names: for target="label", what the dataset calls a class of the model: {0: "negative", "LABEL_1": "positive"}.
    out: the run folder. Killed at any moment, the same call goes on where it stopped. By default a temporary one.
    limit: the first so many rows; with `draw`, so many drawn at random by the seed.
    batch_size, shard: sentences in one captured pass, rows in one shard.
    workers: processes (engine "local") or Ray actors (engine "ray"). threads: of each. They may change between a kill
        and going on, the rest may not; numbers are the same to the last bit if threads are.
    progress: a bar with the time left; by default when the standard error is a terminal.
    """
    need("pyarrow", extra="eval")
    given = {name: _one_method(name, every) for name, every in (explanations or {}).items()}
    if engine not in ENGINES:
        raise WherefromError(f"unknown engine {engine!r}; expected one of {', '.join(ENGINES)}")
    workers = workers or (1 if engine == "local" else os.cpu_count() or 1)
    setting = Setting(
        model=model,
        methods=listed(methods, "methods"),
        metrics=listed(metrics, "measures"),
        given=tuple(given),
        tokenizer=tokenizer,
        target=target,
        batch_size=batch_size,
        truncate=truncate,
        seed=seed,
        task=task,
        device=None if device is None else str(device),
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        model_kwargs=dict(model_kwargs or {}),
        tokenizer_kwargs=dict(tokenizer_kwargs or {}),
    )
    check(setting)
    if names is not None and target != LABEL:
        raise WherefromError(
            "names says which class a gold label is, and only target='label' asks for that; leave it out"
        )
    if draw and limit is None:
        raise WherefromError("draw says that rows are drawn at random, and not how many; expected limit as well")
    source = kept(_dataset(data, split, columns, folder, None if draw else limit))
    source = drawn(source, limit, seed) if draw and limit is not None else source
    survey = _survey(source)
    check_needs(setting, survey.having, survey.kinds, survey.rows, source.name)
    for name, every in given.items():
        if len(every) != survey.rows:
            raise WherefromError(f"{len(every)} explanations '{name}' for {survey.rows} examples; expected one each")
    worker = Worker.open(setting)
    check_model(worker.opened, setting)
    if target == LABEL and worker.opened.task == "classification":
        classes = gold_classes(worker.opened.labels, survey.labels, source.labels, names)
        worker = replace(worker, setting=replace(setting, classes=classes))
    if survey.masked and worker.opened.task == "classification":
        warn(
            f"{survey.masked} of the {survey.rows} texts hold {MASK}, and {worker.opened.name} is a classifier, which "
            f"reads it like any other word; for a model of what comes next, give it wherefrom.data.up_to_mask(data), "
            f"or say --up-to-mask"
        )
    for second in worker.others.values():
        check_second(worker.opened, second.opened)
    _refuse_name(out)
    temporary = tempfile.TemporaryDirectory(prefix="wherefrom-run-") if out is None else None
    path = Path(temporary.name if temporary else out)  # type: ignore[arg-type]
    asked: dict[str, Any] = {
        "methods": list(setting.methods),
        "metrics": list(setting.metrics),
        "target": target,
        "limit": limit,
        "draw": draw,
        "batch_size": batch_size,
        "shard": shard,
        "truncate": truncate,
        "seed": seed,
        "model_kwargs": {key: str(value) for key, value in setting.model_kwargs.items()},
        "tokenizer_kwargs": {key: str(value) for key, value in setting.tokenizer_kwargs.items()},
        "explanations": {name: _scores_hash(every) for name, every in given.items()},
    }
    if worker.setting.classes:
        asked["classes"] = dict(worker.setting.classes)
    if worker.others:
        asked["models"] = {name: manifest.model_identity(each.opened) for name, each in worker.others.items()}
    with manifest.locked(path):
        there = manifest.settle(
            path,
            {
                "format": manifest.FORMAT,
                "version": manifest.VERSION,
                "asked": asked,
                "model": manifest.model_identity(worker.opened),
                "data": {
                    "name": source.name,
                    "split": source.split,
                    "fingerprint": source.fingerprint,
                    "rows": survey.rows,
                    "dropped": len(source.dropped),
                },
                "dropped": first_few([(each.row, each.reason) for each in source.dropped]),
                "versions": manifest.versions(),
                "threads": threads or max(1, torch.get_num_threads() // workers),
                "command": sys.argv,
                "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )
        worker = replace(worker, setting=replace(worker.setting, threads=threads or there["threads"]))
        _go_on(path, source, given, survey, worker, shard, engine, workers, progress)
    return Run(path, temporary)


# The data -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _DatasetSurvey:
    """One pass over the data before anything is computed."""

    rows: int
    having: dict[str, int]  # how many rows have cues, a label, …
    kinds: dict[str, set[str]]  # two labels, groups and targets that occur
    characters: list[planning.Load]  # of each window
    masked: int  # rows with a mask in their text
    labels: dict[Any, None]  # the gold labels that occur


def _refuse_name(out: str | os.PathLike[str] | None) -> None:
    """Refuse what no folder can be called."""
    name = "" if out is None else os.fspath(out)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        name = "\0"
    if "\0" in name:
        raise WherefromError("out holds a character that no name of a folder can have; choose another")


def _dataset(data: Any, split: Any, columns: Any, folder: Any, limit: int | None) -> Dataset:
    if data is None:
        raise WherefromError("no data to evaluate on; expected the name of a dataset, a file, or a list of texts")
    if isinstance(data, Dataset):
        return data if limit is None else first(data, limit)
    if isinstance(data, str | os.PathLike):
        return read_data(data, split, columns, limit, folder)
    if not isinstance(data, Iterable) or isinstance(data, bytes | Mapping) or getattr(data, "ndim", 1) != 1:
        raise WherefromError(f"data={shown_value(data)}; expected the name of a dataset, a file, or a list of texts")
    examples = [
        each if isinstance(each, Example) else Example(str(row), tuple(each) if isinstance(each, list) else each)
        for row, each in enumerate(islice(data, limit))
    ]
    for each in examples:
        texts = each.text if isinstance(each.text, tuple) else (each.text,)
        if len(texts) > 2 or not all(isinstance(text, str) for text in texts):
            raise WherefromError(f"example {each.id} is {shown(each.text)}; expected a text, or a pair of texts")
    if len({each.id for each in examples}) < len(examples):
        raise WherefromError("two examples have the same id; expected each to have its own")
    return Dataset(GIVEN, "", lambda: iter(examples))


def _survey(source: Dataset) -> _DatasetSurvey:
    rows, masked, having, kinds, characters = 0, 0, dict[str, int](), dict[str, set[str]](), list[planning.Load]()
    labels: dict[Any, None] = {}
    for _, window in planning.windows(_items(source, {})):
        for item in window:
            if (why := unfit(item.example)) is not None:
                raise WherefromError(f"example {item.example.id!r} cannot be evaluated: {why}")
            count_needs(item.example, having, kinds)
            masked += MASK in str(item.example.text)
            if item.example.label is not None and len(labels) < LABELS:
                labels[item.example.label] = None
        rows += len(window)
        characters.append(planning.load(planning.characters(item.example) for item in window))
    if not rows:
        raise WherefromError(f"{source.name} has no examples to evaluate on")
    return _DatasetSurvey(rows, having, kinds, characters, masked, labels)


def _items(source: Dataset, given: Mapping[str, Sequence[Explanation]]) -> Iterator[Item]:
    for row, example in enumerate(source):
        yield Item(row, example, {name: every[row] for name, every in given.items()})


def _one_method(name: str, every: Sequence[Explanation]) -> list[Explanation]:
    """Explanations made elsewhere. Scores of a method that has signs have them also where none is below zero."""
    if not isinstance(every, Iterable) or not all(isinstance(each, Explanation) for each in every):
        raise WherefromError(f"'{name}' holds other things than explanations; make them with Explanation.from_scores")
    signed = any(each.signed for each in every)
    return [replace(each, signed=signed) for each in every]


def _scores_hash(every: Sequence[Explanation]) -> str:
    digest = hashlib.sha256()
    for each in every:
        digest.update(json.dumps([each.tokens, str(each.measured)]).encode())
        digest.update(np.ascontiguousarray(each.scores, dtype=np.float64).tobytes())
    return digest.hexdigest()


# The work -------------------------------------------------------------------------------------------------


def _go_on(
    path: Path,
    source: Dataset,
    given: Mapping[str, Sequence[Explanation]],
    survey: _DatasetSurvey,
    worker: Worker,
    shard: int,
    engine: str,
    workers: int,
    progress: bool | None,
) -> None:
    """Compute the shards that are missing, then the tables."""
    folder = path / manifest.SHARDS
    whole = store.found(folder)
    clock = Clock(sum(survey.characters, planning.Load()), workers)
    full = store.complete(whole)
    before = sum(int(survey.characters[window].rows) for window in full)
    shown = sys.stderr.isatty() if progress is None else progress

    def tasks() -> Iterator[ShardTask]:
        for number, window in planning.windows(_items(source, given)):
            characters = survey.characters[number]
            if number in full:
                clock.skips(characters)
                continue
            every = planning.cut(number, window, worker.length, shard)
            waiting = planning.pending(every, whole)
            all_of_it, rest = (
                sum((planning.load(each.tokens) for each in some), planning.Load()) for some in (every, waiting)
            )
            clock.reads(characters, all_of_it, rest)
            yield from waiting

    with bar(survey.rows, before, shown) as show:
        for done in _engine(engine, worker, tasks(), workers):
            whole[done.task.name] = store.put(folder, done.task.name, done.content)
            clock.done(planning.load(done.task.tokens), done.seconds)
            show(clock)
    if not (path / manifest.FINISHED).exists() or not _tables_whole(path):
        _finish(path, whole, worker.setting)


def _engine(engine: str, worker: Worker, tasks: Iterator[ShardTask], workers: int) -> Iterator[local.Done]:
    first = next(tasks, None)
    if first is None:  # nothing is left, and nobody need be started for it
        return iter(())

    def every() -> Iterator[ShardTask]:
        yield first
        yield from tasks

    if engine == "ray":
        from wherefrom.evaluation.ray_cluster import actors

        return actors(worker.setting, every(), workers)
    return local.here(worker, every()) if workers == 1 else local.beside(worker.setting, every(), workers)


def _finish(path: Path, whole: dict[str, Path], setting: Setting) -> None:
    try:
        totals = summary.build(path, whole, (*setting.methods, *setting.given), setting.asked())
    except OSError as error:
        raise WherefromError(f"cannot write the tables of '{path}': {error.strerror or error}") from error
    if sum(totals.failures.values()) == totals.examples:
        reasons = "; ".join(f"{count} times: {reason}" for reason, count in list(totals.failures.items())[:3])
        raise WherefromError(f"none of the {totals.examples} examples could be explained ({reasons})")
    finished = {
        "examples": totals.examples,
        "failures": totals.failures,
        "seconds": {name: round(spent, 3) for name, spent in sorted(totals.seconds.items())},
        "tables": {name: _file_hash(path / name) for name in _TABLES},
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(path / manifest.FINISHED, json.dumps(finished, indent=1, ensure_ascii=False).encode())


_TABLES = (summary.EXAMPLES, summary.RECORDS, summary.CURVES, summary.SUMMARY, summary.SUMMARY_CSV)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tables_whole(path: Path) -> bool:
    """Whether the tables are those that were written."""
    try:
        known = json.loads((path / manifest.FINISHED).read_text(encoding="utf-8"))["tables"]
        return all(_file_hash(path / name) == known[name] for name in _TABLES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
