"""What the server knows: its models, the methods, and sentences to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whence import zoo
from whence.aggregate import AGGREGATIONS
from whence.errors import WhenceError
from whence.method import methods, presets
from whence.model import Opened, open_model

LABELS = 200  # classes listed by name

# Sentences that the papers show, for models of a kind: task, text (or pair), target, foil, where it stands.
EXAMPLES = (
    ("classification", "a clever blend of fact and fiction .", None, None, "ALTI, figure 5"),
    (
        "classification",
        "i really didn't like this movie . some of the actors were good , but overall the movie was boring .",
        None,
        None,
        "AttCAT, figure 5",
    ),
    (
        "classification",
        "this may be the dumbest , sketchiest movie on record about an aspiring writer's coming-of-age .",
        None,
        None,
        "ALTI, appendix",
    ),
    ("masked-lm", "the pictures of some hat [MASK] scaring marcus .", "are", "is", "Value Zeroing, appendix A.4"),
    ("masked-lm", "many teenagers were helping [MASK] .", "themselves", "herself", "Value Zeroing, table 1"),
    ("masked-lm", "the pictures of martha [MASK] not disgust anne .", "do", "does", "Value Zeroing, table 1"),
    ("masked-lm", "mary convinced john of [MASK] love .", "his", "her", "Abnar & Zuidema, figure 4"),
    (
        "question-answering",
        (
            "which nfl team represented the afc at super bowl 50 ?",
            "super bowl 50 was an american football game to determine the champion of the national football league "
            "( nfl ) for the 2015 season . the american football conference ( afc ) champion denver broncos defeated "
            "the national football conference ( nfc ) champion carolina panthers 24 - 10 .",
        ),
        None,
        None,
        "AttCAT, figure 5",
    ),
    ("masked-lm", "the key to the cabinets [MASK] on the table .", "is", "are", "after Abnar & Zuidema, section 2"),
)


def opened_by_name(names: Sequence[str], device: str | None = None) -> dict[str, Opened]:
    """The models named at the start, and no others, ever. Code that a checkpoint brings along is not run."""
    if repeated := {name for name in names if list(names).count(name) > 1}:
        raise WhenceError(f"a model is named twice: {', '.join(sorted(repeated))}; expected each once")
    return {name: open_model(name, device=device) for name in names}


def model_cards(opened: Mapping[str, Opened]) -> list[dict[str, Any]]:
    return [_model_card(name, each) for name, each in opened.items()]


def _model_card(name: str, opened: Opened) -> dict[str, Any]:
    classes = opened.task in ("classification", "token-classification")
    return {
        "name": name,
        "summary": zoo.card(name).summary if name in zoo.names() else None,
        "task": opened.task,
        "family": opened.family.name,
        "labels": list(opened.labels.values())[:LABELS] if classes else [],
        "mask": getattr(opened.tokenizer, "mask_token", None) if opened.mask_id is not None else None,
        "layers": opened.depth,
        "heads": int(opened.config.num_attention_heads),
        "max_length": opened.max_length,
        "parameters": sum(weight.numel() for weight in opened.model.parameters()),
        "dtype": opened.dtype,
        "device": str(opened.device),
        "causal": opened.causal,
    }


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
            "needs": each.needs,
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


def examples(opened: Mapping[str, Opened]) -> list[dict[str, Any]]:
    """The papers' sentences for each model that can read them, its own mask put in."""
    found = []
    for name, each in opened.items():
        for task, text, target, foil, source in EXAMPLES:
            if each.task == task:
                mask = getattr(each.tokenizer, "mask_token", None) or "[MASK]"
                first, pair = (text, None) if isinstance(text, str) else text
                found.append(
                    {
                        "model": name,
                        "inputs": first.replace("[MASK]", mask),
                        "pair": pair,
                        "target": target,
                        "foil": foil,
                        "source": source,
                    }
                )
    return found
