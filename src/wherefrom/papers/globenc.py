"""GlobEnc: which parts of an encoder block must be taken in, for its rollout to agree with gradients?

Table 1 and figure 3 correlate eight ways to weigh tokens, rolled out, with saliency ‖∂y_c/∂e_i ⊙ e_i‖ of the true class
(equation 17); table 2 sets single layers beside their rollout; figure 4 compares single maps with HTA × inputs.

Modarressi et al. (2022), GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in
Transformers. NAACL. https://aclanthology.org/2022.naacl-main.19
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wherefrom.analysis import norm_outliers
from wherefrom.papers.claims import Claim, all_above, averaged, best, nearly_all, rising
from wherefrom.papers.figures import layer_curves, token_table
from wherefrom.papers.recipe import (
    RecipeCall,
    Table,
    by_layer,
    layers,
    number,
    overall,
    recipe,
    reported,
    used,
)

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place
    from wherefrom.view.plot import Picture

ROWS = {
    "W": "attention",
    "W_FixedRes": "attention-fixed-residual",
    "W_Res": "attention-residual",
    "N": "norm",
    "N_FixedRes": "norm-fixed-residual",
    "N_Res": "norm-residual",
    "N_ResLN": "norm-residual-ln",
    "N_Enc": "globenc",
}
ALONE = {f"{row} indiv.": f"{ROWS[row]}(aggregate=None)" for row in ("N", "N_Res", "N_Enc")}
ROLLED = {f"{row} rollout": ROWS[row] for row in ("N", "N_Res", "N_Enc")}
SALIENCY = "gradient-x-input(norm=l2)"
TOGETHER, LAYERWISE = f"spearman:{SALIENCY}", f"spearman:{SALIENCY}@layers"
DATASETS = {"sst2": "SST2", "mnli": "MNLI", "hatexplain": "HateXplain"}
SENTENCES = ("a deep and meaningful film .", "big fat waste of time .")

TABLE1 = reported("""
           | SST2         | MNLI         | HateXplain
W          | -0.11 ± 0.26 | -0.06 ± 0.22 | 0.12 ± 0.26
W_FixedRes | -0.24 ± 0.26 | -0.05 ± 0.26 | 0.13 ± 0.28
W_Res      | 0.19 ± 0.26  | 0.27 ± 0.25  | 0.53 ± 0.24
N          | 0.44 ± 0.20  | 0.47 ± 0.16  | 0.43 ± 0.22
N_FixedRes | 0.48 ± 0.20  | 0.55 ± 0.16  | 0.48 ± 0.22
N_Res      | 0.73 ± 0.13  | 0.75 ± 0.10  | 0.66 ± 0.17
N_ResLN    | -0.21 ± 0.26 | -0.06 ± 0.26 | 0.08 ± 0.28
N_Enc      | 0.77 ± 0.12  | 0.78 ± 0.09  | 0.72 ± 0.17
""")
TABLE2 = reported("""
              | first        | middle      | last        | MAX
N indiv.      | -0.50 ± 0.18 | 0.28 ± 0.23 | 0.40 ± 0.21 | 0.41 ± 0.21
N_Res indiv.  | -0.48 ± 0.18 | 0.29 ± 0.24 | 0.41 ± 0.19 | 0.41 ± 0.19
N_Enc indiv.  | -0.47 ± 0.18 | 0.29 ± 0.24 | 0.41 ± 0.19 | 0.41 ± 0.19
N rollout     | -0.50 ± 0.18 | 0.44 ± 0.20 | 0.44 ± 0.20 | 0.44 ± 0.20
N_Res rollout | -0.48 ± 0.18 | 0.70 ± 0.14 | 0.73 ± 0.13 | 0.73 ± 0.13
N_Enc rollout | -0.47 ± 0.18 | 0.74 ± 0.14 | 0.77 ± 0.12 | 0.78 ± 0.12
""")


ORDERING = Claim("W < N < N_Res < N_Enc.", "sections 4.5.1 to 4.5.3", rising("W", "N", "N_Res", "N_Enc"), each=True)
RATIO = Claim("W_FixedRes < W_Res.", "section 4.5.2", rising("W_FixedRes", "W_Res"), each=True)
DROP = Claim("N_ResLN drops below N_Res.", "section 4.5.3", rising("N_ResLN", "N_Res"), each=True)


@recipe(
    "globenc/table1",
    "Spearman's ρ of rolled-out attributions of [CLS] with saliency, one part of the block after another.",
    samples="the whole validation sets of SST-2 (872), MNLI and HateXplain; BERT-base fine-tuned on each",
    data=("sst2",),
    spare="own",
    limit=300,
    columns=DATASETS,
    reported=TABLE1,
    claims=(ORDERING, RATIO, DROP),
)
def table1(asked: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    runs = []
    for name in asked.data:
        runs.append(asked.evaluate(asked.examples(name), ROWS.values(), [TOGETHER, LAYERWISE], target="label"))
        ours |= overall(runs[-1], ROWS, TOGETHER, asked.column(name))
    columns = [asked.column(name) for name in asked.data]
    return Table(list(ROWS), columns, ours, "Mean ± standard deviation of ρ with saliency", [used(run) for run in runs])


@recipe(
    "globenc/table2",
    "Spearman's ρ with saliency of single layers and of their rollout.",
    samples="the validation set of SST-2 (872); BERT-base, layers 1, 6, 12 and the best of all",
    data=("sst2",),
    spare="own",
    limit=300,
    reported=TABLE2,
    claims=(
        Claim(
            "In the last layer, rollout is above the single layer for N, N_Res and N_Enc.",
            "section 4.5.4",
            lambda table, _: all_above(
                (table.ours.get((f"{row} rollout", "last")), table.ours.get((f"{row} indiv.", "last")))
                for row in ("N", "N_Res", "N_Enc")
            ),
        ),
    ),
)
def table2(asked: RecipeCall) -> Table:
    rows = {**ALONE, **ROLLED}
    run = asked.evaluate(asked.examples(), rows.values(), [LAYERWISE], target="label")
    found = by_layer(run, rows, LAYERWISE)
    depth = len(layers(found))
    ours: dict[Place, Summary] = {}
    for row in rows:
        every = [found[row, f"L{layer}"] for layer in range(1, depth + 1)]
        chosen = {"first": every[0], "middle": every[depth // 2 - 1 if depth > 1 else 0], "last": every[-1]}
        chosen["MAX"] = max(every, key=lambda each: each.mean)
        ours |= {(row, column): each for column, each in chosen.items()}
    notes = [f"Ours has {depth} layers: first, middle and last are 1, {max(1, depth // 2)} and {depth}."]
    columns = ["first", "middle", "last", "MAX"]
    return Table(list(rows), columns, ours, "Mean ± standard deviation of ρ with saliency", [used(run)], notes)


@recipe(
    "globenc/figure1",
    "What [CLS] holds of every token up to each layer, by GlobEnc.",
    samples="two sentences of SST-2, both classified correctly; BERT-base",
)
def figure1(asked: RecipeCall) -> Table:
    of = "Shares of what the readout token draws on in the last layer"  # a rollout of norms grows beyond any measure
    return token_table(asked, SENTENCES, {"N_Enc": "globenc"}, "layers", of, shares=True)


@recipe(
    "globenc/figure3",
    "Spearman's ρ of rolled-out attributions with saliency, layer by layer.",
    samples="the validation sets of SST-2, MNLI and HateXplain; BERT-base, 12 layers, 99 % intervals",
    data=("sst2",),
    spare="own",
    limit=300,
    claims=(
        Claim(
            "N_Enc has the highest correlation in almost every layer (nine of ten).",
            "figure 3",
            lambda table, _: nearly_all(best("N_Enc")(table, column) for column in table.columns),
        ),
    ),
)
def figure3(asked: RecipeCall) -> Table:
    run = asked.evaluate(asked.examples(), ROWS.values(), [TOGETHER, LAYERWISE], target="label")
    return layer_curves(run, ROWS, LAYERWISE, "ρ with saliency", y_label="Spearman's ρ", width="page")


@recipe(
    "globenc/figure4",
    "Pearson's r of single layers' maps with HTA × inputs.",
    samples="256 examples of SST-2's validation set; BERT-base, 12 layers, 99 % intervals",
    data=("sst2",),
    spare="own",
    limit=64,
    claims=(
        Claim(
            "N_ResLN has less to do with HTA than N_Res and N_Enc, on average over the layers.",
            "section 4.5.3",
            lambda table, _: all_above(
                (averaged(table, row), averaged(table, "N_ResLN")) for row in ("N_Res", "N_Enc")
            ),
        ),
    ),
)
def figure4(asked: RecipeCall) -> Table:
    rows = {row: ROWS[row] for row in ("N_Res", "N_ResLN", "N_Enc")}
    metric = "pearson:hta-x-input"
    run = asked.evaluate(asked.examples(), rows.values(), [metric], target="label")
    return layer_curves(run, rows, metric, "r with HTA × inputs", y_label="Pearson's r")


@recipe(
    "globenc/figure5",
    "Outlying weights of a block's two LayerNorms: do they work against each other?",
    samples="the weights of BERT-base fine-tuned on SST-2; large negative correlations",
    claims=(
        Claim(
            "The outliers of the two norms are negatively correlated in most layers.",
            "section 4.5.3",
            lambda table, _: bool(np.nanmean(np.sign(table.matrix(columns=["correlation"]))) < 0),
            tested=False,
        ),
    ),
)
def figure5(asked: RecipeCall) -> Table:
    found = norm_outliers(asked.model)
    rows = {f"L{each.layer + 1} ({len(each.first)} outliers)": each for each in found}
    ours = {(row, "correlation"): number(each.correlation, len(each.first)) for row, each in rows.items()}

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import outliers

        return outliers(found)

    of = "Pearson's r of the two norms' γ in the outlying dimensions"
    return Table(list(rows), ["correlation"], ours, of, [f"the weights of {asked.model}"], [], {"": draw})
