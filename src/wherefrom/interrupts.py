"""Ctrl-C on the command line.

What libraries make of an import that is broken off is an error about something else, long and false, or nothing at all.
So until something is there that could be lost, Ctrl-C within an import ends the process as one ends that knows no
Ctrl-C, by the signal itself.
"""

from __future__ import annotations

import signal
from types import FrameType


def end_at_once() -> None:
    """From now on."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody has other plans, as nohup has
        signal.signal(signal.SIGINT, _interrupted)


def begun() -> None:
    """Something is there: Ctrl-C is an exception from now on, wherever it comes."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        frame = frame.f_back
    raise KeyboardInterrupt
