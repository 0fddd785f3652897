"""Messages of the library in the words of the command line: `position=` is `--position` there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

RENAMED = {"columns": "column", "names": "name"}  # Python's argument, and the option that is given once for each entry
ARGUMENT = re.compile(r"\b([a-z_]+)=(?:'([^']*)'|(-?\d+(?:\.\d+)?)(?=[\s;,)]|$)|True\b|(?=[\s;,.)]|$))")
SIMILAR = re.compile(r"\btarget=wherefrom\.similarity\(('[^']*')\)")
LAYERS = re.compile(r"\blayers is \((-?\d+), (-?\d+|None)\)")
OPTION = "--option"
INTERRUPTED = "interrupted; the same command, repeated, resumes it"


def in_json(data: Any) -> str:
    """A line of JSON; letters that the encoding of the output may lack by number."""
    utf = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(data, ensure_ascii=not utf, allow_nan=False)


def in_options(message: str, command: Any, words: Sequence[str]) -> str:
    """A message in which arguments that are options of the command called by these words are named as such.

    An option of a method goes behind -O, where the command takes those; what is neither is left as it stands.
    """
    options = _options(command, words)

    def option(found: re.Match[str]) -> str:
        name, word, number = found.groups()
        value = word if number is None else number
        named = options.get(RENAMED.get(name, name))
        if named is None and value and OPTION in options.values() and _is_of_a_method(name):
            return f"-O {name}={value}"
        return found.group() if named is None else named if value is None else f"{named} {value}"

    if "from_layer" in options:
        message = LAYERS.sub(r"--from-layer is \1 and --to-layer \2", message)
    if "similar_to" in options:
        message = SIMILAR.sub(r"--similar-to \1", message)
    return ARGUMENT.sub(option, message)


def _options(command: Any, words: Sequence[str]) -> dict[str, str]:
    """The options of a command, or of the one inside it that the words call, by their names in Python."""
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return {each.name: max(each.opts, key=len) for each in command.params if each.opts[0].startswith("-")}


def _is_of_a_method(name: str) -> bool:
    import wherefrom

    return any(name in each.options for each in wherefrom.methods())
