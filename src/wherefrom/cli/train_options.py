"""The options of `wherefrom train`, and what they are to the code that trains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherefrom.cli.flags import Asked, Flag, Group

if TYPE_CHECKING:
    from wherefrom.training.labelled import Columns
    from wherefrom.training.loop import Schedule

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the trained model.", file_okay=False)]
Text = Annotated[str, typer.Option(help="Column with the text.")]
Pair = Annotated[str | None, typer.Option(help="Column with the second text of a pair.")]
Source = Annotated[str, typer.Option(help="Column with the text to translate.")]
Target = Annotated[str, typer.Option(help="Column with its translation.")]
Label = Annotated[str, typer.Option(help="Column with the label.")]
Until = Annotated[str | None, typer.Option(help="Column with a word index: only the words before it are read.")]
Name = Annotated[
    list[str] | None, typer.Option(help="Name a label: 1=positive. Repeatable; '3=' leaves rows labelled 3 out.")
]
Where = Annotated[
    list[str] | None, typer.Option(help="Only rows whose column has this value: column=value. Repeatable.")
]
ModelName = Annotated[str, typer.Option("--model", "-m", help="Shipped model, folder or hub id to start from.")]
Valid = Annotated[Path | None, typer.Option(help="Validation rows; else a share of the training rows is held out.")]
HeldOut = Annotated[float, typer.Option(help="Share held out for validation.", min=0.0001, max=0.9)]
Longest = Annotated[int | None, typer.Option(help="Cut texts to this many tokens.", min=4)]
Window = Annotated[
    int | None,
    typer.Option(help="Tokens of a window, question included; default: 384, or what the model reads.", min=16),
]
Overlap = Annotated[
    int | None, typer.Option(help="Tokens that two windows of a context share; default: a third of --longest.", min=0)
]
Epochs = Annotated[float, typer.Option(help="Passes over the data; --patience may end them sooner.", min=0.01)]
Batch = Annotated[int, typer.Option(help="Rows in a batch.", min=1)]
Rate = Annotated[float, typer.Option("--lr", help="Highest learning rate.", min=0.0)]
Warmup = Annotated[float, typer.Option(help="Share of the steps in which the learning rate rises.", min=0, max=1)]
Decay = Annotated[float, typer.Option(help="Weight decay.", min=0)]
Patience = Annotated[int, typer.Option(help="Stop after this many validations without improvement; 0: never.", min=0)]
Texts = Annotated[
    list[str], typer.Argument(help="Text files, or table.parquet:column. Name one twice to read it twice.")
]
Steps = Annotated[int, typer.Option(help="Batches to train on.", min=1)]
Vocabulary = Annotated[str | None, typer.Option(help="Use this vocabulary instead of learning one.")]
Layers = Annotated[int, typer.Option(min=1)]
Width = Annotated[int, typer.Option(min=8)]
Length = Annotated[int, typer.Option(help="Tokens per row.", min=16)]
Beta2 = Annotated[float, typer.Option(help="AdamW's second momentum.", min=0.5, max=0.9999)]
Checks = Annotated[
    int, typer.Option(help="Validations (and checkpoints) per epoch; of a run counted in steps, in all of it.", min=1)
]
Dropout = Annotated[float, typer.Option(help="Share of the activations dropped in training.", min=0, max=0.9)]
Seed = Annotated[int, typer.Option(help="Seed of initialisation, order and dropout.", min=0, max=2**32 - 1)]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (bf16 on CUDA), bf16 or float32.")]
Workers = Annotated[int, typer.Option(help="Processes that prepare batches.", min=0)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away what a training left in --out, and start again.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]


def training(
    *, batch: int, lr: float, warmup: float, weight_decay: float, checks: int, workers: int | None, **more: Flag
) -> Group:
    """The options of every run; their defaults differ, and those that prepare nothing on the CPU have no workers."""
    return {
        **more,
        **({} if workers is None else {"workers": Flag(Workers, workers)}),
        "batch": Flag(Batch, batch),
        "lr": Flag(Rate, lr),
        "warmup": Flag(Warmup, warmup),
        "weight_decay": Flag(Decay, weight_decay),
        "checks": Flag(Checks, checks),
        "seed": Flag(Seed, 0),
        "device": Flag(Device, "auto"),
        "precision": Flag(Precision, "auto"),
        "quiet": Flag(Quiet, False),
    }


def schedule(out: Path, how: Asked, **more: Any) -> Schedule:
    """These options as the training loop takes them."""
    from wherefrom.training.loop import Schedule

    given = {**how, **more}
    rate, quiet, patience = given.pop("lr"), given.pop("quiet"), given.pop("patience", 0)
    return Schedule(out, learning_rate=rate, progress=not quiet, patience=patience, **given)


def columns_of(
    text: str, pair: str | None, label: str, until: str | None, name: list[str] | None, where: list[str] | None
) -> Columns:
    from wherefrom.training.labelled import Columns, pairs_of

    return Columns(text, label, pair, until, names_of(name), pairs_of(where or [], "--where"))


def names_of(name: list[str] | None) -> dict[str, str]:
    from wherefrom.training.labelled import pairs_of

    return {key: values[-1] for key, values in pairs_of(name or [], "--name").items()}
