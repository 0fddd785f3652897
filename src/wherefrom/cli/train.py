"""`wherefrom train`: the code that made the shipped models, for your own data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherefrom.cli.flags import Asked, Flag, Group, shared

if TYPE_CHECKING:
    from wherefrom.training.accuracy import Score
    from wherefrom.training.labelled import Columns
    from wherefrom.training.loop import Schedule, Trained

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
Epochs = Annotated[float, typer.Option(help="Passes over the data.", min=0.01)]
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
Checks = Annotated[int, typer.Option(help="Validations (and checkpoints) per epoch.", min=1)]
Dropout = Annotated[float, typer.Option(help="Share of the activations dropped in training.", min=0, max=0.9)]
Seed = Annotated[int, typer.Option(help="Seed of initialisation, order and dropout.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (bf16 on CUDA), bf16 or float32.")]
Workers = Annotated[int, typer.Option(help="Processes that prepare batches.", min=0)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away what --out holds and start again.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]


def _training(
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


def _schedule(out: Path, how: Asked, **more: Any) -> Schedule:
    """These options as the training loop takes them."""
    from wherefrom.training.loop import Schedule

    given = {**how, **more}
    rate, quiet, patience = given.pop("lr"), given.pop("quiet"), given.pop("patience", 0)
    return Schedule(out, learning_rate=rate, progress=not quiet, patience=patience or None, **given)


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Train models; after a kill, the same command resumes.")
    for command in (pretrain, lm, bits, classify, image, translate, bleu, prefixes, agree, prompt, average):
        group.command()(command)
    group.command("test")(measure)  # a function called test_… or test would be taken for a test
    app.add_typer(group, name="train")


@shared(
    how=(
        _training(batch=512, lr=1.2e-3, warmup=0.05, weight_decay=0.01, checks=10, workers=2, beta2=Flag(Beta2, 0.98)),
    )
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

    run = _schedule(out, how, steps=steps)
    shape = task.EncoderShape(layers, width, heads, vocabulary)
    reading = task.MaskedText(length, ratio, long_share, mask_rate, held_out)
    _tell(task.pretrain(sources, run, shape, reading, model, tokenizer, fresh))


@shared(
    how=(_training(batch=256, lr=2e-3, warmup=0.04, weight_decay=0.1, checks=10, workers=2, beta2=Flag(Beta2, 0.95)),)
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

    run = _schedule(out, how, steps=steps)
    shape = task.DecoderShape(layers, width, heads, groups, units, vocabulary, dropout)
    _tell(task.pretrain(sources, run, shape, length, held_out, tokenizer, fresh))


def bits(
    model: Annotated[str, typer.Argument(help="Shipped model, folder or hub id of a language model.")],
    sources: Annotated[list[str], typer.Argument(help="Text files, or table.parquet:column.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Measure how well a language model predicts text, in bits per byte."""
    from wherefrom.training import lm as task

    found = task.measure(model, sources, device)
    typer.echo(f"{found.bits_per_byte:.4f} bits per byte  ({found.bytes} bytes, {found.tokens} tokens)")


# GlobEnc's setting, of a model that is trained on: a classifier by its head, or by words in a prompt.
_FINE_TUNING = _training(
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

    run = _schedule(out, how)
    columns = _columns(text, pair, label, until, name, where)
    _tell(task.classify(train, run, columns, model, valid, held_out, longest, fresh))


@shared(
    how=(
        _training(
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

    run = _schedule(out, how)
    columns = task.ImageColumns(column, label, _names(name))
    shape = task.VisionShape(layers, width, heads, patch)
    _tell(task.train(train, run, columns, shape, valid, held_out, fresh, teacher))


@shared(
    how=(_training(batch=512, lr=1e-3, warmup=0.08, weight_decay=0.01, checks=12, workers=2, beta2=Flag(Beta2, 0.98)),)
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

    run = _schedule(out, how, steps=steps)
    columns = task.PairColumns(source, target)
    shape = task.TranslatorShape(layers, decoder_layers, width, heads, vocabulary, dropout)
    _tell(task.train(train, run, columns, shape, length, held_out, test, tokenizer, fresh))


def bleu(
    model: Annotated[str, typer.Argument(help="Shipped model, folder or hub id of a translator.")],
    data: Annotated[Path, typer.Argument(help="Rows with a text and its translation.")],
    source: Source = "source",
    target: Target = "target",
    beams: Annotated[int, typer.Option(help="Width of the beam; 1: greedy.", min=1)] = 4,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Measure a translator by BLEU, as sacrebleu counts it."""
    from wherefrom.training import bleu as task
    from wherefrom.training.translate import PairColumns

    found = task.measure(model, data, PairColumns(source, target), device, beams)
    typer.echo(f"{found.score:.2f} BLEU  ({found.rows} rows, {found.signature})")


def prefixes(
    sources: Annotated[list[str], typer.Argument(help="Text files, or table.parquet:column.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .jsonl file to write (.gz and .xz compress it).")],
    exclude: Annotated[
        list[str] | None, typer.Option(help="Sentences to leave out: table.parquet:column. Repeatable.")
    ] = None,
) -> None:
    """Cut sentences before verbs whose form shows their number: the training data of `agree`."""
    from wherefrom.data import tables
    from wherefrom.training import labelled
    from wherefrom.training import prefixes as task

    excluded = frozenset(task.key(sentence) for source in exclude or [] for sentence in tables.values(source))
    texts = (line for source in sources for line in labelled.documents(source))
    count = tables.write_rows(out, ({"prefix": p.text, "label": p.label} for p in task.extract(texts, excluded)))
    typer.echo(f"{count} prefixes in {out}")


@shared(
    how=(
        _training(
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

    run = _schedule(out, how, beta2=0.98)
    columns = _columns(text, None, label, None, None, None)
    more = _columns(extra_text, None, label, extra_until, extra_name or ["0=singular", "1=plural"], None)
    shape = task.AgreementShape(layers, width, heads, vocabulary, dropout=dropout)
    _tell(task.agree(prefixes, run, columns, extra, more, repeat, tokenizer, embeddings, shape, held_out, hide, fresh))


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

    run = _schedule(out, how)
    columns = task.PromptColumns(text, target, foil, good, bad, pairs_of(where or [], "--where"))
    _tell(task.prompt(train, run, columns, model, valid, held_out, skip_split, fresh))


def average(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs that differ in their seed.")],
    out: Out,
) -> None:
    """Average the weights of several fine-tuned models into one."""
    from wherefrom.training import average as task

    task.average(folders, out)
    typer.echo(f"{out}: the mean of {len(folders)} models")


def measure(
    model: Annotated[str, typer.Argument(help="Shipped model, folder or hub id.")],
    data: Annotated[Path, typer.Argument(help="Rows to test on.")],
    text: Text = "text",
    pair: Pair = None,
    label: Label = "label",
    until: Until = None,
    name: Name = None,
    where: Where = None,
    target: Annotated[str | None, typer.Option(help="Column with the right word for [MASK]; with --foil.")] = None,
    foil: Annotated[str | None, typer.Option(help="Column with the wrong word for [MASK].")] = None,
    good: Annotated[str | None, typer.Option(help="Column with the right sentence of a minimal pair.")] = None,
    bad: Annotated[str | None, typer.Option(help="Column with the wrong sentence of a minimal pair.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Texts to leave out: table.parquet:column. Repeatable.")
    ] = None,
    frequencies: Annotated[
        list[str] | None,
        typer.Option(help="Instead of the model: how often each sentence's pieces occur in this text. Repeatable."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Also give the accuracy for each value of this column.")] = None,
    image: Annotated[str | None, typer.Option(help="Column with the image, of a classifier of images.")] = None,
    longest: Longest = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Measure a classifier's accuracy, or how often a language model prefers target to foil, or good to bad."""
    from wherefrom.errors import InvalidOption
    from wherefrom.training import accuracy as task
    from wherefrom.training import prompt as prompting
    from wherefrom.training.labelled import pairs_of

    if bool(target) != bool(foil) or bool(good) != bool(bad):
        raise InvalidOption("--target goes with --foil, and --good with --bad")
    if image:
        from wherefrom.training import images as pictures

        names = _names(name)
        _show([pictures.measure(model, data, pictures.ImageColumns(image, label, names), device)])
    elif target and foil:
        columns = prompting.PromptColumns(text, target, foil, where=pairs_of(where or [], "--where"))
        _show(task.prompts(model, data, columns, by, device))
    elif good:
        columns = prompting.PromptColumns(good=good, bad=bad, where=pairs_of(where or [], "--where"))
        if frequencies:
            _show(task.frequencies(model, frequencies, data, columns, by))
        else:
            ask = task.sentences if task.is_causal(model) else task.prompts
            _show(ask(model, data, columns, by, device))
    else:
        labelled = _columns(text, pair, label, until, name, where)
        _show(task.labels(model, data, labelled, by, exclude or [], longest, device))


def _columns(
    text: str, pair: str | None, label: str, until: str | None, name: list[str] | None, where: list[str] | None
) -> Columns:
    from wherefrom.training.labelled import Columns, pairs_of

    return Columns(text, label, pair, until, _names(name), pairs_of(where or [], "--where"))


def _names(name: list[str] | None) -> dict[str, str]:
    from wherefrom.training.labelled import pairs_of

    return {key: values[-1] for key, values in pairs_of(name or [], "--name").items()}


def _tell(outcome: Trained) -> None:
    measured = ", ".join(f"validation {name} {value:.4f}" for name, value in outcome.metrics.items())
    again = " (resumed)" if outcome.resumed else ""
    typer.echo(f"{outcome.out}: {measured}; {outcome.steps} steps in {outcome.seconds:.0f} s{again}")


def _show(scores: Sequence[Score]) -> None:
    for score in scores:
        missing = f"  ({score.left_out} left out: words of several pieces)" if score.left_out else ""
        balanced = "" if score.balanced is None else f"  balanced {score.balanced:.4f}"
        typer.echo(f"{score.group:<45} {score.accuracy:.4f}  {score.right:g}/{score.rows}{balanced}{missing}")
