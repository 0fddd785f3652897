"""A chat: turns with a role and a content, written out by the tokenizer's own template, each turn a segment."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.typecheck import shown

if TYPE_CHECKING:
    from wherefrom.model.inputs import Reader
    from wherefrom.model.model import Model
    from wherefrom.model.sentences import Sentence

Chat: TypeAlias = Sequence[Mapping[str, Any]]  # turns
Tools: TypeAlias = Sequence[Any]  # functions or their JSON schemas, as apply_chat_template takes them

SAYS = {"content", "tool_calls"}  # one of which a turn has
FOR_TEMPLATE = {"tools", "documents", "chat_template"}  # what apply_chat_template takes beside the turns
RESERVED = {"tokenize", "add_generation_prompt", "continue_final_message", "return_dict"}
MARK = "\ue000parts\ue001"
TEMPLATE = "template"  # what the template writes after the last turn, for the answer to begin


def chats(reads: Model | Reader) -> bool:
    """Whether the tokenizer has a template by which chats are written out."""
    return bool(getattr(reads.tokenizer, "chat_template", None))


def is_chat(inputs: Any) -> bool:
    """Whether this is a list of turns, each with a role and a content (or the tools that it calls)."""
    turns = isinstance(inputs, list | tuple) and bool(inputs)
    return turns and all(isinstance(each, Mapping) and "role" in each and each.keys() & SAYS for each in inputs)


def given_or_chat(inputs: Any, chat: Chat | None) -> Any:
    """What is to be read: the inputs, or the chat that was given in their place."""
    if (inputs is None) == (chat is None):
        given = "neither inputs nor a chat were" if chat is None else "inputs and a chat were both"
        raise InvalidInput(f"cannot read inputs: {given} given; expected one of them")
    if chat is not None and not is_chat(chat):
        raise InvalidInput(f'chat={shown(chat)}; expected turns: [{{"role": "user", "content": "…"}}, …]')
    return inputs if chat is None else chat


def with_tools(tokenizer_kwargs: Mapping[str, Any] | None, tools: Sequence[Any] | None) -> Mapping[str, Any] | None:
    """The tokenizer's arguments with the tools that a chat's template describes."""
    if tools is None:
        return tokenizer_kwargs
    if not isinstance(tools, list | tuple):
        raise InvalidOption(f"tools={shown(tools)}; expected a list of functions or of their JSON schemas")
    return {**(tokenizer_kwargs or {}), "tools": list(tools)}


def refuse_chat_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse what only a chat template reads, for a text that no template writes."""
    if extra := sorted(FOR_TEMPLATE & arguments.keys()):
        raise InvalidOption(f"{', '.join(extra)} applies to a chat, and a text was given; pass the turns as chat=")


def read_chat(reader: Reader, turns: Chat) -> Sentence:
    """The turns as one text; after the last one the model's own turn begins, unless that one is the model's already."""
    if not chats(reader):
        raise InvalidInput("a chat was given and the tokenizer has no chat template; give the prompt as a text")
    own, how = _split_arguments(reader)
    for turn in turns:
        _refuse_other_contents(turn)
    turns = _readable(reader.tokenizer, turns, how)
    text = _written(reader.tokenizer, turns, how, begin=turns[-1]["role"] != "assistant")
    own["add_special_tokens"] = False  # which the template has written
    read = replace(reader, tokenizer_kwargs=own).text(text)
    ends, names = _ends(reader.tokenizer, turns, text, how), _names(turns)
    found = [next((turn for end, turn in ends if span is not None and span[2] <= end), None) for span in read.spans]
    return replace(read, segments=[TEMPLATE if turn is None else names[turn] for turn in found])


def _split_arguments(reader: Reader) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tokenizer's arguments, and those that the template reads: `tools` and whatever a tokenizer's call lacks."""
    given = dict(reader.tokenizer_kwargs or {})
    if clash := sorted(RESERVED & given.keys()):
        raise InvalidOption(f"tokenizer_kwargs may not set {', '.join(clash)} for a chat: wherefrom does that itself")
    known = inspect.signature(type(reader.tokenizer).__call__).parameters
    how = {name: each for name, each in given.items() if name in FOR_TEMPLATE or name not in known}
    return {name: each for name, each in given.items() if name not in FOR_TEMPLATE}, how


def _refuse_other_contents(turn: Mapping[str, Any]) -> None:
    content, role = turn.get("content"), turn["role"]
    if isinstance(content, str) or (content is None and turn.get("tool_calls")):
        return
    if isinstance(content, list | tuple) and content and all(isinstance(part, Mapping) for part in content):
        if other := [part for part in content if part.get("type") != "text" or not isinstance(part.get("text"), str)]:
            raise InvalidInput(
                f"a turn of the {role} has a part of type {shown(other[0].get('type'))}; wherefrom reads the text of a "
                f'chat: expected a string or parts {{"type": "text", "text": …}}'
            )
        return
    raise InvalidInput(f"a turn of the {role} is no text; expected a string as its content")


def _parts(turn: Mapping[str, Any]) -> list[str]:
    """The texts of a turn; none of one that only calls tools."""
    content = turn.get("content")
    if content is None:
        return []
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def _marked(turn: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """A turn with a mark in the place of its content."""
    content = turn.get("content")
    if content is None:
        return turn
    return {**turn, "content": mark if isinstance(content, str) else [{"type": "text", "text": mark}]}


def _readable(tokenizer: Any, turns: Chat, how: Mapping[str, Any]) -> Chat:
    """The turns as the template reads them: parts of text joined by line breaks where it takes strings alone."""
    if all(isinstance(each.get("content"), str | None) for each in turns):
        return turns
    try:
        # What a template prints as a list has the mark's characters escaped.
        written = _written(tokenizer, [_marked(each, MARK) for each in turns], how)
        reads = MARK in written and MARK.encode("unicode_escape").decode() not in written
    except InvalidInput:
        reads = False
    joined = [{**each, "content": "\n".join(_parts(each))} if _parts(each) else each for each in turns]
    return turns if reads else joined


def _written(tokenizer: Any, turns: Chat, how: Mapping[str, Any], *, begin: bool = False) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=begin, **how))
    except Exception as error:  # whatever a template makes of roles that it does not know
        raise InvalidInput(f"the tokenizer's chat template does not take these turns: {error}") from error


def _ends(tokenizer: Any, turns: Chat, text: str, how: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Where each turn ends, in the order of the text: with its content, and with what is written the same after it
    where the chat ends there. A turn that the template leaves out has no end.
    """
    places = _with_silent_turns(_contents(tokenizer, turns, text, how), turns)
    starts = [*(start for start, _, _ in places), len(text)][1:]
    found: list[tuple[int, int]] = []
    for (start, end, turn), following in zip(places, starts, strict=False):
        try:
            alone = _written(tokenizer, turns[: turn + 1], how)
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


def _with_silent_turns(places: list[tuple[int, int, int]], turns: Chat) -> list[tuple[int, int, int]]:
    """Turns without a content, which only call tools, begin where the content before them ends."""
    ends = {turn: end for _, end, turn in places}
    for turn, each in enumerate(turns):
        if not _parts(each):
            ends[turn] = max((end for before, end in ends.items() if before < turn), default=0)
            places = [*places, (ends[turn], ends[turn], turn)]
    return sorted(places)


def _contents(tokenizer: Any, turns: Chat, text: str, how: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Start, end and turn of every content in the text, wherever the template has put it.

    The chat is written once more, with marks in the place of contents. Where that gives another text between them,
    since the template looks at contents, they are searched for one after the other.
    """
    marks = [f"\ue000{turn}\ue001" for turn in range(len(turns))]
    try:
        marked = _written(
            tokenizer,
            [_marked(each, mark) for each, mark in zip(turns, marks, strict=True)],
            how,
            begin=turns[-1]["role"] != "assistant",
        )
    except InvalidInput:
        return _searched(turns, text)
    first, *parts = re.split("\ue000(\\d+)\ue001", marked)
    found, place = [], len(first)
    if not text.startswith(first):
        return _searched(turns, text)
    for turn, after in zip(map(int, parts[::2]), parts[1::2], strict=True):
        contents = [by.join(_parts(turns[turn])) for by in ("", "\n")]
        forms = [form for each in contents for form in (each, each.strip(), each.rstrip(), each.lstrip())]
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
        for part in _parts(each):
            content = part.strip()
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
