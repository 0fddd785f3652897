"""`wherefrom train`: the code that made the shipped models, for your own data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherefrom.cli.flags import Asked, Flag, shared
from wherefrom.cli.train_measures import bits, bleu, measure
from wherefrom.cli.train_options import (
    Beta2,
    Dropout,
    Epochs,
    Fresh,
    HeldOut,
    Label,
    Layers,
    Length,
    Longest,
    ModelName,
    Name,
    Out,
    Overlap,
    Pair,
    Patience,
    Seed,
    Source,
    Steps,
    Target,
    Text,
    Texts,
    Until,
    Valid,
    Vocabulary,
    Where,
    Width,
    Window,
    columns_of,
    names_of,
    schedule,
    training,
)
from wherefrom.cli.wording import INTERRUPTED

if TYPE_CHECKING:
    from wherefrom.training.loop import Trained


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Train models; after a kill, the same command resumes.")
    trainings = (pretrain, lm, classify, qa, image, translate, agree, prompt)
    for command in (
        pretrain,
        lm,
        bits,
        classify,
        qa,
        questions,
        image,
        translate,
        bleu,
        prefixes,
        agree,
        prompt,
        average,
    ):
        group.command()(_resumable(command) if command in trainings else command)
    group.command("test")(measure)  # a function called test_… or test would be taken for a test
    app.add_typer(group, name="train")


def _resumable(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which says when it is interrupted that it can be repeated."""

    @wraps(command)
    def run(**given: Any) -> None:
        try:
            command(**given)
        except KeyboardInterrupt:
            loop = sys.modules.get("wherefrom.training.loop")  # without it nothing has begun
            if loop is not None and loop.resumable(given["out"]):
                typer.echo(f"{given['out']}: {INTERRUPTED}", err=True)
            raise

    return run


@shared(
    how=(training(batch=512, lr=1.2e-3, warmup=0.05, weight_decay=0.01, checks=10, workers=2, beta2=Flag(Beta2, 0.98)),)
)
def pretrain(
    sources: Texts,
    out: Out,
    steps: Steps,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Continue from this masked language model.")
    ] = None,
    tokenizer: Vocabulary = None,
    layers: Layers = 8,
    width: Width = 256,
    heads: Annotated[int, typer.Option(min=1)] = 8,
    vocabulary: Annotated[int, typer.Option(help="Word pieces to learn.", min=100, max=65_000)] = 8192,
    length: Length = 128,
    ratio: Annotated[int, typer.Option(help="How many times as long the rows of the long share are.", min=1)] = 1,
    long_share: Annotated[float, typer.Option(help="Share of the steps with long rows.", min=0, max=1)] = 0.0,
    mask_rate: Annotated[float, typer.Option(help="Share of the tokens to hide.", min=0.01, max=0.9)] = 0.15,
    held_out: HeldOut = 0.005,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Pretrain a masked language model on text: a new BERT with its own vocabulary, or --model."""
    from wherefrom.training import pretrain as task

    run = schedule(out, how, steps=steps)
    shape = task.EncoderShape(layers, width, heads, vocabulary)
    reading = task.MaskedText(length, ratio, long_share, mask_rate, held_out)
    tell(task.pretrain(sources, run, shape, reading, model, tokenizer, fresh))


@shared(
    how=(training(batch=256, lr=2e-3, warmup=0.04, weight_decay=0.1, checks=10, workers=2, beta2=Flag(Beta2, 0.95)),)
)
def lm(
    sources: Texts,
    out: Out,
    steps: Steps,
    tokenizer: Vocabulary = None,
    layers: Layers = 9,
    width: Width = 288,
    heads: Annotated[int, typer.Option(help="Heads of queries.", min=1)] = 9,
    groups: Annotated[int, typer.Option(help="Heads of keys and values, which those of queries share.", min=1)] = 3,
    units: Annotated[int, typer.Option(help="Hidden units of the gated FFN.", min=1)] = 768,
    vocabulary: Annotated[int, typer.Option(help="Byte-level pieces to learn.", min=300, max=65_000)] = 8192,
    dropout: Dropout = 0.0,
    length: Length = 512,
    held_out: HeldOut = 0.005,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Pretrain a language model that predicts the next word: a new Llama with its own vocabulary."""
    from wherefrom.training import lm as task

    run = schedule(out, how, steps=steps)
    shape = task.DecoderShape(layers, width, heads, groups, units, vocabulary, dropout)
    tell(task.pretrain(sources, run, shape, length, held_out, tokenizer, fresh))


# GlobEnc's setting, of a model that is trained on: a classifier by its head, or by words in a prompt.
_FINE_TUNING = training(
    batch=32,
    lr=3e-5,
    warmup=0.06,
    weight_decay=0.01,
    checks=1,
    workers=0,
    epochs=Flag(Epochs, 3.0),
    patience=Flag(Patience, 3),
)


@shared(how=(_FINE_TUNING,))
def classify(
    train: Annotated[list[Path], typer.Argument(help="Labelled rows: parquet, jsonl, csv or tsv.")],
    out: Out,
    text: Text = "text",
    pair: Pair = None,
    label: Label = "label",
    until: Until = None,
    name: Name = None,
    where: Where = None,
    model: ModelName = "wherefrom/mlm",
    valid: Valid = None,
    held_out: HeldOut = 0.1,
    longest: Longest = None,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Fine-tune a classifier on labelled texts or pairs of texts."""
    from wherefrom.training import classify as task

    run = schedule(out, how)
    columns = columns_of(text, pair, label, until, name, where)
    tell(task.classify(train, run, columns, model, valid, held_out, longest, fresh))


@shared(how=(_FINE_TUNING,))
def qa(
    train: Annotated[
        list[str],
        typer.Argument(help="SQuAD's JSON, a table in its layout, or squad_v1, squad_v2 (their train split)."),
    ],
    out: Out,
    model: ModelName = "wherefrom/mlm",
    valid: Annotated[
        str | None, typer.Option(help="Validation questions; else a share of the training contexts is held out.")
    ] = None,
    held_out: HeldOut = 0.1,
    longest: Window = None,
    overlap: Overlap = None,
    positions: Annotated[
        int | None, typer.Option(help="Repeat the model's position embeddings so that it reads so many tokens.", min=4)
    ] = None,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Fine-tune a model that answers questions with a span of their context (SQuAD)."""
    from wherefrom.training import qa as task

    run = schedule(out, how)
    tell(task.train(train, run, model, valid, held_out, task.WindowSize(longest, overlap), positions, fresh))


def questions(
    sources: Annotated[list[str], typer.Argument(help="SQuAD's JSON, text files, or table.parquet:column.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .json file to write.")],
    per_context: Annotated[int, typer.Option(help="Most questions about one paragraph.", min=1)] = 4,
    seed: Seed = 0,
) -> None:
    """Make questions from sentences by templates: more training data for `qa`."""
    from wherefrom.training import cloze as task

    count = task.write_questions(sources, out, per_context, seed)
    typer.echo(f"{count} {'question' if count == 1 else 'questions'} in {out}")


@shared(
    how=(
        training(
            batch=256,
            lr=1e-3,
            warmup=0.05,
            weight_decay=0.05,
            checks=1,
            workers=None,
            epochs=Flag(Epochs, 200.0),
            patience=Flag(Patience, 0),
        ),
    )
)
def image(
    train: Annotated[list[Path], typer.Argument(help="Rows with an image's bytes and a label: parquet.")],
    out: Out,
    column: Annotated[str, typer.Option("--image", help="Column with the bytes of a PNG or JPEG file.")] = "image",
    label: Label = "label",
    name: Name = None,
    layers: Layers = 7,
    width: Width = 192,
    heads: Annotated[int, typer.Option(min=1)] = 6,
    patch: Annotated[int, typer.Option(help="Pixels on the side of a patch.", min=1)] = 4,
    teacher: Annotated[
        int, typer.Option(help="Epochs of a network of convolutions, from whose answers to learn too; 0: none.", min=0)
    ] = 0,
    valid: Valid = None,
    held_out: HeldOut = 0.02,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Train a vision transformer on labelled pictures, from scratch."""
    from wherefrom.training import images as task

    run = schedule(out, how)
    columns = task.ImageColumns(column, label, names_of(name))
    shape = task.VisionShape(layers, width, heads, patch)
    tell(task.train(train, run, columns, shape, valid, held_out, fresh, teacher))


@shared(
    how=(training(batch=512, lr=1e-3, warmup=0.08, weight_decay=0.01, checks=12, workers=2, beta2=Flag(Beta2, 0.98)),)
)
def translate(
    train: Annotated[list[Path], typer.Argument(help="Rows with a text and its translation.")],
    out: Out,
    steps: Steps,
    source: Source = "source",
    target: Target = "target",
    tokenizer: Vocabulary = None,
    layers: Annotated[int, typer.Option(help="Layers of the encoder.", min=1)] = 4,
    decoder_layers: Annotated[int, typer.Option(help="Layers of the decoder.", min=1)] = 3,
    width: Width = 256,
    heads: Annotated[int, typer.Option(min=1)] = 8,
    vocabulary: Annotated[int, typer.Option(help="Pieces to learn, of both languages.", min=100, max=65_000)] = 5000,
    dropout: Dropout = 0.3,
    length: Annotated[int, typer.Option(help="Tokens that encoder and decoder can read.", min=16)] = 256,
    held_out: HeldOut = 0.02,
    test: Annotated[float, typer.Option(help="Share kept away from training, as test.jsonl.", min=0, max=0.5)] = 0.0,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Train a translator on pairs of texts, from scratch: a new Marian with its own vocabulary."""
    from wherefrom.training import translate as task

    run = schedule(out, how, steps=steps)
    columns = task.PairColumns(source, target)
    shape = task.TranslatorShape(layers, decoder_layers, width, heads, vocabulary, dropout)
    tell(task.train(train, run, columns, shape, length, held_out, test, tokenizer, fresh))


def prefixes(
    sources: Annotated[list[str], typer.Argument(help="Text files, or table.parquet:column.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .jsonl file to write (.gz and .xz compress it).")],
    exclude: Annotated[
        list[str] | None, typer.Option(help="Sentences to leave out: table.parquet:column. Repeatable.")
    ] = None,
) -> None:
    """Cut sentences before verbs whose form shows their number: the training data of `agree`."""
    from wherefrom.training import prefixes as task

    count = task.write(sources, out, exclude or [])
    typer.echo(f"{count} {'prefix' if count == 1 else 'prefixes'} in {out}")


@shared(
    how=(
        training(
            batch=256,
            lr=1e-3,
            warmup=0.05,
            weight_decay=0.05,
            checks=2,
            workers=0,
            epochs=Flag(Epochs, 5.0),
            patience=Flag(Patience, 3),
        ),
    )
)
def agree(
    prefixes: Annotated[list[Path], typer.Argument(help="Tables of prefixes, as `prefixes` writes them.")],
    out: Out,
    text: Text = "prefix",
    label: Label = "label",
    extra: Annotated[Path | None, typer.Option(help="More rows for training alone, e.g. Linzen's.")] = None,
    extra_text: Annotated[str, typer.Option(help="The extra rows' column with the sentence.")] = "sentence",
    extra_until: Annotated[
        str | None, typer.Option(help="The extra rows' column with the verb's index.")
    ] = "verb_index",
    extra_name: Annotated[list[str] | None, typer.Option(help="Name an extra label: 0=singular. Repeatable.")] = None,
    repeat: Annotated[int, typer.Option(help="Read the extra rows this many times an epoch.", min=1)] = 1,
    tokenizer: Annotated[str | None, typer.Option(help="Use this model's vocabulary instead of learning one.")] = None,
    embeddings: Annotated[str | None, typer.Option(help="Start from this model's word embeddings.")] = None,
    layers: Layers = 6,
    width: Width = 128,
    heads: Annotated[int, typer.Option(min=1)] = 8,
    vocabulary: Annotated[int, typer.Option(help="Word pieces to learn.", min=100, max=65_000)] = 8192,
    dropout: Dropout = 0.1,
    hide: Annotated[float, typer.Option(help="Share of the words masked in training.", min=0, max=0.9)] = 0.1,
    held_out: HeldOut = 0.02,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Train Abnar & Zuidema's verb-number model from scratch."""
    from wherefrom.training import agree as task

    run = schedule(out, how, beta2=0.98)
    columns = columns_of(text, None, label, None, None, None)
    more = columns_of(extra_text, None, label, extra_until, extra_name or ["0=singular", "1=plural"], None)
    shape = task.AgreementShape(layers, width, heads, vocabulary, dropout=dropout)
    tell(task.agree(prefixes, run, columns, extra, more, repeat, tokenizer, embeddings, shape, held_out, hide, fresh))


@shared(how=(_FINE_TUNING,))
def prompt(
    train: Annotated[
        Path, typer.Argument(help="Rows with a [MASK] text, its target and foil word; or --good and --bad.")
    ],
    out: Out,
    text: Text = "text",
    target: Annotated[str, typer.Option(help="Column with the right word.")] = "target",
    foil: Annotated[str, typer.Option(help="Column with the wrong word.")] = "foil",
    good: Annotated[str | None, typer.Option(help="Column with the right sentence of a minimal pair.")] = None,
    bad: Annotated[str | None, typer.Option(help="Column with the wrong sentence of a minimal pair.")] = None,
    where: Where = None,
    skip_split: Annotated[bool, typer.Option("--skip-split", help="Leave out words that are several pieces.")] = False,
    model: ModelName = "wherefrom/mlm",
    valid: Valid = None,
    held_out: HeldOut = 0.1,
    *,
    how: Asked,
    fresh: Fresh = False,
) -> None:
    """Fine-tune a masked language model to choose the target word, not the foil, at the mask."""
    from wherefrom.training import prompt as task
    from wherefrom.training.labelled import pairs_of

    run = schedule(out, how)
    columns = task.PromptColumns(text, target, foil, good, bad, pairs_of(where or [], "--where"))
    tell(task.prompt(train, run, columns, model, valid, held_out, skip_split, fresh))


def average(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs that differ in their seed.")],
    out: Out,
) -> None:
    """Average the weights of several fine-tuned models into one."""
    from wherefrom.training import average as task

    task.average(folders, out)
    typer.echo(f"{out}: the mean of {len(folders)} models")


def tell(outcome: Trained) -> None:
    measured = ", ".join(f"validation {name} {value:.4f}" for name, value in outcome.metrics.items())
    steps = f"{outcome.steps} {'step' if outcome.steps == 1 else 'steps'}"
    again = " (resumed)" if outcome.resumed else ""
    stopped = f"; {outcome.stopped}" if outcome.stopped else ""
    typer.echo(f"{outcome.out}: {measured}; {steps} in {outcome.seconds:.0f} s{again}{stopped}")
