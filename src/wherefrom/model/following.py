"""A text as it stands after a prompt: its tokens there, and whether a blank parts the two.

after "The capital of France is"    "Paris" and " Paris" are the same; "," stays where it is written
after "The cat"                     "##s are" goes on with the last word, as WordPiece would write it
after 'He said: "'                  "I am" follows the opening quote
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from wherefrom.model.kept import once_in
from wherefrom.model.sentences import Sentence
from wherefrom.result.words import read_until

GOES_ON = "##"
WORDS, OPENING = ("L", "N"), ("Ps", "Pi", "Sc")  # kinds of characters (Unicode) that a blank stands before
JOINING = ("Ps", "Pi", "Pd", "Pc")  # and kinds that none stands after
QUOTES = "\"'"  # which open or close by their number so far
CLITIC = re.compile(r"'(t|s|re|ve|ll|d|m)\b", re.IGNORECASE)  # what English joins to the word before it


def following(tokenizer: Any, sentence: Sentence, text: str) -> list[int]:
    """The tokens of a text after the prompt, looked up once.

    Where the two together become other tokens than the prompt's own (or there is no prompt in letters), by itself.
    """
    return once_in(sentence.after, text, lambda: _following(tokenizer, sentence, text))


def _following(tokenizer: Any, sentence: Sentence, text: str) -> list[int]:
    prompt = prompt_of(sentence)
    written = as_it_follows(prompt, text)
    both = [int(i) for i in tokenizer(prompt + written, verbose=False)["input_ids"]]
    n = len(sentence)
    if prompt and both[:n] == sentence.ids and len(both) > n:
        return both[n:]
    return [int(i) for i in tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"]]


def prompt_of(sentence: Sentence) -> str:
    """The prompt in letters, where it is one text; of one that was cut, what is read of it."""
    if len(sentence.texts) != 1:
        return ""
    cut = sentence.read_by.get("long") == "truncate"
    return sentence.texts[0][: read_until(sentence.spans).get(0) if cut else None]


def as_it_follows(prompt: str, text: str) -> str:
    """The text with the blank that parts it from the prompt, where none is written and words are parted by one."""
    if text.startswith(GOES_ON) and len(text) > len(GOES_ON):
        return text.removeprefix(GOES_ON)
    return f" {text}" if _parted(prompt, text) else text


def _parted(prompt: str, text: str) -> bool:
    first, last = text[0], prompt[-1:]
    kind = unicodedata.category(first)
    if last.isalpha() and CLITIC.match(text):
        return False
    number = last.isdigit() or (last and unicodedata.category(last) == "Sc")  # or an amount of money that begins
    if first.isspace() or last.isspace() or (number and first.isdigit()):
        return False
    if last and (unicodedata.category(last) in JOINING or (last in QUOTES and _is_open(prompt, last))):
        return False
    if first in QUOTES:
        return not _is_open(prompt, first)
    wide = unicodedata.east_asian_width(first) in "WF"  # of a script whose words no blank parts
    return (kind[0] in WORDS and not wide) or kind in OPENING


def _is_open(prompt: str, quote: str) -> bool:
    return prompt.count(quote) % 2 == 1
