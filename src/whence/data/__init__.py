"""Datasets as examples: `read` for those of the papers, your own tables, and a grammar that needs no data."""

from whence.data.example import MASK, Dataset, Dropped, Example
from whence.data.reading import known, read
from whence.data.spans import token_mask

__all__ = ["MASK", "Dataset", "Dropped", "Example", "known", "read", "token_mask"]
