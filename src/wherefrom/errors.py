"""What wherefrom says when it cannot give a right answer.

Every message says what was wrong, what was expected and what to do about it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class WherefromError(ValueError):
    """Wrong input or an unsupported model; the command line prints it without a traceback.

    `code` names the kind of error where a program has to tell it apart: "option" (a method has no such option, or none
    of this value), "too-long" (the text, for the model).
    """

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class Unsuited(WherefromError):
    """One method cannot give a right answer here, another may: its own check failed, or it has no baseline."""


class WherefromWarning(UserWarning):
    """An answer was given, but the reader should know something about it."""


def did_you_mean(name: str, known: Iterable[str], count: int = 1, names: Mapping[str, str] | None = None) -> str:
    """The question "did you mean …? " where something known resembles a name, else nothing.

    names: what to call the known ones instead, where they are aliases.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=count)
    named = dict.fromkeys(near if names is None else (names[each] for each in near))
    return f"did you mean {' or '.join(map(repr, named))}? " if named else ""


def warn(message: str) -> None:
    """A `WherefromWarning` that shows the line that called us, however deep inside of us (or of torch) it arises."""
    outermost = level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        level += 1
        if frame.f_code.co_filename.startswith(_PACKAGE):
            outermost = level
        frame = frame.f_back
    warnings.warn(message, WherefromWarning, stacklevel=outermost + 1)
