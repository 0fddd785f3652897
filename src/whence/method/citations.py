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
KOBAYASHI_2020 = Paper(
    "Kobayashi et al.", 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms", "EMNLP"
)
KOBAYASHI_2021 = Paper(
    "Kobayashi et al.",
    2021,
    "Incorporating Residual and Normalization Layers into Analysis of Masked Language Models",
    "EMNLP",
)
MODARRESSI_2022 = Paper(
    "Modarressi et al.",
    2022,
    "GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in Transformers",
    "NAACL",
)
FERRANDO_2022 = Paper(
    "Ferrando et al.", 2022, "Measuring the Mixing of Contextual Information in the Transformer", "EMNLP"
)
MOHEBBI_2023 = Paper("Mohebbi et al.", 2023, "Quantifying Context Mixing in Transformers", "EACL")
BRUNNER_2020 = Paper("Brunner et al.", 2020, "On Identifiability in Transformers", "ICLR")
