"""One way to run transformers' Trainer: checkpoints, resume, early stopping, and a stop when the loss is no number."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import SequentialSampler
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from wherefrom.errors import InvalidOption, RunConflict, WherefromError
from wherefrom.extras import need
from wherefrom.files import write
from wherefrom.model.loading import UNFINISHED, no_bars
from wherefrom.training.order import Change, Ordered

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CHECKPOINTS, SETTINGS = UNFINISHED.split("/")
VOCABULARY, CORPUS = "vocabulary/tokenizer.json", "corpus.npy"  # of a text, beside the checkpoints
REPORT = "training.json"
ASIDE = ".before"  # the ending of what `fresh` replaces, until there is something in its place


@dataclass(frozen=True)
class Schedule:
    """How to train. `epochs` or `steps` says how long; `checks` how often per epoch to validate and save."""

    out: Path
    epochs: float = 3.0
    steps: int | None = None
    batch: int = 32
    learning_rate: float = 3e-5
    warmup: float = 0.06
    weight_decay: float = 0.01
    beta2: float = 0.999
    patience: int = 3  # validations in a row without improvement that end the run; 0: none do
    checks: int = 1
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    workers: int = 0
    progress: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the weights: all but where they go and how the run is watched and fed."""
        return {**asdict(self), "out": None, "progress": None, "workers": None}


@dataclass(frozen=True)
class Fitting:
    """What to train: everything that differs between the commands."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | Any  # or what else prepares the input, saved beside the model
    train: Any  # a list of rows, to be shuffled; or a Dataset that has its own order
    valid: Any
    collate: Callable[[Any], Any]
    best: str  # the validation metric that decides, e.g. "accuracy" or "loss"
    metrics: Callable[[Any], dict[str, float]] | None = None
    trainer: type[InOrder] | None = None  # InOrder, unless the loss is computed in another way
    change: Change | None = None  # what is done to a training row each time it is read
    labels: tuple[str, ...] = ("labels",)  # the keys of a batch that hold the right answers
    keep_last: bool = False  # the weights of the last step, not those that validate best


@dataclass(frozen=True)
class Trained:
    """What came of a run."""

    out: Path
    metrics: dict[str, float]
    steps: int
    seconds: float
    resumed: bool
    stopped: str = ""  # why it ended before its last step, if it did


@contextmanager
def running(run: Schedule, settings: dict[str, Any], fresh: bool) -> Iterator[None]:
    """One run in its folder, from the reading of its data to its end.

    What is refused, or interrupted before there is anything to go on from, leaves no trace: the folder is free again,
    and with `fresh` it has what it had.
    """
    on_cuda(run)  # these refuse devices and precisions, before anything is read
    in_half(run)
    if not 0 <= run.seed < 2**32:
        raise InvalidOption(f"seed={run.seed}; expected a whole number from 0 to {2**32 - 1:,}")
    folder, there = run.out / CHECKPOINTS, run.out.exists()
    before = set() if fresh else {each.name for each in folder.glob("*")}
    prepare(run.out, settings, fresh)
    try:
        with no_bars():  # Trainer has a bar of its own
            yield
    except BaseException as error:
        kept = weighted(run.out) if isinstance(error, WherefromError) else resumable(run.out)
        if not kept and SETTINGS not in before:  # what another call began is left to it
            for each in folder.glob("*"):
                if each.name not in before:
                    _remove(each)
            _remove_empty(folder)
            _bring_back(run.out)
            if not there:
                _remove_empty(run.out)
        raise
    for name in (CHECKPOINTS, REPORT):
        _remove(run.out / f"{name}{ASIDE}")


def _set_aside(out: Path) -> None:
    for name in (CHECKPOINTS, REPORT):
        if (out / name).exists():
            _remove(out / f"{name}{ASIDE}")  # of a run that was killed
            os.replace(out / name, out / f"{name}{ASIDE}")


def _bring_back(out: Path) -> None:
    for name in (CHECKPOINTS, REPORT):
        if (out / f"{name}{ASIDE}").exists() and not (out / name).exists():
            os.replace(out / f"{name}{ASIDE}", out / name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def weighted(out: Path) -> bool:
    """Whether a run has left weights to go on from: Trainer's checkpoints, or those of the loop for pictures."""
    return last_checkpoint(out) is not None or any((out / CHECKPOINTS).glob("*.pt"))


def resumable(out: Path) -> bool:
    """Whether a run has left anything to go on from: weights, or a text that is read already."""
    return weighted(out) or any((out / CHECKPOINTS / name).exists() for name in (VOCABULARY, CORPUS))


def prepare(out: Path, settings: dict[str, Any], fresh: bool) -> None:
    """Make the folder ready for a run with these settings, or say why it cannot take one.

    An unfinished run with the same settings is resumed; `fresh` throws away what is there.
    """
    need("accelerate", extra="train")  # before anything is written: transformers asks for it when training begins
    kept = out / CHECKPOINTS / SETTINGS
    text = json.dumps(settings, indent=1, sort_keys=True, default=str)
    if fresh:
        _set_aside(out)
    if (out / REPORT).exists():
        raise RunConflict(f"{out} already holds a finished run; choose another folder, or pass --fresh to replace it")
    if kept.exists() and kept.read_text() != text:
        old, new = json.loads(kept.read_text()), json.loads(text)
        raise RunConflict(
            f"{out} holds an unfinished run with other settings ({', '.join(_changed(old, new))}); "
            "repeat them to resume it, or pass --fresh to start again"
        )
    models = [name for name in ("config.json", "model.safetensors") if (out / name).exists()]
    if models and not fresh and not kept.exists():
        raise RunConflict(
            f"{out} holds a model of no training of this kind ({', '.join(models)}); choose another folder, or pass "
            f"--fresh to replace it"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    write(kept, text)


def _changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The names of the settings that differ; of those in groups (run, shape, columns) their own."""

    def single(settings: dict[str, Any]) -> dict[tuple[str, str], Any]:
        groups = {name: value if isinstance(value, dict) else {name: value} for name, value in settings.items()}
        return {(group, name): value for group, values in groups.items() for name, value in values.items()}

    one, other = single(old), single(new)
    return sorted({key[1] for key in one.keys() | other.keys() if one.get(key) != other.get(key)})


def fit(task: Fitting, run: Schedule, settings: dict[str, Any]) -> Trained:
    """Train, keep the best weights by validation, save the folder and its report, drop the checkpoints."""
    started = time.monotonic()
    checkpoint = last_checkpoint(run.out)
    rows, epoch = task.train, None
    if isinstance(rows, list):
        steps, _ = schedule(run, len(rows))
        epoch = steps_of_epoch(run, len(rows))
        rows = Ordered(rows, run.batch, steps * run.batch, run.seed, task.change)
    trainer = (task.trainer or InOrder)(
        model=task.model,
        args=arguments(task, run),
        train_dataset=rows,
        eval_dataset=task.valid,
        data_collator=task.collate,
        compute_metrics=task.metrics,
        callbacks=[*callbacks(run), HowFar(epoch)],
    )
    if not run.progress:
        trainer.remove_callback(PrinterCallback)  # Trainer's stand-in for the progress bar prints every metric
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    metrics = {
        name.removeprefix("eval_"): float(value)
        for name, value in trainer.evaluate().items()
        if name in ("eval_loss", f"eval_{task.best}")
    }
    step, took = trainer.state.global_step, time.monotonic() - started
    stopped = stopped_early(run, step, trainer.state.max_steps)
    outcome = Trained(run.out, metrics, step, took, checkpoint is not None, stopped)
    return finish(task.model, task.tokenizer, run, outcome, settings, trainer.args.device)


def stopped_early(run: Schedule, step: int, steps: int) -> str:
    """Why a run ended before its last step: losses that are no numbers are errors, which leaves its patience."""
    if step >= steps:
        return ""
    times = "one validation" if run.patience == 1 else f"{run.patience} validations"
    return f"stopped before step {steps}, after {times} without improvement (--patience)"


def finish(
    model: PreTrainedModel, tokenizer: Any, run: Schedule, outcome: Trained, settings: dict[str, Any], device: Any
) -> Trained:
    """Save the folder and its report, and drop the checkpoints."""
    save(model, tokenizer, run.out)
    report = {**settings, "outcome": {**asdict(outcome), "out": None}, "made_with": versions(device)}
    write(run.out / REPORT, json.dumps(report, indent=1, default=str) + "\n")
    shutil.rmtree(run.out / CHECKPOINTS, ignore_errors=True)
    return outcome


def steps_of_epoch(run: Schedule, rows: int) -> int:
    return math.ceil(rows / run.batch)


def schedule(run: Schedule, rows: int) -> tuple[int, int]:
    """(steps in all, steps between two validations)."""
    if run.steps is not None:
        return run.steps, max(1, run.steps // run.checks)
    per_epoch = steps_of_epoch(run, rows)
    return math.ceil(per_epoch * run.epochs), max(1, per_epoch // run.checks)


class InOrder(Trainer):  # type: ignore[misc]  # transformers is untyped here
    """Trainer that reads its dataset from first to last; the dataset has shuffled already."""

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Trainer warns of weights that a checkpoint lacks, also of those that are another one's and saved with it."""
        load_result.missing_keys[:] = untied(self.model, load_result.missing_keys)
        super()._issue_warnings_after_load(load_result)


def untied(model: torch.nn.Module, names: list[str]) -> list[str]:
    """The weights of these names that no weight of another name is."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    others = {id(weight) for name, weight in weights.items() if name not in names}
    return [name for name in names if name not in weights or id(weights[name]) not in others]


def arguments(task: Fitting, run: Schedule) -> TrainingArguments:
    """Our settings in transformers' words."""
    cuda = on_cuda(run)
    steps, every = schedule(run, len(task.train))
    return TrainingArguments(
        output_dir=str(run.out / CHECKPOINTS),
        max_steps=steps,
        per_device_train_batch_size=run.batch,
        per_device_eval_batch_size=run.batch,
        learning_rate=run.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=round(run.warmup * steps),
        weight_decay=run.weight_decay,
        adam_beta2=run.beta2,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        bf16=in_half(run),
        use_cpu=not cuda,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        restore_callback_states_from_checkpoint=True,  # how long nothing has improved, for early stopping
        load_best_model_at_end=not task.keep_last,
        metric_for_best_model=task.best,
        greater_is_better=task.best != "loss",
        logging_steps=min(50, every),
        logging_nan_inf_filter=False,  # it hides what FiniteLoss looks for
        seed=run.seed,
        dataloader_num_workers=run.workers,
        dataloader_pin_memory=cuda,
        accelerator_config={"non_blocking": cuda},  # else every batch waits for the one before
        remove_unused_columns=False,
        label_names=list(task.labels),
        report_to="none",
        disable_tqdm=not run.progress,
    )


def on_cuda(run: Schedule) -> bool:
    """Whether the run is to use a GPU; an error if one was asked for and there is none."""
    import torch

    there = torch.cuda.is_available()
    if run.device not in ("auto", "cpu", "cuda"):
        raise InvalidOption(f"unknown device '{run.device}'; expected one of auto, cpu, cuda")
    if run.device == "cuda" and not there:
        raise InvalidOption("device 'cuda' was asked for, but torch sees no GPU; use --device cpu")
    return there and run.device != "cpu"


def in_half(run: Schedule) -> bool:
    """Whether passes are in bfloat16."""
    if run.precision not in ("auto", "bf16", "float32"):
        raise InvalidOption(f"precision {run.precision!r}: expected auto, bf16 or float32")
    return run.precision == "bf16" or (run.precision == "auto" and on_cuda(run))


def compile_blocks(network: PreTrainedModel) -> None:
    """Compile the Transformer's blocks, not the whole model: they share one graph, made in seconds, not a minute."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile(dynamic=False)


def callbacks(run: Schedule) -> list[TrainerCallback]:
    """Early stopping if wanted, and the watch over the loss."""
    stopping = [] if run.patience == 0 else [EarlyStoppingCallback(early_stopping_patience=run.patience)]
    return [*stopping, FiniteLoss()]


class HowFar(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Say after how many epochs a loss was measured (of `epoch` steps), or after which step where none are counted.

    Trainer reads all epochs as one long dataset, and would say what part of it is done.
    """

    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch

    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, float], **___: Any) -> None:
        """Called by Trainer before the losses are shown."""
        if self.epoch is None:
            del logs["epoch"]
            logs["step"] = state.global_step
        else:
            logs["epoch"] = state.global_step / self.epoch


class FiniteLoss(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Stop at the first loss that is no finite number, before a checkpoint keeps the broken weights."""

    def on_log(self, args: Any, state: Any, _: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        """Called by Trainer with each measured loss."""
        for name, kind in (("loss", "training"), ("eval_loss", "validation")):
            value = (logs or {}).get(name)
            if value is not None:
                refuse_infinite(kind, value, state.global_step, args.learning_rate)


def refuse_infinite(kind: str, loss: float, step: int, rate: float) -> None:
    """An error where a loss is no finite number."""
    if not math.isfinite(loss):
        raise InvalidOption(
            f"the {kind} loss became {loss} at step {step}; lower --lr (now {rate:g}), lengthen --warmup, or use "
            f"--precision float32"
        )


def last_checkpoint(out: Path) -> Path | None:
    """The newest checkpoint that was written to its end (its state file is written last)."""

    def whole(folder: Path) -> bool:
        try:
            json.loads((folder / "trainer_state.json").read_text())
        except (OSError, ValueError):
            return False
        return True

    found = [f for f in (out / CHECKPOINTS).glob("checkpoint-*") if whole(f)]
    return max(found, key=lambda f: int(f.name.rpartition("-")[2]), default=None)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | Any, out: Path) -> None:
    """Write the folder that `from_pretrained` and `wherefrom explain --model` open."""
    if model.can_generate():
        model.config.use_cache = True  # Trainer turns it off; to generate without it is slow
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    attention = model.config._attn_implementation
    if getattr(model.config, "is_causal", None) is False and model.config.model_type == "gpt2":
        # transformers' SDPA path may still put the causal mask back; this key makes from_pretrained choose eager.
        file = out / "config.json"
        config = json.loads(file.read_text())
        write(file, json.dumps({**config, "attn_implementation": attention}, indent=2, sort_keys=True) + "\n")


def versions(device: Any) -> dict[str, str]:
    """What a reader needs to know to repeat the run."""
    import torch
    import transformers

    from wherefrom.version import __version__

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "wherefrom": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": name,
    }
