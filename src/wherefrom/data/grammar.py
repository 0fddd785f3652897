"""A small grammar of English number agreement: sentences whose deciding words are known by construction.

    anaphor        the boys (near the king) saw [MASK] .             themselves / himself     cue: the subject
    determiner     mary saw [MASK] houses .                          these / this             cue: the noun
    adjective      mary saw [MASK] old houses .                      these / this             cue: the noun
    distractor     the houses near the tree [MASK] very small .      are / is                 cue: the noun
    subject-verb   many writers [MASK] in the city .                 live / lives             cue: the subject

They are after the five paradigms of BLiMP that Value Zeroing uses. A cue is every word that shows the number: the noun,
and its determiner where that has a number too (`many`). Nothing else does: other verbs stand in the past, attractors
have the other number, each in a prepositional phrase between cue and mask. Target, foil, cues and attractors are
whole words of `wherefrom/mlm`'s vocabulary.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from wherefrom.data.example import MASK, Dataset, Dropped, Example
from wherefrom.errors import InvalidOption, UnknownName

NAME = "grammar"
ABOUT = "Our own agreement grammar in five paradigms, with cues known by construction."
SEED = 0
COUNT = 2000  # sentences of each paradigm in a split
PATIENCE = 1000  # draws without a new sentence after which there are no more
MOST_ATTRACTORS = 3
NUMBERS = ("singular", "plural")
SPLITS = ("test", "train")  # a sentence belongs to one of them by its hash

Pair = tuple[str, str]  # singular, plural


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _nouns(text: str) -> tuple[Pair, ...]:
    """`boy lady/ladies` as pairs; what has no plural beside it takes an s."""
    return tuple((one, many or one + "s") for one, _, many in (word.partition("/") for word in text.split()))


MEN = _nouns("king boy son brother lord actor")
WOMEN = _nouns("girl daughter sister lady/ladies")
HIM = (*MEN, *_nouns("man/men gentleman/gentlemen"))
HER = (*WOMEN, *_nouns("woman/women"))
PEOPLE = (
    *MEN,
    *WOMEN,
    *_nouns("soldier student writer player friend servant guest author director artist officer leader visitor owner"),
)
THINGS = _nouns(
    "house book car door table letter picture window ship tree garden river flower bird horse dog room chair stone "
    "wall film song town mountain island field machine street school gun star cloud story/stories church/churches"
)
HIS_NAMES = _words("john james george william henry charles david peter paul robert thomas richard edward")
HER_NAMES = _words("mary anne elizabeth jane margaret helen laura lucy")

DETERMINERS = (_words("a this that every"), _words("many these those most several"))  # that show a number
DEMONSTRATIVES = (("this", "these"), ("that", "those"))
ADJECTIVES = _words("old small new famous strange beautiful large little dark white black red huge tiny ugly")
QUALITIES = _words("old small famous strange beautiful quiet dirty sad ugly lovely good bad")
PLACES = _words("near behind with beside around")
TO_ONESELF = _words("hurt saw killed loved hated forgot helped described introduced saved enjoyed heard ruined")
TO_A_THING = _words("saw found loved hated forgot described enjoyed ruined watched discovered remembered wanted")
ENDINGS = ("", "again", "at last", "in the end", "in london", "last night", "at home", "once more")

BE = (("is", "are"), ("was", "were"))
OF_ALL: tuple[tuple[Pair, tuple[str, ...]], ...] = (
    *((verb, tuple(f"{how} {what}" for how in ("very", "quite") for what in QUALITIES)) for verb in BE),
    (("has", "have"), tuple(f"been {what}" for what in QUALITIES)),
    (("does", "do"), tuple(f"not look {what}" for what in QUALITIES)),
    (("looks", "look"), tuple(f"very {what}" for what in QUALITIES)),
    (("seems", "seem"), tuple(f"very {what}" for what in QUALITIES)),
)
OF_PEOPLE: tuple[tuple[Pair, tuple[str, ...]], ...] = (
    (("lives", "live"), ("in the city", "in london", "near the church", "in a small town")),
    (("works", "work"), ("in the city", "in london", "near the church", "in a small town")),
    (("comes", "come"), ("from england", "from london", "from a small town")),
    (("knows", "know"), ("the king", "the city", "john", "mary")),
    (("loves", "love"), ("the king", "the city", "john", "mary")),
    (("wants", "want"), ("to go home", "to see the king", "to live in london")),
)


@dataclass(frozen=True)
class Word:
    """A word of a sentence, and whether it is one that decides."""

    text: str
    cue: bool = False


@dataclass(frozen=True)
class Draft:
    """A sentence before its places are counted."""

    words: list[Word]
    target: str
    foil: str
    number: int
    attractors: int


def _anaphor(draw: random.Random, number: int, attractors: int) -> Draft:
    nouns, names, own = draw.choice([(HIM, HIS_NAMES, "himself"), (HER, HER_NAMES, "herself")])
    named = number == 0 and not attractors and draw.random() < 0.3
    subject = [Word(draw.choice(names), cue=True)] if named else _subject(draw, nouns, number, attractors)
    target, foil = (own, "themselves")[number], ("themselves", own)[number]
    words = [*subject, Word(draw.choice(TO_ONESELF)), Word(MASK), *_plain(draw.choice(ENDINGS)), Word(".")]
    return Draft(words, target, foil, number, attractors)


def _determiner(draw: random.Random, number: int, _: int, adjective: bool = False) -> Draft:
    demonstrative = draw.choice(DEMONSTRATIVES)
    noun = Word(draw.choice(THINGS)[number], cue=True)
    middle = [Word(draw.choice(ADJECTIVES))] if adjective else []
    who = draw.choice([*HIS_NAMES, *HER_NAMES, *(f"the {pair[i]}" for pair in PEOPLE for i in (0, 1))])
    words = [*_plain(who), *_plain(draw.choice(TO_A_THING)), Word(MASK), *middle, noun, Word(".")]
    return Draft(words, demonstrative[number], demonstrative[1 - number], number, 0)


def _adjective(draw: random.Random, number: int, _: int) -> Draft:
    return _determiner(draw, number, 0, adjective=True)


def _verb(draw: random.Random, number: int, attractors: int) -> Draft:
    human = draw.random() < 0.5
    verb, rests = draw.choice((*OF_ALL, *OF_PEOPLE) if human else OF_ALL)
    subject = _subject(draw, PEOPLE if human else THINGS, number, attractors)
    words = [*subject, Word(MASK), *_plain(draw.choice(rests)), Word(".")]
    return Draft(words, verb[number], verb[1 - number], number, attractors)


def _subject(draw: random.Random, nouns: tuple[Pair, ...], number: int, attractors: int) -> list[Word]:
    """A noun with its determiner, then attractors of the other number."""
    chosen = draw.sample(nouns, 1 + attractors)
    marked = not attractors and draw.random() < 0.5
    determiner = Word(draw.choice(DETERMINERS[number]), cue=True) if marked else Word("the")
    if determiner.text == "a" and chosen[0][0][0] in "aeiou":
        determiner = Word("the")
    words = [determiner, Word(chosen[0][number], cue=True)]
    for noun in chosen[1:]:
        words += [Word(draw.choice(PLACES)), Word("the"), Word(noun[1 - number])]
    return words


def _plain(text: str) -> list[Word]:
    return [Word(word) for word in text.split()]


@dataclass(frozen=True)
class Paradigm:
    """How one kind of sentence is drawn, and with how many attractors."""

    draw: Callable[[random.Random, int, int], Draft]
    attractors: tuple[int, ...] = (0,)  # drawn evenly


PARADIGMS = {
    "anaphor": Paradigm(_anaphor),
    "determiner": Paradigm(_determiner),
    "adjective": Paradigm(_adjective),
    "distractor": Paradigm(_verb, tuple(range(1, MOST_ATTRACTORS + 1))),
    "subject-verb": Paradigm(_verb),
}
WITH_ATTRACTORS = ("anaphor", "distractor", "subject-verb")


def dataset(group: str | None, split: str | None) -> Dataset:
    """The whole grammar, or one paradigm; the group `distractor=2` sets the number of attractors."""
    split = split or SPLITS[0]
    if split not in SPLITS:
        raise UnknownName(f"the grammar has no split {split!r}; expected {' or '.join(SPLITS)}")
    paradigm, _, number = (group or "").partition("=")
    _check(paradigm or None, number)
    attractors = int(number) if number else None
    wanted = (paradigm,) if paradigm else tuple(PARADIGMS)
    make = partial(_all, wanted, split, attractors)
    return Dataset(f"{NAME}:{group}" if group else NAME, split, make, NUMBERS, ABOUT)


def _check(paradigm: str | None, number: str) -> None:
    if paradigm is not None and paradigm not in PARADIGMS:
        raise UnknownName(f"the grammar has no paradigm '{paradigm}'; expected one of {', '.join(PARADIGMS)}")
    if number and paradigm not in WITH_ATTRACTORS:
        raise InvalidOption(f"{paradigm} has no attractors; expected one of {', '.join(WITH_ATTRACTORS)}")
    if number and number not in map(str, range(MOST_ATTRACTORS + 1)):
        raise InvalidOption(f"'{number}' attractors; expected a number from 0 to {MOST_ATTRACTORS}")


def _all(paradigms: tuple[str, ...], split: str, attractors: int | None) -> Iterator[Example | Dropped]:
    for paradigm in paradigms:
        yield from examples(paradigm, split=split, attractors=attractors)


def examples(
    paradigm: str, count: int = COUNT, seed: int = SEED, split: str = "test", attractors: int | None = None
) -> Iterator[Example]:
    """Distinct sentences of a paradigm, as many singular as plural, the same for the same seed."""
    _check(paradigm, "" if attractors is None else str(attractors))
    kind = PARADIGMS[paradigm]
    draw = random.Random(f"{paradigm} {seed} {split} {attractors}")
    seen: set[str] = set()
    vain = 0  # draws since the last new sentence
    while len(seen) < count:
        vain += 1
        if vain > PATIENCE:
            raise InvalidOption(f"the grammar has fewer than {count} sentences of {paradigm}; ask for fewer")
        made = len(seen)
        many = kind.attractors[made // 2 % len(kind.attractors)] if attractors is None else attractors
        draft = kind.draw(draw, made % 2, many)
        example = _placed(draft, f"{split}:{paradigm}:{made + 1}", paradigm)
        if example.text not in seen and _split(example) == split:
            seen.add(str(example.text))
            vain = 0
            yield example


def _placed(draft: Draft, id: str, paradigm: str) -> Example:
    """The sentence as text, with the places of its cues."""
    cues, start = [], 0
    for word in draft.words:
        if word.cue:
            cues.append((start, start + len(word.text)))
        start += len(word.text) + 1
    return Example(
        id,
        " ".join(word.text for word in draft.words),
        label=NUMBERS[draft.number],
        target=draft.target,
        foil=draft.foil,
        cues=tuple(cues),
        attractors=draft.attractors,
        group=paradigm,
    )


def _split(example: Example) -> str:
    digest = hashlib.sha256(str(example.text).encode()).digest()
    return SPLITS[digest[0] % len(SPLITS)]
