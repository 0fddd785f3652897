"""A page for every method, made from the registry: what it computes, assumes and costs, a picture, its citation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import formulas

import wherefrom
from wherefrom.board.recommending import shipped
from wherefrom.method import lookup
from wherefrom.method.base import CHECKS, Method, Preset
from wherefrom.method.needs import undefined
from wherefrom.typecheck import described

Keep = Callable[[str, bytes], str]  # a file of this name and content, and how a method's page links to it
TEXT = "a deep and meaningful film , though the first half is dull ."
PROMPT = "London is the capital of England, and Paris is the capital of"
STORY = "Rome is in Italy. Madrid is in Spain. Paris is the capital of"


def names() -> list[str]:
    return [each.name for each in (*wherefrom.methods(), *wherefrom.presets())]


def by_idea() -> dict[str, list[str]]:
    """The names under the headings of `wherefrom methods`; a preset stands with its method."""
    found: dict[str, list[str]] = {}
    for name in names():
        found.setdefault(lookup(name)[0].idea, []).append(name)
    return found


def index() -> str:
    """The page that lists all of them."""
    lines = ["# Every method", "", _OPENING, ""]
    for idea, under in by_idea().items():
        lines += [f"## {idea[0].upper()}{idea[1:]}", "", "| name | what it is | looks at | from |", "|---|---|---|---|"]
        for name in under:
            method, preset = lookup(name)
            said, looks = (preset or method).summary, "one output" if method.class_specific else "no output"
            lines.append(f"| [`{name}`]({name}.md) | {_cell(said)} | {looks} | {(preset or method).paper.short} |")
        lines.append("")
    return "\n".join(lines)


_OPENING = """Methods that *look at no output* say what a representation is made of, whichever class or word is
predicted; the others say what speaks for one number of the output, and take a `target` and a `foil`. Which to trust
on your model is a question for [the leaderboard](../leaderboard.md) and [evidence](../evidence.md); what is taken
where none is named, and why, stands under [the default](../methods.md#the-default)."""


def page(name: str, keep: Keep, docs: Path) -> str:
    method, preset = lookup(name)
    parts = [
        f"# {name}",
        (preset or method).summary,
        _picture(name, method, keep),
        "## What it computes",
        *_prose(inspect.getdoc(inspect.getmodule(inspect.unwrap(method.run))) or ""),
        *_options(method),
        "## What it assumes",
        _facts(method, preset),
        "## What it costs",
        _cost(name, method, docs),
        "## Its record",
        _record(name),
        "## Citation",
        f"{(preset or method).paper}\n\n```bibtex\n{(preset or method).paper.bibtex}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _prose(about: str) -> Iterator[str]:
    """A docstring as Markdown: its indented blocks are formulas, and its addresses links."""
    for block in about.split("\n\n"):
        if block.startswith("    "):
            yield formulas.table(block)
        else:
            linked = re.sub(r"(?<![(<])https?://\S+[^\s.,;]", r"<\g<0>>", _escaped(block))
            yield linked.replace(">\n", ">  \n")  # one reference a line


def _escaped(text: str) -> str:
    """Formulas in prose keep their underscores, stars and bars; what stands between backticks is code already."""
    parts = re.split(r"(`[^`]*`|https?://\S+|\*\*.*?\*\*|\*\w+\*)", text, flags=re.DOTALL)
    return "".join(part if i % 2 else re.sub(r"([_*\[\]<|])", r"\\\1", part) for i, part in enumerate(parts))


def _options(method: Method) -> Iterator[str]:
    if not method.options:
        return
    yield "## Options"
    rows = [
        f"| `{name}` | `{default!r}` | {_cell(described(method.kinds[name]))} |"
        for name, default in method.options.items()
    ]
    yield "\n".join(["| option | default | what it may be |", "|---|---|---|", *rows])
    rest = (inspect.getdoc(inspect.unwrap(method.run)) or "").partition("\n\n")[2]
    if rest:
        named = "|".join(map(re.escape, method.options))
        yield _escaped(re.sub(rf"(?:^|(?<=\.)\s|\n)({named}): ", r"\n- `\1`: ", rest)).strip()


def _facts(method: Method, preset: Preset | None) -> str:
    symbols = (preset or method).symbols
    join = preset.aggregate or "the last layer alone" if preset else method.aggregate
    signs = "below zero they speak against the target" if method.signed else "none: how much, not for or against"
    identities = [said for word, said in CHECKS.items() if word in method.checks]
    facts = {
        "It gives": "a map of every layer" if method.kind == "map" else "a score for each token",
        "It looks at": "one number of the output" if method.class_specific else "no output; it refuses a target",
        "It needs": method.needs_in_words,
        "Layers are joined by": join or "nothing; there is nothing to join",
        "Signs": signs,
        "It promises": "; ".join(identities) or "no identity is claimed",
        "In papers": ", ".join(symbols) or "no symbol of its own",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(said)} |" for name, said in facts.items())])


def _cell(text: str) -> str:
    return _escaped(text).replace("\n", " ")


def _cost(name: str, method: Method, docs: Path) -> str:
    model = _model(method)
    found = wherefrom.estimate(" ".join(TEXT.split() * 2), model=model, method=name)
    passes = found.seconds / found.parts["forward pass"]
    section = _section(name, docs)
    return (
        f"About {passes:.1f} forward passes of `{model}` on a text of {found.longest} tokens, by `wherefrom.estimate` "
        f"on the machine that made this page. In multiplications and memory, with the test that proves it: "
        f"[all methods](../methods.md{section}). Yours, before you run it:\n\n"
        f'```sh\nwherefrom estimate "{TEXT}" --model {model} --method {name}\n```'
    )


def _record(name: str) -> str:
    """Where it stands on the leaderboard, and why not where it does not."""
    board = shipped()
    found = board["methods"].get(name)
    if found is None:
        why = board["left_out"].get(name, "it is not defined on the models measured there")
        return f"None on [the leaderboard](../leaderboard.md): {why}."
    rows = [
        f"| {question} | {place['rank']:g} of {place['of']} | {place['beaten']:.0%} | {_alike(place['alike'])} |"
        for question, place in ((said, found[key]) for key, said in STANDINGS.items() if key in found)
    ]
    head = "| asked | mean rank | beats, on an average example | not told apart from |\n|---|---|---|---|\n"
    sane = [
        said.format(found[key])
        for key, said in (
            (
                "randomised",
                "With all weights drawn anew its scores keep a rank correlation of {:.2f} with the model's own.",
            ),
            ("passes", "It took {:g} forward passes there."),
        )
        if key in found
    ]
    return (
        head
        + "\n".join(rows)
        + f"\n\n{' '.join(sane)} What was measured, and what it cannot tell: [the leaderboard](../leaderboard.md)."
    )


STANDINGS = {
    "faithful": "what the model uses (erasure)",
    "plausible": "what people marked",
    "cues": "the word that decides",
}


def _alike(names: list[str]) -> str:
    shown = ", ".join(f"`{each}`" for each in names[:5])
    return (shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")) or "no other"


def _section(name: str, docs: Path) -> str:
    """The anchor of the section of docs/methods.md that is about the method, or whose table has it."""
    heading, found = "", ""
    for line in (docs / "methods.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
            if heading.lower() == name.replace("-", " "):
                found = heading
        if line.startswith(f"| `{name}`") and heading != "The default":
            found = found or heading
    return "#" + re.sub(r"[^\w\- ]", "", found.lower()).replace(" ", "-") if found else ""


def _model(method: Method) -> str:
    """The shipped model on which the method is shown: the classifier wherever it is defined there."""
    defined = undefined(method.needs, wherefrom.open_model("wherefrom/sentiment")) is None
    return "wherefrom/sentiment" if defined and method.name != "context-cite" else "wherefrom/lm"


def _question(method: Method) -> dict[str, str]:
    """What is asked of the shipped model in the example."""
    if (model := _model(method)) == "wherefrom/sentiment":
        return {"inputs": TEXT}
    return {"inputs": STORY if method.name == "context-cite" else PROMPT, "model": model, "target": " France"}


def _picture(name: str, method: Method, keep: Keep) -> str:
    """A call, and what it draws, for light pages and dark ones."""
    asked = _question(method)
    kind = "layers" if method.kind == "map" and method.aggregate and not method.class_specific else "text"
    explained = wherefrom.explain(method=name, **asked).words()
    links = []
    for shade in ("light", "dark"):
        link = keep(f"{name}-{shade}.svg", explained.plot(kind, dark=shade == "dark").file("svg"))
        links.append(f"![{name} on one sentence]({link}#only-{shade}){{ .drawn }}")
    given = [f'"{asked["inputs"]}"', *(f'{key}="{value}"' for key, value in asked.items() if key != "inputs")]
    call = f'ex = wherefrom.explain({", ".join(given)}, method="{name}")\nex.words().plot("{kind}")'
    return f"```python\nimport wherefrom\n\n{call}\n```\n\n{''.join(links)}"
