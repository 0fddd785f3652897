"""Value Zeroing, section 7: rolled-out scores against blank-out, over a dataset and on one sentence.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.data import MASK
from wherefrom.errors import InvalidInput
from wherefrom.model import open_model
from wherefrom.papers.agreement_tuning import fine_tune, measured_examples
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import explained, token_rows
from wherefrom.papers.recipe import RecipeCall, Table, called, number, overall, recipe, reported
from wherefrom.papers.value_zeroing import (
    AGREEMENT,
    BALANCE,
    EXAMPLE,
    GRADIENT_ROWS,
    GRADIENTS,
    MIXING,
    NO_ROLLOUT,
    OPTIONS,
    SAMPLES,
    costly_examples,
    gradient_methods,
    gradient_note,
    sources_of,
)

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place
    from wherefrom.view.plot import Picture

BLANK_OUT = "spearman(signs=reference):ablation"
TABLE3 = reported("""
                     | PT    | FT
Rand                 | -0.01 | 0.00
Attn                 | -0.10 | -0.07
Attn-norm            | 0.19  | 0.14
Attn-norm + RES      | 0.03  | -0.05
Attn-norm + RES + LN | -0.08 | -0.17
GlobEnc              | -0.01 | -0.09
ALTI                 | 0.17  | 0.19
GradXinput           | 0.11  | 0.16
IG                   | 0.07  | 0.21
DL                   | 0.20  | 0.29
Value Zeroing        | 0.26  | 0.31
""")


def aggregated_methods(call: RecipeCall) -> dict[str, str]:
    """Every method rolled out over the layers, or from the embeddings."""
    return {**MIXING, "Attn": "attention-rollout", **gradient_methods(call)}


@recipe(
    "value-zeroing/table3",
    "Spearman's ρ of rolled-out scores with blank-out.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT)",
    reported=TABLE3,
    options=OPTIONS,
    claims=(Claim("Value Zeroing has the highest correlation.", "section 7", best("Value Zeroing"), each=True),),
    **AGREEMENT,
)
def table3(call: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    sources: list[str] = []
    methods = aggregated_methods(call)
    slow = {row: methods[row] for row in ("IG", "DL")}
    quick = {row: methods[row] for row in NO_ROLLOUT if row not in slow}
    tuned = fine_tune(call)
    for column, model in (("PT", call.model), ("FT", tuned.folder)):
        run = call.evaluate(measured_examples(call), quick.values(), [BLANK_OUT], model=model)
        costly = call.evaluate(measured_examples(call, costly_examples(call)), slow.values(), [BLANK_OUT], model=model)
        ours |= {**overall(run, quick, BLANK_OUT, column), **overall(costly, slow, BLANK_OUT, column)}
        sources += sources_of(call, model, run, costly)
    notes = [gradient_note(call), tuned.note]
    return Table(NO_ROLLOUT, ["PT", "FT"], ours, "Mean ± standard deviation of ρ with blank-out", sources, notes)


# One sentence ---------------------------------------------------------------------------------------------


def read_text(call: RecipeCall, text: Any, model: str) -> str:
    """A text with one mask, written as the model has it."""
    mask = open_model(model).mask_token or MASK
    if not isinstance(text, str) or text.count(MASK) + text.count(mask) * (mask != MASK) != 1:
        raise InvalidInput(f"{call.recipe.name} explains the word at a mask; expected a text with one {MASK}: {text!r}")
    return text.replace(MASK, mask)


def most_influential(table: Table, column: str) -> str | None:
    """The token with the highest score, other than the mask and those of other sentences."""
    rows = [row for row in table.rows if MASK not in row]
    scores = [table.mean(row, column) for row in rows]
    return rows[int(np.nanargmax(scores))] if scores and not np.isnan(scores).all() else None


def first_token(columns: Sequence[str], token: str, text: str) -> Claim:
    """Whether these methods put a token of the paper's sentence first; None for another sentence."""

    def holds(table: Table, _: str) -> bool | None:
        if token not in table.rows:
            return None
        return all(most_influential(table, column) == token for column in columns)

    return Claim(text, "section 7, figure 4", holds, tested=False)


def attractor_above_cue(table: Table) -> bool | None:
    if not {"hat", "pictures"} <= set(table.rows):
        return None
    return all(table.mean("hat", row) > table.mean("pictures", row) for row in GRADIENT_ROWS)


def draw_tokens(labels: Sequence[str]) -> Draw:
    """Methods by tokens in color, each method by its largest score; special tokens as all others."""

    def draw(table: Table) -> Picture:
        from wherefrom.view.plot import grid

        scores = table.matrix(labels).T
        scores /= np.abs(scores).max(axis=1, keepdims=True)
        tokens = [label.partition(". ")[2] if len(labels) < len(table.rows) else label for label in labels]
        return grid(scores, list(table.columns), tokens, written=False, width="page")

    return draw


@recipe(
    "value-zeroing/figure4",
    "The most influential tokens for the word at the mask, by rolled-out scores of the fine-tuned model and blank-out.",
    samples="one sentence, target “were”, foil “is”; fine-tuned BERT-base, where “pictures” has a blank-out of 0.99",
    texts=(EXAMPLE,),
    options={"target": "were", "foil": "is", **GRADIENTS, **BALANCE},
    claims=(
        first_token(
            ["Value Zeroing"], "pictures", "By Value Zeroing the model relies mainly on the subject, “pictures”."
        ),
        first_token(["blank-out"], "pictures", "By blank-out “pictures” matters most too."),
        Claim(
            "Without the cue word the model loses its confidence: a blank-out above 0.9.",
            "section 7",
            lambda table, _: table.mean("pictures", "blank-out") > 0.9 if "pictures" in table.rows else None,
            tested=False,
        ),
        Claim(
            "The gradient methods highlight the attractor, “hat”, above the cue word.",
            "section 7",
            lambda table, _: attractor_above_cue(table),
            tested=False,
        ),
        first_token(["Attn"], "[CLS]", "Attention focuses on [CLS]."),
    ),
    **AGREEMENT,
)
def figure4(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    methods = {row: method for row, method in aggregated_methods(call).items() if row != "Rand"}
    methods = {**methods, "blank-out": "ablation"}
    target, foil = call.options["target"], call.options["foil"]
    ours: dict[Place, Summary] = {}
    rows: list[str] = []
    sources, pictures = [], {}
    for place, text in enumerate(call.texts, 1):
        masked = read_text(call, text, tuned.folder)
        found = explained(call, masked, list(methods.values()), tuned.folder, target=target, foil=foil)
        named = dict(zip(methods, found.values(), strict=True))
        several = len(call.texts) > 1
        labels = token_rows(named["blank-out"].pieces, f"{place}. " if several else "")
        rows += labels
        for name, each in named.items():
            scores = each.scores if name == "blank-out" else np.abs(each.scores) / np.abs(each.scores).sum()
            ours |= {(label, name): number(score, 1) for label, score in zip(labels, scores, strict=True)}
        p = named["blank-out"].probabilities
        share = p[target] / (p[target] + p[foil])
        sources.append(
            f"{called(call.model)}, fine-tuned here, on “{text}”: “{target}” rather than “{foil}” with p = {share:.2f}"
        )
        pictures[f"-{place}" if several else ""] = draw_tokens(labels)
    of = "Shares of the scores' magnitude; blank-out: loss of the probability of the target among target and foil"
    notes = [gradient_note(call), tuned.note]
    return Table(rows, list(methods), ours, of, sources, notes, pictures)
