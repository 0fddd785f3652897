"""`wherefrom explain`, `wherefrom compare`, `wherefrom methods`."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from wherefrom.cli import batch
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from wherefrom.errors import InvalidOption, WherefromError

if TYPE_CHECKING:
    from wherefrom.result.comparison import Comparison
    from wherefrom.result.explanation import Explanation


def complete_method(typed: str) -> list[str]:
    """Names of methods that go on as typed; behind a comma, of the next one."""
    from wherefrom.index import listed

    before, comma, last = typed.rpartition(",")
    return [f"{before}{comma}{each['name']}" for each in listed("methods") if each["name"].startswith(last)]


def complete_model(typed: str) -> list[str]:
    from wherefrom import zoo

    return [name for name in zoo.names() if name.startswith(typed)]


Written = Annotated[str, typer.Argument(help="The text; put [MASK] where a masked language model should predict.")]
WrittenOrFile = Annotated[
    str | None, typer.Argument(help="The text (- reads it from standard input), or none with --file.")
]
File = Annotated[
    Path | None,
    typer.Option("--file", help="Many texts: a line each, or a .csv, .tsv, .jsonl or .parquet table; - is stdin."),
]
Column = Annotated[str, typer.Option("--column", help="The table's column of texts; two (a,b) are a pair.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the scores of --file to a .csv, .parquet or .jsonl.")]
Long = Annotated[str, typer.Option("--long", help="A text longer than the model reads: error, truncate or windows.")]
Overlap = Annotated[int | None, typer.Option("--overlap", help="Tokens that two windows share; a quarter if none.")]
Pair = Annotated[str | None, typer.Option("--pair", help="A second text (question, hypothesis, …).")]
ModelName = Annotated[
    str, typer.Option("--model", "-m", help="A shipped model, a folder, or a hub id.", autocompletion=complete_model)
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-M",
        help="A name from `wherefrom methods`; auto: deeplift, or alti without an output.",
        autocompletion=complete_method,
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        "-M",
        help="Names from `wherefrom methods`, by commas; auto: four that differ in kind.",
        autocompletion=complete_method,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="A class (all: each of them), a word at the mask, start or end; the prediction if none."),
]
Foil = Annotated[str | None, typer.Option(help="Explain the difference to this class or word.")]
Position = Annotated[str | None, typer.Option(help="The row that answers: an index, first, last, mean or mask.")]
Aggregate = Annotated[str, typer.Option(help="auto, none, or how layers are joined: rollout, flow, sum, mean, last.")]
Head = Annotated[str | None, typer.Option(help="One head, counted from 0.")]
FromLayer = Annotated[int, typer.Option("--from-layer", help="Reach down to the input of this block.", min=0)]
ToLayer = Annotated[int | None, typer.Option("--to-layer", help="Stop before this block; after the last if none.")]
Receptive = Annotated[
    bool, typer.Option("--receptive-field", help="Causal models: correct rollout or flow for what tokens can see.")
]
Rows = Annotated[str, typer.Option(help="all, or reading: only the row that answers, which makes flow fast.")]
Layers = Annotated[bool, typer.Option("--layers", help="Also show every layer: its answering row and its map.")]
Words = Annotated[
    bool | None,
    typer.Option("--words/--pieces", help="Words of the text, or the tokenizer's pieces; data is in pieces if none."),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Say how far to believe it: words of this text are erased in order and at random."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        "-o",
        help="Write to a .json, .npz, .csv, .parquet, .jsonl or .html file, or a .png, .svg or .pdf picture.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(help="The picture to save: text, tokens, bars, layers, maps, map or graph; layers with --layers."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Write the viewer to this HTML file, to open in a browser.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a text that is longer than the model reads.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="An option of the method, e.g. -O n_steps=50 (see `wherefrom methods NAME`)."),
]
DropSelf = Annotated[bool, typer.Option("--drop-self", help="Set what the answering token gives itself to 0.")]
TaskName = Annotated[str | None, typer.Option(help="The head to open: classification, masked-lm, encoder, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")]


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("explain")(explain_command)
    app.command("compare")(compare_command)
    app.command("methods")(methods_command)


def explain_command(
    text: WrittenOrFile = None,
    pair: Pair = None,
    model: ModelName = DEFAULT_MODEL,
    method: Method = DEFAULT_METHOD,
    target: Target = None,
    foil: Foil = None,
    position: Position = None,
    aggregate: Aggregate = "auto",
    head: Head = None,
    from_layer: FromLayer = 0,
    to_layer: ToLayer = None,
    receptive_field: Receptive = False,
    rows: Rows = "all",
    drop_self: DropSelf = False,
    option: Options = None,
    layers: Layers = False,
    words: Words = None,
    check: Check = False,
    as_json: AsJson = False,
    save: Save = None,
    kind: Kind = None,
    html: Html = None,
    truncate: Truncate = False,
    long: Long = "error",
    overlap: Overlap = None,
    file: File = None,
    column: Column = "text",
    out: Out = None,
    task: TaskName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Say which words of a text an answer is made of; of many texts, with --file and --out, into a table."""
    import wherefrom

    arguments: dict[str, Any] = {
        "model": model,
        "method": method,
        "target": target,
        "foil": foil,
        "position": _number(position),
        "aggregate": aggregate,
        "layers": (from_layer, to_layer),
        "receptive_field": receptive_field,
        "rows": rows,
        "drop_self": drop_self,
        "head": _number(head),
        "truncate": truncate,
        "long": long,
        "overlap": overlap,
        "task": task,
        "device": device,
        "dtype": dtype,
        **method_options(option or []),
    }
    file = _file(text, file, out)
    if file is not None and out is not None:
        alone = {"--pair": pair, "--save": save, "--html": html, "--kind": kind, "--json": as_json}
        alone |= {"--layers": layers, "--check": check}
        if unused := [name for name, value in alone.items() if value]:
            raise InvalidOption(f"{', '.join(unused)}: for one text; a table of many has one row for each token")
        batch.explain_file(batch.texts(file, column), out, words=bool(words), keep="scores", **arguments)
        return
    text = batch.stdin_text() if text == batch.STDIN else text
    given: Any = text if pair is None else (text, pair)
    result: Any = wherefrom.explain(given, **arguments)
    checked = _checked(result, wherefrom.open_model(model, task=task, device=device, dtype=dtype)) if check else None
    _present(result, layers=layers, words=words, checked=checked, as_json=as_json, save=save, kind=kind, html=html)


def compare_command(
    text: Written,
    pair: Pair = None,
    model: ModelName = DEFAULT_MODEL,
    methods: Methods = DEFAULT_METHOD,
    target: Target = None,
    foil: Foil = None,
    position: Position = None,
    aggregate: Aggregate = "auto",
    from_layer: FromLayer = 0,
    to_layer: ToLayer = None,
    receptive_field: Receptive = False,
    rows: Rows = "all",
    drop_self: DropSelf = False,
    layers: Layers = False,
    words: Words = None,
    check: Check = False,
    as_json: AsJson = False,
    save: Save = None,
    kind: Kind = None,
    html: Html = None,
    truncate: Truncate = False,
    task: TaskName = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Several methods on one text, from one forward pass."""
    import wherefrom
    from wherefrom.spec import split

    result: Any = wherefrom.compare(
        text if pair is None else (text, pair),
        model,
        methods=split(methods),
        target=target,
        foil=foil,
        position=_number(position),
        aggregate=aggregate,
        layers=(from_layer, to_layer),
        receptive_field=receptive_field,
        rows=cast(Any, rows),
        drop_self=drop_self,
        truncate=truncate,
        task=task,
        device=device,
        dtype=dtype,
    )
    checked = _checked(result, wherefrom.open_model(model, task=task, device=device, dtype=dtype)) if check else None
    _present(result, layers=layers, words=words, checked=checked, as_json=as_json, save=save, kind=kind, html=html)


def methods_command(
    name: Annotated[
        str | None, typer.Argument(help="One method: its formula, options and paper.", autocompletion=complete_method)
    ] = None,
) -> None:
    """List the methods by what they look at; or say everything about one."""
    if name is None:
        _list_methods()
        return
    from rich.console import Console

    from wherefrom.cli.prose import fitted
    from wherefrom.method import lookup

    console = Console()
    method, preset = lookup(name)
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
        kind = "Towards one output" if each["towards"] else "What a token is made of, towards no class"
        kind = "Random scores" if each["random"] else kind
        made_of = f" (of {each['of']})" if each["of"] else ""
        row = Entry(each["name"], each["summary"] + made_of, (", ".join(each["symbols"]), each["paper"]))
        groups.setdefault(f"{kind}: {each['idea']}", []).append(row)
    show(groups, ("in papers", "from"), "wherefrom methods NAME: its formula, options and paper")


def _present(
    result: Explanation | Comparison,
    *,
    layers: bool,
    words: bool | None,
    checked: list[str] | None,
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

    data = result.words() if words else result
    if save is not None:
        drawn = result if words is False or save.suffix not in PICTURES else result.words()
        (drawn if save.suffix in PICTURES else data).save(save, kind or ("layers" if layers else "text"))
    if html is not None:
        write(html, data.to_html())
    if as_json:
        evidence = {} if checked is None else {"evidence": checked}
        print(json.dumps({**data.to_dict(), **evidence}, ensure_ascii=False, allow_nan=False))
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
            Text("\nhow far to believe it: --check erases words of this text in this order and at random", "dim")
        )


def _checked(result: Explanation | Comparison, model: Any) -> list[str]:
    """The page's evidence in words, a line for each explanation; where there is none, why."""
    from wherefrom.metric.spotcheck import checks
    from wherefrom.result.explanation import Explanation

    named = {result.method: result} if isinstance(result, Explanation) else dict(result)
    lines: list[str] = []
    try:
        for name, found in zip(named, checks(list(named.values()), model), strict=True):
            lines.append(f"{name}: {found} {found.verdict}")
    except WherefromError as error:
        lines.append(f"no check: {error}")
    return lines


def _file(text: str | None, file: Path | None, out: Path | None) -> Path | None:
    """Where many texts come from, if they do; an error unless it is clear whether one text is meant or many."""
    if file is None and text == batch.STDIN and out is not None:
        return Path(batch.STDIN)
    if file is None and out is not None:
        raise InvalidOption("--out is for many texts, from --file; one text is written by --save")
    if file is not None and out is None:
        raise InvalidOption("--file needs --out, the table to write: --out scores.csv (or .parquet, .jsonl)")
    if (text is None) == (file is None):
        raise InvalidOption("expected either a text or --file")
    return file


def _number(value: str | None) -> int | str | None:
    """A whole number typed on the command line, or the word itself."""
    return int(value) if value is not None and re.fullmatch(r"-?[0-9]+", value) else value


def method_options(typed: list[str]) -> dict[str, Any]:
    """`["n_steps=50", "metric=l2"]` as keyword arguments of the method."""
    import wherefrom
    from wherefrom.spec import options

    found = options(typed)
    if taken := found.keys() & inspect.signature(wherefrom.explain).parameters:
        raise InvalidOption(f"'{min(taken)}' is no option of a method; see `wherefrom explain --help`")
    return found
