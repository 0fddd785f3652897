r"""What follows a prompt, given or generated: read in one pass together with it.

    log p(a_1 … a_k | prompt)  =  Σ_s log p(a_s | prompt, a_1 … a_{s−1})

Nothing is generated: token s of the answer is read at the token before it, which for the first is the prompt's last. So
the answer's own tokens but the last stand at the end of the text that is read, and are sources of those after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from wherefrom.errors import InvalidTarget, TooLong
from wherefrom.model.following import following
from wherefrom.model.model import Model
from wherefrom.model.offsets import special_ids, token_names
from wherefrom.model.sentences import Sentence
from wherefrom.model.two_streams import TARGET
from wherefrom.model.vocabulary_words import BLANKS, as_written, id_by_name
from wherefrom.result.words import Span

PROMPT, ANSWER = "prompt", "answer"


def phrase_of(opened: Model, sentence: Sentence, wanted: Any) -> list[int] | None:
    """The tokens of a target or foil that is more than one token after a prompt; None of any other."""
    if opened.task != "causal-lm" or opened.tokenizer is None or not isinstance(wanted, str) or not wanted.strip():
        return None
    if id_by_name(opened, wanted) is not None:
        return None
    found = following(opened.tokenizer, sentence, wanted)
    if len(found) == 1 or (wanted[0] in BLANKS and as_written(opened.tokenizer, wanted) is not None):
        return None
    if unknown := [i for i in found if i == opened.tokenizer.unk_token_id and i not in special_ids(opened.tokenizer)]:
        name = token_names(opened.tokenizer, unknown)[0]
        raise InvalidTarget(f"'{wanted}' holds a word that this model's vocabulary has only as {name}; choose another")
    return found


def continued(
    opened: Model, sentence: Sentence, said: Sequence[int], name: str = ANSWER, room: int | None = None
) -> Sentence:
    """The sentence followed by what was said: all of it but the last token, at which nothing is read.

    A text that may be cut leaves room for so many tokens after it, those of `said` if None.
    """
    before = list(said[:-1])
    own_stream = [name for name in sentence.segments if name == TARGET] if opened.two_streams else sentence.ids
    n, longest = len(own_stream) + len(before), opened.max_length
    left = inf if longest is None else longest - (len(said) if room is None else room) + 1
    if 0 < left < len(sentence) and sentence.may_be_cut and not opened.two_streams:
        sentence = sentence.beginning(int(left))
    elif longest is not None and n > longest:
        raise TooLong(
            f"the text and what follows it have {n} tokens but the model reads at most {longest}; shorten one of them"
        )
    text, spans = spelt(opened.tokenizer, said, len(sentence.texts))
    own = set() if opened.tokenizer is None else special_ids(opened.tokenizer)

    def longer(values: list[Any] | None, value: Any) -> list[Any] | None:
        return None if values is None else [*values, *[value] * len(before)]

    words = sentence.word_ids
    last = max((word for word in words or () if word is not None), default=-1)
    return replace(
        sentence,
        ids=[*sentence.ids, *before],
        tokens=[*sentence.tokens, *token_names(opened.tokenizer, before)],
        special=[*sentence.special, *(i in own for i in before)],
        spans=[*sentence.spans, *spans[: len(before)]],
        texts=(*sentence.texts, text) if before and opened.tokenizer is not None else sentence.texts,
        types=longer(sentence.types, 0),
        visible=longer(sentence.visible, 1),
        word_ids=None if words is None else [*words, *range(last + 1, last + 1 + len(before))],
        unknown=[*sentence.unknown, *[False] * len(before)],
        said=tuple(said),
        segments=[*(sentence.segments or [PROMPT] * len(sentence)), *[name] * len(before)],
    )


def in_letters(opened: Model, ids: Sequence[int]) -> str:
    """What these tokens are as a text."""
    return spelt(opened.tokenizer, ids, 0)[0]


def spelt(tokenizer: Any, ids: Sequence[int], which: int) -> tuple[str, list[Span | None]]:
    """What these tokens are in letters, and where each stands in it, as text number `which` of a sentence.

    A character that several tokens make together, by its bytes, is the place of each of them.
    """
    if tokenizer is None:
        return "", [None] * len(ids)
    text, spans = "", list[Span | None]()
    for count in range(1, len(ids) + 1):
        whole = str(tokenizer.decode(list(ids[:count]), clean_up_tokenization_spaces=False))
        known = whole.rstrip("\ufffd") if count < len(ids) else whole
        known = known if known.startswith(text) else text
        unfinished = len(known) == len(text) and whole.endswith("\ufffd")
        spans.append((which, len(text), len(known) + unfinished))
        text = known
    return text, spans
