"""`wherefrom explain`, `wherefrom compare`, `wherefrom methods`."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherefrom.cli import batch
from wherefrom.cli.flags import (
    MAPS,
    MODEL,
    QUESTION,
    QUESTIONS,
    READING,
    SHOWING,
    SHOWING_SEVERAL,
    Asked,
    BatchSize,
    Column,
    File,
    Method,
    Methods,
    ModelName,
    Options,
    Out,
    Pair,
    Written,
    WrittenOrFile,
    complete_method,
    complete_model,
    shared,
)
from wherefrom.cli.recommend import show_recommended
from wherefrom.cli.wording import in_json
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL, PICTURED
from wherefrom.errors import InvalidOption, WherefromError

if TYPE_CHECKING:
    from wherefrom.model import Model, Sentence
    from wherefrom.result.comparison import Comparison
    from wherefrom.result.explanation import Explanation

RECOMMEND = "recommend"  # in place of a method's name


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("explain")(explain_command)
    app.command("compare")(compare_command)
    app.command("methods")(methods_command)


@shared(asked=(QUESTION, MAPS, READING, MODEL), shown=(SHOWING,))
def explain_command(
    text: WrittenOrFile = None,
    pair: Pair = None,
    model: ModelName = DEFAULT_MODEL,
    method: Method = DEFAULT_METHOD,
    *,
    asked: Asked,
    option: Options = None,
    shown: Asked,
    file: File = None,
    column: Column = batch.COLUMN,
    out: Out = None,
    batch_size: BatchSize = 16,
) -> None:
    """Explain which words of a text an answer comes from; with --file and --out, for many texts."""
    import wherefrom

    asked |= {"method": method, "batch_size": batch_size, **method_options(option or [])}
    file = _file(text, file, out, column)
    if file is not None and out is not None:
        words = bool(shown.pop("words"))
        if unused := [name for name, value in {"pair": pair, **shown}.items() if value]:
            flags = ", ".join(f"--{name.removeprefix('as_')}" for name in unused)
            raise InvalidOption(f"with --file there is no {flags}: the table has one row for each token")
        batch.explain_file(file, column, out, words=words, keep="row", model=model, **asked)
        return
    text = batch.stdin_text() if text == batch.STDIN else text
    given: Any = text if pair is None else (text, pair)
    model = _reading(text, model, asked)
    checking = _read(given, model, asked) if shown.pop("check") else None
    read: tuple[Any, Any] = checking or (given, model)
    result: Any = wherefrom.explain(*read, **asked)
    _present(result, _checked(result, *checking) if checking else None, **shown)


@shared(asked=(QUESTION, MAPS, READING, MODEL), shown=(SHOWING_SEVERAL,))
def compare_command(
    text: Written,
    pair: Pair = None,
    model: ModelName = DEFAULT_MODEL,
    methods: Methods = DEFAULT_METHOD,
    *,
    asked: Asked,
    shown: Asked,
) -> None:
    """Compare several methods on one text, from one forward pass."""
    import wherefrom
    from wherefrom.spec import split

    given = text if pair is None else (text, pair)
    model = _reading(text, model, asked)
    checking = _read(given, model, asked) if shown.pop("check") else None
    read: tuple[Any, Any] = checking or (given, model)
    result: Any = wherefrom.compare(*read, methods=split(methods), **asked)
    _present(result, _checked(result, *checking) if checking else None, **shown)


def methods_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One method: its formula, options and paper; or recommend: which to take.",
            autocompletion=complete_method,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Whether each is defined on this model, and why not; with recommend: for which (default: "
            f"{DEFAULT_MODEL}).",
            autocompletion=complete_model,
        ),
    ] = None,
    question: Annotated[str, typer.Option(help=f"With recommend: {QUESTIONS}.")] = "faithful",
    budget: Annotated[float | None, typer.Option(help="With recommend: at most so many forward passes.")] = None,
) -> None:
    """List the methods, describe one of them, or recommend one for a model, a question and a budget."""
    if name == RECOMMEND:
        show_recommended(model or DEFAULT_MODEL, question, budget)
        return
    if budget is not None or question != "faithful":
        raise InvalidOption("--question and --budget are for `wherefrom methods recommend`; leave them out")
    if model is not None:
        _list_suits(model, name)
        return
    if name is None:
        _list_methods()
        return
    from rich.console import Console

    from wherefrom.cli.prose import fitted
    from wherefrom.method import lookup
    from wherefrom.method.base import CHECKS

    console = Console()
    method, preset = lookup(name.partition("(")[0])  # with options or without
    about = inspect.getdoc(inspect.getmodule(inspect.unwrap(method.run))) or ""
    title = method.name if preset is None else f"{preset.name} = {method.name}, {preset.aggregate or 'last layer'}"
    symbols = method.symbols if preset is None else preset.symbols
    options = ", ".join(f"{option}={default!r}" for option, default in method.options.items())
    facts = (
        f"{title}: {method.summary if preset is None else preset.summary}",
        about,
        f"in papers: {', '.join(symbols) or 'no symbol of its own'}",
        f"looks at: {'one number of the output' if method.class_specific else 'no output; it refuses a target'}",
        f"needs: {method.needs_in_words}",
        f"identities: {'; '.join(said for word, said in CHECKS.items() if word in method.checks) or 'none is claimed'}",
        f"options: {options or 'none'}",
        f"cite: {method.paper if preset is None else preset.paper}",
    )
    for part in facts:
        console.print(fitted(part, console.width), markup=False, highlight=False, soft_wrap=True)
        console.print()


def _list_methods() -> None:
    from wherefrom.cli.listing import Entry, show
    from wherefrom.index import listed

    groups: dict[str, list[Entry]] = {}
    for each in listed("methods"):
        kind = "Towards one output" if each["towards"] else "What a token is made of, whatever the class"
        kind = "Random scores" if each["random"] else kind
        made_of = f" (of {each['of']})" if each["of"] else ""
        row = Entry(each["name"], each["summary"] + made_of, (", ".join(each["symbols"]), each["paper"]))
        groups.setdefault(f"{kind}: {each['idea']}", []).append(row)
    last = {
        title: groups.pop(title) for title in [*groups] if title.startswith("Random")
    }  # what the others are held to
    groups |= last
    show(groups, ("in papers", "from"), "wherefrom methods NAME: its formula, options and paper")


def _list_suits(model: str, name: str | None) -> None:
    """What each method, or one of them, can do on a model."""
    import wherefrom
    from wherefrom.cli.listing import Entry, show
    from wherefrom.diagnosis import VERDICTS, suits
    from wherefrom.method import lookup
    from wherefrom.method.base import METHODS

    asked = None if name is None else lookup(name)
    found = [each for each in suits(wherefrom.open_model(model)) if asked in (None, lookup(each.method))]
    groups = {
        verdict: [
            Entry(each.method, each.why or each.note or METHODS[each.method].summary)
            for each in found
            if each.verdict == verdict
        ]
        for verdict in VERDICTS
    }
    show(
        {verdict: rows for verdict, rows in groups.items() if rows},
        foot=f"wherefrom doctor {model}: its shape and proof",
    )


def _present(
    result: Explanation | Comparison,
    checked: list[str] | None,
    *,
    layers: bool,
    words: bool | None,
    as_json: bool,
    save: Path | None,
    kind: str | None,
    html: Path | None,
) -> None:
    """Print or write a result: words where one looks at it, pieces where it is data, unless asked otherwise."""
    from rich.console import Console
    from rich.text import Text

    from wherefrom.files import write
    from wherefrom.result.serialise import PICTURES

    if kind is not None and (save is None or save.suffix not in PICTURES):
        raise InvalidOption(f"--kind is of a picture; add --save with a name ending in {', '.join(PICTURES)}")
    if html is not None and html.suffix not in (".html", ".htm"):
        raise InvalidOption(f"--html writes a page, and '{html.name}' is none; expected a name ending in .html")
    data = result.words() if words else result
    if save is not None:
        drawn = result if words is False or save.suffix not in PICTURES else result.words()
        (drawn if save.suffix in PICTURES else data).save(save, kind or ("layers" if layers else None))
    if html is not None:
        write(html, data.to_html())
    if as_json:
        evidence = {} if checked is None else {"evidence": checked}
        print(in_json({**data.to_dict(), **evidence}))
        return
    if save is not None or html is not None:
        print(f"written to {' and '.join(str(path) for path in (save, html) if path is not None)}")
    else:
        result.show(layers=layers, pieces=words is False)
    console = Console()
    if checked is not None:
        console.print()
        for line in checked:
            console.print(Text(line))
    elif console.is_terminal and save is None and html is None:
        console.print(
            Text("\nto check how far to believe it, add --check: it erases words by score and at random", "dim")
        )


def _reading(text: str | None, model: str, asked: Asked) -> Any:
    """The model; where the text is the name of a picture's file, opened, and refused unless it reads pictures."""
    from wherefrom.model.pictures import ENDINGS

    if text is None or not text.lower().endswith(ENDINGS) or not os.path.isfile(text):
        return model
    import wherefrom

    opened = wherefrom.open_model(model, **{name: asked.pop(name) for name in MODEL})
    if not opened.images:
        raise InvalidOption(
            f"'{text}' is a picture's file, and {opened.name} reads texts; name a model that reads pictures, as the "
            f"shipped one does: --model {PICTURED}"
        )
    return opened


def _read(given: Any, model: Any, asked: Asked) -> tuple[Sentence, Model]:
    """The text as the model reads it, once for the explanation and its check; and the model."""
    import wherefrom

    opened = wherefrom.open_model(model, **{name: asked.pop(name) for name in MODEL if name in asked})
    (sentence,), _ = opened.reader(truncate=asked["truncate"], long=asked["long"]).read(given)
    return sentence, opened


def _checked(result: Explanation | Comparison, sentence: Sentence, opened: Model) -> list[str]:
    """The page's evidence in words, a line for each explanation; where there is none, why."""
    from wherefrom.metric.spotcheck import checks
    from wherefrom.result.explanation import Explanation

    named = {result.method: result} if isinstance(result, Explanation) else dict(result)
    lines: list[str] = []
    try:
        for name, found in zip(named, checks(list(named.values()), opened, sentence=sentence), strict=True):
            lines.append(f"{name}: {found} {found.verdict}")
    except WherefromError as error:
        lines.append(f"no check: {error}")
    return lines


def _file(text: str | None, file: Path | None, out: Path | None, column: str) -> Path | None:
    """Where many texts come from, if they do; an error unless it is clear whether one text is meant or many."""
    if file is None and text == batch.STDIN and out is not None:
        return Path(batch.STDIN)
    if file is None and out is not None:
        raise InvalidOption("--out is for many texts, from --file; one text is written by --save")
    if file is not None and out is None:
        raise InvalidOption("--file needs --out, the table to write: --out scores.csv (or .parquet, .jsonl)")
    if (text is None) == (file is None):
        raise InvalidOption("expected either a text or --file")
    if file is None and column != batch.COLUMN:
        raise InvalidOption(f"--column {column} names a column of --file; one text has none")
    return file


def method_options(typed: list[str]) -> dict[str, Any]:
    """`["n_steps=50", "metric=l2"]` as keyword arguments of the method."""
    import wherefrom
    from wherefrom.spec import options

    found = options(typed)
    if taken := found.keys() & inspect.signature(wherefrom.explain).parameters:
        raise InvalidOption(f"'{min(taken)}' is not an option of a method; see `wherefrom explain --help`")
    return found
