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
FERRANDO_2023 = Paper("Ferrando et al.", 2023, "Explaining How Transformers Use Context to Build Predictions", "ACL")
FERRANDO_2024 = Paper(
    "Ferrando & Voita", 2024, "Information Flow Routes: Automatically Interpreting Language Models at Scale", "EMNLP"
)
MOHEBBI_2023 = Paper("Mohebbi et al.", 2023, "Quantifying Context Mixing in Transformers", "EACL")
BRUNNER_2020 = Paper("Brunner et al.", 2020, "On Identifiability in Transformers", "ICLR")
SIMONYAN_2014 = Paper(
    "Simonyan et al.",
    2014,
    "Deep Inside Convolutional Networks: Visualising Image Classification Models and Saliency Maps",
    "ICLR Workshop",
)
KINDERMANS_2016 = Paper(
    "Kindermans et al.",
    2016,
    "Investigating the Influence of Noise and Distractors on the Interpretation of Neural Networks",
    "NIPS Workshop",
)
SUNDARARAJAN_2017 = Paper("Sundararajan et al.", 2017, "Axiomatic Attribution for Deep Networks", "ICML")
SHRIKUMAR_2017 = Paper(
    "Shrikumar et al.", 2017, "Learning Important Features Through Propagating Activation Differences", "ICML"
)
BARKAN_2021 = Paper("Barkan et al.", 2021, "Grad-SAM: Explaining Transformers via Gradient Self-Attention Maps", "CIKM")
QIANG_2022 = Paper(
    "Qiang et al.", 2022, "AttCAT: Explaining Transformers via Attentive Class Activation Tokens", "NeurIPS"
)
BACH_2015 = Paper(
    "Bach et al.",
    2015,
    "On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation",
    "PLoS ONE",
)
VOITA_2019 = Paper(
    "Voita et al.",
    2019,
    "Analyzing Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned",
    "ACL",
)
CHEFER_2021 = Paper("Chefer et al.", 2021, "Transformer Interpretability Beyond Attention Visualization", "CVPR")
ACHTIBAT_2024 = Paper(
    "Achtibat et al.",
    2024,
    "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers",
    "ICML",
)
ALI_2022 = Paper(
    "Ali et al.", 2022, "XAI for Transformers: Better Explanations through Conservative Propagation", "ICML"
)
CHEFER_2021B = Paper(
    "Chefer et al.",
    2021,
    "Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
    "ICCV",
)
MODARRESSI_2023 = Paper(
    "Modarressi et al.", 2023, "DecompX: Explaining Transformers Decisions by Propagating Token Decomposition", "ACL"
)
KOBAYASHI_2024 = Paper(
    "Kobayashi et al.", 2024, "Analyzing Feed-Forward Blocks in Transformers through the Lens of Attention Maps", "ICLR"
)
COHEN_WANG_2024 = Paper("Cohen-Wang et al.", 2024, "ContextCite: Attributing Model Generation to Context", "NeurIPS")
