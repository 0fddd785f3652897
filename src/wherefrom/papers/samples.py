"""The examples that recipes run on: datasets on this machine, drawn at random, or sentences of our own.

own          short reviews written for wherefrom, half of them negative: what runs where there is no data at all
own-pairs    short German sentences with their translations, for the same purpose
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wherefrom.data import Dataset, Example
from wherefrom.data import read as read_data
from wherefrom.data.datasets import dataset_name, on_this_machine
from wherefrom.data.example import MASK, kept, lot
from wherefrom.data.rows import prompt
from wherefrom.data.tables import BadRow
from wherefrom.errors import InvalidOption
from wherefrom.evaluation.gold import gold_classes
from wherefrom.model import open_model
from wherefrom.model.vocabulary_words import word_id

OWN, OWN_PAIRS = "own", "own-pairs"
NAMELESS = re.compile(r"LABEL_\d+|\d+")  # names of classes that say nothing
POSITIVE = (
    "a warm and funny film that never talks down to its audience .",
    "the young cast is wonderful , and the last scene is quietly moving .",
    "i laughed more than i have in years .",
    "an honest , tender portrait of two brothers .",
    "beautifully shot , smartly written and full of surprises .",
    "it is slow at first but rewards every minute of patience .",
    "the director finds real joy in ordinary lives .",
    "one of the best thrillers of the year , tense and clever .",
    "a charming little comedy with a big heart .",
    "not a single scene feels wasted .",
    "the music alone is worth the ticket .",
    "she gives a brave and brilliant performance .",
    "a fresh , lively and very human story .",
    "i did not expect to love it , but i did .",
    "gorgeous to look at and impossible to forget .",
    "even the smallest parts are played with care and wit .",
)
NEGATIVE = (
    "a dull and lifeless film that never finds its story .",
    "the jokes are stale and the acting is worse .",
    "i could not wait for it to end .",
    "a loud , empty mess without a single idea .",
    "badly shot , badly written and far too long .",
    "it starts well but soon falls apart completely .",
    "the director wastes a fine cast on a silly script .",
    "one of the worst sequels ever made , tired and pointless .",
    "a comedy without one good laugh .",
    "nothing in this film feels true .",
    "the music is annoying and the plot makes no sense .",
    "she is painfully miscast , and it shows .",
    "a cold , clumsy and very boring story .",
    "i wanted to like it , but i did not .",
    "ugly to look at and easy to forget .",
    "even the action scenes are flat and predictable .",
)
PAIRS = (
    ("Der alte Mann kauft jeden Morgen frisches Brot.", "The old man buys fresh bread every morning."),
    ("Meine Schwester hat gestern ihren Schlüssel verloren.", "My sister lost her key yesterday."),
    ("Wir haben heute Abend keine Zeit.", "We have no time this evening."),
    ("Das Kind spielt mit dem kleinen Hund.", "The child is playing with the little dog."),
    ("Warum hast du mir nichts gesagt?", "Why did you not tell me anything?"),
    ("Sie trinkt ihren Kaffee ohne Milch.", "She drinks her coffee without milk."),
    ("Der Zug nach Berlin fährt um acht Uhr.", "The train to Berlin leaves at eight o'clock."),
    ("Ich kenne den Namen dieser Frau nicht.", "I do not know the name of this woman."),
    ("Im Winter ist der See immer gefroren.", "In winter the lake is always frozen."),
    ("Er hat das Fenster offen gelassen.", "He has left the window open."),
    ("Die Katze schläft auf dem roten Stuhl.", "The cat is sleeping on the red chair."),
    ("Kannst du mir bitte mit dem Koffer helfen?", "Can you please help me with the suitcase?"),
    ("Unser Lehrer erzählt gern lange Geschichten.", "Our teacher likes to tell long stories."),
    ("Niemand wollte den letzten Apfel essen.", "Nobody wanted to eat the last apple."),
    ("Das neue Haus hat einen großen Garten.", "The new house has a large garden."),
    ("Es hat die ganze Nacht geregnet.", "It has been raining all night."),
)


def own() -> Dataset:
    """Our own reviews, positive and negative in turn."""
    pairs = zip(POSITIVE, NEGATIVE, strict=True)
    told = [(text, label) for good, bad in pairs for text, label in ((good, "positive"), (bad, "negative"))]
    examples = [Example(f"own:{row}", text, label=label) for row, (text, label) in enumerate(told, 1)]
    return Dataset(OWN, "", lambda: iter(examples), ("negative", "positive"), "Short reviews written for wherefrom.")


def own_pairs() -> Dataset:
    """Our own German sentences, each with its translation."""
    examples = [Example(f"{OWN_PAIRS}:{row}", text, target=said) for row, (text, said) in enumerate(PAIRS, 1)]
    return Dataset(OWN_PAIRS, "", lambda: iter(examples), (), "Short German sentences and their translations.")


def read(
    name: str,
    folder: Path | None = None,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
) -> Dataset:
    """A dataset by name or file; `own` and `own-pairs` are ours, and have no splits or columns."""
    ours = {OWN: own, OWN_PAIRS: own_pairs}.get(name)
    return kept(read_data(name, split, columns, folder=folder)) if ours is None else ours()


def dataset_of(name: str) -> str:
    """The name of the dataset behind a file, folder or group: "sst2" for "data/SST-2/dev.tsv"."""
    return dataset_name(name) or name


def refuse_foreign_labels(model: str, data: Dataset, names: Mapping[Any, str] | None = None) -> None:
    """Refuse a classifier of other classes than the dataset's labels, which would fill the column of another task.

    Classes without names of their own (LABEL_0) fit if there are as many as labels.
    """
    opened = open_model(model) if data.labels else None
    if opened is None or opened.task != "classification":
        return
    classes = opened.labels
    if not names and all(NAMELESS.fullmatch(label) for label in classes.values()):
        fits = len(classes) == len(data.labels)
    else:
        try:
            known = gold_classes(classes, data.labels, (), names)
        except InvalidOption:
            fits = False
        else:
            every = {label.casefold() for label in classes.values()}
            fits = all(label in known or label.casefold() in every for label in data.labels)
    if not fits:
        raise InvalidOption(
            f"{model} chooses between {', '.join(classes.values())}, and {data.name} is labeled "
            f"{', '.join(data.labels)}; give a model trained on {data.name} (--model {data.name}=MODEL), or name the "
            f"classes (--name 0={data.labels[0]})"
        )


def at_hand(name: str, folder: Path | None = None) -> bool:
    """Whether a dataset can be read without asking anybody."""
    return name in (OWN, OWN_PAIRS) or on_this_machine(name, folder)


def changed(data: Dataset, change: Callable[[Example], Example | None]) -> Dataset:
    """Every example changed, or left out where the change gives none."""

    def make() -> Iterator[Example]:
        return (new for example in data if (new := change(example)) is not None)

    return replace(data, make=make)


def prompts(data: Dataset, tokenizer: Any, *, contrast: bool = True) -> Dataset:
    """Examples as a language model reads them: the text before the mask, its target and foil by their first pieces.

    Left out is what leaves nothing to choose or to rank: words with the same first piece, and texts that are all cue.
    Without `contrast` there is no foil.
    """

    def change(example: Example) -> Example | None:
        try:
            found = prompt(example) if MASK in example.text else example
        except BadRow:
            return None
        target, foil = (_first_piece(tokenizer, word) for word in (found.target, found.foil))
        ranked = len(str(found.text).split()) > sum(len(str(found.text)[a:b].split()) for a, b in found.cues)
        if target is None or foil is None or target == foil or not ranked:
            return None
        return replace(found, target=target, foil=foil if contrast else None)

    return changed(data, change)


def _first_piece(tokenizer: Any, word: str | None) -> str | None:
    """The first token of a word as it stands after a blank, in letters; None where these are another token."""
    if word is None:
        return None
    first = tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0]
    written = str(tokenizer.decode([first])).strip()
    return written if written and word_id(tokenizer, written) == first else None


def midway(data: Dataset) -> Dataset:
    """Translations as a decoder is asked for its next token: each target up to one of its words, as a prefix.

    The word is drawn by a hash of the example's id, and is neither the first, before which there is nothing to go on
    from, nor the last; targets of two words are left out. A prefix that is given stays.
    """

    def change(example: Example) -> Example | None:
        if example.prefix is not None:
            return example
        words = str(example.target or "").split()
        if len(words) < 3:
            return None
        place = 1 + int.from_bytes(lot(example.id, 0)) % (len(words) - 2)
        return replace(example, target=None, prefix=" ".join(words[:place]))

    return changed(data, change)


def half(data: Dataset, test: bool) -> Dataset:
    """Every example lies by a hash of its id in one of two halves: one to train on, one to test on."""
    return changed(data, lambda example: example if (lot(example.id, 0)[0] % 2 == 1) == test else None)
