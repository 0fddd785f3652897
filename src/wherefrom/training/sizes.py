"""Which sizes a new model can have."""

from __future__ import annotations

from wherefrom.errors import InvalidOption


def refuse_uneven(width: int, heads: int, groups: int = 1) -> None:
    """Heads share a model's width evenly, and groups of them their keys and values."""
    if not width % heads and not heads % groups:
        return
    grouped = "" if groups == 1 else f" in {groups} groups"
    more = "" if groups == 1 else ", and heads that are a multiple of the groups"
    raise InvalidOption(
        f"a width of {width} cannot be shared by {heads} heads{grouped}; expected a multiple of the heads{more}"
    )
