"""The papers that the methods come from."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

JOURNALS = ("PLoS ONE",)


class Paper(NamedTuple):
    """`people` are the authors' full names, joined by " and " as BibTeX has them."""

    people: str
    year: int
    title: str
    venue: str

    @property
    def authors(self) -> str:
        """`Abnar & Zuidema`, or `Kobayashi et al.` where there are more."""
        last = [name.split()[-1] for name in self.people.split(" and ")]
        return " & ".join(last) if len(last) < 3 else f"{last[0]} et al."

    @property
    def short(self) -> str:
        """`Abnar & Zuidema 2020`."""
        return f"{self.authors} {self.year}"

    @property
    def bibtex(self) -> str:
        """An entry for a bibliography, with a key such as `abnar2020quantifying`."""
        first = re.split(r"\W", self.title)[0]
        key = _ascii(self.people.split(" and ")[0].split()[-1] + str(self.year) + first).lower()
        kind, place = ("article", "journal") if self.venue in JOURNALS else ("inproceedings", "booktitle")
        fields = {"title": f"{{{self.title}}}", "author": self.people, place: self.venue, "year": self.year}
        return f"@{kind}{{{key},\n" + "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items()) + "}"

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.venue}."


def _ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"\W", "", plain)


ABNAR_2020 = Paper("Samira Abnar and Willem Zuidema", 2020, "Quantifying Attention Flow in Transformers", "ACL")
KOBAYASHI_2020 = Paper(
    "Goro Kobayashi and Tatsuki Kuribayashi and Sho Yokoi and Kentaro Inui",
    2020,
    "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms",
    "EMNLP",
)
KOBAYASHI_2021 = Paper(
    "Goro Kobayashi and Tatsuki Kuribayashi and Sho Yokoi and Kentaro Inui",
    2021,
    "Incorporating Residual and Normalization Layers into Analysis of Masked Language Models",
    "EMNLP",
)
MODARRESSI_2022 = Paper(
    "Ali Modarressi and Mohsen Fayyaz and Yadollah Yaghoobzadeh and Mohammad Taher Pilehvar",
    2022,
    "GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in Transformers",
    "NAACL",
)
FERRANDO_2022 = Paper(
    "Javier Ferrando and Gerard I. Gállego and Marta R. Costa-jussà",
    2022,
    "Measuring the Mixing of Contextual Information in the Transformer",
    "EMNLP",
)
FERRANDO_2023 = Paper(
    "Javier Ferrando and Gerard I. Gállego and Ioannis Tsiamas and Marta R. Costa-jussà",
    2023,
    "Explaining How Transformers Use Context to Build Predictions",
    "ACL",
)
FERRANDO_2024 = Paper(
    "Javier Ferrando and Elena Voita",
    2024,
    "Information Flow Routes: Automatically Interpreting Language Models at Scale",
    "EMNLP",
)
MOHEBBI_2023 = Paper(
    "Hosein Mohebbi and Willem Zuidema and Grzegorz Chrupała and Afra Alishahi",
    2023,
    "Quantifying Context Mixing in Transformers",
    "EACL",
)
BRUNNER_2020 = Paper(
    "Gino Brunner and Yang Liu and Damián Pascual and Oliver Richter and Massimiliano Ciaramita and Roger Wattenhofer",
    2020,
    "On Identifiability in Transformers",
    "ICLR",
)
SIMONYAN_2014 = Paper(
    "Karen Simonyan and Andrea Vedaldi and Andrew Zisserman",
    2014,
    "Deep Inside Convolutional Networks: Visualising Image Classification Models and Saliency Maps",
    "ICLR Workshop",
)
KINDERMANS_2016 = Paper(
    "Pieter-Jan Kindermans and Kristof T. Schütt and Klaus-Robert Müller and Sven Dähne",
    2016,
    "Investigating the Influence of Noise and Distractors on the Interpretation of Neural Networks",
    "NIPS Workshop",
)
SUNDARARAJAN_2017 = Paper(
    "Mukund Sundararajan and Ankur Taly and Qiqi Yan", 2017, "Axiomatic Attribution for Deep Networks", "ICML"
)
SHRIKUMAR_2017 = Paper(
    "Avanti Shrikumar and Peyton Greenside and Anshul Kundaje",
    2017,
    "Learning Important Features Through Propagating Activation Differences",
    "ICML",
)
BARKAN_2021 = Paper(
    "Oren Barkan and Edan Hauon and Avi Caciularu and Ori Katz and Itzik Malkiel and "
    "Omri Armstrong and Noam Koenigstein",
    2021,
    "Grad-SAM: Explaining Transformers via Gradient Self-Attention Maps",
    "CIKM",
)
QIANG_2022 = Paper(
    "Yao Qiang and Deng Pan and Chengyin Li and Xin Li and Rhongho Jang and Dongxiao Zhu",
    2022,
    "AttCAT: Explaining Transformers via Attentive Class Activation Tokens",
    "NeurIPS",
)
BACH_2015 = Paper(
    "Sebastian Bach and Alexander Binder and Grégoire Montavon and Frederick Klauschen and "
    "Klaus-Robert Müller and Wojciech Samek",
    2015,
    "On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation",
    "PLoS ONE",
)
VOITA_2019 = Paper(
    "Elena Voita and David Talbot and Fedor Moiseev and Rico Sennrich and Ivan Titov",
    2019,
    "Analyzing Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned",
    "ACL",
)
CHEFER_2021 = Paper(
    "Hila Chefer and Shir Gur and Lior Wolf",
    2021,
    "Transformer Interpretability Beyond Attention Visualization",
    "CVPR",
)
ACHTIBAT_2024 = Paper(
    "Reduan Achtibat and Sayed Mohammad Vakilzadeh Hatefi and Maximilian Dreyer and "
    "Aakriti Jain and Thomas Wiegand and Sebastian Lapuschkin and Wojciech Samek",
    2024,
    "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers",
    "ICML",
)
ALI_2022 = Paper(
    "Ameen Ali and Thomas Schnake and Oliver Eberle and Grégoire Montavon and Klaus-Robert Müller and Lior Wolf",
    2022,
    "XAI for Transformers: Better Explanations through Conservative Propagation",
    "ICML",
)
CHEFER_2021B = Paper(
    "Hila Chefer and Shir Gur and Lior Wolf",
    2021,
    "Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
    "ICCV",
)
ZHAO_2024 = Paper(
    "Chenyang Zhao and Kun Wang and Xingyu Zeng and Rui Zhao and Antoni B. Chan",
    2024,
    "Gradient-based Visual Explanation for Transformer-based CLIP",
    "ICML",
)
MODARRESSI_2023 = Paper(
    "Ali Modarressi and Mohsen Fayyaz and Ehsan Aghazadeh and Yadollah Yaghoobzadeh and Mohammad Taher Pilehvar",
    2023,
    "DecompX: Explaining Transformers Decisions by Propagating Token Decomposition",
    "ACL",
)
KOBAYASHI_2024 = Paper(
    "Goro Kobayashi and Tatsuki Kuribayashi and Sho Yokoi and Kentaro Inui",
    2024,
    "Analyzing Feed-Forward Blocks in Transformers through the Lens of Attention Maps",
    "ICLR",
)
COHEN_WANG_2024 = Paper(
    "Benjamin Cohen-Wang and Harshay Shah and Kristian Georgiev and Aleksander Mądry",
    2024,
    "ContextCite: Attributing Model Generation to Context",
    "NeurIPS",
)
