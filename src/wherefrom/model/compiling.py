"""Whether kernels in Triton, which a machine must compile once, are worth it.

The first time they take a second, those of Value Zeroing up to ten (bench/README.md, "first run"); Triton keeps them.
What a short text takes without them is a few milliseconds, most of which is Python's. Hence a process follows some
short texts without them before it has them compiled, and a large batch with them at once. Both ways agree up to
rounding.
"""

from __future__ import annotations

from typing import Literal

Compile = Literal["auto", "always", "never"]
WORTH = 2**16  # pairs of tokens: a text of 256 tokens, 16 of 64, or 64 of 32
_pairs = [0]  # that this process has followed, or is about to


def follows(sentences: int, n: int) -> None:
    """A pass over so many sentences of n tokens each, padding included, begins."""
    _pairs[0] += sentences * n * n


def worth(choice: Compile) -> bool:
    return choice == "always" or (choice == "auto" and _pairs[0] >= WORTH)
