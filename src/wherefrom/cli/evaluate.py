"""`wherefrom evaluate`, `wherefrom metrics`, `wherefrom runs`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from wherefrom.cli.flags import MODEL, Asked, BatchSize, ModelName, Truncate, complete_method, shared
from wherefrom.cli.wording import INTERRUPTED
from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidOption, RowsLeftOut, WherefromError

Folder = Annotated[Path, typer.Argument(help="A run folder.")]
Names = Annotated[
    list[str] | None, typer.Option(help="What the data calls a class of the model: 0=negative. Repeatable.")
]
Layers = Annotated[bool, typer.Option("--layers", help="Also show every layer, for metrics that have layers.")]

runs_app = typer.Typer(help="List, show, compare and export runs of `wherefrom evaluate`.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("evaluate")(evaluate_command)
    app.command("metrics")(metrics_command)
    app.add_typer(runs_app, name="runs")


@shared(asked=(MODEL,))
def evaluate_command(
    data: Annotated[str, typer.Option("--data", "-d", help="A dataset's name, a file, or hub:owner/name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder; the same command resumes it.")],
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "-M", help="Comma-separated names from `wherefrom methods`.", autocompletion=complete_method
        ),
    ] = "",
    metrics: Annotated[str, typer.Option(help="Comma-separated names from `wherefrom metrics`.")] = "aopc,log-odds",
    model: ModelName = DEFAULT_MODEL,
    split: Annotated[str | None, typer.Option(help="validation, test, … (default: its first).")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Which column holds what: text=review. Repeatable.")] = None,
    folder: Annotated[Path | None, typer.Option(help="The folder of datasets; or set WHEREFROM_DATA.")] = None,
    limit: Annotated[int | None, typer.Option(help="Use only the first N rows.", min=1)] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the --limit rows at random, by --seed.")] = False,
    prefixes: Annotated[bool, typer.Option("--up-to-mask", help="Read only the text before [MASK].")] = False,
    target: Annotated[
        str | None, typer.Option(help="A class, or label for the gold one (default: the prediction).")
    ] = None,
    name: Names = None,
    batch_size: BatchSize = 16,
    shard: Annotated[int, typer.Option(help="Rows in one shard; a kill loses at most one.", min=1)] = 64,
    workers: Annotated[int | None, typer.Option(help="Worker processes, or Ray actors.", min=1)] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each worker.", min=1)] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    num_gpus: Annotated[float | None, typer.Option(help="GPUs of each Ray actor; 0.5: two share one.", min=0)] = None,
    seed: Annotated[int, typer.Option(help="Seed of random methods and of --draw.")] = 0,
    layers: Layers = False,
    truncate: Truncate = False,
    *,
    asked: Asked,
) -> None:
    """Measure methods on a dataset; after a kill, the same command resumes where it stopped."""
    import wherefrom
    from wherefrom.data import read, up_to_mask

    columns = named(column)
    with resumable(out), warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsLeftOut)  # which the table below tells of
        run = wherefrom.evaluate(
            up_to_mask(read(data, split, columns, folder=folder)) if prefixes else data,
            model,
            methods=methods,
            metrics=metrics,
            split=split,
            columns=columns,
            folder=folder,
            limit=limit,
            draw=draw,
            out=out,
            target=target,
            names=named(name, "--name 0={}"),
            batch_size=batch_size,
            shard=shard,
            truncate=truncate,
            seed=seed,
            workers=workers,
            threads=threads,
            engine=engine,
            num_gpus=num_gpus,
            **asked,
        )
    run.show(layers=layers)


@contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """An interruption says that the command can be repeated, if its folder has a name."""
    try:
        yield
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"{out}: {INTERRUPTED}", err=True)
        raise


def named(pairs: list[str] | None, example: str = "--column text={}") -> dict[str, str] | None:
    """`--column text=review` or `--name 0=negative`, as often as given."""
    if bare := [each for each in pairs or [] if "=" not in each]:
        raise InvalidOption(f"'{bare[0]}' stands alone; expected what it is and =, as in {example.format(bare[0])}")
    apart = [each.partition("=") for each in pairs or []]
    return {name.strip(): value for name, _, value in apart} or None  # a column's name may begin with a blank


def complete_metric(typed: str) -> list[str]:
    from wherefrom.index import listed

    return [each["name"] for each in listed("metrics") if each["name"].startswith(typed)]


def metrics_command(
    name: Annotated[
        str | None, typer.Argument(help="One metric: what it is and its options.", autocompletion=complete_metric)
    ] = None,
) -> None:
    """List the metrics that `wherefrom evaluate` takes, or describe one of them."""
    if name is None:
        _list_metrics()
        return
    from rich.console import Console

    from wherefrom.cli.prose import fitted
    from wherefrom.metric.names import described

    console = Console()
    for part in described(name):
        console.print(fitted(part, console.width), markup=False, highlight=False, soft_wrap=True)
        console.print()


def _list_metrics() -> None:
    from wherefrom.cli.listing import Entry, show
    from wherefrom.index import listed

    rows = [
        Entry(each["name"], each["summary"], (each["better"], ", ".join(each["needs"]), ", ".join(each["options"])))
        for each in listed("metrics")
    ]
    show(
        {"": rows},
        ("better", "needs", "options"),
        "wherefrom metrics NAME: what it is and its options. aopc(by=mask) sets an option, spearman:saliency@layers a "
        "reference and the layers: docs/evaluate.md",
    )


@runs_app.command("list")
def list_command(folder: Annotated[Path, typer.Argument(help="The folder of runs.")] = Path("runs")) -> None:
    """List the runs in a folder, finished or not."""
    from rich.console import Console

    from wherefrom.cli.prose import folded
    from wherefrom.evaluation import runs
    from wherefrom.evaluation.export import described

    console, found = Console(), list(runs(folder))
    if not found:
        typer.echo(f"no run of `wherefrom evaluate` lies in '{folder}'", err=True)
    for run in found:
        try:
            first, second, *_ = described(run)
            line = f"{first}: {second}, {'not finished' if run.finished is None else 'finished'}"
        except WherefromError as error:  # one that cannot be read does not hide the others
            line = f"{run.path}: {error}"
        # For a program a run is a line.
        print(folded(line, console.width).removeprefix("  ") if console.is_terminal else line)


@runs_app.command("show")
def show_command(run: Folder, layers: Layers = False) -> None:
    """Show one run: what was asked, its means, what failed."""
    from wherefrom.evaluation import Run

    Run(run).show(layers=layers)


@runs_app.command("compare")
def compare_command(
    first: Folder,
    second: Annotated[
        Path | None, typer.Argument(help="Another run; without it, compare the methods of the first.")
    ] = None,
    layers: Layers = False,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="csv, md or latex (default: a table here).")
    ] = None,
) -> None:
    """Run paired tests on the examples that two runs share, or between the methods of one run."""
    from wherefrom.evaluation import Run, compare_methods, compare_runs
    from wherefrom.evaluation.export import export_comparison, show_comparison
    from wherefrom.evaluation.run import left_out

    one, other = Run(first), None if second is None else Run(second)
    found = compare_methods(one, layers=layers) if other is None else compare_runs(one, other, layers=layers)
    if form is not None:
        print(export_comparison(found, form), end="")
        return
    show_comparison(found)
    for line in () if other is None else left_out(one, other):
        typer.echo(line)


@runs_app.command("export")
def export_command(
    run: Folder,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="csv, md or latex (default: as --out ends, else md).")
    ] = None,
    layers: Layers = False,
    figure: Annotated[str | None, typer.Option(help="Draw this metric into --out, a .png, .svg or .pdf.")] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of figure: bars, curves or grid.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
) -> None:
    """Export the means of a run as a table, or one metric as a figure."""
    from wherefrom.evaluation import Run
    from wherefrom.evaluation.export import export
    from wherefrom.evaluation.manifest import refuse_own_file
    from wherefrom.files import write

    if figure is not None:
        from wherefrom.view import plot

        if out is None:
            raise InvalidOption("a figure needs a file; say which with --out, e.g. --out measured.png")
        if form is not None or layers:
            raise InvalidOption("--format and --layers are of the table; leave them out beside --figure")
        print(f"written to {plot.save(plot.measured(Run(run), figure, kind), out)}")
        return
    if kind is not None:
        raise InvalidOption("--kind is of a figure; say with --figure which metric it draws")
    endings = {".csv": "csv", ".tex": "latex", ".md": "md"}
    if out is not None:
        refuse_own_file(out)
        if form is None and out.suffix not in endings:
            raise InvalidOption(f"'{out}' ends in none of {', '.join(endings)}; choose one, or say which with --format")
    text = export(Run(run), form or (endings[out.suffix] if out else "md"), layers=layers)
    if out is None:
        print(text, end="")
    else:
        write(out, text)
        print(f"written to {out}")
