"""What wherefrom raises when it cannot give a right answer.

    WherefromError               error                 all of these; it is a ValueError
    ├── UnknownName              unknown-name          no method, metric, dataset, file, column or recipe has this name
    ├── InvalidOption            invalid-option        an argument has a value it cannot have, or not beside the others
    │   └── InvalidTarget        invalid-target        the model has no such target or foil, or not at this position
    ├── InvalidInput             invalid-input         this text, row or array cannot be used; another may be
    │   └── TooLong              too-long              the text has more tokens than the model reads
    ├── UnsupportedModel         unsupported-model     the model cannot be opened, or not be followed through its blocks
    ├── NotDefined               not-defined           a method or metric has no value here
    │   └── Unsuited             unsuited              a method's own check failed, or it has no baseline
    ├── MissingExtra             missing-extra         a package is not installed; the message names the extra
    ├── RunConflict              run-conflict          a run folder holds another run, is in use, or is not finished
    ├── DamagedFile              damaged-file          a file is there and is not what its name says, or is not whole
    ├── ResourceUnavailable      resource-unavailable  the disk, the network, a port or a worker failed
    │   └── OutOfMemory          out-of-memory         the machine has too little memory for this
    └── OverLimit                over-limit            a request asks a server for more than it allows

The second column is `code`: stable, for programs to read. The message is for people; it says what was wrong, what was
expected and what to do about it, and it may change.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import ClassVar

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class WherefromError(ValueError):
    """Anything that wherefrom refuses; the command line prints it without a traceback."""

    code: ClassVar[str] = "error"


class UnknownName(WherefromError):
    """No method, metric, dataset, file, column or recipe has this name."""

    code = "unknown-name"


class InvalidOption(WherefromError):
    """An argument or option has a value that it cannot have, or cannot have beside the others."""

    code = "invalid-option"


class InvalidTarget(InvalidOption):
    """The model has no such target or foil, or not at this position."""

    code = "invalid-target"


class InvalidInput(WherefromError):
    """This text, row or array cannot be used; in a dataset, a failed example."""

    about: object = None  # the input that it is about, where several are read together

    code = "invalid-input"


class TooLong(InvalidInput):
    """The text has more tokens than the model reads."""

    code = "too-long"


class UnsupportedModel(WherefromError):
    """The model cannot be opened, or wherefrom cannot follow it through its blocks."""

    code = "unsupported-model"


class NotDefined(WherefromError):
    """A method or metric has no value here."""

    code = "not-defined"


class Unsuited(NotDefined):
    """One method cannot give a right answer here, another may: its own check failed, or it has no baseline."""

    code = "unsuited"


class MissingExtra(WherefromError):
    """A package that this needs is not installed; the message names the extra that brings it."""

    code = "missing-extra"


class RunConflict(WherefromError):
    """A run folder holds another run, is in use by another process, or is not finished."""

    code = "run-conflict"


class DamagedFile(WherefromError):
    """A file is there and is not what its name says, or is not whole."""

    code = "damaged-file"


class ResourceUnavailable(WherefromError):
    """The disk, the network, a port or a worker failed."""

    code = "resource-unavailable"


class OutOfMemory(ResourceUnavailable):
    """The machine has too little memory for this."""

    code = "out-of-memory"


class OverLimit(WherefromError):
    """A request asks a server for more than it allows."""

    code = "over-limit"


EXAMPLE_ERRORS = (InvalidInput, NotDefined)  # of one input or example; any other is wrong with the whole call


class WherefromWarning(UserWarning):
    """An answer was given, but the reader should know something about it."""


class RowsLeftOut(WherefromWarning):
    """A run was measured without some rows of its data; its own class, for callers that tell of them themselves."""


def did_you_mean(name: str, known: Iterable[str], count: int = 1, names: Mapping[str, str] | None = None) -> str:
    """The question "did you mean …? " where something known resembles a name, else nothing.

    names: what to call the known ones instead, where they are aliases.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=count)
    named = dict.fromkeys(near if names is None else (names[each] for each in near))
    return f"did you mean {' or '.join(map(repr, named))}? " if named else ""


def warn(message: str, kind: type[WherefromWarning] = WherefromWarning) -> None:
    """A `WherefromWarning` that shows the line that called us, however deep inside of us (or of torch) it arises."""
    outermost = level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        level += 1
        if frame.f_code.co_filename.startswith(_PACKAGE):
            outermost = level
        frame = frame.f_back
    warnings.warn(message, kind, stacklevel=outermost + 1)
