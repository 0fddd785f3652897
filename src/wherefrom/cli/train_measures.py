"""What `wherefrom train` measures of a model: bits per byte, BLEU, accuracy, exact match and F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wherefrom.cli.train_options import (
    Label,
    Longest,
    Name,
    Pair,
    Source,
    Target,
    Text,
    Until,
    Where,
    columns_of,
    names_of,
)

if TYPE_CHECKING:
    from wherefrom.training.accuracy import Score


def bits(
    model: Annotated[str, typer.Argument(help="Shipped model, folder or hub id of a language model.")],
    sources: Annotated[list[str], typer.Argument(help="Text files, or table.parquet:column.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Measure how well a language model predicts text, in bits per byte."""
    from wherefrom.training import lm as task

    found = task.measure(model, sources, device)
    typer.echo(f"{found.bits_per_byte:.4f} bits per byte  ({found.bytes} bytes, {found.tokens} tokens)")


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
    """Measure a classifier's accuracy, exact match and F1 of answers, or how often target beats foil, or good bad."""
    from wherefrom.errors import InvalidOption
    from wherefrom.training import accuracy as task
    from wherefrom.training import checkpoints, qa
    from wherefrom.training import prompt as prompting
    from wherefrom.training.labelled import pairs_of

    if bool(target) != bool(foil) or bool(good) != bool(bad):
        raise InvalidOption("--target goes with --foil, and --good with --bad")
    of_rows = {"--pair": pair, "--until": until, "--exclude": exclude, "--longest": longest}
    if image:
        from wherefrom.training import images as pictures

        words = {"--target": target, "--good": good, "--frequencies": frequencies, "--where": where, "--by": by}
        _refuse_given({**of_rows, **words}, "a classifier of images")
        names = names_of(name)
        _show([pictures.measure(model, data, pictures.ImageColumns(image, label, names), device)])
    elif target and foil:
        _refuse_given({**of_rows, "--name": name, "--good": good, "--frequencies": frequencies}, "words for [MASK]")
        columns = prompting.PromptColumns(text, target, foil, where=pairs_of(where or [], "--where"))
        _show(task.prompts(model, data, columns, by, device))
    elif good:
        _refuse_given({**of_rows, "--name": name}, "minimal pairs")
        columns = prompting.PromptColumns(good=good, bad=bad, where=pairs_of(where or [], "--where"))
        if frequencies:
            _show(task.frequencies(model, frequencies, data, columns, by))
        else:
            ask = task.sentences if task.is_causal(model) else task.prompts
            _show(ask(model, data, columns, by, device))
    elif not frequencies and checkpoints.task_of(model) == "question-answering":
        options = {"--pair": pair, "--until": until, "--exclude": exclude, "--name": name, "--where": where, "--by": by}
        _refuse_given(options, "a model that answers questions")
        scores = qa.measure(model, str(data), qa.WindowSize(longest), device)
        typer.echo(f"exact match {scores.exact:.4f}  F1 {scores.f1:.4f}  ({scores.questions} questions)")
    else:
        _refuse_given({"--frequencies": frequencies}, "a classifier of texts")
        labelled = columns_of(text, pair, label, until, name, where)
        _show(task.labels(model, data, labelled, by, exclude or [], longest, device))


def _refuse_given(options: Mapping[str, object], what: str) -> None:
    """Options that nothing would come of."""
    if given := [name for name, value in options.items() if value]:
        from wherefrom.errors import InvalidOption

        raise InvalidOption(f"nothing is measured by {' and '.join(given)} of {what}; leave it out")


def _show(scores: Sequence[Score]) -> None:
    for score in scores:
        missing = f"  ({score.left_out} left out: words of several pieces)" if score.left_out else ""
        balanced = "" if score.balanced is None else f"  balanced {score.balanced:.4f}"
        typer.echo(f"{score.group:<45} {score.accuracy:.4f}  {score.right:g}/{score.rows}{balanced}{missing}")
