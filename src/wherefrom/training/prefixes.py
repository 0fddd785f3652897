"""Verb-number prefixes from raw text (the task of Linzen et al. 2016, as Abnar & Zuidema 2020 pose it).

A sentence is cut before a verb whose form shows its number; the number is the label. Without a parser, only places
are taken where the words around leave little doubt: the verb follows its noun phrase at once and not a comma, a
conjunction or a relative pronoun; the verb list holds no form that is also a noun; infinitives and questions are
recognised by the words before and after; "I" and "you", which take either form, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from wherefrom.data.tables import values, write_rows
from wherefrom.errors import InvalidInput
from wherefrom.training.labelled import documents


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SINGULAR, PLURAL = "singular", "plural"

AUXILIARIES = {"is": "are", "was": "were", "has": "have", "does": "do"}

# Neither form of these is commonly a noun, and the base form is not the past form.
VERBS = """
    accept achieve acquire adopt agree allow appear apply argue arise arrive assert assume attend avoid begin
    believe belong bring carry choose collect combine compete comprise consider consist constitute contain
    continue contribute correspond create define depend derive describe destroy determine develop differ discuss
    emerge employ enable encourage enjoy ensure enter establish exist expand explain express extend follow
    generate give go govern grow happen hear identify imply improve include incorporate indicate inhabit insist
    introduce involve join keep know learn maintain make meet obey obtain occupy occur operate organize
    participate perform possess prefer prepare preserve proceed prove provide publish pursue receive recognize
    recommend reduce refer reflect reject rely relate remember remove represent require resemble reside retain
    reveal satisfy say see seek seem select sell send serve settle sing speak spend strive succeed suffer
    suggest suppose survive take teach tell tend think transform translate understand utilize vary wear write
""".split()  # noqa: SIM905

# After these the subject comes later, or does not show the number.
UNDECIDED = _words("there here where what how why when whatever so nor neither than as i you thou ye whose")
# Before these the subject stands further back, and without a parser it is not sure where.
DISTANT = _words("who which that and or but , )")
# A base form near one of these is an infinitive or part of a question.
INFINITIVE = _words(
    """
    to will would can could may might must shall should did do does let lets cannot ll d won t don doesn didn
    couldn wouldn shouldn make makes made help helps helped see saw hear heard need dare please rather better
    why how
    """
)
# Nouns that take either form, of themselves or with "of" ("a number of people are", "the family were").
EITHER = _words(
    """
    family party staff team band crew couple pair majority minority number rest lot lots variety series species half
    none all any most some more group crowd police public audience range succession host handful percent total third
    quarter plenty part bulk mass dozen remainder proportion percentage
    """
)
# No noun phrase ends so: what follows is no verb of it.
UNFINISHED = _words(
    """
    a an the my your our their its every no of in on at by for with from into upon to only yet almost quite very too
    more most less them us me him whom myself himself herself not if because while
    """
)
# A clause that opens so and holds one noun phrase has its subject after the verb ("among them were").
PREPOSITIONS = _words(
    """
    of among amongst in on at by for with from into upon under over near beside behind beneath between through
    within after before about above below to inside outside around across along against beyond during round out up
    """
)
PRONOUNS = _words("he she it they we this these those")
BOUNDARIES = _words(
    ", ; : . ! ? ( ) [ ] - – — that which who where when while because if though although and but or as"
)
ARCHAIC = _words("thou thee thy thine ye hath doth hast art ain em oi o th")
SPEECH = _words('" “ ” « »')
SUBJUNCTIVE = _words("if though although as wish wished unless lest were would suppose")
NO_WERE = _words("he she it this that")
INVERTED = _words("it he she they we you i there thou not")
ADVERBS = _words("also often still now always never then just even already thus therefore sometimes usually")

_WORD = re.compile(r"[a-z]+|\d[\d,.]*|[^\sa-z\d]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]?[A-Z])")
_TITLE = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|Prof|Gen|Col|Capt|Lt|Rev|vs|etc|ca|e\.g|i\.e|[A-Z])\.\s")
_SPACE = re.compile(r"\s+")


def third_person(verb: str) -> str:
    """The singular form of a regular verb.

    >>> [third_person(v) for v in ("seem", "carry", "teach", "go", "obey")]
    ['seems', 'carries', 'teaches', 'goes', 'obeys']
    """
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


PAIRS = {**AUXILIARIES, **{third_person(verb): verb for verb in VERBS}}
NUMBER = {**dict.fromkeys(PAIRS, SINGULAR), **dict.fromkeys(PAIRS.values(), PLURAL)}


@dataclass(frozen=True)
class Prefix:
    """The words of a sentence before a verb, and the verb's number."""

    text: str
    label: str


def sentences(text: str) -> list[str]:
    """Split running text into sentences (titles such as "Mr." do not end one)."""
    joined = _TITLE.sub(r"\1 ", _SPACE.sub(" ", text))
    return [part.strip() for part in _SENTENCE_END.split(joined) if part.strip()]


def key(sentence: str) -> str:
    """A sentence without case, spaces and punctuation: equal for two spellings of the same sentence.

    >>> key("The dog 's bone .") == key("the dog's bone.")
    True
    """
    return "".join(filter(str.isalnum, sentence.lower()))


def prefixes(sentence: str, longest: int = 50) -> Iterator[Prefix]:
    """Every prefix of the sentence whose next word decides its number, at most `longest` words long.

    >>> [(p.text, p.label) for p in prefixes("The keys to the old cabinet are on the table .")]
    [('The keys to the old cabinet', 'plural')]
    """
    found = list(_WORD.finditer(sentence.lower()))
    words = [match.group() for match in found]
    for index in range(2, min(len(words) - 1, longest + 1)):
        label = NUMBER.get(words[index])
        if label is not None and decides(words, index):
            yield Prefix(sentence[: found[index].start()].rstrip(), label)


def decides(words: list[str], index: int) -> bool:
    """Whether the verb form at `index` shows the number of a subject before it."""
    verb, following = words[index], words[index + 1]
    at = index - 1
    while at > 0 and (words[at] in ADVERBS or (words[at].endswith("ly") and len(words[at]) > 4)):
        at -= 1
    before, opening, clause = words[at], set(words[:index]), words[clause_start(words, at) : at + 1]
    if not before[0].isalnum() or before in UNDECIDED | DISTANT | UNFINISHED | EITHER:
        return False
    if following in INVERTED - {"not"} or following in "-'’" or words[index - 1] in "-'’":
        return False  # a question; part of a compound or of a contraction
    if opening & (ARCHAIC | SPEECH):  # dialect and direct speech keep other rules
        return False
    if clause[0] in PREPOSITIONS and before not in PRONOUNS:
        return False
    if any(word in EITHER and after == "of" for word, after in pairwise(clause)):
        return False
    near = {*words[max(0, index - 6) : index], *clause}
    if verb == "were":
        return before not in NO_WERE and not near & SUBJUNCTIVE
    if verb in ("is", "was", "has", "does", "are"):
        return True
    return NUMBER[verb] == SINGULAR or not near & INFINITIVE


def clause_start(words: list[str], index: int) -> int:
    """Where the clause of the word at `index` begins, as far as marks and conjunctions tell."""
    return next((start + 1 for start in range(index - 1, -1, -1) if words[start] in BOUNDARIES), 0)


def extract(texts: Iterable[str], excluded: frozenset[str] = frozenset()) -> Iterator[Prefix]:
    """The distinct prefixes of running text; sentences whose `key` is excluded give none."""
    seen: set[int] = set()
    for text in texts:
        for sentence in sentences(text):
            if key(sentence) in excluded:
                continue
            for prefix in prefixes(sentence):
                mark = hash((prefix.text, prefix.label))
                if mark not in seen:
                    seen.add(mark)
                    yield prefix


def write(sources: Sequence[str], out: Path, exclude: Sequence[str] = ()) -> int:
    """Write the prefixes of text files and `table:column` sources as a table; returns how many.

    exclude: `table:column` sources of sentences that give none.
    """
    excluded = frozenset(key(sentence) for source in exclude for sentence in values(source))
    found = extract((line for source in sources for line in documents(source)), excluded)
    first = next(found, None)
    if first is None:
        raise InvalidInput(
            f"{', '.join(sources)}: no sentence has a verb whose form shows its number; expected English text, "
            f"e.g. 'The keys to the cabinet are here.'"
        )
    return write_rows(out, ({"prefix": each.text, "label": each.label} for each in chain([first], found)))
