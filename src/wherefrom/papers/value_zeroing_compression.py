"""Value Zeroing, section 6: an MDL probe of the mask's vector, and its correlation with cue alignment.

The probe is described in wherefrom/metric/probing.py.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wherefrom.data import MASK
from wherefrom.data.example import titled
from wherefrom.metric.probing import compression_against_alignment, layer_codes, representations
from wherefrom.model import open_model
from wherefrom.papers.agreement_tuning import fine_tune, measured_examples
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.recipe import RecipeCall, Table, called, layers, number, recipe, reported
from wherefrom.papers.value_zeroing import (
    AGREEMENT,
    BALANCE,
    GRADIENT_ROWS,
    METRICS,
    NO_ROLLOUT,
    OPTIONS,
    SAMPLES,
    align_with_cues,
    gradient_note,
)

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place
    from wherefrom.view.plot import Picture

PROBE = {"probe": ("mlp", "mlp-code", "linear")}
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
FIGURE3 = reported("""
           | L3   | L4   | L8   | L9
fine-tuned | 1.52 | 1.72 | 2.03 | 2.45
""")


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
