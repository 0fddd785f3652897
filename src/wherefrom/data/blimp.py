"""Paradigms of BLiMP with the words that decide: the five of Value Zeroing, and eleven that end where they are asked.

A pair of sentences differs in one word. That word is masked: the good sentence's is the target, the other the foil.
Value Zeroing finds the cue with a parser; here the shape of each paradigm's sentences finds it:

    ana    SUBJECT (auxiliary (not)) verb (preposition) [MASK] .    the whole subject       Many teenagers
    dna    ... [MASK] (compound) NOUN .                             the noun                museums
    dnaa   ... [MASK] adjective ... NOUN .                          the noun                hospitals
    darn   determiner ... NOUN of|about distractor [MASK] ...       the noun before of      pictures
    rpsv   (determiner) ... NOUN [MASK] ...                         the word before         Kristen

As in the authors' code, the cue is the one word that carries the number, save for `ana`, where it is the whole
subject with its determiner. (Their table 1 underlines the adjective of `dnaa` too.)

A language model reads from left to right, so that of a pair the words before the one in which it differs are its
prompt. The eleven paradigms of Yin & Neubig and of Ferrando et al. have what decides before that word:

    aga, ana                 SUBJECT (auxiliary (not)) verb (preposition) …       the whole subject      Katherine
    asp                      … auxiliary (not) VERB (preposition) by determiner … the verb               respected
    dna, dnai, dnaa, dnaai   … DETERMINER (adjective) …                           the determiner         these
    npi                      EVEN …                                               the first word         Even
    darn, ipsv, rpsv         as above, and the word before the verb                                      radii

A. Warstadt et al. (2020), BLiMP: The Benchmark of Linguistic Minimal Pairs for English.
H. Mohebbi et al. (2023), Quantifying Context Mixing in Transformers, section 4.1.
K. Yin & G. Neubig (2022), Interpreting Language Models with Contrastive Explanations. EMNLP.
J. Ferrando et al. (2023), Explaining How Transformers Use Context to Build Predictions. ACL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from wherefrom.data.example import MASK, Spans
from wherefrom.data.tables import BadRow

PARADIGMS = {
    "ana": "anaphor_number_agreement",
    "dna": "determiner_noun_agreement_2",
    "dnaa": "determiner_noun_agreement_with_adj_2",
    "darn": "distractor_agreement_relational_noun",
    "rpsv": "regular_plural_subject_verb_agreement_1",
}

PROMPTS = {
    "aga": "anaphor_gender_agreement",
    "ana": "anaphor_number_agreement",
    "asp": "animate_subject_passive",
    "dna": "determiner_noun_agreement_1",
    "dnai": "determiner_noun_agreement_irregular_1",
    "dnaa": "determiner_noun_agreement_with_adjective_1",
    "dnaai": "determiner_noun_agreement_with_adj_irregular_1",
    "npi": "npi_present_1",
    "darn": "distractor_agreement_relational_noun",
    "ipsv": "irregular_plural_subject_verb_agreement_1",
    "rpsv": "regular_plural_subject_verb_agreement_1",
}

_WORD = re.compile(r"\w+|[^\w\s]")
_NEGATED = re.compile(r"\b(ca|wo|sha|\w+)n['’]t\b", re.IGNORECASE)
_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}

_AUXILIARIES = re.compile(
    r"(is|are|was|were|ha[sd]|have|do|does|did|can|could|will|would|shall|should|may|might|must|not)$"
)
_PREPOSITIONS = ("about", "with", "from", "to", "for")
_LIKE = re.compile(r"\b(look|sound)(s|ed|ing)? like$")  # elsewhere "like" is the verb itself
_SINGULAR = ("is", "was", "has", "does", "this", "that", "himself", "herself", "itself")
_PLURAL = ("are", "were", "have", "do", "these", "those", "themselves")


@dataclass(frozen=True)
class Annotated:
    """A sentence with its mask, the two words, and the words that decide between them."""

    text: str
    target: str
    foil: str
    cues: Spans
    number: str
    attractors: int


def annotate(paradigm: str, good: str, bad: str) -> Annotated:
    """Mask the word in which the sentences differ and find its cue."""
    before, after, target, foil = minimal_pair(good, bad)
    text = before + MASK + after
    mask = len(before)
    words = [match.span() for match in _WORD.finditer(text) if not mask <= match.start() < mask + len(MASK)]
    find, attractors = _CUES[paradigm]
    cues = find(text, [word for word in words if word[0] < mask], [word for word in words if word[0] > mask])
    return Annotated(text, target, foil, cues, number(target, foil), attractors)


def number(target: str, foil: str) -> str:
    """Singular or plural, of a verb, a determiner or an anaphor; a verb's longer form is the singular."""
    word = target.lower()
    if word in _SINGULAR or word in _PLURAL:
        return "singular" if word in _SINGULAR else "plural"
    return "singular" if len(target) > len(foil) else "plural"


def _subject(text: str, before: list[tuple[int, int]], _: list[tuple[int, int]]) -> Spans:
    left = before[:]
    if left and (text[slice(*left[-1])] in _PREPOSITIONS or _LIKE.search(text[: left[-1][1]])):
        left.pop()
    verb = left[-1:]
    left = left[:-1]
    while left and _AUXILIARIES.match(text[slice(*left[-1])]):
        left.pop()
    if not verb or not left:
        raise BadRow("no subject stands before the verb")
    return ((left[0][0], left[-1][1]),)


def _noun_after(text: str, _: list[tuple[int, int]], after: list[tuple[int, int]]) -> Spans:
    if len(after) < 2 or text[slice(*after[-1])] != ".":
        raise BadRow("no noun stands between the determiner and the full stop")
    return (after[-2],)


def _noun_before_of(text: str, before: list[tuple[int, int]], _: list[tuple[int, int]]) -> Spans:
    for i, word in enumerate(before):
        if i > 1 and text[slice(*word)] in ("of", "about") and text[slice(*before[i - 1])] != "lot":
            return (before[i - 1],)
    raise BadRow("no 'of' or 'about' stands between the subject and the verb")


def _word_before(_: str, before: list[tuple[int, int]], __: list[tuple[int, int]]) -> Spans:
    if not before:
        raise BadRow("no subject stands before the verb")
    return (before[-1],)


def _determiner(text: str, before: list[tuple[int, int]], _: list[tuple[int, int]]) -> Spans:
    found = [word for word in before if text[slice(*word)].lower() in ("this", "that", "these", "those")]
    if not found:
        raise BadRow("no demonstrative stands before the noun")
    return (found[-1],)


def _passive_verb(text: str, before: list[tuple[int, int]], _: list[tuple[int, int]]) -> Spans:
    words = [text[slice(*word)] for word in before]
    auxiliaries = [i for i, word in enumerate(words[:-1]) if _AUXILIARIES.match(word)]
    if "by" not in words or not auxiliaries:
        raise BadRow("no passive stands before the noun")
    return (before[auxiliaries[-1] + 1],)


def _first_word(_: str, before: list[tuple[int, int]], __: list[tuple[int, int]]) -> Spans:
    if not before:
        raise BadRow("nothing stands before the word in which the sentences differ")
    return (before[0],)


_Finder = Callable[[str, list[tuple[int, int]], list[tuple[int, int]]], Spans]

# Paradigm: how its cue is found, and how many attractors stand between cue and mask.
_CUES: dict[str, tuple[_Finder, int]] = {
    PARADIGMS["ana"]: (_subject, 0),
    PARADIGMS["dna"]: (_noun_after, 0),
    PARADIGMS["dnaa"]: (_noun_after, 0),
    PARADIGMS["darn"]: (_noun_before_of, 1),
    PARADIGMS["rpsv"]: (_word_before, 0),
    PROMPTS["aga"]: (_subject, 0),
    PROMPTS["asp"]: (_passive_verb, 0),
    **{PROMPTS[name]: (_determiner, 0) for name in ("dna", "dnai", "dnaa", "dnaai")},
    PROMPTS["npi"]: (_first_word, 0),
    PROMPTS["ipsv"]: (_word_before, 0),
}


def minimal_pair(good: str, bad: str) -> tuple[str, str, str, str]:
    """(before, after, target, foil) of two sentences that differ in one word; "hasn't" counts as "has not".

    >>> minimal_pair("The niece hasn't left.", "The niece haven't left.")
    ('The niece ', ' not left.', 'has', 'have')
    """
    good, bad = _expand(good), _expand(bad)
    ours, theirs = list(_WORD.finditer(good)), [match.group() for match in _WORD.finditer(bad)]
    if len(ours) != len(theirs):
        raise BadRow(f"the sentences have {len(ours)} and {len(theirs)} words")
    differing = [i for i, match in enumerate(ours) if match.group() != theirs[i]]
    if len(differing) != 1:
        raise BadRow(f"the sentences differ in {len(differing)} words, not in one")
    word = ours[differing[0]]
    return good[: word.start()], good[word.end() :], word.group(), theirs[differing[0]]


def _expand(sentence: str) -> str:
    return _NEGATED.sub(lambda m: f"{_STEMS.get(m.group(1).lower(), m.group(1))} not", sentence)
