"""Words and the tokens of a vocabulary that they are: a target by its word, and the words that a model says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from wherefrom.errors import InvalidTarget
from wherefrom.model.following import GOES_ON, as_it_follows, following, prompt_of
from wherefrom.model.model import Model
from wherefrom.model.offsets import token_names
from wherefrom.model.sentences import Sentence
from wherefrom.result.bytewise import (
    BLANK,
    by_bytes,
    in_capitals,
    in_letters_of_bytes,
    spellings,
    spellings_of_blank,
)
from wherefrom.result.words import LOST, OPEN_BOX, in_sight

BLANKS = f"Ġ▁{OPEN_BOX}"
TOP = 10  # how many words of a vocabulary a result lists with their probabilities


def token_id(opened: Model, wanted: int | str, sentence: Sentence | None = None) -> int:
    """The token that a target or foil is: of a model that goes on with a prompt, after the sentence given."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if 0 <= wanted < opened.vocabulary_size:
            return wanted
        raise InvalidTarget(f"token id {wanted} is outside the vocabulary of {opened.vocabulary_size}")
    if opened.tokenizer is None:
        raise InvalidTarget(f"the word {wanted!r} was given but no tokenizer; pass tokenizer= or a token id")
    if isinstance(wanted, str) and (named := id_by_name(opened, wanted)) is not None:
        return named
    if not isinstance(wanted, str) or not wanted.strip():
        raise InvalidTarget(f"target {wanted!r} is not a word; expected a word or a token id")
    if sentence is not None and opened.task == "causal-lm":
        index = _only(opened.tokenizer, following(opened.tokenizer, sentence, wanted))
    else:
        index = word_id(opened.tokenizer, wanted)
    written = as_written(opened.tokenizer, wanted)
    by_its_name = written not in (None, index) and not wanted[0].isspace()  # a blank before it is part of what is meant
    if index is None or (by_its_name and token_name(opened, index) != wanted.strip()):
        index = written  # "##s", by which name it is listed, is not the word "s"
    if index is None:
        pieces = opened.tokenizer.convert_ids_to_tokens(opened.tokenizer(wanted, add_special_tokens=False)["input_ids"])
        raise InvalidTarget(
            f"'{wanted}' is not one token of this model's vocabulary (it becomes {' '.join(pieces)}); "
            f"choose a word that is"
        )
    return index


def as_written(tokenizer: Any, name: str) -> int | None:
    """The token that the vocabulary writes so ("Ġare"), or by its bytes ("Ġ–" as "ĠâĢĵ"), if there is one."""
    bare = name.strip()
    text = bare.replace(BLANK, " ")
    by_its_bytes = _only(tokenizer, [tokenizer.convert_tokens_to_ids(in_letters_of_bytes(text))])
    if by_its_bytes is not None and tokenizer.decode([by_its_bytes]) == text:  # "é" is also how a byte is written
        return by_its_bytes
    return _only(tokenizer, [tokenizer.convert_tokens_to_ids(bare)])


def word_id(tokenizer: Any, word: str) -> int | None:
    """The token that a word is, if it is one."""
    # In running text a word follows a space, which some vocabularies (GPT-2, RoBERTa) write into the token; a comma
    # follows the word before it.
    bare = word.strip()
    for form in dict.fromkeys([as_it_follows("", word), f" {bare}", bare]):
        index = _only(tokenizer, tokenizer(form, add_special_tokens=False)["input_ids"])
        if index is not None:
            return index
    return as_written(tokenizer, bare)


def _only(tokenizer: Any, ids: Sequence[int | None]) -> int | None:
    return int(ids[0]) if len(ids) == 1 and ids[0] not in (None, tokenizer.unk_token_id) else None


def id_by_name(opened: Model, name: str) -> int | None:
    """The token that is no word and that `token_name` calls by its bytes ("<0xD8>") or that is white space, if this is
    one's name: " ", "␣", or as its vocabulary writes it ("Ġ", "▁").
    """
    tokenizer: Any = opened.tokenizer
    blank = name if name.isspace() else " " * len(name) if not name.strip(BLANKS) else _as_it_was(name)
    called = in_sight(blank) if blank else in_capitals(name.strip())
    for spelling in spellings_of_blank(blank) if blank else spellings(called):
        index = _only(tokenizer, [tokenizer.convert_tokens_to_ids(spelling)])
        if index is not None and token_name(opened, index) in (called, name):  # Ġ is also a letter of Maltese
            return index
    return None


def _as_it_was(name: str) -> str:
    r"""White space that `in_sight` has written out, "\\n" as two characters; nothing of any other name."""
    return name.encode().decode("unicode_escape") if re.fullmatch(r"(\\([nrt]|x0[bc]))+", name) else ""


def token_name(opened: Model, index: int) -> str:
    """The word that a token is; a token that is no word by itself as its vocabulary writes it, in letters where that
    writes bytes ("Ġ–"), or by its bytes where they are no characters by themselves.
    """
    if opened.tokenizer is None:
        return str(index)
    text = str(opened.tokenizer.decode([index]))
    word = in_sight(text)
    if word and (not text.strip() or word_id(opened.tokenizer, word) == index):
        return word
    name = token_names(opened.tokenizer, [index])[0]
    if not text and not name.strip(BLANKS):  # SentencePiece's, which decodes to nothing
        return in_sight(" " * len(name))
    return by_bytes(name) if not text or LOST in text else _spelt(name, text)  # ByT5: half a character is no text


def _spelt(name: str, text: str) -> str:
    """A token as its vocabulary writes it, in letters where that writes the bytes of its text.

    >>> _spelt("ĠâĢĵ", " –"), _spelt("Ġ-", " -"), _spelt(".Ċ", ".\\n")
    ('Ġ–', 'Ġ-', '.Ċ')
    """
    return text.replace(" ", BLANK) if in_letters_of_bytes(text) == name and text.isprintable() else name


def name_after(opened: Model, sentence: Sentence, index: int) -> str:
    """The name by which a token can be asked for after a prompt: of one that goes on with its last word "##pper"."""
    name, tokenizer = token_name(opened, index), opened.tokenizer
    if tokenizer is None or opened.task != "causal-lm" or name.startswith(GOES_ON):
        return name
    parted = as_it_follows(prompt_of(sentence), name)
    if as_written(tokenizer, name) != index:  # but with the mark of a blank
        own = _spelt(token_names(tokenizer, [index])[0], str(tokenizer.decode([index])))
        unparted = (
            parted == name and own.startswith(tuple(BLANKS)) and own.strip(BLANKS)
        )  # by that name it would have no blank
        return own if unparted and as_written(tokenizer, own) == index else name
    if parted == name or _only(tokenizer, tokenizer(parted, add_special_tokens=False)["input_ids"]) == index:
        return name
    return GOES_ON + name if following(tokenizer, sentence, GOES_ON + name) == [index] else name


def likeliest(
    opened: Model, p: Tensor, *wanted: int | None, most: int = 0, after: Sentence | None = None
) -> dict[int, str]:
    """The likeliest tokens and those wanted, by their ids: each one's word, as it is asked for after the prompt given.

    Where two tokens show the same word ("Ġthe", "the") the later is named as its vocabulary has it; where that is the
    same word again, with its number.
    """
    listed = p.topk(min(max(TOP, most), len(p))).indices.tolist()
    names: dict[int, str] = {}
    for index in dict.fromkeys([*listed, *(i for i in wanted if i is not None)]):
        spelt = token_name(opened, index) if after is None else name_after(opened, after, index)
        ways = (spelt, token_names(opened.tokenizer, [index])[0], f"{spelt} #{index}")
        names[index] = next(name for name in ways if name not in names.values())
    return names


def ids_by_name(names: Mapping[int, str]) -> dict[str, int]:
    return {name: index for index, name in names.items()}


def by_name(names: Mapping[int, str], p: Tensor) -> dict[str, float]:
    return dict(zip(names.values(), p[list(names)].tolist(), strict=True))  # one look at the device
