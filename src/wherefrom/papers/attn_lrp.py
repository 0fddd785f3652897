"""AttnLRP: as tokens go in the order of their relevance, does a next word's logit fall soonest by AttnLRP?

A language model reads the beginning of a Wikipedia paragraph (SQuAD's contexts), and its own next word is explained.
Then tokens go, in tenths, once the most relevant first and once the least: measured is the area between the two curves
of the logit, and of the log-probability. A token that is gone is seen by no other; what the paper puts in its place,
and its step, are not at hand, nor are the numbers that it prints, so that none stand beside ours.

Achtibat et al. (2024), AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers. ICML.
https://arxiv.org/abs/2402.05602
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import bar_picture
from wherefrom.papers.recipe import RecipeCall, Table, called, overall, recipe, used

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wherefrom.data import Dataset, Example
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

ROWS = {
    "Random": "random",
    "Input×Gradient": "gradient-x-input",
    "Attention Rollout": "attention-rollout",
    "Gradient×Attention Rollout": "generic-attention",
    "CP-LRP": "cp-lrp",
    "AttnLRP": "attn-lrp",
}
OURS = {"ALTI-Logit": "alti-logit", "Erasure": "ablation(by=attention)"}  # beside the paper's
METRICS = {"logit": "lerf-morf(of=logit)", "log-probability": "lerf-morf"}
WORDS = 40  # of a paragraph: its beginning


def beginnings(data: Dataset) -> Dataset:
    """The beginning of every paragraph, once; a review without its last two words."""

    def make() -> Iterator[Example]:
        seen: set[str] = set()
        for example in data:
            words = (example.text if isinstance(example.text, str) else example.text[1]).split()
            text = " ".join(words[: min(WORDS, len(words) - 2)])
            if text and text not in seen:
                seen.add(text)
                yield replace(example, text=text, label=None, answer=())

    return replace(data, make=make)


@recipe(
    "attn-lrp/faithfulness",
    "Area between the curves of a next word's logit as tokens go, the least and the most relevant first.",
    samples="Llama 2 7B on Wikipedia (next word) and IMDB, Mixtral and Flan-T5 on SQuAD v2, a vision Transformer",
    at_hand=False,
    model="wherefrom/lm",
    data=("squad_v1",),
    spare="own",
    limit=100,
    claims=(
        Claim(
            "AttnLRP surpasses the alternative methods in faithfulness.",
            "abstract",
            best("AttnLRP", *(row for row in ROWS if row != "AttnLRP")),
            each=True,
        ),
    ),
)
def faithfulness(asked: RecipeCall) -> Table:
    rows = ROWS | OURS
    run = asked.evaluate(asked.examples(change=beginnings), rows.values(), METRICS.values())
    ours: dict[Place, Summary] = {}
    for column, metric in METRICS.items():
        ours |= overall(run, rows, metric, column)
    of = "Mean ± standard deviation of the area between the curves; higher is better"
    pictures = {"": bar_picture(ours, list(rows), "logit")}
    return Table(list(rows), list(METRICS), ours, of, [used(run, called(asked.model))], [], pictures)
