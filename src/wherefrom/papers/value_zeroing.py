"""Value Zeroing: which methods see the words that decide between target and foil at a mask?

Table 1 lists the data and how often the models are right. Figures 1 and 2 give the share of the scores on cue words,
and their average precision, in every layer of the pre-trained and of the fine-tuned model; figure 3 and table 2 set
these beside an MDL probe of the mask's vector; table 3 and figure 4 compare rolled-out scores with blank-out. The
appendix is in wherefrom/papers/value_zeroing_appendix.py, data and fine-tuning in wherefrom/papers/agreement_tuning.py.

Choices:
- Scores count by magnitude (section 4.3), while blank-out keeps its signs (section 7): a token whose loss helps is the
  least influential.
- GradXinput, IG and DL explain the logit of the true label (section 4.3), or with `gradient=target-foil` the
  difference of the two words' logits. L1 is the input of the first layer, as for blank-out's comparison (section 7).
- The paper does not state the steps of IG. By default there are as many as its sum needs to miss the change of the
  output by less than 0.5 %; `n_steps` sets their number.
- IG and DL start anew in every layer and are measured on at most `costly_limit` sentences; `costly_limit=None` takes
  as many as the other methods have.
- The MDL probe is described in wherefrom/metric/probing.py.
- `balance` gives the paradigm rpsv as many singular as plural sentences, as the authors' code does.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.data import MASK
from wherefrom.data.blimp import PARADIGMS
from wherefrom.data.example import titled
from wherefrom.errors import InvalidInput
from wherefrom.metric.probing import compression_against_alignment, layer_codes, representations
from wherefrom.model import open_model
from wherefrom.papers.agreement_tuning import agreement_half, fine_tune, measured_examples
from wherefrom.papers.claims import Claim, above, all_above, best
from wherefrom.papers.figures import explained, token_rows
from wherefrom.papers.recipe import (
    RecipeCall,
    Table,
    by_layer,
    called,
    layers,
    number,
    over_layers,
    overall,
    recipe,
    reported,
    used,
)

if TYPE_CHECKING:
    from wherefrom.evaluation import Run
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place
    from wherefrom.view.plot import Picture

MIXING = {
    "Rand": "random",
    "Attn": "attention",
    "Attn-norm": "norm",
    "Attn-norm + RES": "norm-residual",
    "Attn-norm + RES + LN": "norm-residual-ln",
    "GlobEnc": "globenc",
    "ALTI": "alti",
    "Value Zeroing": "value-zeroing",
}
ROLLOUT = {"Attn-rollout": "attention-rollout"}
ROLLED_OUT = {"GlobEnc with rollout": "globenc", "ALTI with rollout": "alti"}  # not in the figures, but in section 5
ROWS = ("Rand", "Attn", "Attn-rollout", "Attn-norm", "Attn-norm + RES", "Attn-norm + RES + LN", "GlobEnc", "ALTI",
        "GradXinput", "IG", "DL", "Value Zeroing")  # fmt: skip
NO_ROLLOUT = tuple(row for row in ROWS if row != "Attn-rollout")
OTHERS = tuple(row for row in (*MIXING, *ROLLOUT) if row not in ("Rand", "Value Zeroing"))  # context mixing methods
GRADIENT_ROWS = ("GradXinput", "IG", "DL")
METRICS = {"dot": "cue-dot", "AP": "cue-ap", "probes": "cue-probes"}
BLANK_OUT = "spearman(signs=reference):ablation"
BALANCE = {"balance": False}
GRADIENTS = {"gradient": ("true-label", "target-foil"), "n_steps": None}
OPTIONS = {**GRADIENTS, "costly_limit": 60, **BALANCE}
PROBE = {"probe": ("mlp", "mlp-code", "linear")}
AGREEMENT = {"model": "wherefrom/mlm", "data": ("blimp",), "spare": "grammar", "limit": 200}
SAMPLES = "BLiMP's five agreement paradigms, 2138 test examples (half of 4276); BERT-base, "
EXAMPLE = f"The pictures of some hat {MASK} scaring Marcus."

TABLE1 = reported("""
    | examples | test | accuracy PT | accuracy FT
all | 4276     | 2138 | 0.96        | 0.99
""")
TABLE2 = reported("""
                     | PT    | FT
Rand                 | -0.07 | -0.02
Attn                 | 0.10  | 0.08
Attn-norm            | 0.52  | 0.56
Attn-norm + RES      | -0.35 | -0.24
Attn-norm + RES + LN | 0.12  | 0.17
GlobEnc              | -0.01 | -0.12
ALTI                 | -0.01 | -0.12
GradXinput           | -0.96 | -0.99
IG                   | -0.86 | -0.77
DL                   | -0.97 | -1.00
Value Zeroing        | 0.65  | 0.64
""")
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
FIGURE3 = reported("""
           | L3   | L4   | L8   | L9
fine-tuned | 1.52 | 1.72 | 2.03 | 2.45
""")


# Data and models ------------------------------------------------------------------------------------------


@recipe(
    "value-zeroing/table1",
    "The agreement sentences of each paradigm, and how often the models prefer the target to the foil.",
    samples=SAMPLES + "its accuracy is in section 4.2. The paper's table 1 has an example of each paradigm",
    reported=TABLE1,
    options=BALANCE,
    claims=(
        Claim(
            "Fine-tuning raises the accuracy.",
            "section 4.2",
            lambda table, _: table.mean("all", "accuracy FT") > table.mean("all", "accuracy PT"),
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def table1(call: RecipeCall) -> Table:
    """`--limit` changes nothing here: every sentence is counted, and every one of the test half is asked."""
    halves = {name: list(agreement_half(call, test=name == "test")) for name in ("train", "test")}
    tuned = fine_tune(call)
    groups = list(dict.fromkeys(each.group or "" for examples in halves.values() for each in examples))
    names = {paradigm: uid for uid, paradigm in PARADIGMS.items()}
    ours: dict[Place, Summary] = {}
    notes = [tuned.note]
    for group in groups:
        row = names.get(group, group)
        every = [each for examples in halves.values() for each in examples if each.group == group]
        example = every[0]
        cues = " ".join(str(example.text)[start:end] for start, end in example.cues)
        notes.append(f"{row}: “{example.text}”, cue “{cues}”, target “{example.target}”, foil “{example.foil}”.")
        ours[row, "examples"] = number(len(every), len(every))
        for name, examples in halves.items():
            count = sum(each.group == group for each in examples)
            ours[row, name] = number(count, count)
    for column in ("examples", *halves):
        total = sum(found.mean for (_, name), found in ours.items() if name == column)
        ours["all", column] = number(total, int(total))
    for name, scores in tuned.accuracy.items():
        for score in scores:
            row = "all" if score is scores[-1] else names.get(score.group, score.group)
            ours[row, f"accuracy {name}"] = number(score.accuracy, score.rows)
    columns = ["examples", *halves, "accuracy PT", "accuracy FT"]
    rows = list(dict.fromkeys([*(names.get(group, group) for group in groups), "all"]))
    return Table(rows, columns, ours, "Sentences, and accuracy on the test half", [source(call, call.model)], notes)


def source(call: RecipeCall, model: str) -> str:
    """The model, and the data that all of a table is measured on."""
    return f"{called(call.model)}{'' if model == call.model else ', fine-tuned here,'} on {call.only}"


# Cue alignment --------------------------------------------------------------------------------------------


def gradient_options(call: RecipeCall) -> str:
    """The option by which a gradient method explains the true label, or target and foil."""
    return "of=target-logit" if call.options["gradient"] == "true-label" else "of=auto"


def gradient_methods(call: RecipeCall, layer: int | None = None) -> dict[str, str]:
    """GradXinput, IG and DL, the latter two from the input of one layer where it is named."""
    of = gradient_options(call)
    steps = "" if call.options["n_steps"] is None else f", n_steps={call.options['n_steps']}"
    at = "" if layer is None else f", layer={layer}"
    return {
        "GradXinput": f"gradient-x-input(norm=abs, {of})",
        "IG": f"integrated-gradients({of}{steps}{at})",
        "DL": f"deeplift({of}{at})",
    }


def costly_examples(call: RecipeCall) -> int:
    """The number of examples for IG and DL."""
    most = call.options["costly_limit"]
    return call.limit if most is None else min(call.limit, most)


def gradient_note(call: RecipeCall) -> str:
    """The number that the gradient methods explain, and their settings."""
    label = call.options["gradient"] == "true-label"
    number = "the logit of the true label" if label else "the logit of the target less that of the foil"
    steps = call.options["n_steps"] or "as many steps as its sum needs"
    most = call.options.get("costly_limit", "")
    limit = "" if most == "" else f"; costly_limit={most}"
    return f"GradXinput, IG and DL explain {number} (gradient={call.options['gradient']}); IG takes {steps}{limit}."


@dataclass(frozen=True)
class Alignment:
    """Cue alignment of one model by method and layer, and the models and samples of it."""

    ours: dict[Place, Summary]
    sources: list[str]


def align_with_cues(call: RecipeCall, model: str, metric: str) -> Alignment:
    """A metric of every method against the cues, layer by layer."""
    every = [*METRICS.values(), *(f"{name}@layers" for name in METRICS.values())]
    single = {**MIXING, "GradXinput": gradient_methods(call)["GradXinput"]}
    run = call.evaluate(measured_examples(call), [*single.values(), *ROLLOUT.values()], every, model=model)
    ours = {**by_layer(run, single, metric), **by_layer(run, {**ROLLOUT, **ROLLED_OUT}, f"{metric}@layers")}
    depth = len(layers(ours))
    methods = [gradient_methods(call, layer) for layer in range(depth)]
    chosen = [each[row] for row in ("IG", "DL") for each in methods]
    costly = call.evaluate(measured_examples(call, costly_examples(call)), chosen, METRICS.values(), model=model)
    for layer, each in enumerate(methods):
        for row in ("IG", "DL"):
            ours |= overall(costly, {row: each[row]}, metric, f"L{layer + 1}")
    return Alignment(ours, sources_of(call, model, run, costly))


def sources_of(call: RecipeCall, model: str, run: Run, costly: Run) -> list[str]:
    """The model and sample of the quick methods, and of IG and DL."""
    name = called(call.model) if model == call.model else f"{called(call.model)}, fine-tuned here,"
    return [used(run, name), f"IG and DL: {used(costly, name)}"]


def alignment_table(
    call: RecipeCall, panels: Mapping[str, str], metrics: Sequence[str], of: str, notes: Sequence[str] = ()
) -> Table:
    """Methods by layers for each model and metric, and the mean over layers.

    panels: a model by the prefix of its columns, which is empty where there is one.
    """
    ours: dict[Place, Summary] = {}
    columns: list[str] = []
    sources: list[str] = []
    pictures: dict[str, Draw] = {}
    for panel, model in panels.items():
        for metric in metrics:
            found = align_with_cues(call, model, METRICS[metric])
            shown = layers(found.ours)
            prefix = " ".join(part for part in (panel, metric if len(metrics) > 1 or not panel else "") if part)
            for row in (*ROWS, *ROLLED_OUT):
                for column in shown:
                    ours[row, f"{prefix} {column}"] = found.ours[row, column]
                ours[row, f"{prefix} mean"] = over_layers([found.ours[row, column] for column in shown])
            columns += [f"{prefix} {column}" for column in (*shown, "mean")]
            pictures[f"-{prefix.replace(' ', '-')}"] = draw_grid(prefix, metric == "probes")
            sources += found.sources
    return Table(
        [*ROWS, *ROLLED_OUT], columns, ours, of, list(dict.fromkeys(sources)), [gradient_note(call), *notes], pictures
    )


def layer_columns(table: Table, prefix: str) -> list[str]:
    """The columns of a prefix that are one layer each."""
    return [column for column in table.columns if re.fullmatch(rf"{re.escape(prefix)} L\d+", column)]


def draw_grid(prefix: str, lower_is_better: bool = False, rows: Sequence[str] = ROWS) -> Draw:
    """Methods by layers in color, the better the darker."""

    def draw(table: Table) -> Picture:
        from wherefrom.view.plot import grid

        columns = layer_columns(table, prefix)
        values = table.matrix(rows, columns)
        limits = (float(np.nanmax(values)), 0.0) if lower_is_better else None
        names = [column.rpartition(" ")[2] for column in columns]
        return grid(values, list(rows), names, limits=limits, width="page")

    return draw


# A prefix is the part of a column's name before the layer: "dot", "PT", "FT AP".


def best_on_average(prefix: str, measure: str, where: str, lowest: bool = False) -> Claim:
    holds = best("Value Zeroing", *OTHERS, lowest=lowest)
    return Claim(
        f"Value Zeroing is the best of the context mixing methods by {measure}, on average over the layers.",
        where,
        lambda table, _: holds(table, f"{prefix} mean"),
    )


def best_in_every_layer(prefix: str, measure: str, where: str, lowest: bool = False) -> Claim:
    def holds(table: Table, _: str) -> bool | None:
        ours, columns = table.ours, layer_columns(table, prefix)
        pairs = [(ours.get(("Value Zeroing", column)), ours.get((row, column))) for row in OTHERS for column in columns]
        return all_above((b, a) if lowest else (a, b) for a, b in pairs)

    return Claim(f"Value Zeroing is the best of them by {measure} in every layer.", where, holds)


def row_above(row: str, other: str, text: str, prefixes: Sequence[str], *, every_layer: bool = False) -> Claim:
    """Whether a row is above another on average over the layers, or in each of them."""

    def holds(table: Table, _: str) -> bool | None:
        columns = [
            column
            for prefix in prefixes
            for column in (layer_columns(table, prefix) if every_layer else [f"{prefix} mean"])
        ]
        return above(table, row, other, columns)

    return Claim(text, "section 5", holds)


def early_gradients(prefixes: Sequence[str]) -> Claim:
    def holds(table: Table, _: str) -> bool | None:
        pairs = []
        for prefix in prefixes:
            columns = layer_columns(table, prefix)
            middle = len(columns) // 2
            for row in GRADIENT_ROWS:
                cells = [table.ours[row, column] for column in columns if (row, column) in table.ours]
                if len(cells) == len(columns) > 1:
                    pairs.append((over_layers(cells[:middle]), over_layers(cells[-middle:])))
        return all_above(pairs)

    return Claim(
        "The gradient methods highlight cue words in the earlier layers: more in the first half than in the second.",
        "section 5",
        holds,
    )


def alignment_claims(dot: str, ap: str, where: str = "section 5") -> tuple[Claim, ...]:
    """The claims about figures 1 and 2, for the columns of one model."""
    both = (dot, ap)
    return (
        best_on_average(dot, "dot product", where),
        best_on_average(ap, "average precision", where),
        best_in_every_layer(dot, "dot product", where),
        best_in_every_layer(ap, "average precision", where),
        row_above("Rand", "Attn", "Raw attention is below random scores, on average over the layers.", both),
        row_above("Rand", "Attn", "Raw attention is below random scores in every layer.", both, every_layer=True),
        row_above("Attn-norm", "Attn", "Attn-norm is above raw attention, on average over the layers.", both),
        row_above(
            "Attn-norm",
            "Attn-norm + RES + LN",
            "With residual and layer norm, Attn-norm hardly sees the cue words: it falls below Attn-norm.",
            both,
        ),
        row_above("GlobEnc with rollout", "GlobEnc", "GlobEnc benefits from rollout.", both),
        row_above("ALTI with rollout", "ALTI", "ALTI benefits from rollout.", both),
        early_gradients(both),
    )


ALIGNED = "Dot product and average precision with the cue vector"


@recipe(
    "value-zeroing/figure1",
    "Cue words in every layer of the pre-trained model: their share of the scores, and average precision.",
    samples=SAMPLES + "pre-trained (accuracy 0.96)",
    claims=alignment_claims("dot", "AP"),
    options=OPTIONS,
    **AGREEMENT,
)
def figure1(call: RecipeCall) -> Table:
    return alignment_table(call, {"": call.model}, ("dot", "AP"), ALIGNED)


@recipe(
    "value-zeroing/figure2",
    "Cue words in every layer of the fine-tuned model: their share of the scores, and average precision.",
    samples=SAMPLES + "fine-tuned on the other half (accuracy 0.99)",
    claims=alignment_claims("dot", "AP"),
    options=OPTIONS,
    **AGREEMENT,
)
def figure2(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    return alignment_table(call, {"": tuned.folder}, ("dot", "AP"), ALIGNED, [tuned.note])


# Probing --------------------------------------------------------------------------------------------------


def compressions(call: RecipeCall, model: str) -> list[float]:
    """Compression of number by the mask's vector, the embeddings first."""
    examples = list(measured_examples(call))
    mask = open_model(model).mask_token or MASK
    texts = [each.with_mask(mask).text for each in examples]
    labels = [str(each.label) for each in examples]
    codes = layer_codes(representations(texts, model), labels, probe=call.options["probe"], seed=call.seed)
    return [code.compression for code in codes]


def probe_note(call: RecipeCall) -> str:
    """The probe, and the scale that the paper's numbers have."""
    scale = (
        "this is the scale of the paper's numbers: a guess has 1.44, a perfect code 3.14"
        if call.options["probe"] == "mlp-code"
        else "the paper's numbers are by mlp-code, where softmax is taken twice and nats are added to bits, so that a "
        "guess has 1.44 and a perfect code 3.14; here a guess has 1, as in equation 13"
    )
    return f"probe={call.options['probe']}; {scale}."


def rises_everywhere(table: Table) -> bool:
    return all(bool((np.diff(row[~np.isnan(row)]) > 0).all()) for row in table.matrix())


def jumps_at_4_and_9(table: Table) -> bool | None:
    """Whether the fine-tuned model gains most in these two of its twelve layers; None for another depth."""
    columns = [f"L{layer}" for layer in range(13)]
    if list(table.columns) != columns:
        return None
    gains = np.diff(table.matrix(["fine-tuned"], columns)[0])
    return set(np.argsort(gains)[-2:] + 1) == {4, 9}


def fine_tuning_helps(table: Table) -> bool | None:
    tuned, before = (table.mean(row, table.columns[-1]) for row in ("fine-tuned", "pre-trained"))
    return None if np.isnan([tuned, before]).any() else tuned > before


@recipe(
    "value-zeroing/figure3",
    "How well number can be read off the mask's vector (compression of an MDL probe), layer by layer.",
    samples=SAMPLES + "pre-trained and fine-tuned, 12 layers; the text names four values of the fine-tuned one",
    reported=FIGURE3,
    options={**PROBE, **BALANCE},
    claims=(
        Claim(
            "Compression goes up monotonically along the layers, in both models.",
            "section 6",
            lambda table, _: rises_everywhere(table),
            tested=False,
        ),
        Claim(
            "In the fine-tuned model of 12 layers, compression jumps at layers 4 and 9.",
            "section 6",
            lambda table, _: jumps_at_4_and_9(table),
            tested=False,
        ),
        Claim(
            "Fine-tuned representations compress better than pre-trained ones in the last layer.",
            "figure 3",
            lambda table, _: fine_tuning_helps(table),
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def figure3(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    models = {"pre-trained": call.model, "fine-tuned": tuned.folder}
    examples = measured_examples(call)
    ours = {
        (row, f"L{layer}"): number(value, len(examples))
        for row, model in models.items()
        for layer, value in enumerate(compressions(call, model))
    }
    columns = list(dict.fromkeys(column for _, column in ours))

    def draw(table: Table) -> Picture:
        from wherefrom.view.plot import curves

        shown = dict(zip(models, table.matrix(models, columns), strict=True))
        return curves(shown, x=list(range(len(columns))), y_label="compression")

    data = f"{titled(examples.name, examples.split)}: n = {len(examples)}"
    sources = [f"{called(call.model)}, and fine-tuned, on {data}"]
    notes = [probe_note(call), tuned.note]
    return Table(list(models), columns, ours, "Compression, L0 the embeddings", sources, notes, {"": draw})


@recipe(
    "value-zeroing/table2",
    "Spearman's ρ over layers between compression and the share of the scores on cue words.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT); 12 layers are 12 points",
    reported=TABLE2,
    options={**OPTIONS, **PROBE},
    claims=(
        Claim(
            "Value Zeroing has the highest correlation.",
            "section 6, table 2",
            best("Value Zeroing"),
            each=True,
            tested=False,
        ),
        Claim(
            "Value Zeroing's correlation is highly positive: above 0.5.",
            "section 6",
            lambda table, column: table.mean("Value Zeroing", column) > 0.5,
            each=True,
            tested=False,
        ),
        Claim(
            "The gradient methods' correlation is highly negative: below -0.5.",
            "section 6",
            lambda table, column: all(table.mean(row, column) < -0.5 for row in GRADIENT_ROWS),
            each=True,
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def table2(call: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    sources: list[str] = []
    tuned = fine_tune(call)
    for column, model in (("PT", call.model), ("FT", tuned.folder)):
        found = align_with_cues(call, model, METRICS["dot"])
        sources += found.sources
        known, shown = compressions(call, model), layers(found.ours)
        for row in NO_ROLLOUT:
            rho = compression_against_alignment(known, [found.ours[row, layer].mean for layer in shown])
            ours[row, column] = number(rho, len(shown))
    notes = [
        "n counts layers here: a correlation over so few points is weak evidence.",
        f"probe={call.options['probe']}; ranks are compared, so that the scale of compression does not matter.",
        gradient_note(call),
        tuned.note,
    ]
    return Table(NO_ROLLOUT, ["PT", "FT"], ours, "ρ over layers", sources, notes)


# Faithfulness ---------------------------------------------------------------------------------------------


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
