"""A chat: turns with a role and a content, written out by the tokenizer's own template, each turn a segment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from wherefrom.errors import InvalidInput
from wherefrom.typecheck import shown

if TYPE_CHECKING:
    from wherefrom.model.inputs import Reader
    from wherefrom.model.model import Model
    from wherefrom.model.sentences import Sentence

Chat: TypeAlias = Sequence[Mapping[str, Any]]  # turns

TEMPLATE = "template"  # what the template writes after the last turn, for the answer to begin


def chats(reads: Model | Reader) -> bool:
    """Whether the tokenizer has a template by which chats are written out."""
    return bool(getattr(reads.tokenizer, "chat_template", None))


def is_chat(inputs: Any) -> bool:
    """Whether this is a list of turns, each with a role and a content."""
    turns = isinstance(inputs, list | tuple) and bool(inputs)
    return turns and all(isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in inputs)


def given_or_chat(inputs: Any, chat: Chat | None) -> Any:
    """What is to be read: the inputs, or the chat that was given in their place."""
    if (inputs is None) == (chat is None):
        given = "neither inputs nor a chat were" if chat is None else "inputs and a chat were both"
        raise InvalidInput(f"cannot read inputs: {given} given; expected one of them")
    if chat is not None and not is_chat(chat):
        raise InvalidInput(f'chat={shown(chat)}; expected turns: [{{"role": "user", "content": "…"}}, …]')
    return inputs if chat is None else chat


def read_chat(reader: Reader, turns: Chat) -> Sentence:
    """The turns as one text; after the last one the model's own turn begins, unless that one is the model's already."""
    if not chats(reader):
        raise InvalidInput("a chat was given and the tokenizer has no chat template; give the prompt as a text")
    if odd := [each for each in turns if not isinstance(each["content"], str)]:
        raise InvalidInput(f"a turn of the {odd[0]['role']} is no text; expected a string as its content")
    text = _written(reader.tokenizer, turns, begin=turns[-1]["role"] != "assistant")
    own = {**(reader.tokenizer_kwargs or {}), "add_special_tokens": False}  # which the template has written
    read = replace(reader, tokenizer_kwargs=own).text(text)
    ends, names = _ends(reader.tokenizer, turns, text), _names(turns)
    found = [next((turn for end, turn in ends if span is not None and span[2] <= end), None) for span in read.spans]
    return replace(read, segments=[TEMPLATE if turn is None else names[turn] for turn in found])


def _written(tokenizer: Any, turns: Chat, *, begin: bool = False) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=begin))
    except Exception as error:  # whatever a template makes of roles that it does not know
        raise InvalidInput(f"the tokenizer's chat template does not take these turns: {error}") from error


def _ends(tokenizer: Any, turns: Chat, text: str) -> list[tuple[int, int]]:
    """Where each turn ends, in the order of the text: with its content, and with what is written the same after it
    where the chat ends there. A turn that the template leaves out has no end.
    """
    places = _contents(tokenizer, turns, text)
    starts = [*(start for start, _, _ in places), len(text)][1:]
    found: list[tuple[int, int]] = []
    for (start, end, turn), following in zip(places, starts, strict=False):
        try:
            alone = _written(tokenizer, turns[: turn + 1])
        except InvalidInput:  # a template that wants roles in pairs
            alone = ""
        at = alone.rfind(text[start:end])
        after = alone[at + end - start :] if at >= 0 else ""  # what stands before it there may be another
        same = max(_same(alone, text), end + _same(after, text[end:]))
        found.append((min(max(end, same), following), turn))
    return found


def _same(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _contents(tokenizer: Any, turns: Chat, text: str) -> list[tuple[int, int, int]]:
    """Start, end and turn of every content in the text, wherever the template has put it.

    The chat is written once more, with marks in the place of contents. Where that gives another text between them,
    since the template looks at contents, they are searched for one after the other.
    """
    marks = [f"\ue000{turn}\ue001" for turn in range(len(turns))]
    try:
        marked = _written(
            tokenizer,
            [{**each, "content": mark} for each, mark in zip(turns, marks, strict=True)],
            begin=turns[-1]["role"] != "assistant",
        )
    except InvalidInput:
        return _searched(turns, text)
    first, *parts = re.split("\ue000(\\d+)\ue001", marked)
    found, place = [], len(first)
    if not text.startswith(first):
        return _searched(turns, text)
    for turn, after in zip(map(int, parts[::2]), parts[1::2], strict=True):
        content = turns[turn]["content"]
        forms = (content, content.strip(), content.rstrip(), content.lstrip())
        written = next((each for each in forms if text.startswith(each + after, place)), None)
        end = text.find(after, place) if after else len(text)  # of a content that the template writes otherwise
        end = place + len(written) if written is not None else end
        if end < 0:
            return _searched(turns, text)
        found.append((place, end, turn))
        place = end + len(after)
    return found


def _searched(turns: Chat, text: str) -> list[tuple[int, int, int]]:
    found, place = [], 0
    for turn, each in enumerate(turns):
        content = each["content"].strip()
        start = text.find(content, place)
        if start >= 0:
            place = start + len(content)
            found.append((start, place, turn))
    return found


def _names(turns: Chat) -> list[str]:
    """Each turn by its role, numbered from 1 where the role has several.

    >>> _names([{"role": "user"}, {"role": "assistant"}, {"role": "user"}])
    ['user 1', 'assistant', 'user 2']
    """
    total, seen, names = Counter(str(each["role"]) for each in turns), Counter[str](), []
    for role in (str(each["role"]) for each in turns):
        seen[role] += 1
        names.append(role if total[role] == 1 else f"{role} {seen[role]}")
    return names
