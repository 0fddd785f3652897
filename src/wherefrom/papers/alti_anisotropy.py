"""ALTI's figures 3 and 4: how far attention block outputs, and the transformed vectors they are sums of, point one way.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.analysis import anisotropy
from wherefrom.data.example import titled
from wherefrom.metric.correlation import summary
from wherefrom.model import open_model
from wherefrom.papers.alti_models import REPOSITORY, choose_models
from wherefrom.papers.claims import Claim, all_above
from wherefrom.papers.recipe import Measured, RecipeCall, Table, called, number, recipe, reported

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place
    from wherefrom.view.plot import Picture

FIGURE3 = reported("""
    | DistilBERT transformed | BERT transformed | RoBERTa transformed
L1  | 0.116                  | 0.045            | 0.091
L2  | 0.100                  | 0.053            | 0.066
L3  | 0.055                  | 0.066            | 0.061
L4  | 0.115                  | 0.054            | 0.085
L5  | 0.147                  | 0.047            | 0.090
L6  | 0.392                  | 0.043            | 0.076
L7  |                        | 0.060            | 0.101
L8  |                        | 0.067            | 0.151
L9  |                        | 0.086            | 0.186
L10 |                        | 0.108            | 0.273
L11 |                        | 0.207            | 0.399
L12 |                        | 0.299            | 0.652
""")
BLEND = "a clever blend of fact and fiction ."
TRANSFORMED = " transformed"
OUTPUTS = " outputs"


def _curves_of(table: Table, kind: str) -> dict[str, list[Summary]]:
    """Outputs or transformed vectors of each model, layer by layer."""
    columns = [column for column in table.columns if column.endswith(kind)]
    cells = {
        column: [table.ours[row, column] for row in table.rows if (row, column) in table.ours] for column in columns
    }
    return {column.removesuffix(kind): curve for column, curve in cells.items() if curve}


def _layer_pairs(table: Table) -> list[tuple[Summary, Summary]]:
    """An output cell and its transformed cell, for every layer of every model."""
    parts = _curves_of(table, TRANSFORMED)
    outputs = {family: curve for family, curve in _curves_of(table, OUTPUTS).items() if family in parts}
    return [pair for family, curve in outputs.items() for pair in zip(curve, parts[family], strict=True)]


def _all_hold(answers: Iterable[bool]) -> bool | None:
    """All of the answers together; None without any."""
    checked = list(answers)
    return all(checked) if checked else None


def _below_outputs(table: Table, _: str) -> bool | None:
    return all_above(_layer_pairs(table))


def _lowest_first(table: Table, _: str) -> bool | None:
    return all_above((parts[-1], parts[0]) for parts in _curves_of(table, TRANSFORMED).values())


@recipe(
    "alti/figure3",
    "Mean cosine similarity of attention block outputs, and of the transformed vectors that add up to them, by layer.",
    samples="500 random samples of SST-2; BERT, DistilBERT and RoBERTa. Its curves have no numbers in the text; "
    f"{REPOSITORY}, cos_results), where one pair of tokens is drawn for each sentence and layer. There the solid lines "
    "are of a layer's outputs, behind the FFN; the text and ours have the attention block's",
    data=("sst2",),
    spare="own",
    limit=200,
    reported=FIGURE3,
    options={"pairs": ("sentence", "all")},
    joins=True,
    claims=(
        Claim(
            "The transformed vectors are less anisotropic than the outputs in every layer.",
            "section 3, figure 3",
            _below_outputs,
        ),
        Claim(
            "The transformed vectors are less anisotropic in the first layer than in the last.",
            "section 3, figure 3",
            _lowest_first,
        ),
        Claim(
            "There is almost isotropy in the first layers (transformed vectors, below 0.12 in the first three).",
            "section 3, figure 3",
            lambda table, _: _all_hold(
                cell.mean < 0.12 for parts in _curves_of(table, TRANSFORMED).values() for cell in parts[:3]
            ),
            tested=False,
        ),
        Claim(
            "Outputs are highly anisotropic: the similarity tends to be close to 1 (above 0.5 in the last layer).",
            "section 3, figure 3",
            lambda table, _: _all_hold(curve[-1].mean > 0.5 for curve in _curves_of(table, OUTPUTS).values()),
            tested=False,
        ),
    ),
)
def figure3(call: RecipeCall) -> Table:
    """`pairs=sentence` pairs vectors of one sentence, as the authors' code does; `pairs=all` those of all texts."""
    examples = call.examples()
    texts = [example.text for example in examples]
    names = [example.id for example in examples]
    pairs = call.options["pairs"]
    spread = " ± standard deviation over sentences" if pairs == "sentence" else ""
    where = "of one sentence" if pairs == "sentence" else "of all texts"
    cells: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    depth = len({row for row, _ in FIGURE3})
    for family, model in choose_models(call).items():
        measured = anisotropy(texts, model, pairs=pairs, truncate=True, device=call.device)
        depth = max(depth, len(measured.outputs))
        for suffix, means, by_input in (
            (OUTPUTS, measured.outputs, measured.outputs_by_input),
            (TRANSFORMED, measured.transformed, measured.transformed_by_input),
        ):
            sources[family + suffix] = f"{called(model)} on {titled(examples.name, examples.split)}: n = {len(texts)}"
            for layer, mean in enumerate(means):
                values = None if by_input is None else dict(zip(names, by_input[:, layer], strict=True))
                cells[f"L{layer + 1}", family + suffix] = _cosine_cell(float(mean), values, len(texts))
    return Table(
        [f"L{layer}" for layer in range(1, depth + 1)],
        list(sources),
        cells,
        f"Mean cosine similarity of two vectors {where}{spread}",
        sources,
        [f"pairs={pairs}: two outputs {where}, two transformed vectors {_PARTS[pairs]}."],
        {"": draw_curves},
    )


_PARTS = {"sentence": "of one output (T_i(x_j) with T_i(x_k))", "all": "of all texts"}


def _cosine_cell(mean: float, values: dict[str, Any] | None, count: int) -> Summary:
    """The mean over all pairs; where pairs are within sentences, with the spread and the values of the sentences."""
    by_example = {example: float(value) for example, value in (values or {}).items() if not np.isnan(value)}
    if not by_example:
        return number(mean, count)
    return Measured.of(replace(summary(by_example.values()), mean=mean), lambda: by_example)


def draw_curves(table: Table, y_label: str = "cosine similarity") -> Picture:
    from wherefrom.view.plot import Series, curves

    families = dict.fromkeys(column.removesuffix(OUTPUTS).removesuffix(TRANSFORMED) for column in table.columns)
    order = [family + kind for kind in (OUTPUTS, TRANSFORMED) for family in families]
    blank = number(float("nan"), 0)  # a model with fewer layers
    cells = {column: [table.ours.get((row, column), blank) for row in table.rows] for column in order}
    filled = {column: curve for column, curve in cells.items() if any(cell.count for cell in curve)}
    depth = max(place for curve in filled.values() for place, cell in enumerate(curve, 1) if cell.count)
    series = {column: Series.of(curve[:depth]) for column, curve in filled.items()}
    return curves(series, x=range(1, depth + 1), y_label=y_label)


@recipe(
    "alti/figure4",
    "Length of the sum of a sentence's vectors, all of length 1, as a share of their number, by layer.",
    samples="a sketch of vectors in a space of high and of low anisotropy, not a measurement",
    texts=(BLEND,),
    claims=(
        Claim(
            "In a highly anisotropic space all vectors lie close to a line: outputs add up to more than transformed "
            "vectors in every layer.",
            "section 3, figure 4",
            lambda table, _: _all_hold(first.mean > second.mean for first, second in _layer_pairs(table)),
            tested=False,
        ),
    ),
)
def figure4(call: RecipeCall) -> Table:
    """‖Σ v‖ / n of n unit vectors is √((1 + (n − 1) c) / n), with c their mean cosine: 1 on a line, 1/√n if isotropic.

    Of transformed vectors the root mean square over outputs.
    """
    cells: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    depth = 0
    for family, model in choose_models(call).items():
        for place, text in enumerate(call.texts, 1):
            name = family if len(call.texts) == 1 else f"{family} {place}."
            ((sentence,), _) = open_model(model).reader().read(text)
            n = len(sentence)
            measured = anisotropy(text, model, device=call.device)
            depth = max(depth, len(measured.outputs))
            for suffix, cosines in ((OUTPUTS, measured.outputs), (TRANSFORMED, measured.transformed)):
                sources[name + suffix] = f"{called(model)} on “{text}”, {n} tokens: 1/√n = {n**-0.5:.2f}"
                for layer, cosine in enumerate(cosines, 1):
                    share = np.sqrt(max(0.0, (1 + (n - 1) * cosine) / n))
                    cells[f"L{layer}", name + suffix] = number(float(share), 1)
    rows = [f"L{layer}" for layer in range(1, depth + 1)]
    return Table(
        rows, list(sources), cells, "‖Σ v‖ / n", sources, pictures={"": partial(draw_curves, y_label="‖Σ v‖ / n")}
    )
