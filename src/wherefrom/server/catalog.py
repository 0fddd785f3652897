"""What the server knows: its models, the methods, and sentences to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wherefrom import zoo
from wherefrom.aggregate import AGGREGATIONS
from wherefrom.errors import InvalidOption
from wherefrom.method import lookup, methods, presets
from wherefrom.method.needs import undefined
from wherefrom.model import Model, open_model
from wherefrom.model.chat import chats
from wherefrom.pipeline.auto import usual
from wherefrom.pipeline.windows import TASKS

LABELS = 200  # classes listed by name

TONES = ("negative", "positive", "neg", "pos")
NUMBERS = ("singular", "plural")


@dataclass(frozen=True)
class Suggestion:
    """A sentence that a paper shows, for models of a kind: a task, and classes with one of these names."""

    task: str
    inputs: str
    source: str
    labels: tuple[str, ...] = ()
    pair: str | None = None
    target: str | None = None
    foil: str | None = None

    def suits(self, opened: Model) -> bool:
        if opened.task != self.task:
            return False
        named = [label.casefold() for label in opened.labels.values()]
        return not self.labels or bool({*named} & {*self.labels}) or all(label.startswith("label_") for label in named)


EXAMPLES = (
    Suggestion("classification", "a clever blend of fact and fiction .", "ALTI, figure 5", TONES),
    Suggestion(
        "classification",
        "i really didn't like this movie . some of the actors were good , but overall the movie was boring .",
        "AttCAT, figure 5",
        TONES,
    ),
    Suggestion(
        "classification",
        "this may be the dumbest , sketchiest movie on record about an aspiring writer's coming-of-age .",
        "ALTI, appendix",
        TONES,
    ),
    Suggestion("classification", "the key to the cabinets", "Abnar & Zuidema, section 2", NUMBERS),
    Suggestion("classification", "the article on large systems", "after Abnar & Zuidema, figure 2", NUMBERS),
    Suggestion(
        "masked-lm",
        "the pictures of some hat [MASK] scaring marcus .",
        "Value Zeroing, appendix A.4",
        target="are",
        foil="is",
    ),
    Suggestion(
        "masked-lm",
        "many teenagers were helping [MASK] .",
        "Value Zeroing, table 1",
        target="themselves",
        foil="herself",
    ),
    Suggestion(
        "masked-lm",
        "the pictures of martha [MASK] not disgust anne .",
        "Value Zeroing, table 1",
        target="do",
        foil="does",
    ),
    Suggestion(
        "masked-lm", "mary convinced john of [MASK] love .", "Abnar & Zuidema, figure 4", target="his", foil="her"
    ),
    Suggestion(
        "question-answering",
        "which nfl team represented the afc at super bowl 50 ?",
        "AttCAT, figure 5",
        pair="super bowl 50 was an american football game to determine the champion of the national football league "
        "( nfl ) for the 2015 season . the american football conference ( afc ) champion denver broncos defeated the "
        "national football conference ( nfc ) champion carolina panthers 24 - 10 .",
    ),
)


def opened_by_name(names: Sequence[str], device: str | None = None) -> dict[str, Model]:
    """The models named at the start, and no others, ever. Code that a checkpoint brings along is not run."""
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise InvalidOption(f"a model is named twice: {', '.join(sorted(repeated))}; expected each once")
    return {name: open_model(name, device=device) for name in names}


def model_cards(opened: Mapping[str, Model]) -> list[dict[str, Any]]:
    return [_model_card(name, each) for name, each in opened.items()]


def _model_card(name: str, opened: Model) -> dict[str, Any]:
    classes = opened.task in ("classification", "token-classification")
    return {
        "name": name,
        "summary": zoo.card(name).summary if name in zoo.names() else None,
        "task": opened.task,
        "family": opened.family.name,
        "labels": list(opened.labels.values())[:LABELS] if classes else [],
        "mask": opened.mask_token,
        "layers": opened.depth,
        "heads": opened.heads,
        "max_length": opened.max_length,
        "windows": opened.task in TASKS,  # whether a text longer than that can be explained in windows
        "parameters": opened.parameters,
        "dtype": opened.dtype,
        "device": str(opened.device),
        "causal": opened.causal,
        "images": opened.images,  # whether it reads pictures, and no text
        "says": says(opened),  # whether it goes on after a prompt,
        "chat": chats(opened),  # and answers in a chat,
        "translates": opened.two_streams,  # or writes a text for another
        "compared": list(usual(opened, opened.task != "encoder")),  # what to begin with
        "undefined": _undefined(opened),
    }


def says(opened: Model) -> bool:
    """Whether a model writes, and can be told in writing what about: sound is not."""
    return opened.task == "causal-lm" or (opened.task == "seq2seq" and not opened.hears)


def _undefined(opened: Model) -> dict[str, str]:
    """The methods that are not defined on a model, and why."""
    names = [*(each.name for each in methods()), *(each.name for each in presets())]
    reasons = {name: undefined(lookup(name)[0].needs, opened) for name in names}
    return {name: why for name, why in reasons.items() if why is not None}


def method_cards() -> dict[str, Any]:
    named = [
        {
            "name": each.name,
            "symbols": list(each.symbols),
            "method": each.name,
            "aggregate": each.aggregate,
            "kind": each.kind,
            "summary": each.summary,
            "paper": str(each.paper),
            "cite": each.paper.short,
            "needs": each.needs_in_words,
            "signed": each.signed,
            "class_specific": each.class_specific,
            "heads": each.heads is not None,
            "options": each.options,
        }
        for each in methods()
    ]
    by_name = {each["name"]: each for each in named}
    combined = [
        {
            **by_name[each.method],
            "name": each.name,
            "symbols": list(each.symbols),
            "aggregate": each.aggregate,
            "summary": each.summary,
            "paper": str(each.paper),
            "cite": each.paper.short,
        }
        for each in presets()
    ]
    return {
        "methods": sorted([*named, *combined], key=lambda each: str(each["name"])),
        "aggregations": list(AGGREGATIONS),
    }


def examples(opened: Mapping[str, Model]) -> list[dict[str, Any]]:
    """The papers' sentences for each model that can read them, its own mask put in."""
    found = []
    for name, each in opened.items():
        mask = each.mask_token or "[MASK]"
        for example in (example for example in EXAMPLES if example.suits(each)):
            shown = {key: value for key, value in asdict(example).items() if key not in ("task", "labels")}
            found.append({"model": name, **shown, "inputs": example.inputs.replace("[MASK]", mask)})
    return found
