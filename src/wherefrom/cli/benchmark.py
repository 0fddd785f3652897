"""`wherefrom benchmark` and `wherefrom leaderboard`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wherefrom.cli.evaluate import named, resumable
from wherefrom.cli.flags import MODEL, QUESTIONS, Asked, BatchSize, complete_method, complete_model, shared
from wherefrom.errors import InvalidOption

if TYPE_CHECKING:
    from wherefrom.metric.standings import Standings

PARTS = "faithful,sane,cost"


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("benchmark")(benchmark_command)
    app.command("leaderboard")(leaderboard_command)


@shared(asked=(MODEL,))
def benchmark_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of tables; the same command resumes it.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="A model (default: the shipped ones). Repeatable.", autocompletion=complete_model
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", "-d", help="A dataset (default: all here that suit). Repeatable.")
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", "-M", help="Names by commas (default: all).", autocompletion=complete_method)
    ] = "",
    rows: Annotated[int, typer.Option(help="Examples of each dataset, drawn by --seed.", min=2)] = 100,
    sane_rows: Annotated[int, typer.Option(help="Of these, examples for the sanity checks.", min=2)] = 16,
    parts: Annotated[str, typer.Option(help="What to measure, by commas.")] = PARTS,
    column: Annotated[
        list[str] | None, typer.Option(help="Which column of --data holds what: text=review. Repeatable.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="The folder of datasets; or set WHEREFROM_DATA.")] = None,
    batch_size: BatchSize = 16,
    shard: Annotated[int, typer.Option(help="Rows in one shard; a kill loses at most one.", min=1)] = 64,
    workers: Annotated[int, typer.Option(help="Worker processes, which share the shards.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="The seed that draws the examples.", min=0)] = 0,
    *,
    asked: Asked,
) -> None:
    """Measure every method by every metric on models and data; `wherefrom leaderboard` ranks them."""
    from importlib.util import find_spec

    from wherefrom import zoo
    from wherefrom.board import Measuring, measure
    from wherefrom.evaluation import Run
    from wherefrom.spec import split

    how = Measuring(
        rows=rows,
        sane_rows=sane_rows,
        methods=tuple(split(methods)),
        data=tuple(data or ()),
        columns=named(column),
        folder=folder,
        parts=tuple(split(parts)),
        batch_size=batch_size,
        shard=shard,
        workers=workers,
        seed=seed,
        opening=asked,
    )
    unread = [] if find_spec("PIL") else [zoo.IMAGES]  # the extra `image`
    with resumable(out):
        for done in measure(model or zoo.names(but=unread), out, how):
            print(f"measured: {done.name}", flush=True)
    if "faithful" in how.parts or any(Run(each.parent).finished for each in out.glob("*/faithful/manifest.json")):
        print(f"wherefrom leaderboard '{out}' ranks the methods")
    else:
        print(
            "methods are ranked by the part faithful, which is not measured yet: repeat the command with it in --parts"
        )


def leaderboard_command(
    folder: Annotated[Path, typer.Argument(help="What `wherefrom benchmark --out` wrote.")],
    page: Annotated[Path | None, typer.Option(help="Write the page, a .md file, and its pictures.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write the numbers of every method, a .json file.")] = None,
    question: Annotated[str, typer.Option(help=f"By what to rank: {QUESTIONS}.")] = "faithful",
) -> None:
    """Rank the methods of a benchmark; with --page, write the leaderboard."""
    from wherefrom.board import read_board, write_page, write_record
    from wherefrom.board.recommending import ASKED, looks_at_no_output, question_called
    from wherefrom.evaluation.manifest import refuse_own_file

    for path, ending in ((page, ".md"), (record, ".json")):
        if path is None:
            continue
        if path.suffix != ending:
            raise InvalidOption(f"'{path}' does not end in {ending}; expected the name of a {ending} file")
        refuse_own_file(path)
    standing, maps, _ = ASKED[question_called(question)]
    board = read_board(folder)
    if page is not None:
        write_page(board, page, record)
        print(f"written to {' and '.join(str(path) for path in (page, record) if path is not None)}")
        return
    if record is not None:
        write_record(board, record)
        print(f"written to {record}")
        return
    found = board.standings.get(standing)
    if found is None:
        raise InvalidOption(f"nothing was measured by '{question}' there; expected {', '.join(board.standings)}")
    _show(found, [name for name in found.methods if not maps or looks_at_no_output(name)])


def _show(found: Standings, names: Collection[str]) -> None:
    """These of the methods from the best to the worst; those alike carry one letter."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("method", "mean rank", "beats", "not told apart"):
        table.add_column(name, no_wrap=name == "method")
    for at, method in enumerate(found.methods):
        if method not in names:
            continue
        letters = "".join(chr(ord("a") + i % 26) for i, (first, last) in enumerate(found.alike) if first <= at <= last)
        table.add_row(method, f"{found.ranks[at]:.1f}", f"{found.beaten[at]:.0%}", letters)
    Console().print(table)
    print(f"{found.examples} examples; methods that share a letter are not told apart")
