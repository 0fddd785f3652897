"""A generation as HTML: a viewer in which one clicks a token that was said, and its sources light up.

`payload` is the data, `viewer/generation.js` draws it. As in view/html.py data and script lie in the document, and
nothing is fetched; where no script runs, the text stands there with the colours of all that was said as one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wherefrom.result.generation import SOURCE, Generation
from wherefrom.result.units import UNITS, grouped
from wherefrom.result.words import Span
from wherefrom.view.html import cell, coloured, escaped, page
from wherefrom.view.payload import BUDGET, WIDTH, exact, pack, themes
from wherefrom.view.terminal import arrival, gaps, title

FORMAT = "wherefrom.view.generation"
BLANKS = ("▁", "Ġ")  # as vocabularies write them
ENTRY = "generation"  # the viewer's module


def document(generation: Generation) -> str:
    """A page of its own, with no reference to anything outside it, that may not fetch anything either."""
    return page(payload(generation), _static(generation), ENTRY)


def fragment(generation: Generation) -> str:
    """A piece of HTML for a notebook cell."""
    return cell(payload(generation), _static(generation), ENTRY)


def payload(generation: Generation) -> dict[str, Any]:
    """What the viewer draws. JSON-serialisable.

    `record` is what `to_dict` writes, without the arrays, as a text: JavaScript would sort names that are numbers.
    """
    whole, foils = generation.whole, generation.foil_scores
    arrays = ("scores", "foil_scores")
    record = {name: value for name, value in generation.to_dict().items() if name not in arrays}
    kind = "f4" if foils is None or foils.size * WIDTH["f4"] <= BUDGET["f4"] else "f2"
    return {
        "format": FORMAT,
        "version": 1,
        "title": _title(generation),
        "colours": themes(),
        "name": title(whole),
        "model": whole.model,
        "start": generation.start,
        "tokens": whole.pieces,
        "gaps": _gaps(generation),
        "again": _again(whole.spans),
        "special": whole.special,
        "segments": whole.segments,
        "source": whole.segments.count(SOURCE),  # tokens of an encoder's text, which come first
        "units": _units(generation),
        "signed": whole.signed,
        "adds": whole.additive,
        "towards": whole.target.towards,
        "ids": generation.ids,
        "steps": [_step(generation, step) for step in range(len(generation))],
        "scores": exact(generation.scores),
        "foils": None if foils is None else pack(foils, kind),
        "record": json.dumps(record, allow_nan=False),
    }


def _title(generation: Generation) -> str:
    """Prompt and answer in a row; of a translation both texts, without the mark that ends the second."""
    if SOURCE not in generation.whole.segments:
        return (generation.prompt + generation.text).strip()
    end = generation.whole.tokens[-1]
    text = generation.text.removesuffix(end) if end.startswith("<") else generation.text
    return f"{generation.prompt} → {text}".strip()


def _again(spans: Sequence[Span | None]) -> list[bool]:
    """Whether a token stands where the one before it does, or at its end: both are bytes of one character."""
    return [
        here is not None and before is not None and _inside(here, before)
        for before, here in zip([None, *spans], spans, strict=False)
    ]


def _inside(here: Span, before: Span) -> bool:
    """Of two tokens that hold something; a blank may belong to the first alone."""
    return here[0] == before[0] and before[1] <= here[1] < here[2] <= before[2]


def _gaps(generation: Generation) -> list[str]:
    """What stands before each token. The answer goes on where the prompt ends, with a blank only where its first token
    has one that was lost with the letters.
    """
    whole, start = generation.whole, generation.start
    found, first = gaps(whole), whole.pieces[start]
    lost = whole.tokens[start].startswith(BLANKS) and not first.startswith((*BLANKS, " ", "\n"))
    return [*found[:start], " " if lost else "", *found[start + 1 :]]


def _step(generation: Generation, step: int) -> dict[str, Any]:
    """One token that was said: its probability, what else was likely as [token, word, probability], and its foils."""
    said = generation.steps[step]
    names = {index: name for name, index in said.candidates.items()}
    others = [[i, name, said.probabilities[name]] for i, name in names.items() if i != said.target.index]
    probability = said.probabilities.get(str(said.target.label))
    foils = [each.foil for each in said.foils]
    return {"probability": probability, "others": others, "foils": foils, "arrival": arrival(generation[step])}


def _units(generation: Generation) -> dict[str, list[int]]:
    """Where each unit begins, of those that differ by more than special tokens: turns rather than equal lines."""
    whole, found, seen = generation.whole, dict[str, list[int]](), set[tuple[int, ...]]()
    for unit in sorted(UNITS, key=lambda unit: unit not in ("token", "word", "turn")):
        groups = grouped(unit, whole.texts, whole.spans, whole.segments, whole.word_ids)
        lettered = [[token for token in members if not whole.special[token]] for members in groups]
        firsts = tuple(members[0] for members in lettered if members)
        if firsts not in seen:
            seen.add(firsts)
            found[unit] = [members[0] for members in groups]
    return {unit: found[unit] for unit in UNITS if unit in found}


def _static(generation: Generation) -> str:
    """The text, coloured by where all that was said comes from."""
    said = generation[:]
    return f"<p>{escaped(f'{said.model}: {title(said)}')}</p><p>{coloured(said)} <b>{escaped(generation.text)}</b></p>"
