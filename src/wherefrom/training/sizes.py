"""Which sizes a new model can have."""

from __future__ import annotations

import os

from wherefrom.errors import InvalidOption, warn


def refuse_uneven(width: int, heads: int, groups: int = 1) -> None:
    """Heads share a model's width evenly, and groups of them their keys and values."""
    if not width % heads and not heads % groups:
        return
    grouped = "" if groups == 1 else f" in {groups} groups"
    more = "" if groups == 1 else ", and heads that are a multiple of the groups"
    raise InvalidOption(
        f"a width of {width} cannot be shared by {heads} heads{grouped}; expected a multiple of the heads{more}"
    )


def warn_of_memory(batch: int, length: int, floats: int) -> None:
    """Say before it begins that a step keeps more (numbers for each token) than the machine has: it would be killed."""
    needed, there = 4 * batch * length * floats, physical_memory()
    if there is not None and needed > there:
        warn(
            f"a step of {batch} x {length} tokens takes about {needed / 2**30:.0f} GB, and this machine has "
            f"{there / 2**30:.0f}: lower --batch or --length"
        )


def physical_memory() -> int | None:
    """Bytes of memory, where the system says how many."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
