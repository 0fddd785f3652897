"""Datasets as examples: `read` for those of the papers, your own tables, and a grammar that needs no data."""

from wherefrom.data.datasets import known, read
from wherefrom.data.example import MASK, Dataset, Dropped, Example, drawn, up_to_mask
from wherefrom.data.spans import token_mask

__all__ = ["MASK", "Dataset", "Dropped", "Example", "drawn", "known", "read", "token_mask", "up_to_mask"]
