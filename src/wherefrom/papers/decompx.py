"""DecompX: is the answer taken apart token by token more faithful than gradients, norms and attention?

Tokens are replaced by [MASK], 10 to 90 % of those that the tokenizer did not add itself, the highest-scored first, and
three things are looked at: how far the probability of the prediction falls (AOPC, their equation 15), how often the
prediction is still right (accuracy), and how often the highest-scored tokens alone, all others masked, keep it
(prediction performance). Each is the mean over the nine shares; one run measures all three. The prediction is always
that of the explained model: none is trained on the tokens that are kept.

The numbers that the paper prints are not at hand, and none stand beside ours.

Modarressi et al. (2023), DecompX: Explaining Transformers Decisions by Propagating Token Decomposition. ACL.
https://arxiv.org/abs/2306.02873
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import bar_picture
from wherefrom.papers.recipe import RecipeCall, Table, overall, recipe, used

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

ROWS = {
    "Gradient×Input": "gradient-x-input",
    "Integrated Gradients": "integrated-gradients",
    "Rollout": "attention-rollout",
    "GlobEnc": "globenc",
    "ALTI": "alti",
    "DecompX": "decompx",
}
OURS = {"DecompX without biases": "decompx(bias=none)", "Random": "random"}  # beside the paper's
SHARES = "shares=[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]"
AOPC = f"comprehensiveness(by=mask, {SHARES})"
ACCURACY = "masked-accuracy"
PERFORMANCE = "prediction-performance"
METRICS = [AOPC, ACCURACY, PERFORMANCE]
COMMON = {
    "samples": "SST-2 and other datasets, a fine-tuned BERT",
    "at_hand": False,
    "data": ("sst2",),
    "spare": "own",
    "limit": 100,
    "columns": {"sst2": "SST2", "mnli": "MNLI", "qnli": "QNLI", "hatexplain": "HateXplain"},
}


def table(asked: RecipeCall, metric: str, of: str) -> Table:
    """One metric, a column for each dataset, from the run that all three recipes share."""
    rows = ROWS | OURS
    ours: dict[Place, Summary] = {}
    columns, said = [], []
    for name in asked.data:
        run = asked.evaluate(asked.examples(name), rows.values(), METRICS)
        said.append(used(run))
        columns.append(asked.column(name))
        ours |= overall(run, rows, metric, columns[-1])
    return Table(list(rows), columns, ours, of, said, [], {"": bar_picture(ours, list(rows), columns[0])})


def ahead(*, lowest: bool = False) -> tuple[Claim, ...]:
    says = "DecompX outperforms gradients and the other methods that look at vectors."
    others = ("Gradient×Input", "Integrated Gradients", "GlobEnc", "ALTI")
    return (Claim(says, "abstract", best("DecompX", *others, lowest=lowest), each=True),)


@recipe(
    "decompx/aopc",
    "How far the prediction's probability falls with 10 to 90 % of the tokens masked, on average.",
    claims=ahead(),
    **COMMON,
)
def aopc(asked: RecipeCall) -> Table:
    return table(asked, AOPC, "Mean ± standard deviation of the drop; higher is better")


@recipe(
    "decompx/accuracy",
    "How often the prediction is right with 10 to 90 % of the tokens masked, on average.",
    claims=ahead(lowest=True),
    **COMMON,
)
def accuracy(asked: RecipeCall) -> Table:
    return table(asked, ACCURACY, "Mean ± standard deviation of the share that is right; lower is better")


@recipe(
    "decompx/prediction-performance",
    "How often the top 10 to 90 % of the tokens alone, the others masked, keep the prediction, on average.",
    claims=ahead(),
    **COMMON,
)
def prediction_performance(asked: RecipeCall) -> Table:
    return table(asked, PERFORMANCE, "Mean ± standard deviation of the share that is kept; higher is better")
