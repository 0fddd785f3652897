"""`evaluate`: methods and metrics over a dataset, into a run folder that resumes after a kill.

The steps are functions, in the order in which they are taken: what was asked is resolved, the data read and surveyed,
the model opened, the run folder claimed, the missing shards computed, the tables written.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from wherefrom.data import MASK, Dataset
from wherefrom.data.tables import first_few
from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined, ResourceUnavailable, RowsLeftOut, warn
from wherefrom.evaluation import local, manifest, planning, store, summary
from wherefrom.evaluation.clock import Clock, bar
from wherefrom.evaluation.config import (
    Setting,
    check,
    check_model,
    check_needs,
    check_second,
    listed,
)
from wherefrom.evaluation.gold import gold_classes
from wherefrom.evaluation.run import Run
from wherefrom.evaluation.survey import DataLike, Rows, Survey, choose_rows, items, survey
from wherefrom.evaluation.task import ShardTask
from wherefrom.evaluation.travel import check_classes, modules_of
from wherefrom.evaluation.worker import Worker
from wherefrom.extras import need
from wherefrom.files import write
from wherefrom.model import ModelLike, TokenizerLike
from wherefrom.options import BatchSize, DeviceLike, DtypeLike, Keywords
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checks_arguments, least

ENGINES = ("local", "ray")
SHARD = 64  # rows


@checks_arguments
def evaluate(
    data: DataLike = None,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
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
    batch_size: BatchSize = 16,
    shard: Annotated[int, least(1)] = SHARD,
    truncate: bool = False,
    seed: Annotated[int, least(0)] = 0,
    workers: Annotated[int, least(1, 4096)] | None = None,
    threads: Annotated[int, least(1, 4096)] | None = None,
    engine: str = "local",
    num_gpus: Annotated[float, least(0)] | None = None,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
    progress: bool | None = None,
) -> Run:
    """Measure methods on a dataset. The result is a `Run`: a folder with tables, which `out` names.

    data: what `wherefrom.data.read` takes (a name, a file; with split, columns, folder), a Dataset, a DataFrame, or a
        list of texts, Examples or rows: {"text": "The keys to the cabinet", "target": " are", "foil": " is"}.
    methods: names from `wherefrom.methods()`, with options in brackets: "integrated-gradients(n_steps=50)".
    metrics: names from `wherefrom.metrics()`: "aopc(by=mask)", "spearman:saliency@layers", "cue-dot".
    explanations: scores made elsewhere, by name: one Explanation for each example, in their order. Each is measured by
        the class or word that it says it explains; where it says none, by the one that is asked for here.
    target: the class that is explained; "label" for each example's gold one; by default the word that the example
        names, or what the model predicts.
    names: for target="label" and masked-accuracy, what the dataset calls a class of the model: {0: "negative",
        "LABEL_1": "positive"}.
    out: the run folder. After a kill, the same call resumes where it stopped. By default a temporary one.
    limit: the first so many rows; with `draw`, so many drawn at random by the seed.
    batch_size, shard: sentences in one captured pass, rows in one shard.
    workers: processes (engine "local") or Ray actors (engine "ray"). threads: of each. They may change between a kill
        and the resumed run, the rest may not; numbers are the same to the last bit if threads are.
    num_gpus: of each Ray actor, also a part of one: with 0.5 two of them share a GPU. By default one, if `device` is
        "cuda".
    progress: a bar with the time left; by default when the standard error is a terminal.

    >>> run = wherefrom.evaluate(["a deep film .", "a dull and empty film ."], methods=["attcat"], metrics=["aopc"])
    >>> 0 < run.mean("attcat", "aopc") < 1
    True
    """
    need("pyarrow", extra="eval")
    given = {name: _one_method(name, every) for name, every in (explanations or {}).items()}
    if num_gpus is not None and engine != "ray":
        raise InvalidOption("num_gpus= is what Ray sets aside for each actor; leave it out, or choose engine='ray'")
    gpus = float(str(device).startswith("cuda")) if num_gpus is None else num_gpus
    how = _resolve_engine(engine, workers, threads, gpus, progress)
    setting = Setting(
        model=model,
        methods=listed(methods, "methods"),
        metrics=listed(metrics, "metrics"),
        given=tuple(given),
        tokenizer=tokenizer,
        target=target,
        batch_size=batch_size,
        truncate=truncate,
        seed=seed,
        task=task,
        device=None if device is None else str(device),
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        prove=prove,
        model_kwargs=dict(model_kwargs or {}),
        tokenizer_kwargs=dict(tokenizer_kwargs or {}),
    )
    check(setting)
    if how.elsewhere:
        setting = replace(setting, modules=modules_of(setting))
        if engine == "local":  # Ray sends classes as they are
            check_classes(model)
    _check_names(setting, names)
    rows = Rows(split, columns, folder, limit, draw, seed)
    source = choose_rows(data, rows)
    found = survey(source)
    _check_data(setting, source, found, given)
    worker = _open_worker(setting, source, found, names)
    path, temporary = _run_folder(out)
    with manifest.locked(path):
        asked = _asked(worker, rows, shard, given)
        there = manifest.claim(path, _manifest(asked, worker, source, found, how))
        worker = replace(worker, setting=replace(worker.setting, threads=threads or there["threads"]))
        whole = _compute_missing(path / manifest.SHARDS, _Plan(source, given, found, worker, shard), how)
        _summarise(path, whole, worker.setting)
    run = Run(path, temporary)
    _tell_left_out(run)
    return run


# What was asked -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Engine:
    """Who computes the shards. It may change when a run is resumed."""

    name: str
    workers: int
    threads: int
    gpus: float  # of each Ray actor
    progress: bool

    @property
    def elsewhere(self) -> bool:
        """Whether other processes compute."""
        return self.name == "ray" or self.workers > 1


def _resolve_engine(name: str, workers: int | None, threads: int | None, gpus: float, progress: bool | None) -> _Engine:
    if name not in ENGINES:
        raise InvalidOption(f"unknown engine {name!r}; expected one of {', '.join(ENGINES)}")
    workers = workers or (1 if name == "local" else os.cpu_count() or 1)
    threads = threads or max(1, torch.get_num_threads() // workers)
    return _Engine(name, workers, threads, gpus, sys.stderr.isatty() if progress is None else progress)


def _one_method(name: str, every: Sequence[Explanation]) -> list[Explanation]:
    """Explanations made elsewhere. Scores of a method that has signs have them also where none is below zero."""
    if not isinstance(every, Iterable) or not all(isinstance(each, Explanation) for each in every):
        raise InvalidInput(f"'{name}' holds other things than explanations; make them with Explanation.from_scores")
    signed = any(each.signed for each in every)
    return [replace(each, signed=signed) for each in every]


def _check_names(setting: Setting, names: Mapping[Any, str] | None) -> None:
    if names is not None and not setting.wants_gold:
        raise InvalidOption(
            "names= says which class a gold label is, and only target='label' and masked-accuracy ask for that; leave "
            "it out"
        )


def _check_data(setting: Setting, source: Dataset, found: Survey, given: Mapping[str, Sequence[Explanation]]) -> None:
    check_needs(setting, found.having, found.kinds, found.rows, source.name)
    for name, every in given.items():
        if len(every) != found.rows:
            dropped = first_few([(each.row, each.reason) for each in source.dropped])
            left_out = f" of those that can be read; these cannot: {dropped}" if dropped else ""
            raise InvalidInput(
                f"{len(every)} explanations '{name}' for {found.rows} examples; expected one each{left_out}"
            )


# The model ------------------------------------------------------------------------------------------------


def _open_worker(setting: Setting, source: Dataset, found: Survey, names: Mapping[Any, str] | None) -> Worker:
    """The model, opened and checked against what is asked of it and against the data."""
    worker = Worker.open(setting)
    opened = worker.opened
    check_model(opened, setting)
    if setting.wants_gold and opened.task == "classification":
        classes = gold_classes(opened.labels, found.labels, source.labels, names)
        worker = replace(worker, setting=replace(setting, classes=classes))
    if opened.task == "causal-lm" and setting.target is None and found.at_mask == found.rows:
        raise NotDefined(
            f"every example of {source.name} asks for the word at {MASK}, and {opened.name} predicts the next token; "
            f"give it what stands before the mask (--up-to-mask, or wherefrom.data.up_to_mask(data)), or choose a "
            f"masked language model"
        )
    if opened.two_streams and not (found.having["target"] or found.prefixed):
        raise NotDefined(
            f"{opened.name} is an encoder with a decoder, which is measured on a text and what it writes of it, and no "
            f"row of {source.name} has a target; name the columns that hold them: columns={{'text': …, 'target': …}} "
            f"(--column text=… --column target=…)"
        )
    if found.masked and opened.task == "classification":
        warn(
            f"{found.masked} of the {found.rows} texts hold {MASK}, and {opened.name} is a classifier, which "
            f"reads it like any other word; for a model of what comes next, give it wherefrom.data.up_to_mask(data), "
            f"or say --up-to-mask"
        )
    regional = [asked.name for asked in setting.asked() if "region" in asked.needs]
    if regional and setting.target is None and found.having["label"]:
        warn(
            f"{', '.join(regional)}: a region is where a row's label is to be seen, and what is explained is what the "
            f"model predicts, which may be another class; target='label' explains the label"
        )
    for second in worker.others.values():
        check_second(opened, second.opened)
    worker.try_out()
    return worker


# The run folder -------------------------------------------------------------------------------------------


def _run_folder(out: str | os.PathLike[str] | None) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """The folder of the run; where none is named, a temporary one. What no folder can be called is refused."""
    if out is None:
        temporary = tempfile.TemporaryDirectory(prefix="wherefrom-run-")
        return Path(temporary.name), temporary
    name = os.fspath(out)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        name = "\0"
    if "\0" in name:
        raise InvalidOption("out holds a character that no name of a folder can have; choose another")
    return Path(out), None


def _asked(worker: Worker, rows: Rows, shard: int, given: Mapping[str, Sequence[Explanation]]) -> dict[str, Any]:
    """What makes a run this run and no other, beside model, data and versions."""
    setting = worker.setting
    asked: dict[str, Any] = {
        "methods": list(setting.methods),
        "metrics": list(setting.metrics),
        "target": setting.target,
        "limit": rows.limit,
        "draw": rows.draw,
        "batch_size": setting.batch_size,
        "shard": shard,
        "truncate": setting.truncate,
        "seed": setting.seed,
        "model_kwargs": {key: str(value) for key, value in setting.model_kwargs.items()},
        "tokenizer_kwargs": {key: str(value) for key, value in setting.tokenizer_kwargs.items()},
        "explanations": {name: _scores_hash(every) for name, every in given.items()},
    }
    if setting.classes:
        asked["classes"] = dict(setting.classes)
    if worker.others:
        asked["models"] = {name: manifest.model_identity(each.opened) for name, each in worker.others.items()}
    return asked


def _manifest(asked: dict[str, Any], worker: Worker, source: Dataset, found: Survey, how: _Engine) -> dict[str, Any]:
    return {
        "format": manifest.FORMAT,
        "version": manifest.VERSION,
        "asked": asked,
        "model": manifest.model_identity(worker.opened),
        "data": {
            "name": source.name,
            "split": source.split,
            "fingerprint": source.fingerprint,
            "rows": found.rows,
            "dropped": len(source.dropped),
        },
        "dropped": first_few([(each.row, each.reason) for each in source.dropped]),
        "versions": manifest.versions(),
        "threads": how.threads,
        "command": _called(sys.argv),
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _called(argv: Sequence[str]) -> list[str]:
    """The command as it can be repeated: `python -m wherefrom` is known by the path of a file."""
    own = Path(argv[0]).parts[-2:] == ("wherefrom", "__main__.py") if argv else False
    return ["python", "-m", "wherefrom", *argv[1:]] if own else list(argv)


def _scores_hash(every: Sequence[Explanation]) -> str:
    digest = hashlib.sha256()
    for each in every:
        digest.update(json.dumps([each.tokens, str(each.measured)]).encode())
        digest.update(np.ascontiguousarray(each.scores, dtype=np.float64).tobytes())
    return digest.hexdigest()


# The shards -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """All that the shards are cut from."""

    source: Dataset
    given: Mapping[str, Sequence[Explanation]]
    survey: Survey
    worker: Worker
    shard: int

    def missing(self, whole: dict[str, Path], clock: Clock) -> Iterator[ShardTask]:
        """The shards that are not there yet, in the order in which they are computed; the clock learns of each."""
        full = store.complete(whole)
        for number, window in planning.windows(items(self.source, self.given)):
            characters = self.survey.characters[number]
            if number in full:
                clock.skips(characters)
                continue
            reads = self.worker.reading([item.example for item in window])
            every = planning.cut(number, window, reads, self.shard)
            waiting = planning.pending(every, whole)
            clock.reads(
                characters, *(planning.load(n for each in some for n in each.tokens) for some in (every, waiting))
            )
            yield from waiting


def _compute_missing(folder: Path, plan: _Plan, how: _Engine) -> dict[str, Path]:
    """Compute the shards that are missing; all of them, by name."""
    whole = store.found(folder)
    clock = Clock(sum(plan.survey.characters, planning.Load()), how.workers)
    before = sum(int(plan.survey.characters[window].rows) for window in store.complete(whole))
    with local.settled(), bar(plan.survey.rows, before, how.progress) as show:
        for done in _computed(how, plan.worker, plan.missing(whole, clock)):
            whole[done.task.name] = store.put(folder, done.task.name, done.content)
            clock.done(planning.load(done.task.tokens), done.seconds)
            show(clock)
    return whole


def _computed(how: _Engine, worker: Worker, tasks: Iterator[ShardTask]) -> Iterator[local.Done]:
    """Shards as the engine finishes them."""
    first = next(tasks, None)
    if first is None:  # nothing is left, and nobody need be started for it
        return iter(())
    every = chain([first], tasks)
    if how.name == "ray":
        from wherefrom.evaluation.ray_cluster import actors

        return actors(worker.setting, every, how.workers, how.gpus)
    return local.here(worker, every) if how.workers == 1 else local.beside(worker, every, how.workers)


# The tables -----------------------------------------------------------------------------------------------


def _summarise(path: Path, whole: dict[str, Path], setting: Setting) -> None:
    """Write the tables, unless they are there as they were written."""
    if (path / manifest.FINISHED).exists() and _tables_whole(path):
        return
    try:
        totals = summary.build(path, whole, (*setting.methods, *setting.given), setting.asked())
    except OSError as error:
        raise ResourceUnavailable(f"cannot write the tables of '{path}': {error.strerror or error}") from error
    if sum(totals.failures.values()) == totals.examples:
        each = [
            (reason, f"{count} times, for one" if count > 1 else "once") for reason, count in totals.failures.items()
        ]
        reasons = "; ".join(f"{often}: {reason}" for reason, often in each[:3])
        for file in (*(path / name for name in manifest.TABLES), *whole.values()):
            file.unlink(missing_ok=True)  # the next call, which does as the reasons say, may have the same folder
        raise NotDefined(f"none of the {totals.examples} examples could be explained ({reasons})")
    finished = {
        "examples": totals.examples,
        "failures": totals.failures,
        "seconds": {name: round(spent, 3) for name, spent in sorted(totals.seconds.items())},
        "tables": {name: _file_hash(path / name) for name in manifest.TABLES},
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(path / manifest.FINISHED, json.dumps(finished, indent=1, ensure_ascii=False).encode())


def _tell_left_out(run: Run) -> None:
    """Warn of rows without which the means were taken: a run in a variable does not show them."""
    known, failures = run.manifest, run.failures
    failed, dropped = sum(failures.values()), known["data"]["dropped"]
    if failed or dropped:
        count, rows = failed + dropped, known["data"]["rows"] + dropped
        were, such = ("was", "") if count == 1 else ("were", ", for one")
        why = next(iter(failures), known.get("dropped", "they were dropped in reading"))
        rest = "run.failures has every reason" if failed else "run.show() says more"
        warn(f"{count} of {rows} rows {were} left out{such}: {why}; {rest}", RowsLeftOut)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tables_whole(path: Path) -> bool:
    """Whether the tables are those that were written."""
    try:
        known = json.loads((path / manifest.FINISHED).read_text(encoding="utf-8"))["tables"]
        return all(_file_hash(path / name) == known[name] for name in manifest.TABLES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
