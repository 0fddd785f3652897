"""ALTI-Logit: do the parts of a logit, followed to the input, find the words that decide a next word?

A language model reads a sentence of BLiMP up to the word in which it differs from its ungrammatical twin, and every
method explains why it says the one rather than the other. Measured is the reciprocal rank of the best of the words that
decide (MRR), tokens ranked by their scores with signs. A word stands for its first piece, as in the authors' code.

The paper's other sentences are Linzen's, by the number of attractors: nouns of the other number between subject and
verb. Their subjects were found by a parser that is not here, so that our own grammar, whose subjects are known by
construction, stands in their place.

The numbers that the paper prints are not at hand, and none stand beside ours.

Ferrando et al. (2023), Explaining How Transformers Use Context to Build Predictions. ACL.
https://arxiv.org/abs/2305.12535
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wherefrom.data.blimp import PROMPTS
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import bar_picture
from wherefrom.papers.recipe import RecipeCall, Table, called, overall, recipe, together, used_each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wherefrom.data import Example
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

BASELINES = {  # Yin & Neubig's, with a foil
    "Grad Norm": "saliency(norm=l1, at=word)",
    "Grad×Input": "gradient-x-input(at=word)",
    "Erasure": "ablation(by=attention, over=difference)",
}
ROWS = {"Rand": "random", **BASELINES, "Logit": "alti-logit(mixing=none)", "ALTI-Logit": "alti-logit"}
HOW = "signs=kept, tokens=text"
MRR = f"cue-mrr({HOW})@scores"
ALL = "all"
COMMON = {"at_hand": False, "model": "wherefrom/lm"}


def table(asked: RecipeCall, columns: Mapping[str, Callable[[Example], bool]], note: str = "") -> Table:
    """The MRR of every method, a column for each kind of sentence that the data has, and one for all of them."""
    ours: dict[Place, Summary] = {}
    runs = {}
    for column, chosen in columns.items():
        data = asked.prompts(chosen)
        if data is not None:
            runs[column] = asked.evaluate(data, ROWS.values(), [MRR])
            ours |= overall(runs[column], ROWS, MRR, column)
    ours |= {(row, ALL): together([ours[row, column] for column in runs]) for row in ROWS}
    of = "Mean ± standard deviation of 1 / the rank of the best word that decides; higher is better"
    pictures = {"": bar_picture(ours, list(ROWS), ALL)}
    said = [used_each(runs, called(asked.model))]
    return Table(list(ROWS), [*runs, ALL], ours, of, said, [note] if note else [], pictures)


ALIGNS = Claim(
    "ALTI-Logit aligns better with the evidence than gradients and erasure.",
    "abstract",
    lambda table, _: best("ALTI-Logit", *BASELINES)(table, ALL),
)


def _group(*names: str) -> Callable[[Example], bool]:
    return lambda example: example.group in names


@recipe(
    "alti-logit/blimp",
    "The rank of the words that decide a next word, by paradigm: anaphors, arguments, determiners, NPIs and verbs.",
    samples="GPT-2, OPT and BLOOM on eleven paradigms of BLiMP",
    data=("blimp-prompts",),
    spare="grammar",
    limit=100,
    claims=(ALIGNS,),
    **COMMON,
)
def blimp(asked: RecipeCall) -> Table:
    kinds = {**PROMPTS, "anaphor": "anaphor", "subject-verb": "subject-verb"}
    return table(asked, {short: _group(name) for short, name in kinds.items()})


@recipe(
    "alti-logit/attractors",
    "The rank of the subject of a verb, by the number of attractors between the two.",
    samples="GPT-2, OPT and BLOOM on Linzen's sentences with 1 to 4 attractors",
    data=("grammar:distractor",),
    limit=100,
    claims=(ALIGNS,),
    **COMMON,
)
def attractors(asked: RecipeCall) -> Table:
    def having(count: int) -> Callable[[Example], bool]:
        return lambda example: example.attractors == count

    return table(
        asked, {f"{count}": having(count) for count in range(1, 5)}, "Our own grammar, not Linzen's sentences."
    )
