"""How far a long call has come, a bar in a terminal or a notebook and nothing anywhere else; and whether somebody still
waits for it.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PACE = 0.2  # seconds between two looks of a notebook's bar
_WANTED: ContextVar[Callable[[], object] | None] = ContextVar("wherefrom_wanted", default=None)


@contextmanager
def wanted_by(check: Callable[[], object]) -> Iterator[None]:
    """Within, `still_wanted` calls this, which raises where nobody waits any more."""
    before = _WANTED.set(check)
    try:
        yield
    finally:
        _WANTED.reset(before)


def still_wanted() -> None:
    """A place in long work, outside of the model's passes, at which it may be broken off."""
    if (check := _WANTED.get()) is not None:
        check()


@contextmanager
def bar(total: int | None, shown: bool | None, *, worth: bool = True) -> Iterator[Callable[[int], None]]:
    """A function that is told how many more inputs are done.

    shown: None for a bar where somebody looks (a terminal on stderr, a notebook) and there is enough to wait for.
    """
    kernel = _notebook()
    if shown is None:
        looked_at = kernel is not None or sys.stderr.isatty()
        shown = worth and looked_at and threading.current_thread() is threading.main_thread()
    if not shown:
        yield lambda _count: None
    elif kernel is not None:
        yield from _in_notebook(total)
    else:
        yield from _in_terminal(total)


def _in_terminal(total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("inputs"), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def _in_notebook(total: int | None) -> Iterator[Callable[[int], None]]:
    """By IPython alone: rich and tqdm want ipywidgets there, and warn without them."""
    display = importlib.import_module("IPython.display")
    handle = display.display(display.HTML(_drawn(0, total)), display_id=True)
    done, drawn = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, drawn
        done += count
        if time.monotonic() - drawn >= PACE:
            handle.update(display.HTML(_drawn(done, total)))
            drawn = time.monotonic()

    try:
        yield advance
    finally:
        handle.update(display.HTML(""))


def _drawn(done: int, total: int | None) -> str:
    if total is None:
        return f"{done} inputs"
    return f'<progress value="{done}" max="{total}"></progress> {done} of {total} inputs'


def _notebook() -> Any:
    """The kernel that this process is, if it is a notebook's."""
    shell = sys.modules.get("IPython")
    return None if shell is None else getattr(shell.get_ipython(), "kernel", None)


def quiet_tqdm() -> None:
    """Let tqdm find out without a warning that a notebook has no ipywidgets: transformers imports it, nobody asked."""
    if _notebook() is not None and "tqdm.autonotebook" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("tqdm.autonotebook")
