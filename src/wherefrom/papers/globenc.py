"""GlobEnc: which parts of an encoder block must be taken in, for its rollout to agree with gradients?

Table 1 and figure 3 correlate eight ways to weigh tokens, rolled out, with saliency ‖∂y_c/∂e_i ⊙ e_i‖ of the true class
(equation 17); tables A.1 and A.2 are table 1 of BERT-large and ELECTRA; table 2 sets single layers beside their
rollout; figure 4 compares single maps with HTA × inputs. Figures of single texts are in globenc_figures.py.

Numbers of a model of another family than the paper's stand in a column of their own, without the paper's beside them.

Modarressi et al. (2022), GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in
Transformers. NAACL. https://aclanthology.org/2022.naacl-main.19
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from wherefrom.analysis import norm_outliers
from wherefrom.errors import InvalidOption
from wherefrom.model import open_model
from wherefrom.papers.claims import Claim, all_above, averaged, best, nearly_all, rising
from wherefrom.papers.figures import layer_curves
from wherefrom.papers.recipe import RecipeCall, Table, by_layer, called, layers, number, overall, recipe, reported, used
from wherefrom.papers.samples import refuse_foreign_labels

if TYPE_CHECKING:
    from wherefrom.evaluation import Run
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
BERT, BERT_LARGE, ELECTRA = "BERT", "BERT-large", "ELECTRA"
TABLES = {BERT: "table1", BERT_LARGE: "table-a1", ELECTRA: "table-a2"}  # correlations of each family
LARGE = 1024  # hidden size from which a BERT is a large one

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
TABLE_A1 = reported("""
           | SST2         | MNLI         | HateXplain
W          | -0.38 ± 0.16 | -0.61 ± 0.14 | -0.41 ± 0.25
W_FixedRes | -0.25 ± 0.19 | -0.48 ± 0.19 | -0.21 ± 0.30
W_Res      | -0.10 ± 0.21 | 0.33 ± 0.23  | 0.09 ± 0.30
N          | 0.44 ± 0.24  | 0.13 ± 0.27  | 0.48 ± 0.25
N_FixedRes | 0.49 ± 0.24  | 0.26 ± 0.25  | 0.49 ± 0.30
N_Res      | 0.77 ± 0.11  | 0.66 ± 0.12  | 0.73 ± 0.16
N_ResLN    | -0.07 ± 0.23 | -0.35 ± 0.24 | 0.06 ± 0.32
N_Enc      | 0.83 ± 0.08  | 0.77 ± 0.09  | 0.76 ± 0.17
""")
TABLE_A2 = reported("""
           | SST2         | MNLI         | HateXplain
W          | -0.37 ± 0.19 | -0.31 ± 0.22 | 0.02 ± 0.29
W_FixedRes | -0.37 ± 0.19 | -0.24 ± 0.23 | 0.01 ± 0.29
W_Res      | -0.10 ± 0.22 | 0.08 ± 0.25  | 0.20 ± 0.27
N          | 0.18 ± 0.21  | 0.12 ± 0.21  | 0.21 ± 0.26
N_FixedRes | 0.23 ± 0.22  | 0.32 ± 0.23  | 0.28 ± 0.26
N_Res      | 0.54 ± 0.17  | 0.54 ± 0.14  | 0.44 ± 0.21
N_ResLN    | -0.24 ± 0.23 | -0.16 ± 0.24 | -0.07 ± 0.28
N_Enc      | 0.64 ± 0.15  | 0.68 ± 0.12  | 0.47 ± 0.22
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


def family_of(model: str) -> str:
    """The family of a model, as the paper names it where it has the family."""
    opened = open_model(model)
    name = opened.family.name
    if name == "bert":
        return BERT_LARGE if opened.config.hidden_size >= LARGE else BERT
    return {"electra": ELECTRA}.get(name, name)


def heading(column: str, model: str, family: str = BERT) -> str:
    """The paper's column, or one of its own for a model of another family."""
    own = family_of(model)
    return column if own == family else f"{column} {own}"


ORDERING = Claim("W < N < N_Res < N_Enc.", "sections 4.5.1 to 4.5.3", rising("W", "N", "N_Res", "N_Enc"), each=True)
RATIO = Claim("W_FixedRes < W_Res.", "section 4.5.2", rising("W_FixedRes", "W_Res"), each=True)
FIXED = Claim("N < N_FixedRes.", "section 4.5.2", rising("N", "N_FixedRes"), each=True)
DROP = Claim("N_ResLN drops below N_Res.", "section 4.5.3", rising("N_ResLN", "N_Res"), each=True)
WITHOUT_NORM = Claim(
    "Without layer norm, N_Res has the highest correlation: above W, W_FixedRes, W_Res, N and N_FixedRes.",
    "section 4.5.2",
    best("N_Res", "W", "W_FixedRes", "W_Res", "N", "N_FixedRes"),
    each=True,
)
BEST = Claim("N_Enc has the highest correlation of all.", "section 4.5", best("N_Enc"), each=True)
TABLE1_DATA = {"data": ("sst2", "mnli", "hatexplain"), "spare": "own", "limit": 300, "columns": DATASETS, "joins": True}
EVERY_SET = "the whole validation sets of SST-2 (872), MNLI and HateXplain"


def measured(call: RecipeCall, name: str, metric: str, methods: dict[str, str] | None = None) -> Run:
    """A run on one dataset, by its model. Table 1 and figure 3 share theirs."""
    metrics = [TOGETHER, LAYERWISE] if metric in (TOGETHER, LAYERWISE) and methods is None else [metric]
    model = call.model_for(name)
    return call.evaluate(call.examples(name), (methods or ROWS).values(), metrics, target="label", model=model)


def fitting_data(call: RecipeCall) -> tuple[list[str], list[str]]:
    """The datasets whose labels fit their model, and a note about the others; where none fits, all of them."""
    fits, notes = [], []
    for name in call.data:
        model = call.model_for(name)
        try:
            refuse_foreign_labels(model, call.read(name), call.names)
        except InvalidOption:
            notes.append(
                f"{model} was not measured on {name}, which has other labels; name a model: --model {name}=MODEL."
            )
        else:
            fits.append(name)
    return (fits, notes) if fits else (list(call.data), [])


def correlation_table(call: RecipeCall, family: str) -> Table:
    """Table 1 for one family: refused to a family that has a table of its own, which holds its numbers."""
    ours: dict[Place, Summary] = {}
    lines: dict[str, str] = {}
    names, notes = fitting_data(call)
    families = {name: family_of(call.model_for(name)) for name in names}
    for name, own in families.items():
        model = call.model_for(name)
        if own != family and own in TABLES:
            if model != call.recipe.model:
                raise InvalidOption(
                    f"{model} is a {own}, and {call.recipe.name} is of {family}; the table of {own} is "
                    f"globenc/{TABLES[own]}"
                )
            notes.append(
                f"{model} stands in for {family}; name a model of each dataset: --model sst2=MODEL,mnli=MODEL."
            )
        column = heading(call.column(name), model, family)
        run = measured(call, name, TOGETHER)
        ours |= overall(run, ROWS, TOGETHER, column)
        lines[column] = used(run)
    of = "Mean ± standard deviation of ρ with saliency"
    reports = any(own in TABLES for own in families.values())
    return Table(list(ROWS), list(lines), ours, of, lines, list(dict.fromkeys(notes)), comparable=reports)


@recipe(
    "globenc/table1",
    "Spearman's ρ of rolled-out attributions of [CLS] with saliency, one part of the block after another.",
    samples=f"{EVERY_SET}; BERT-base fine-tuned on each",
    reported=TABLE1,
    claims=(ORDERING, RATIO, FIXED, WITHOUT_NORM, DROP, BEST),
    **TABLE1_DATA,
)
def table1(call: RecipeCall) -> Table:
    return correlation_table(call, BERT)


APPENDIX_BEST = Claim("N_Enc outperforms the other methods.", "appendix A.2", best("N_Enc"), each=True)


@recipe(
    "globenc/table-a1",
    "Table 1 for BERT-large: Spearman's ρ of rolled-out attributions of [CLS] with saliency.",
    samples=f"{EVERY_SET}, of MNLI 1024 examples; BERT-large fine-tuned on each",
    reported=TABLE_A1,
    claims=(APPENDIX_BEST,),
    **TABLE1_DATA,
)
def table_a1(call: RecipeCall) -> Table:
    return correlation_table(call, BERT_LARGE)


@recipe(
    "globenc/table-a2",
    "Table 1 for ELECTRA: Spearman's ρ of rolled-out attributions of [CLS] with saliency.",
    samples=f"{EVERY_SET}; ELECTRA-base fine-tuned on each",
    reported=TABLE_A2,
    claims=(APPENDIX_BEST,),
    **TABLE1_DATA,
)
def table_a2(call: RecipeCall) -> Table:
    return correlation_table(call, ELECTRA)


def _rollout_is_above(table: Table, column: str) -> bool | None:
    rows = ("N", "N_Res", "N_Enc")
    return all_above(
        (table.ours.get((f"{row} rollout", column)), table.ours.get((f"{row} indiv.", column))) for row in rows
    )


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
            lambda table, _: _rollout_is_above(table, table.columns[2]),
        ),
        Claim(
            "The best layer of rollout is above the best single layer for N, N_Res and N_Enc.",
            "table 2",
            lambda table, _: _rollout_is_above(table, table.columns[3]),
        ),
    ),
)
def table2(call: RecipeCall) -> Table:
    rows, name = {**ALONE, **ROLLED}, call.only
    run = measured(call, name, LAYERWISE, rows)
    found = by_layer(run, rows, LAYERWISE)
    depth = len(layers(found))
    columns = {column: heading(column, call.model_for(name)) for column in ("first", "middle", "last", "MAX")}
    ours: dict[Place, Summary] = {}
    for row in rows:
        every = [found[row, f"L{layer}"] for layer in range(1, depth + 1)]
        chosen = {"first": every[0], "middle": every[depth // 2 - 1 if depth > 1 else 0], "last": every[-1]}
        chosen["MAX"] = max(every, key=lambda each: each.mean)
        ours |= {(row, columns[column]): each for column, each in chosen.items()}
    notes = [f"Ours has {depth} layers: first, middle and last are 1, {max(1, depth // 2)} and {depth}."]
    of = "Mean ± standard deviation of ρ with saliency"
    comparable = family_of(call.model_for(name)) == BERT
    return Table(list(rows), list(columns.values()), ours, of, [used(run)], notes, comparable=comparable)


def panels(table: Table) -> dict[str, list[str]]:
    """The columns of each dataset: "SST2 L1", "SST2 L2", …"""
    found: dict[str, list[str]] = {}
    for column in table.columns:
        found.setdefault(column.rpartition(" L")[0], []).append(column)
    return found


def _draw_panels(table: Table) -> Picture:
    from wherefrom.view.plot import Series, curve_panels

    return curve_panels(
        {name: {row: Series.of(table.ours[row, column] for column in columns) for row in table.rows}
         for name, columns in panels(table).items()},
        y_label="Spearman's ρ",
    )  # fmt: skip


def _norms_are_above_weights(table: Table, _: str) -> bool | None:
    pairs = (("N", "W"), ("N_Res", "W_Res"))
    return nearly_all(
        all_above([(table.ours.get((norm, column)), table.ours.get((weight, column)))])
        for norm, weight in pairs
        for column in table.columns
    )


FLAT = 0.1  # how far a flat curve may still lie from where it ends


def _curves_are_flat(table: Table, _: str) -> bool:
    """From a third of the depth on."""
    rows = ("N", "N_FixedRes", "N_Res", "N_Enc")
    ends = [table.matrix(rows, columns[len(columns) // 3 :]) for columns in panels(table).values()]
    return all(bool((np.abs(end - end[:, -1:]) <= FLAT).all()) for end in ends)


def _corrected_weights_rise(table: Table, _: str) -> bool | None:
    means = [table.matrix(["W_Res"], columns)[0] for columns in panels(table).values()]
    return nearly_all(bool(after > before) for row in means for before, after in pairwise(row))


@recipe(
    "globenc/figure3",
    "Spearman's ρ of rolled-out attributions with saliency, layer by layer, a panel for each dataset.",
    samples="the validation sets of SST-2, MNLI and HateXplain; BERT-base, 12 layers, 99 % intervals",
    claims=(
        Claim(
            "N_Enc has the highest correlation in almost every layer (nine of ten).",
            "figure 3",
            lambda table, _: nearly_all(best("N_Enc")(table, column) for column in table.columns),
        ),
        Claim(
            "N is above W, and N_Res above W_Res, in almost every layer (nine of ten).",
            "section 4.5.1",
            _norms_are_above_weights,
        ),
        Claim(
            f"The curves of N, N_FixedRes, N_Res and N_Enc are flat after a third of the layers (within {FLAT}).",
            "section 4.5.4",
            _curves_are_flat,
            tested=False,
        ),
        Claim(
            "W_Res rises constantly (from layer to layer in nine of ten).",
            "section 4.5.4",
            _corrected_weights_rise,
            tested=False,
        ),
    ),
    **TABLE1_DATA,
)
def figure3(call: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    lines: dict[str, str] = {}
    names, notes = fitting_data(call)
    for name in names:
        run = measured(call, name, LAYERWISE)
        title = heading(call.column(name), call.model_for(name))
        found = {(row, f"{title} {column}"): each for (row, column), each in by_layer(run, ROWS, LAYERWISE).items()}
        lines |= dict.fromkeys((column for _, column in found), used(run))
        ours |= found
    of = "Mean ± standard deviation of ρ with saliency"
    return Table(list(ROWS), list(lines), ours, of, lines, notes, {"": _draw_panels})


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
        Claim(
            "In single layers N_Enc is more accurate than N_Res and N_ResLN, on average over the layers.",
            "section 6",
            lambda table, _: all_above(
                (averaged(table, "N_Enc"), averaged(table, row)) for row in ("N_Res", "N_ResLN")
            ),
        ),
    ),
)
def figure4(call: RecipeCall) -> Table:
    rows = {row: ROWS[row] for row in ("N_Res", "N_ResLN", "N_Enc")}
    metric = "pearson:hta-x-input"
    run = measured(call, call.only, metric, rows)
    return layer_curves(run, rows, metric, "r with HTA × inputs", y_label="Pearson's r")


def _outliers_are_opposed(table: Table, _: str) -> bool | None:
    correlations = table.matrix(columns=["correlation"])
    known = correlations[~np.isnan(correlations)]
    return bool((known < 0).mean() > 0.5) if len(known) else None


@recipe(
    "globenc/figure5",
    "Outlying weights of a block's two LayerNorms: do they work against each other?",
    samples="the weights of BERT-base fine-tuned on SST-2; large negative correlations",
    model_of="sst2",
    claims=(
        Claim(
            "The outliers of the two norms are negatively correlated in most layers.",
            "section 4.5.3",
            _outliers_are_opposed,
            tested=False,
        ),
    ),
)
def figure5(call: RecipeCall) -> Table:
    found = norm_outliers(call.model)
    rows = {f"L{each.layer + 1} ({len(each.first)} outliers)": each for each in found}
    ours = {(row, "correlation"): number(each.correlation, len(each.first)) for row, each in rows.items()}

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import outliers

        return outliers(found)

    of = "Pearson's r of the two norms' γ in the outlying dimensions"
    return Table(list(rows), ["correlation"], ours, of, [f"the weights of {called(call.model)}"], [], {"": draw})
