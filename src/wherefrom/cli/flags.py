"""The options of commands: each written once, with its help; those of `wherefrom.options` in groups.

    @shared(asked=(QUESTION, MODEL))
    def command(text: Written, *, asked: Asked, as_json: AsJson = False) -> None: ...

The command has a flag for each option of these groups where `asked` stands, and gets them in it under their names in
Python.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from wherefrom.errors import InvalidOption
from wherefrom.options import similarity


def complete_method(typed: str) -> list[str]:
    """Names of methods that begin as typed; after a comma, those of the next one."""
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
    typer.Option("--file", help="Many texts: one per line, or a .csv, .tsv, .jsonl or .parquet table (- is stdin)."),
]
Column = Annotated[str, typer.Option("--column", help="The table's column with the texts; two names (a,b) make pairs.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the scores of --file to a .csv, .parquet or .jsonl.")]
Long = Annotated[str, typer.Option("--long", help="A text longer than the model reads: error, truncate or windows.")]
Overlap = Annotated[int | None, typer.Option("--overlap", help="Tokens that two windows share (default: a quarter).")]
BatchSize = Annotated[int, typer.Option(help="Sentences in one captured pass.", min=1)]
QUESTIONS = "faithful, map, plausible or cues"  # by which methods are ranked and recommended (board/recommending.py)
Pair = Annotated[str | None, typer.Option("--pair", help="A second text (question, hypothesis, …).")]
ModelName = Annotated[
    str, typer.Option("--model", "-m", help="A shipped model, a folder, or a hub id.", autocompletion=complete_model)
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-M",
        help="A name from `wherefrom methods`; auto is the default for the model (docs/methods.md).",
        autocompletion=complete_method,
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        "-M",
        help="Comma-separated names from `wherefrom methods`; auto is the defaults of the model and two kinds of maps.",
        autocompletion=complete_method,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="A class (or all), a word at the mask, start or end (default: the prediction)."),
]
OneTarget = Annotated[
    str | None,
    typer.Option(help="A class, a word at the mask, start or end (default: the prediction)."),
]
Foil = Annotated[str | None, typer.Option(help="Explain the difference to this class or word.")]
SimilarTo = Annotated[
    str | None,
    typer.Option("--similar-to", help="Of a sentence embedder: explain how similar the text is to this one."),
]
Position = Annotated[str | None, typer.Option(help="The readout position: an index, first, last, mean or mask.")]
Aggregate = Annotated[
    str, typer.Option(help="The aggregation of layer maps: auto, none, rollout, flow, sum, mean or last.")
]
Head = Annotated[str | None, typer.Option(help="One head, counted from 0.")]
FromLayer = Annotated[int, typer.Option("--from-layer", help="The lowest block to include, counted from 0.", min=0)]
ToLayer = Annotated[int | None, typer.Option("--to-layer", help="Stop before this block (default: after the last).")]
Receptive = Annotated[
    bool, typer.Option("--receptive-field", help="Causal models: correct rollout or flow for what tokens can see.")
]
SinkChoice = Annotated[str, typer.Option("--sink", help="Causal models: keep the first token in the maps, or drop it.")]
Rows = Annotated[str, typer.Option(help="all, or readout for the readout row alone, which makes flow fast.")]
Layers = Annotated[bool, typer.Option("--layers", help="Also show every layer: its readout row and its map.")]
Words = Annotated[
    bool | None,
    typer.Option(
        "--words/--pieces", help="Words, or the tokenizer's pieces (default: words on screen, pieces in data)."
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Check how far to believe it, by erasing words by score and at random."),
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
SaveComparison = Annotated[
    Path | None,
    typer.Option(
        "--save", "-o", help="Write to a .json, .csv, .parquet, .jsonl or .html file, or a .png, .svg or .pdf picture."
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(help="The picture to save: text, tokens, bars, layers, maps, map or graph; of a picture, image."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Write the viewer to this HTML file, to open in a browser.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a text that is longer than the model reads.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="An option of the method, e.g. -O n_steps=50 (see `wherefrom methods NAME`)."),
]
DropSelf = Annotated[bool, typer.Option("--drop-self", help="Set what the readout token gives itself to 0.")]
TaskName = Annotated[str | None, typer.Option(help="The head to open: classification, masked-lm, encoder, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, float64, bfloat16 or float16.")]
Prove = Annotated[
    bool,
    typer.Option(
        "--prove/--no-prove",
        help="Check the model's blocks on opening (two short passes), and its output on the first text (a pass more).",
    ),
]


class Flag(NamedTuple):
    """One option of a command: what it is, and its default."""

    kind: Any
    default: Any = None


Asked: TypeAlias = dict[str, Any]  # options of `wherefrom.options`, by name
Group: TypeAlias = Mapping[str, Flag]
QUESTION: Group = {
    "target": Flag(Target),
    "foil": Flag(Foil),
    "similar_to": Flag(SimilarTo),  # which is a `target`
    "position": Flag(Position),
}
OF_LENS: Group = {"target": Flag(OneTarget), "foil": Flag(Foil), "position": Flag(Position)}
MAPS: Group = {
    "aggregate": Flag(Aggregate, "auto"),
    "head": Flag(Head),
    "from_layer": Flag(FromLayer, 0),  # which are `layers`
    "to_layer": Flag(ToLayer),
    "receptive_field": Flag(Receptive, False),
    "rows": Flag(Rows, "all"),
    "drop_self": Flag(DropSelf, False),
    "sink": Flag(SinkChoice, "keep"),
}
READING: Group = {"truncate": Flag(Truncate, False), "long": Flag(Long, "error"), "overlap": Flag(Overlap)}
SHOWING: Group = {
    "layers": Flag(Layers, False),
    "words": Flag(Words),
    "check": Flag(Check, False),
    "as_json": Flag(AsJson, False),
    "save": Flag(Save),
    "kind": Flag(Kind),
    "html": Flag(Html),
}
SHOWING_SEVERAL: Group = {**SHOWING, "save": Flag(SaveComparison)}
OPENING: Group = {"task": Flag(TaskName), "device": Flag(Device), "dtype": Flag(Dtype)}
MODEL: Group = {**OPENING, "prove": Flag(Prove, True)}


def shared(**places: Sequence[Group]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these groups, in place of the parameters under which it gets them."""
    flags = {
        place: {name: flag for group in groups for name, flag in group.items()} for place, groups in places.items()
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            gathered = {place: _in_python({name: given.pop(name) for name in mine}) for place, mine in flags.items()}
            command(**gathered, **given)

        run.__dict__["__signature__"] = _signature(command, flags)
        return run

    return decorate


def _signature(command: Callable[..., None], flags: Mapping[str, Group]) -> inspect.Signature:
    """The parameters that the command line sees; they have names there, and no order."""
    named = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command, eval_str=True)
    found: list[inspect.Parameter] = []
    for each in own.parameters.values():
        if each.name in flags:
            mine = flags[each.name].items()
            found += [inspect.Parameter(name, named, default=flag.default, annotation=flag.kind) for name, flag in mine]
        else:
            found.append(each.replace(kind=named))
    return own.replace(parameters=found)


def _in_python(given: Asked) -> Asked:
    """What was typed as Python takes it."""
    if "from_layer" in given:
        given["layers"] = (given.pop("from_layer"), given.pop("to_layer"))
    if (text := given.pop("similar_to", None)) is not None:
        if given["target"] is not None:
            raise InvalidOption("--similar-to is a target by itself; leave --target out")
        given["target"] = similarity(text)
    for name in given.keys() & {"position", "head"}:
        given[name] = _number(given[name])
    return given


def _number(value: str | None) -> int | str | None:
    """A whole number typed on the command line, or the word itself."""
    return int(value) if value is not None and re.fullmatch(r"-?[0-9]+", value) else value
