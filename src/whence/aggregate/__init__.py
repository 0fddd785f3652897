"""From layer maps to maps that reach the input: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable

from whence.aggregate.rollout import rollout
from whence.aggregate.types import Maps
from whence.errors import WhenceError

AGGREGATIONS: dict[str, Callable[[Maps, Maps | None], Maps]] = {"rollout": rollout}

__all__ = ["AGGREGATIONS", "Maps", "check_aggregation", "rollout"]


def check_aggregation(name: str | None) -> str | None:
    """The name itself, if it is one; "none" and None leave the layer maps alone."""
    if name is None or name == "none":
        return None
    if name not in AGGREGATIONS:
        raise WhenceError(f"unknown aggregation {name!r}; expected {', '.join(AGGREGATIONS)}, or none")
    return name
