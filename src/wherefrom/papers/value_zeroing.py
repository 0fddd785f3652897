"""Value Zeroing: which methods see the words that decide between target and foil at a mask?

Table 1 lists the data and how often the models are right. Figures 1 and 2 give the share of the scores on cue words,
and their average precision, in every layer of the pre-trained and of the fine-tuned model; figure 3 and table 2 set
these beside an MDL probe of the mask's vector; table 3 and figure 4 compare rolled-out scores with blank-out. The
data and the fine-tuned model are those of wherefrom/papers/agreement_tuning.py. This file has table 1 and figures 1 and
2; section 6 is in value_zeroing_compression.py, section 7 in value_zeroing_faithfulness.py, and the appendix in
value_zeroing_supplement.py.

Choices:
- Scores count by magnitude (section 4.3), while blank-out keeps its signs (section 7): a token whose loss helps is the
  least influential.
- GradXinput, IG and DL explain the logit of the true label (section 4.3), or with `gradient=target-foil` the
  difference of the two words' logits. L1 is the input of the first layer, as for blank-out's comparison (section 7).
- The paper does not state the steps of IG. By default there are as many as its sum needs to miss the change of the
  output by less than 0.5 %; `n_steps` sets their number.
- IG and DL start anew in every layer and are measured on at most `costly_limit` sentences; `costly_limit=None` takes
  as many as the other methods have.
- `balance` gives the paradigm rpsv as many singular as plural sentences, as the authors' code does.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wherefrom.data import MASK
from wherefrom.data.blimp import PARADIGMS
from wherefrom.papers.agreement_tuning import agreement_half, fine_tune, measured_examples
from wherefrom.papers.claims import Claim, above, all_above, best
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
BALANCE = {"balance": False}
GRADIENTS = {"gradient": ("true-label", "target-foil"), "n_steps": None}
OPTIONS = {**GRADIENTS, "costly_limit": 60, **BALANCE}
AGREEMENT = {"model": "wherefrom/mlm", "data": ("blimp",), "spare": "grammar", "limit": 200}
SAMPLES = "BLiMP's five agreement paradigms, 2138 test examples (half of 4276); BERT-base, "
EXAMPLE = f"The pictures of some hat {MASK} scaring Marcus."

TABLE1 = reported("""
    | examples | test | accuracy PT | accuracy FT
all | 4276     | 2138 | 0.96        | 0.99
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
class CueAlignment:
    """Cue alignment of one model by method and layer, and the models and samples of it."""

    ours: dict[Place, Summary]
    sources: list[str]


def align_with_cues(call: RecipeCall, model: str, metric: str) -> CueAlignment:
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
    return CueAlignment(ours, sources_of(call, model, run, costly))


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


def _aligned_at_4_and_9(table: Table, _: str) -> bool | None:
    """Whether both layers are above the mean over the layers by both measures; None for a depth other than 12."""
    if any(len(layer_columns(table, prefix)) != 12 for prefix in ("dot", "AP")):
        return None
    cells = {column: table.ours.get(("Value Zeroing", column)) for column in table.columns}
    return all_above(
        (cells.get(f"{prefix} L{layer}"), cells.get(f"{prefix} mean")) for prefix in ("dot", "AP") for layer in (4, 9)
    )


ALIGNED_AT_4_AND_9 = Claim(
    "In layers 4 and 9 of 12, Value Zeroing has a higher alignment with cue words: above its mean over the layers.",
    "section 6",
    _aligned_at_4_and_9,
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
    claims=(*alignment_claims("dot", "AP"), ALIGNED_AT_4_AND_9),
    options=OPTIONS,
    **AGREEMENT,
)
def figure1(call: RecipeCall) -> Table:
    return alignment_table(call, {"": call.model}, ("dot", "AP"), ALIGNED)


@recipe(
    "value-zeroing/figure2",
    "Cue words in every layer of the fine-tuned model: their share of the scores, and average precision.",
    samples=SAMPLES + "fine-tuned on the other half (accuracy 0.99)",
    claims=(*alignment_claims("dot", "AP"), ALIGNED_AT_4_AND_9),
    options=OPTIONS,
    **AGREEMENT,
)
def figure2(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    return alignment_table(call, {"": tuned.folder}, ("dot", "AP"), ALIGNED, [tuned.note])
