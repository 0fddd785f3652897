"""Quantifying Attention Flow in Transformers: does attention, followed down to the input, point at what matters?

Tables 1 and 2 correlate raw attention, rollout and flow of the readout token with blank-out and with gradients, layer
by layer, for a model of verb number; table 3 does so for a sentiment model on the test set of SST-2. The figures are in
abnar2020_figures.py.

The readout row is read in all three tables, as the text has it; the authors' script for table 3 takes the largest entry
of each column of a map. That script also takes |Σ_k ∂y/∂e_k| for a gradient's size, which is zero but for rounding
behind a LayerNorm (docs/methods.md); here it is the l2 norm, and `norm=sum` or `norm=x-input` where they are wanted.

Some claims of the text come without a measure. Ours:

    almost uniform       evenness (wherefrom/metric/evenness.py) of the readout row is 0.9 or more
    amortized            evenness among the most attended half of the tokens
    focused              evenness over all tokens
    distinctive          what the tokens receive varies (wherefrom/papers/map_shape.py)
    consistent           the person with the larger weight is the one of the more probable pronoun

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. ACL. https://aclanthology.org/2020.acl-main.385
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from wherefrom.data import Dataset, up_to_mask
from wherefrom.papers.claims import Claim, above, all_above, averaged
from wherefrom.papers.figures import curve_picture, layer_curves
from wherefrom.papers.recipe import RecipeCall, Table, by_layer, layers, recipe, reported, used

ROWS = {"Raw": "raw-attention", "Rollout": "attention-rollout", "Flow": "attention-flow"}
BLANK_OUT = "spearman:ablation@layers"
GRADIENTS = {  # by the option `norm`
    "l2": "spearman:saliency@layers",
    "sum": "spearman:saliency(norm=sum)@layers",
    "x-input": "spearman:gradient-x-input@layers",
}
SIZES = {"l2": "‖gradient‖₂", "sum": "|Σ gradient|", "x-input": "|gradient · input|"}
NORM = {"norm": tuple(GRADIENTS)}
VERB_NUMBER = {"model": "wherefrom/agreement", "data": ("linzen_lgd",), "spare": "grammar:distractor", "limit": 300}
UNIFORM = 0.9  # evenness from which we call attention almost uniform
LOW = 0.2  # correlation below which we call it very low

TABLE1 = reported("""
        | L1          | L2          | L3           | L4           | L5          | L6
Raw     | 0.69 ± 0.27 | 0.10 ± 0.43 | -0.11 ± 0.49 | -0.09 ± 0.52 | 0.20 ± 0.45 | 0.29 ± 0.39
Rollout | 0.32 ± 0.26 | 0.38 ± 0.27 | 0.51 ± 0.26  | 0.62 ± 0.26  | 0.70 ± 0.25 | 0.71 ± 0.24
Flow    | 0.32 ± 0.26 | 0.44 ± 0.29 | 0.70 ± 0.25  | 0.70 ± 0.22  | 0.71 ± 0.22 | 0.70 ± 0.22
""")
TABLE2 = reported("""
        | L1          | L2          | L3           | L4           | L5          | L6
Raw     | 0.53 ± 0.33 | 0.16 ± 0.38 | -0.06 ± 0.42 | 0.00 ± 0.47  | 0.24 ± 0.40 | 0.46 ± 0.35
Rollout | 0.22 ± 0.31 | 0.27 ± 0.32 | 0.39 ± 0.32  | 0.47 ± 0.32  | 0.53 ± 0.32 | 0.54 ± 0.31
Flow    | 0.22 ± 0.31 | 0.31 ± 0.34 | 0.54 ± 0.32  | 0.61 ± 0.28  | 0.60 ± 0.28 | 0.61 ± 0.28
""")
TABLE3 = reported("""
        | L1          | L3          | L5          | L6          | last
Raw     | 0.12 ± 0.21 | 0.09 ± 0.21 | 0.08 ± 0.20 | 0.09 ± 0.21 | 0.09 ± 0.21
Rollout | 0.11 ± 0.19 | 0.12 ± 0.21 | 0.13 ± 0.21 | 0.13 ± 0.20 | 0.13 ± 0.20
Flow    | 0.11 ± 0.19 | 0.11 ± 0.21 | 0.12 ± 0.22 | 0.14 ± 0.21 | 0.14 ± 0.21
""")


# Tables ---------------------------------------------------------------------------------------------------


def above_raw(row: str) -> Claim:
    def holds(table: Table, _: str) -> bool | None:
        upper = [column for column in table.columns if column != "last"][len(table.columns) // 2 :]
        return above(table, row, "Raw", upper)

    return Claim(f"{row} agrees better than raw attention, in every layer of the upper half.", "section 4", holds)


def _raw_is_best_in_the_first_layer(table: Table, _: str) -> bool | None:
    first, *others = layers(table.ours)
    return all_above((table.ours.get(("Raw", first)), table.ours.get(("Raw", other))) for other in others)


def _first_layers_are_equal(table: Table, _: str) -> bool | None:
    difference = table.mean("Rollout", "L1") - table.mean("Flow", "L1")
    return None if np.isnan(difference) else abs(difference) < 0.005


ABOVE_RAW = (above_raw("Rollout"), above_raw("Flow"))
FLOW_FIRST = Claim(  # "attention flow weights are more reliable", of tables 1 and 2
    "Flow agrees better than rollout, on average over the layers.",
    "section 4",
    lambda table, _: all_above([(averaged(table, "Flow"), averaged(table, "Rollout"))]),
)
FIRST_LAYER = Claim(
    "Raw attention agrees better in the first layer than in any other.", "section 2", _raw_is_best_in_the_first_layer
)
SAME_FIRST = Claim(
    "In the first layer rollout and flow are the same.", "section 4", _first_layers_are_equal, tested=False
)
VERY_LOW = Claim(
    f"All three methods have a very low correlation with gradients (below {LOW} in every layer).",
    "section 4",
    lambda table, _: bool((np.abs(table.matrix(columns=layers(table.ours))) < LOW).all()),
    tested=False,
)


def layer_table(call: RecipeCall, metric: str, of: str, change: Callable[[Dataset], Dataset] | None = None) -> Table:
    """One correlation layer by layer. Tables 1 and 2 share the run of their default metrics."""
    shared = [BLANK_OUT, GRADIENTS["l2"]]
    metrics = shared if metric in shared and change is not None else [metric]
    run = call.evaluate(
        call.examples(change=change), ROWS.values(), metrics, target="label", model=call.model_for(call.only)
    )
    return layer_curves(run, ROWS, metric, of, call.recipe.reported, y_label="Spearman's ρ")


def gradient_table(call: RecipeCall, change: Callable[[Dataset], Dataset] | None = None) -> Table:
    norm = call.options["norm"]
    return layer_table(call, GRADIENTS[norm], f"ρ with {SIZES[norm]} of the gold class", change)


@recipe(
    "abnar2020/table1",
    "Spearman's ρ of what the readout token draws on with blank-out scores, by layer (verb number).",
    samples="2000 samples of Linzen's test set; GPT-2 blocks without mask, 6 layers, accuracy 0.96",
    reported=TABLE1,
    claims=(*ABOVE_RAW, FLOW_FIRST, FIRST_LAYER, SAME_FIRST),
    **VERB_NUMBER,
)
def table1(call: RecipeCall) -> Table:
    return layer_table(call, BLANK_OUT, "ρ with |blank-out| of the gold class", up_to_mask)


@recipe(
    "abnar2020/table2",
    "Spearman's ρ of what the readout token draws on with input gradients, by layer (verb number).",
    samples="2000 samples of Linzen's test set; GPT-2 blocks without mask, 6 layers, accuracy 0.96",
    reported=TABLE2,
    claims=(*ABOVE_RAW, FLOW_FIRST, FIRST_LAYER, SAME_FIRST),
    options=NORM,
    **VERB_NUMBER,
)
def table2(call: RecipeCall) -> Table:
    return gradient_table(call, up_to_mask)


@recipe(
    "abnar2020/table3",
    "Spearman's ρ of what [CLS] draws on with input gradients, by layer (sentiment).",
    samples="100 samples of SST-2's test set; DistilBERT, 6 layers",
    data=("sst2",),
    spare="own",
    limit=100,
    reported=TABLE3,
    claims=(*ABOVE_RAW, VERY_LOW),
    options=NORM,
)
def table3(call: RecipeCall) -> Table:
    named = [name for name in call.data if name in call.recipe.data]  # a file of the user's has no such split
    return gradient_table(replace(call, split=call.split or "test") if named else call)


# Attention over the dataset -------------------------------------------------------------------------------

EVENNESS, TOP_HALF = "evenness@layers", "evenness(top=0.5)@layers"


def top_half(row: str) -> str:
    return f"{row}, top half"


def _raw_is_almost_uniform(table: Table, _: str) -> bool | None:
    found = [table.ours["Raw", column] for column in layers(table.ours)[3:]]
    if not found:
        return None
    if any(each.mean + each.interval < UNIFORM for each in found):
        return False
    return True if all(each.mean - each.interval >= UNIFORM for each in found) else None


def _last_layer_above(upper: str, *lower: str) -> Callable[[Table, str], bool | None]:
    def holds(table: Table, _: str) -> bool | None:
        last = layers(table.ours)[-1]
        return all_above((table.ours.get((upper, last)), table.ours.get((row, last))) for row in lower)

    return holds


@recipe(
    "abnar2020/evenness",
    "How evenly the readout token spreads its attention, over all tokens and over the most attended half, by layer.",
    samples="stated without a measure, of the three sentences of figures 2 and 3",
    claims=(
        Claim(
            f"Above layer three raw attention is almost uniform (evenness of at least {UNIFORM}).",
            "section 4",
            _raw_is_almost_uniform,
        ),
        Claim(
            "In the last layer the patterns of rollout and flow are more distinctive than raw attention (less even).",
            "section 4",
            _last_layer_above("Raw", "Rollout", "Flow"),
        ),
        Claim(
            "Flow is amortized among the most attended tokens: there it is more even than rollout, in the last layer.",
            "section 4",
            _last_layer_above(top_half("Flow"), top_half("Rollout")),
        ),
        Claim(
            "Rollout is more focused than flow (less even), in the last layer.",
            "section 4",
            _last_layer_above("Flow", "Rollout"),
        ),
    ),
    **VERB_NUMBER,
)
def dataset_evenness(call: RecipeCall) -> Table:
    run = call.evaluate(
        call.examples(change=up_to_mask), ROWS.values(), [EVENNESS, TOP_HALF], model=call.model_for(call.only)
    )
    halves = {top_half(row): method for row, method in ROWS.items()}
    ours = by_layer(run, ROWS, EVENNESS) | by_layer(run, halves, TOP_HALF)
    columns = layers(ours)
    pictures = {
        "": curve_picture(ours, list(ROWS), columns, y_label="evenness"),
        "-top": curve_picture(ours, list(halves), columns, y_label="evenness of the top half"),
    }
    of = "Evenness of the readout row (normalized entropy; 1 is uniform), mean ± standard deviation"
    return Table([*ROWS, *halves], columns, ours, of, [used(run)], pictures=pictures)
