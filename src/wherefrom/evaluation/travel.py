"""What a worker process must import to know a run: methods, metrics and models of somebody's own.

A worker begins with wherefrom alone. A method or metric that the caller's modules have registered is known there once
those modules are imported, and so is the class of a model. What stands in the script that runs, or in a notebook, is in
no module that another process could import.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from torch import nn

from wherefrom.errors import InvalidOption
from wherefrom.evaluation.config import Setting
from wherefrom.method import choose

SCRIPT = "__main__"


def modules_of(setting: Setting) -> tuple[str, ...]:
    """The modules that register the methods and metrics of a run, beside wherefrom's own."""
    found: dict[str, None] = {}
    for what, run in _registered(setting):
        module = inspect.unwrap(run).__module__
        if module == SCRIPT:
            raise _stays(what)
        if module.partition(".")[0] != "wherefrom":
            found[module] = None
    return tuple(found)


def _registered(setting: Setting) -> Iterator[tuple[str, Any]]:
    for name in setting.explained():
        yield f"the method '{name}'", choose(name).method.run
    for asked in setting.asked():
        yield f"the metric '{asked.name}'", asked.metric.run


def arrived(setting: Setting) -> None:
    """In a worker: import what registers the methods and metrics of the run."""
    for module in setting.modules:
        import_module(module)


def check_classes(model: Any) -> None:
    """Refuse a loaded model that a process beside this one cannot be sent: its classes are imported there."""
    inside = model if isinstance(model, nn.Module) else getattr(model, "model", None)  # of a pipeline, or opened
    for part in inside.modules() if isinstance(inside, nn.Module) else ():
        kind = type(part)
        if kind.__module__ == SCRIPT or not _importable(kind):
            raise _stays(f"the class '{kind.__qualname__}' of the model")


def _importable(kind: type) -> bool:
    """Whether a class is found by its name in its module; one that a function made is not."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _stays(what: str) -> InvalidOption:
    return InvalidOption(
        f"{what} is defined in the script or notebook that runs, or inside a function, and no other process can import "
        f"it from there; put it into a module of its own, or leave workers (--workers) out"
    )
