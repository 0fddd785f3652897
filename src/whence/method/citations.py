"""The papers that the methods come from."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    authors: str
    year: int
    title: str
    venue: str

    @property
    def short(self) -> str:
        """`Abnar & Zuidema 2020`."""
        return f"{self.authors} {self.year}"

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.venue}."


ABNAR_2020 = Paper("Abnar & Zuidema", 2020, "Quantifying Attention Flow in Transformers", "ACL")
