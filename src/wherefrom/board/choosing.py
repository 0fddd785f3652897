"""What a benchmark measures: which data suits a model, which methods are defined on it, by which metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from wherefrom.data import MASK, Dataset, Example, up_to_mask
from wherefrom.data.datasets import on_this_machine
from wherefrom.data.pictured import DRAWN
from wherefrom.data.sources import SOURCES
from wherefrom.errors import InvalidOption, NotDefined, warn
from wherefrom.method import lookup, methods, presets
from wherefrom.method.needs import undefined
from wherefrom.model import Model
from wherefrom.papers.samples import OWN, OWN_PAIRS, midway, prompts
from wherefrom.papers.samples import read as read_sample
from wherefrom.pipeline.auto import suited

GRAMMAR = "grammar"
FAITHFUL = ("aopc", "log-odds", "comprehensiveness", "sufficiency", "lerf-morf")
PLAUSIBLE = ("auprc", "token-f1")
CUES = ("cue-ap", "cue-mrr")
SANE = ("randomisation", "stability(against=padding)", "stability(against=bfloat16)")
# How tokens go where they cannot be deleted, since the model predicts at a place of the text.
BY = {"masked-lm": "mask", "causal-lm": "attention"}
PAINTED = "mean"  # and how patches of a picture go
MEASURED = ("classification", "masked-lm", "causal-lm", "seq2seq")  # tasks
PAIRED = "scores pairs of tokens; what it says of single ones is ablation"
LEFT_OUT = {
    **{each.name: PAIRED for each in methods() if each.pairs},
    "context-cite": "is made for a context of many sentences, and these inputs are one each or pictures",
}
UNNAMED = re.compile(r"LABEL_\d+")
LOOKED_AT = 50  # examples in which a rationale or cues are looked for


def datasets(
    opened: Model, asked: Sequence[str], folder: Path | None, columns: Mapping[str, str] | None = None
) -> list[tuple[str, Dataset]]:
    """The datasets that suit a model, of those asked for; or of all that lie here, or of what ships."""
    if opened.task not in MEASURED:
        raise InvalidOption(
            f"{opened.name} is a model for {opened.task}; a benchmark takes classifiers, language models and "
            f"translators"
        )
    if asked:
        return [(name, data) for name in asked if (data := _suiting(opened, name, folder, columns)) is not None]
    here = [name for name in SOURCES if on_this_machine(name, folder)]
    found = [(name, data) for name in here if (data := _suiting(opened, name, folder)) is not None]
    ships = [
        (name, data) for name in (OWN, GRAMMAR, DRAWN, OWN_PAIRS) if (data := _suiting(opened, name, None)) is not None
    ]
    return found or ships


def _suiting(opened: Model, name: str, folder: Path | None, columns: Mapping[str, str] | None = None) -> Dataset | None:
    """A dataset as this model reads it; None where it asks another question."""
    data = read_sample(name, folder, columns)
    first = next(iter(data))
    if (first.image is not None) != opened.images:
        return None
    masked = MASK in str(first.text)
    if opened.task == "classification":
        return (up_to_mask(data) if masked else data) if _same_classes(opened, data, first) else None
    if opened.task == "masked-lm":
        return data if masked and first.target is not None else None
    if opened.task == "seq2seq":
        return midway(data) if _translated(first) and not masked else None
    return prompts(data, opened.tokenizer) if first.target is not None and first.foil is not None else None


def _translated(first: Example) -> bool:
    """Whether a dataset's target is another text, and not a word of the same."""
    return first.prefix is not None or (first.foil is None and len(str(first.target or "").split()) > 1)


def _same_classes(opened: Model, data: Dataset, first: Example) -> bool:
    """Whether a classifier chooses between the dataset's classes; where neither side names them, whether it may.

    Pictures may show some of the classes alone: the others make them no other question.
    """
    ours, theirs = ({str(each).casefold() for each in names} for names in (opened.labels.values(), data.labels))
    if not theirs:
        return first.label is not None
    if opened.images and theirs <= ours:
        return True
    return len(ours) == len(theirs) if all(UNNAMED.fullmatch(each.upper()) for each in ours) else ours == theirs


def every_method(opened: Model, asked: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The methods to measure, those asked for or all, and why others of them cannot be."""
    every = list(asked) or [*(each.name for each in methods()), *(each.name for each in presets())]
    refused = {} if asked else dict(LEFT_OUT)
    names = suited(opened, [name for name in every if name not in refused])
    none = "there is no token for its baseline"
    refused |= {
        name: undefined(lookup(name)[0].needs, opened) or none for name in every if name not in (*names, *refused)
    }
    if asked and refused:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        if not names:
            raise NotDefined(f"none of the methods is defined on {opened.name} ({why})")
        warn(f"not measured on {opened.name}: {why}")
    return names, refused


def metrics(opened: Model, data: Dataset) -> tuple[str, ...]:
    """Faithfulness always; what people marked and cue words where the dataset has them."""
    some = list(islice(data, LOOKED_AT))
    way = PAINTED if opened.images else BY.get(opened.task)
    by = "" if way is None else f"(by={way})"
    found = [each if each == "lerf-morf" else f"{each}{by}" for each in FAITHFUL]
    found += PLAUSIBLE if any(each.rationale for each in some) else ()
    found += [f"{each}@scores" for each in CUES] if any(each.cues for each in some) else []
    return tuple(found)


def sane(opened: Model) -> tuple[str, ...]:
    """The sanity checks; pictures are never padded."""
    return tuple(each for each in SANE if not opened.images or "padding" not in each)


def plain_name(metric: str) -> str:
    """The name of a metric without its options and level, its part kept.

    >>> plain_name("aopc(by=mask)"), plain_name("cue-ap@scores"), plain_name("randomisation embeddings")
    ('aopc', 'cue-ap', 'randomisation embeddings')
    """
    kept = re.sub(r"\(by=[a-z]+\)|@scores", "", metric)
    return re.sub(r"\(against=([a-z0-9]+)\)", r" \1", kept)
