"""`wherefrom generate`: a prompt, what a language model says after it, and where a token of that comes from.

`wherefrom lens`: what each layer would have said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from wherefrom.cli.flags import (
    MODEL,
    OF_LENS,
    AsJson,
    Asked,
    ModelName,
    Written,
    complete_method,
    complete_model,
    shared,
)
from wherefrom.cli.wording import in_json
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL, SPEAKER
from wherefrom.errors import InvalidInput, InvalidOption

ModelChoice = Annotated[
    str,
    typer.Option("--model", "-m", help="A language model: a hub id or a folder.", autocompletion=complete_model),
]
MethodChoice = Annotated[
    str, typer.Option("--method", "-M", help="A name from `wherefrom methods`.", autocompletion=complete_method)
]
Token = Annotated[int | None, typer.Option(help="The token whose sources are shown, from 0 (default: all as one).")]
Most = Annotated[
    int | None, typer.Option("--max-new-tokens", help="How many tokens are said at most (default: 20).", min=1)
]
Seed = Annotated[int | None, typer.Option(help="Of a sampled answer; drawn and recorded if not given.")]
Temperature = Annotated[float | None, typer.Option(help="Sample at this temperature instead of the likeliest token.")]
Top = Annotated[int, typer.Option(help="How many words are listed of each layer.", min=1)]
Rather = Annotated[str | None, typer.Option("--foil", help="Why the token was said rather than this word.")]
Given = Annotated[str | None, typer.Option("--target", help="A text that is taken as said; nothing is generated.")]
Unit = Annotated[
    str, typer.Option("--unit", help="What the sources are: token, word, sentence, line, document or turn.")
]
Alternatives = Annotated[
    int, typer.Option(help="Explain each token also rather than so many likely others, for the file.", min=0)
]
SaveTo = Annotated[
    Path | None,
    typer.Option(
        "--save", "--out", "-o", help="Write to a .json, .npz, .csv, .html (viewer), .png, .svg or .pdf (heatmap) file."
    ),
]
AsChat = Annotated[
    bool, typer.Option("--chat", help="TEXT is what a user says in a chat, or a .json file with a list of turns.")
]


EXAMPLE = '[{"role": "user", "content": "…"}, …]'


def register(app: typer.Typer) -> None:
    """Add this file's commands to the application."""
    app.command("generate")(generate_command)
    app.command("lens")(lens_command)


@shared(asked=(MODEL,))
def generate_command(
    text: Annotated[str, typer.Argument(help="The text that the model goes on after.")],
    model: ModelChoice = SPEAKER,
    method: MethodChoice = DEFAULT_METHOD,
    token: Token = None,
    foil: Rather = None,
    target: Given = None,
    unit: Unit = "word",
    max_new_tokens: Most = None,
    seed: Seed = None,
    temperature: Temperature = None,
    alternatives: Alternatives = 0,
    chat: AsChat = False,
    *,
    asked: Asked,
    as_json: AsJson = False,
    save: SaveTo = None,
) -> None:
    """Let a language model go on after a text, and show where a token of what it says comes from."""
    import wherefrom
    from wherefrom.generating import rather_than
    from wherefrom.result.units import UNITS
    from wherefrom.view.said import show_generation

    if foil is not None and token is None:
        raise InvalidOption("--foil is of one token; say with --token which one is meant, from 0")
    if unit not in UNITS:
        raise InvalidOption(f"unknown --unit '{unit}'; expected {', '.join(UNITS)}")
    given = {"--max-new-tokens": max_new_tokens, "--temperature": temperature, "--seed": seed}
    if target is not None and (unread := [name for name, each in given.items() if each is not None]):
        raise InvalidOption(f"--target is taken as said, and nothing is generated; leave {' and '.join(unread)} out")
    if seed is not None and temperature is None:
        raise InvalidOption("--seed is of a sampled answer; add --temperature, or leave it out")
    if (task := asked.pop("task", None)) not in (None, "causal-lm", "seq2seq"):
        raise InvalidOption(f"only a language model says something; leave --task {task} out")
    sampling: dict[str, Any] = {} if target is not None else {"do_sample": temperature is not None}
    if temperature is not None:
        sampling["temperature"] = temperature
    opened = wherefrom.open_model(model, **asked)
    sampling |= {"max_new_tokens": max_new_tokens, "alternatives": alternatives}
    prompt: Any = _turns(text) if chat else text
    found = wherefrom.generate(prompt, opened, method=method, target=target, seed=seed, **sampling)
    contrast = None if foil is None or token is None else rather_than(found, token, foil, opened)
    if save is not None:
        found.save(save)
    if as_json:
        typer.echo(in_json(found.to_dict()))
        return
    show_generation(found, token, unit=unit, contrast=contrast)
    if found.seed is not None:
        typer.echo(f"drawn with --seed {found.seed}")
    if save is not None:
        typer.echo(f"written to {save}")


def _turns(text: str) -> list[dict[str, Any]]:
    """A chat: the turns of a file, or what a user says."""
    from wherefrom.model.chat import is_chat

    if not text.endswith(".json"):
        return [{"role": "user", "content": text}]
    try:
        found = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read the chat '{text}': {error}") from error
    if not is_chat(found):
        raise InvalidInput(f"'{text}' is no chat; expected {EXAMPLE}")
    return list(found)


@shared(asked=(OF_LENS, MODEL))
def lens_command(
    text: Written, model: ModelName = DEFAULT_MODEL, top: Top = 5, *, asked: Asked, as_json: AsJson = False
) -> None:
    """Show what each layer of a model would have said: the logit lens."""
    import wherefrom

    found = wherefrom.logit_lens(text, model, top=top, **asked)
    if as_json:
        typer.echo(in_json(found.to_dict()))
    else:
        found.show()
