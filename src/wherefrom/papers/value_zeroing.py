"""Value Zeroing: does a method see the words that decide what stands at the mask?

Figures 1 and 2 give the share of the scores on cue words, and their average precision, in every layer of a masked
language model as it is and fine-tuned on agreement; figure 3 and table 2 set that beside how well number can be read
off the mask's vector; table 3 correlates rolled-out scores with blank-out, its probability over target and foil.

The examples are halved by a hash of their id: the model is fine-tuned here on one half (`wherefrom train prompt`, on as
many sentences as are tested), and everything is measured on the other. As the paper has it, scores are made positive
(section 4.3: here by magnitude), and blank-out keeps its signs (section 7): a token whose loss helps is the least
influential. IG and DL are measured on fewer examples, as said beside the numbers.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from wherefrom.data import MASK
from wherefrom.data.example import titled
from wherefrom.errors import WherefromWarning
from wherefrom.files import write
from wherefrom.metric.probing import compression_against_alignment, layer_codes, representations
from wherefrom.model import open_model
from wherefrom.papers.claims import Claim, above, best
from wherefrom.papers.figures import curve_picture
from wherefrom.papers.recipe import (
    RecipeCall,
    Table,
    by_layer,
    layers,
    number,
    over_layers,
    overall,
    recipe,
    reported,
    used,
)
from wherefrom.papers.samples import half

if TYPE_CHECKING:
    from wherefrom.data import Dataset
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
GRADIENTS = {"GradXinput": "gradient-x-input(norm=abs)"}
FEWER, FEWER_ON_DEVICE = 60, 200  # examples for IG and DL, which start anew in each layer
LAYERED = {"IG": "integrated-gradients(layer={})", "DL": "deeplift(layer={})"}
ROWS = ("Rand", "Attn", "Attn-rollout", "Attn-norm", "Attn-norm + RES", "Attn-norm + RES + LN", "GlobEnc", "ALTI",
        "GradXinput", "IG", "DL", "Value Zeroing")  # fmt: skip
NO_ROLLOUT = tuple(row for row in ROWS if row != "Attn-rollout")
AGGREGATED = {
    **MIXING,
    "Attn": "attention-rollout",
    **GRADIENTS,
    "IG": "integrated-gradients",
    "DL": "deeplift",
}
METRICS = {"dot": "cue-dot", "AP": "cue-ap", "probes": "cue-probes"}
BLANK_OUT = "spearman(signs=reference):ablation"
AGREEMENT = {"model": "wherefrom/mlm", "data": ("blimp",), "spare": "grammar", "limit": 200}
SAMPLES = "BLiMP's five agreement paradigms, 2138 test examples (half of 4276); BERT-base, "

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


def tested(data: Dataset) -> Dataset:
    return half(data, test=True)


def fine_tuned(asked: RecipeCall) -> str:
    """The folder of the model, fine-tuned on the other half to prefer the target to the foil."""
    from wherefrom.training.loop import REPORT, Schedule
    from wherefrom.training.prompt import PromptColumns, prompt

    train = asked.examples(change=lambda data: half(data, test=False))
    key = sha256(f"{asked.model} {train.fingerprint} {asked.seed}".encode()).hexdigest()[:12]
    folder = asked.work / "models" / key
    if (folder / REPORT).is_file():  # written last: what a kill has left is trained on, or anew
        return str(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    rows = folder.with_suffix(".jsonl")
    lines = (json.dumps({"text": each.text, "target": each.target, "foil": each.foil}) for each in train)
    write(rows, "".join(f"{line}\n" for line in lines))
    way = Schedule(
        folder, learning_rate=1e-4, patience=0, seed=asked.seed, device=asked.device or "auto", progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WherefromWarning)  # rows whose words are not single pieces are left out
        prompt(rows, way, PromptColumns(), asked.model, skip_split=True)
    return str(folder)


def affordable(asked: RecipeCall) -> RecipeCall:
    """What is asked of IG and DL."""
    most = FEWER if asked.device in (None, "cpu") else FEWER_ON_DEVICE
    return replace(asked, limit=min(asked.limit, most), out=asked.work)


# Cue alignment --------------------------------------------------------------------------------------------


def called(asked: RecipeCall, model: str) -> str:
    return asked.model if model == asked.model else f"{asked.model}, fine-tuned here,"


def alignment(asked: RecipeCall, model: str, metric: str) -> tuple[dict[Place, Summary], list[str]]:
    """A metric of every method against the cues, layer by layer."""
    every = [*METRICS.values(), *(f"{each}@layers" for each in METRICS.values())]
    methods = {**MIXING, **ROLLOUT, **GRADIENTS}
    run = asked.evaluate(asked.examples(change=tested), methods.values(), every, model=model)
    ours = {**by_layer(run, {**MIXING, **GRADIENTS}, metric), **by_layer(run, ROLLOUT, f"{metric}@layers")}
    depth = len(layers(ours))
    fewer = affordable(asked)
    single = [each.format(layer) for each in LAYERED.values() for layer in range(depth)]
    costly = asked.evaluate(fewer.examples(change=tested), single, METRICS.values(), model=model)
    for row, each in LAYERED.items():
        for layer in range(depth):
            ours |= overall(costly, {row: each.format(layer)}, metric, f"L{layer + 1}")
    return ours, [used(run, called(asked, model)), f"IG and DL: {used(costly, called(asked, model))}"]


def alignment_table(asked: RecipeCall, model: str, chosen: Mapping[str, str], of: str) -> Table:
    """Methods by layers for each metric, and the mean over layers."""
    ours: dict[Place, Summary] = {}
    columns: list[str] = []
    said: list[str] = []
    pictures: dict[str, Draw] = {}
    for name, metric in chosen.items():
        found, said = alignment(asked, model, metric)
        shown = layers(found)
        for (row, column), each in found.items():
            ours[row, f"{name} {column}"] = each
        for row in ROWS:
            ours[row, f"{name} mean"] = over_layers([found[row, column] for column in shown])
        columns += [f"{name} {column}" for column in (*shown, "mean")]
        pictures[f"-{name}"] = _grid(ours, [f"{name} {column}" for column in shown], shown)
    return Table(list(ROWS), columns, ours, of, said, pictures=pictures)


def _grid(ours: Mapping[Place, Summary], columns: list[str], names: list[str]) -> Draw:
    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import grid

        return grid([[ours[row, column].mean for column in columns] for row in ROWS], list(ROWS), names, width="page")

    return draw


def first(column: str, what: str, where: str, lowest: bool = False) -> Claim:
    holds = best(
        "Value Zeroing", *[row for row in (*MIXING, *ROLLOUT) if row not in ("Rand", "Value Zeroing")], lowest=lowest
    )
    return Claim(
        f"Value Zeroing is the best of the context mixing methods by {what}, on average over the layers.",
        where,
        lambda table, _: holds(table, column),
    )


ATTENTION_WORST = Claim(
    "Raw attention is below random scores, by dot product and by average precision, on average over the layers.",
    "section 5",
    lambda table, _: above(table, "Rand", "Attn", ["dot mean", "AP mean"]),
)
ALIGNED = (
    first("dot mean", "dot product", "section 5"),
    first("AP mean", "average precision", "section 5"),
    ATTENTION_WORST,
)
TWO = {name: METRICS[name] for name in ("dot", "AP")}


@recipe(
    "value-zeroing/figure1",
    "Cue words in every layer of the pre-trained model: their share of the scores, and average precision.",
    samples=SAMPLES + "pre-trained (accuracy 0.96)",
    claims=ALIGNED,
    **AGREEMENT,
)
def figure1(asked: RecipeCall) -> Table:
    return alignment_table(asked, asked.model, TWO, "Dot product and average precision with the cue vector")


@recipe(
    "value-zeroing/figure2",
    "Cue words in every layer of the fine-tuned model: their share of the scores, and average precision.",
    samples=SAMPLES + "fine-tuned on the other half (accuracy 0.99)",
    claims=ALIGNED,
    **AGREEMENT,
)
def figure2(asked: RecipeCall) -> Table:
    return alignment_table(asked, fine_tuned(asked), TWO, "Dot product and average precision with the cue vector")


# Probing --------------------------------------------------------------------------------------------------


def compressions(asked: RecipeCall, model: str) -> list[float]:
    """How well number is read off the mask's vector, the embeddings first."""
    examples = list(asked.examples(change=tested))
    mask = open_model(model).mask_token or MASK
    texts = [each.with_mask(mask).text for each in examples]
    labels = [str(each.label) for each in examples]
    codes = layer_codes(representations(texts, model), labels, seed=asked.seed)
    return [each.compression for each in codes]


@recipe(
    "value-zeroing/figure3",
    "How well number can be read off the mask's vector (compression of an MDL probe), layer by layer.",
    samples=SAMPLES + "pre-trained and fine-tuned, 12 layers; the text names four values of the fine-tuned one",
    reported=FIGURE3,
    claims=(
        Claim(
            "Compression goes up monotonically along the layers, in both models.",
            "section 6",
            lambda table, _: all(bool((np.diff(row[~np.isnan(row)]) > 0).all()) for row in table.matrix()),
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def figure3(asked: RecipeCall) -> Table:
    models = {"pre-trained": asked.model, "fine-tuned": fine_tuned(asked)}
    examples = asked.examples(change=tested)
    count = len(examples)
    ours = {
        (row, f"L{layer}"): number(value, count)
        for row, model in models.items()
        for layer, value in enumerate(compressions(asked, model))
    }
    columns = list(dict.fromkeys(column for _, column in ours))

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import curves

        found = {row: [ours[row, column].mean for column in columns] for row in models}
        return curves(found, x=list(range(len(columns))), y_label="compression")

    data = f"{titled(examples.name, examples.split)}: n = {count}"
    of = "Compression, L0 the embeddings, 1 a guess"
    return Table(list(models), columns, ours, of, [f"{asked.model}, and fine-tuned, on {data}"], [], {"": draw})


@recipe(
    "value-zeroing/table2",
    "Spearman's ρ over layers between compression and the share of the scores on cue words.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT); 12 layers are 12 points",
    reported=TABLE2,
    claims=(
        Claim(
            "Value Zeroing has the highest correlation.",
            "section 6, table 2",
            best("Value Zeroing"),
            each=True,
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def table2(asked: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    said: list[str] = []
    for column, model in (("PT", asked.model), ("FT", fine_tuned(asked))):
        found, lines = alignment(asked, model, METRICS["dot"])
        said += lines
        known, shown = compressions(asked, model), layers(found)
        for row in NO_ROLLOUT:
            rho = compression_against_alignment(known, [found[row, layer].mean for layer in shown])
            ours[row, column] = number(rho, len(shown))
    notes = ["n counts layers here: a correlation over so few points is weak evidence."]
    return Table(NO_ROLLOUT, ["PT", "FT"], ours, "ρ over layers", said, notes)


# Faithfulness ---------------------------------------------------------------------------------------------


@recipe(
    "value-zeroing/table3",
    "Spearman's ρ of rolled-out scores with blank-out.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT)",
    reported=TABLE3,
    claims=(Claim("Value Zeroing has the highest correlation.", "section 7", best("Value Zeroing"), each=True),),
    **AGREEMENT,
)
def table3(asked: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    said = []
    cheap = {row: AGGREGATED[row] for row in NO_ROLLOUT if row not in LAYERED}
    fewer = affordable(asked)
    for column, model in (("PT", asked.model), ("FT", fine_tuned(asked))):
        run = asked.evaluate(asked.examples(change=tested), cheap.values(), [BLANK_OUT], model=model)
        costly = asked.evaluate(
            fewer.examples(change=tested), [AGGREGATED[row] for row in LAYERED], [BLANK_OUT], model=model
        )
        ours |= overall(run, cheap, BLANK_OUT, column)
        ours |= overall(costly, {row: AGGREGATED[row] for row in LAYERED}, BLANK_OUT, column)
        said += [used(run, called(asked, model)), f"IG and DL: {used(costly, called(asked, model))}"]
    return Table(NO_ROLLOUT, ["PT", "FT"], ours, "Mean ± standard deviation of ρ with blank-out", said)


# Appendix -------------------------------------------------------------------------------------------------


@recipe(
    "value-zeroing/appendix-distance",
    "Value Zeroing's share of the scores on cue words by other distances, with and without normalised vectors (A.1).",
    samples=SAMPLES + "pre-trained",
    claims=(
        Claim(
            "The distances show the same pattern: over the layers, each correlates with cosine by ρ > 0.8.",
            "appendix A.1",
            lambda table, _: all(
                compression_against_alignment(table.matrix(["cosine"])[0], row) > 0.8 for row in table.matrix()[1:]
            ),
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def appendix_distance(asked: RecipeCall) -> Table:
    rows = {
        f"{metric}{', normalised' if standard else ''}": f"value-zeroing(metric={metric}, standardise={standard})"
        for standard in (False, True)
        for metric in ("cosine", "euclidean", "spearman")
    }
    run = asked.evaluate(asked.examples(change=tested), rows.values(), [METRICS["dot"]])
    ours = by_layer(run, rows, METRICS["dot"])
    pictures = {"": curve_picture(ours, list(rows), layers(ours), y_label="dot product with cues")}
    return Table(
        list(rows), layers(ours), ours, "Mean ± standard deviation of the dot product", [used(run)], [], pictures
    )


@recipe(
    "value-zeroing/appendix-probes",
    "How many tokens stand above the best cue, in every layer of the pre-trained model (A.2).",
    samples=SAMPLES + "pre-trained",
    claims=(first("probes mean", "probes needed", "footnote 4, appendix A.2", lowest=True),),
    **AGREEMENT,
)
def appendix_probes(asked: RecipeCall) -> Table:
    return alignment_table(asked, asked.model, {"probes": METRICS["probes"]}, "Probes needed; lower is better")
