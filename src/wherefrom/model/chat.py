"""A chat: turns with a role and a content, written out by the tokenizer's own template, each turn a segment."""

from __future__ import annotations

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
    places = [
        next((i for i, end in enumerate(ends) if span is not None and span[2] <= end), None) for span in read.spans
    ]
    return replace(read, segments=[TEMPLATE if place is None else names[place] for place in places])


def _written(tokenizer: Any, turns: Chat, *, begin: bool = False) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=begin))
    except Exception as error:  # whatever a template makes of roles that it does not know
        raise InvalidInput(f"the tokenizer's chat template does not take these turns: {error}") from error


def _ends(tokenizer: Any, turns: Chat, text: str) -> list[int]:
    """Where each turn ends: where a chat without the later ones would, or else with its own content."""
    ends: list[int] = []
    for count in range(1, len(turns) + 1):
        try:
            before = _written(tokenizer, turns[:count])
        except InvalidInput:  # a template that wants roles in pairs
            before = ""
        content = turns[count - 1]["content"].strip()
        after = text.find(content, ends[-1] if ends else 0) + len(content)
        ends.append(len(before) if before and text.startswith(before) else after)
    return ends


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
