"""ALTI: does the distance to what attention makes of a token say better what it is made of than norms and weights do?

Table 2 correlates rolled-out scores with gradients (sentiment) and with blank-out (a masked verb); figure 6 asks how
high tokens without meaning are ranked, figure 7 how alike two models with the same prediction are explained. The
gradient is that of the predicted class's probability, ‖·‖₂ over components; blank-out puts [MASK] in a token's place
and looks at the probability of the correct verb.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.analysis import anisotropy
from wherefrom.api import explain
from wherefrom.data.example import titled
from wherefrom.errors import InvalidOption, UnsupportedModel
from wherefrom.metric.consistency import consistency
from wherefrom.metric.correlation import summary
from wherefrom.model import open_model
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import bar_picture, token_table
from wherefrom.papers.recipe import Measured, RecipeCall, Table, called, number, overall, recipe, reported, used
from wherefrom.papers.samples import changed

if TYPE_CHECKING:
    from wherefrom.data import Dataset
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place
    from wherefrom.result.explanation import Explanation
    from wherefrom.view.plot import Picture

ROWS = {
    "Attn Rollout": "attention-rollout",
    "Norm Rollout": "norm-residual-ln(normalize=True)",
    "ALTI": "alti",
}
GRADIENT = "saliency(of=probability)"
FAMILIES = {"bert": "BERT", "distilbert": "DistilBERT", "roberta": "RoBERTa"}
MARKS = {",": "comma", ".": "full stop"}
BLEND = "a clever blend of fact and fiction ."

TABLE2 = reported("""
             | SST2 DistilBERT | SST2 BERT    | SST2 RoBERTa | SVA DistilBERT | SVA BERT     | SVA RoBERTa
Attn Rollout | 0.23 ± 0.24     | -0.03 ± 0.29 | 0.01 ± 0.24  | 0.23 ± 0.22    | -0.02 ± 0.20 | -0.09 ± 0.22
Norm Rollout | 0.29 ± 0.26     | 0.41 ± 0.26  | 0.37 ± 0.21  | 0.31 ± 0.20    | 0.19 ± 0.19  | 0.08 ± 0.22
ALTI         | 0.54 ± 0.17     | 0.55 ± 0.19  | 0.68 ± 0.17  | 0.41 ± 0.17    | 0.40 ± 0.16  | 0.43 ± 0.18
""")


def one_word(data: Dataset) -> Dataset:
    """The correct verb alone is explained, not the choice between two."""
    return changed(data, lambda each: replace(each, foil=None))


@recipe(
    "alti/table2",
    "Spearman's ρ of rolled-out scores with gradients (SST2) and with blank-out of the masked verb (SVA).",
    samples="500 random samples each of SST-2's test set and of Linzen's agreement data; three models",
    data=("sst2", "linzen_lgd"),
    spare="own,grammar:distractor",
    limit=200,
    reported=TABLE2,
    claims=(Claim("ALTI is above norm rollout and attention rollout.", "section 5", best("ALTI"), each=True),),
)
def table2(asked: RecipeCall) -> Table:
    """Our models stand in the column of their family. Masked verbs: `wherefrom/mlm`, or --model if it is one."""
    ours: dict[Place, Summary] = {}
    columns, said = [], []
    given = open_model(asked.model)
    for name in asked.data:
        verbs = next(iter(asked.examples(name))).target is not None
        if asked.model != asked.recipe.model and verbs != (given.task == "masked-lm"):
            continue
        model = "wherefrom/mlm" if verbs and given.task != "masked-lm" else asked.model
        metric = f"spearman:{'ablation(by=mask)' if verbs else GRADIENT}"
        run = asked.evaluate(asked.examples(name, one_word if verbs else None), ROWS.values(), [metric], model=model)
        kind = open_model(model).config.model_type
        columns.append(f"{'SVA' if verbs else 'SST2'} {FAMILIES.get(kind, 'BERT')}")
        ours |= overall(run, ROWS, metric, columns[-1])
        said.append(used(run))
    if not columns:
        raise UnsupportedModel(
            f"{asked.model} fits none of {', '.join(asked.data)}; expected a classifier or a masked model"
        )
    return Table(list(ROWS), columns, ours, "Mean ± standard deviation of ρ", said)


@recipe(
    "alti/figure3",
    "Mean cosine similarity of a block's outputs, and of the vectors that they are sums of, by layer.",
    samples="500 random samples of SST-2; BERT, DistilBERT and RoBERTa",
    data=("sst2",),
    spare="own",
    limit=200,
    claims=(
        Claim(
            "The transformed vectors are less anisotropic than the outputs in every layer.",
            "section 3, figure 3",
            lambda table, _: bool((np.diff(table.matrix(), axis=0) < 0).all()),
            tested=False,
        ),
    ),
)
def figure3(asked: RecipeCall) -> Table:
    examples = asked.examples()
    texts = [each.text for each in examples]
    found = anisotropy(texts, asked.model, truncate=True, device=asked.device)
    rows = {"outputs": found.outputs, "transformed vectors": found.transformed}
    ours = {
        (row, f"L{i}"): number(value, len(texts)) for row, every in rows.items() for i, value in enumerate(every, 1)
    }

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import curves

        return curves(rows, y_label="cosine similarity")

    said = [f"{asked.model} on {titled(examples.name, examples.split)}: n = {len(texts)}"]
    columns = [f"L{i}" for i in range(1, len(found.outputs) + 1)]
    return Table(list(rows), columns, ours, "Mean cosine similarity of two vectors", said, [], {"": draw})


@recipe(
    "alti/figure5",
    "What the last layer's tokens are made of, and [CLS] among them.",
    samples="one sentence of SST-2; BERT",
)
def figure5(asked: RecipeCall) -> Table:
    return token_table(asked, [BLEND], {"ALTI": "alti"}, "map")


@recipe(
    "alti/figure6",
    "Relevance rank of tokens without meaning: 1 contributes most, 0 least.",
    samples="SST-2's test set; BERT, DistilBERT and RoBERTa. Its bars have no numbers in the text",
    data=("sst2",),
    spare="own",
    limit=200,
    claims=(Claim("ALTI ranks it lowest.", "section 5", best("ALTI", lowest=True), each=True),),
)
def figure6(asked: RecipeCall) -> Table:
    rows = {**ROWS, "grad l2": GRADIENT}
    run = asked.evaluate(asked.examples(), rows.values(), ["special-rank"])
    prefix = "special-rank "
    names = list(dict.fromkeys(key.metric.removeprefix(prefix) for key in run.summary if key.metric != prefix.strip()))
    ours: dict[Place, Summary] = {}
    columns = [MARKS.get(name, name) for name in names]
    for name, column in zip(names, columns, strict=True):
        ours |= overall(run, rows, prefix + name, column)

    def draw(_: Table) -> Picture:
        from wherefrom.view.plot import Series, bars

        return bars({row: Series.of(ours[row, column] for column in columns) for row in rows}, columns, y_label="rank")

    return Table(list(rows), columns, ours, "Mean ± standard deviation of the rank", [used(run)], [], {"": draw})


# Two models -----------------------------------------------------------------------------------------------


def two_models(asked: RecipeCall) -> tuple[Any, Any, str]:
    """Both models, and what they are. One model alone is set beside itself without its last two blocks."""
    names = [each.strip() for each in asked.model.split(",")]
    first = open_model(names[0], device=asked.device)
    if len(names) == 2:
        return first, open_model(names[1], device=asked.device), " and ".join(map(called, names))
    if first.depth < 3:
        raise InvalidOption(
            f"{asked.model} has {first.depth} blocks, and none to leave out; name two models by a comma"
        )
    with _quiet():  # transformers lists the weights that find no place
        shorter = open_model(asked.model, device=asked.device, model_kwargs={"num_hidden_layers": first.depth - 2})
    return first, shorter, f"{asked.model} and the same without its last two blocks"


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@recipe(
    "alti/figure7",
    "Spearman's ρ between the explanations of two models that predict the same class.",
    samples="SST-2; BERT and DistilBERT. Its bars have no numbers in the text",
    data=("sst2",),
    spare="own",
    limit=60,
    claims=(Claim("ALTI is the most consistent.", "section 5", best("ALTI"), each=True),),
)
def figure7(asked: RecipeCall) -> Table:
    """`--model A,B` compares two models that cut text into the same tokens."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {
        "ALTI": ("alti", {}),
        "grad l2": ("saliency", {"of": "probability"}),
        "grad · input": ("gradient-x-input", {"of": "probability", "norm": "abs"}),
        "IG": ("integrated-gradients", {"of": "probability"}),
    }
    examples = asked.examples()
    texts = [each.text for each in examples]
    first, second, said = two_models(asked)
    ours: dict[Place, Summary] = {}
    for row, (method, options) in rows.items():
        one, other = (_explanations(texts, model, method, options) for model in (first, second))
        found = {each.id: consistency(a, b) for each, a, b in zip(examples, one, other, strict=True)}
        ours[row, "ρ"] = Measured.of(summary(found.values()), partial(dict, found))
    where = f"{said}, on {titled(examples.name, examples.split)}"
    count = ours["ALTI", "ρ"].count
    notes = [f"They predict the same class for {count} of {len(texts)} examples, which are those compared."]
    draw = bar_picture(ours, list(rows), "ρ")
    return Table(
        list(rows), ["ρ"], ours, "Mean ± standard deviation of ρ", [f"{where}: n = {count}"], notes, {"": draw}
    )


def _explanations(texts: list[Any], model: Any, method: str, options: dict[str, Any]) -> list[Explanation]:
    """By magnitude, as the paper has them."""
    found = explain(texts, model, method=method, truncate=True, **options)
    return [replace(each, scores=np.abs(each.scores)) for each in found]
