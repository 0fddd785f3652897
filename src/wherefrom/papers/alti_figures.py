"""ALTI's figures of single texts: contributions in one layer, the graph of paths, and relevances across layers.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wherefrom.errors import InvalidOption
from wherefrom.papers.alti_anisotropy import BLEND
from wherefrom.papers.alti_examples import ALTI, ROLLOUTS, number_tokens
from wherefrom.papers.alti_models import choose_models
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, picture
from wherefrom.papers.recipe import RecipeCall, Table, called, number, recipe

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place
    from wherefrom.result.explanation import Explanation

APART = "distance between rows"
DEFAULT = {"model": "wherefrom/sentiment", "model_of": "sst2", "texts": (BLEND,)}


class _Text(NamedTuple):
    """One text explained by one method with one model."""

    explanation: Explanation
    prefix: str  # of its rows, where there are several models or texts
    suffix: str  # of its picture's file
    source: str


def _explain_texts(call: RecipeCall, method: str, **question: Any) -> Iterator[_Text]:
    models = choose_models(call)
    for family, model in models.items():
        for place, text in enumerate(call.texts, 1):
            (explanation,) = explained(replace(call, model=model), text, [method], **question).values()
            parts = [family] * (len(models) > 1) + [str(place)] * (len(call.texts) > 1)
            suffix = "".join(f"-{part.lower().replace(' ', '-').replace('/', '-')}" for part in parts)
            source = f"{called(model)} on “{text}”, predicts {explanation.prediction}"
            yield _Text(explanation, "".join(f"{part}: " for part in parts), suffix, source)


# One layer ------------------------------------------------------------------------------------------------


@recipe(
    "alti/figure1",
    "Contributions of each input token (column) to each attention block output (row) of one layer, by equation 10.",
    samples="a sketch of the block whose modules the paper takes together",
    options={"layer": 1},
    **DEFAULT,
)
def figure1(call: RecipeCall) -> Table:
    """`layer=` chooses the layer, counted from 1."""
    cells: dict[Place, Summary] = {}
    rows: list[str] = []
    columns: list[str] = []
    sources, pictures = [], {}
    layer = call.options["layer"] or 1
    for text in _explain_texts(call, ALTI["ALTI"]):
        maps = _maps(text.explanation.maps)
        if layer > len(maps):
            raise InvalidOption(f"{call.recipe.name}: layer is {layer}; the model has {len(maps)} layers")
        tokens = number_tokens(text.explanation.pieces)
        columns += [token for token in tokens if token not in columns]
        for i, row in enumerate(tokens):
            rows.append(text.prefix + row)
            cells |= {(rows[-1], column): number(maps[layer - 1, i, j], 1) for j, column in enumerate(tokens)}
        pictures[text.suffix] = picture({"ALTI": text.explanation}, "map", layer=layer - 1, own=True)
        sources.append(text.source)
    return Table(rows, columns, cells, f"Contributions C of layer {layer}", sources, pictures=pictures)


def _sum_is_product(table: Table, _: str) -> bool:
    total, product = table.matrix(["sum of the paths", "R²"])
    return bool(np.allclose(total, product, atol=1e-6))


@recipe(
    "alti/figure2",
    "Paths from an input token to its second-layer representation in the attention graph, and their sum.",
    samples="a sketch of an attention graph; relevance of [CLS] to its second-layer representation",
    claims=(
        Claim(
            "The sum over all paths is the entry of the matrix product.",
            "section 2.2, equation 8",
            _sum_is_product,
            tested=False,
        ),
    ),
    **DEFAULT,
)
def figure2(call: RecipeCall) -> Table:
    """Attention rollout over two layers: Â = 0.5 A + 0.5 I, and a path's weight is the product of its edges."""
    cells: dict[Place, Summary] = {}
    rows: list[str] = []
    columns, sources, pictures = [], [], {}
    for text in _explain_texts(call, ROLLOUTS["Attn Rollout"], layers=(0, 2)):
        explanation = text.explanation
        first, second = _maps(explanation.maps)[:2]
        at = explanation.position or 0
        column = (text.prefix + explanation.pieces[at]).strip()
        paths = second[at] * first[:, at]
        through = {
            f"through {token}": path for token, path in zip(number_tokens(explanation.pieces), paths, strict=True)
        }
        values = through | {"sum of the paths": paths.sum(), "R²": _maps(explanation.aggregated)[1, at, at]}
        cells |= {(row, column): number(float(value), 1) for row, value in values.items()}
        rows += [row for row in values if row not in rows]
        columns.append(column)
        pictures[text.suffix] = picture({"Attn Rollout": explanation}, "graph", edges="paths")
        sources.append(text.source)
    return Table(rows, columns, cells, "Weight of a path", sources, pictures=pictures)


# Relevances across layers ---------------------------------------------------------------------------------


@recipe(
    "alti/figure5",
    "ALTI's input attributions in the last layer, and those of [CLS] (or the mask).",
    samples="one sentence of SST-2; BERT",
    **DEFAULT,
)
def figure5(call: RecipeCall) -> Table:
    cells: dict[Place, Summary] = {}
    rows: list[str] = []
    sources, pictures = [], {}
    for text in _explain_texts(call, ALTI["ALTI"]):
        tokens = number_tokens(text.explanation.pieces, text.prefix)
        rows += tokens
        cells |= {(row, "ALTI"): number(score, 1) for row, score in zip(tokens, text.explanation.scores, strict=True)}
        pictures[text.suffix] = picture({"ALTI": text.explanation}, "map")
        sources.append(text.source)
    return Table(rows, ["ALTI"], cells, "R^L of the readout token", sources, pictures=pictures)


def relevances(call: RecipeCall, method: str) -> Table:
    """The readout token's relevances R^l after every layer, and the mean distance between two rows of R^l.

    The distance of two rows is half the sum of their absolute differences: 0 if all tokens draw on the same tokens.
    """
    cells: dict[Place, Summary] = {}
    rows: list[str] = []
    sources: list[str] = []
    pictures: dict[str, Draw] = {}
    depth = 0
    for text in _explain_texts(call, method):
        maps = _maps(text.explanation.aggregated)
        depth = max(depth, len(maps))
        values = zip(number_tokens(text.explanation.pieces), text.explanation.readout.row(maps).T, strict=True)
        for token, by_layer in [*values, (APART, [row_distance(relevance) for relevance in maps])]:
            rows.append(text.prefix + token)
            cells |= {(rows[-1], f"L{layer}"): number(float(value), 1) for layer, value in enumerate(by_layer, 1)}
        pictures[text.suffix] = picture({call.recipe.short: text.explanation}, "maps")
        sources.append(text.source)
    columns = [f"L{layer}" for layer in range(1, depth + 1)]
    return Table(rows, columns, cells, "R^l of the readout token", sources, pictures=pictures)


def row_distance(relevance: Any) -> float:
    """Mean over pairs of rows of half the sum of absolute differences."""
    n = len(relevance)
    differences = np.abs(relevance[:, None] - relevance[None]).sum(-1) / 2
    return float(differences.sum() / (n * (n - 1))) if n > 1 else float("nan")


def _maps(values: Any) -> Any:
    assert values is not None  # rollouts and ALTI have maps in every layer
    return np.asarray(values)


def _last_layers(table: Table) -> Iterator[tuple[dict[str, float], float, float]]:
    """For each text the last layer's relevances by token, and the distance between rows in the first and last layer."""
    block: dict[str, float] = {}
    for row in table.rows:
        values = table.matrix([row])[0]
        by_layer = values[~np.isnan(values)]
        if row.endswith(APART):
            yield block, by_layer[0], by_layer[-1]
            block = {}
        else:
            block[row.rpartition(": ")[2]] = by_layer[-1]


def _homogeneous(table: Table, _: str) -> bool:
    return all(last < 0.1 * first for _, first, last in _last_layers(table))


def _favors_special(table: Table, _: str) -> bool | None:
    special = ("[CLS]", "[SEP]", "<s>", "</s>")
    answers = []
    for block, *_rest in _last_layers(table):
        mine = [value for token, value in block.items() if token in special]
        others = [value for token, value in block.items() if token not in special]
        answers.append(min(mine) > max(others) if mine and others else None)
    return None if None in answers else all(answers)


ACROSS = (("figure8", "Attn Rollout"), ("figure9", "Norm Rollout"), ("figure10", "ALTI"))
CONVERGES = (
    Claim(
        "The relevance matrix converges, giving homogeneous matrices (rows ten times closer than in the first layer).",
        "section 5, figure 8",
        _homogeneous,
        tested=False,
    ),
    Claim("The highest scores are those of [CLS] and [SEP].", "section 5, figure 8", _favors_special, tested=False),
)
for _name, _method in ACROSS:
    recipe(
        f"alti/{_name}",
        f"{_method} relevances in every layer: maps R^l, and the row of [CLS] (or the mask).",
        samples="one sentence; BERT. The paper draws the maps and prints no numbers",
        claims=CONVERGES if _name == "figure8" else (),
        **DEFAULT,
    )(partial(relevances, method=(ROLLOUTS | ALTI)[_method]))
