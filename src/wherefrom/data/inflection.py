"""The other number of an English verb in the present tense: writes ↔ write.

Linzen's sentences name their verb and its tag, VBZ (writes) or VBP (write), and not the other form. The authors build
a table from their vocabulary: each VBZ loses its ending, and the pair counts if the result is in the vocabulary as a
VBP. A sentence is in their file only if its verb is in that table, so the spelling rules alone find the other form;
endings that spelling leaves open (dies and flies, aches and reaches) are decided by the closed lists below.

T. Linzen, E. Dupoux, Y. Goldberg (2016), Assessing the Ability of LSTMs to Learn Syntax-Sensitive Dependencies. TACL.
https://github.com/TalLinzen/rnn_agreement, gen_inflect_from_vocab
"""

from __future__ import annotations

import re

from wherefrom.data.tables import BadRow

IRREGULAR = {"are": "is", "were": "was", "have": "has", "quiz": "quizzes", "stomach": "stomachs", "solo": "solos"}
IRREGULAR_SINGULAR = {singular: plural for plural, singular in IRREGULAR.items()}
ENDING_IN_E = frozenset(  # -ches, -xes, -sses and -oes of verbs that end in e
    ("aches", "caches", "douches", "psyches", "axes", "finesses", "shoes", "toes", "hoes", "canoes", "tiptoes")
)
ENDING_IN_IE = frozenset(("belies", "underlies", "overlies", "unties"))  # and every verb with one letter before it
ENDING_IN_S_OR_Z = frozenset(
    ("focuses", "refocuses", "biases", "canvases", "gases", "buses", "waltzes", "blitzes", "quartzes")
)
NOT_IN_THE_PRESENT = frozenset(  # words that the parser of Linzen's sentences takes for a VBP
    ("album", "amongst", "dealt", "en", "et", "ibn", "la", "meant", "wherein", "whilst")
)


def other_number(verb: str, tag: str) -> str:
    """Return the plural form of a VBZ and the singular form of a VBP.

    >>> other_number("flies", "VBZ"), other_number("are", "VBP")
    ('fly', 'is')
    """
    if tag not in ("VBZ", "VBP"):
        raise BadRow(f"the verb {verb!r} has the tag {tag!r}; expected VBZ or VBP")
    word = verb.lower()
    if word in NOT_IN_THE_PRESENT:
        raise BadRow(f"{verb!r} ({tag}) is not a verb in the present tense")
    form = (plural_verb(word) if tag == "VBZ" else singular_verb(word)) if word.isalpha() and len(word) > 1 else None
    if form is None:
        raise BadRow(f"the other number of {verb!r} ({tag}) cannot be derived")
    return form


def singular_verb(plural: str) -> str:
    """The third person singular: writes, flies, reaches."""
    if plural in IRREGULAR:
        return IRREGULAR[plural]
    if re.search(r"[^aeiou]y$", plural):
        return f"{plural[:-1]}ies"
    return f"{plural}es" if re.search(r"(s|x|z|ch|sh|[^aeiou]o)$", plural) else f"{plural}s"


def plural_verb(singular: str) -> str | None:
    """The plural of a third person singular, None for a word that does not end like one."""
    if singular in IRREGULAR_SINGULAR:
        return IRREGULAR_SINGULAR[singular]
    if not re.search(r"[^s]s$", singular):
        return None
    if singular.endswith("ies") and singular not in ENDING_IN_IE and len(singular) > len("dies"):
        return f"{singular[:-3]}y"
    keeps_e = singular in ENDING_IN_E
    if singular in ENDING_IN_S_OR_Z or (re.search(r"(ss|x|zz|ch|sh|o)es$", singular) and not keeps_e):
        return singular[:-2]
    return singular[:-1]
