"""ALTI's comparisons on datasets: table 2 and figures 6 and 7.

Table 2 correlates rolled-out scores with gradients (sentiment) and with blank-out (a masked verb). Figure 6 ranks
tokens without meaning, figure 7 compares the explanations of two models with the same prediction. The gradient is that
of the predicted class's probability, ‖·‖₂ over components; blank-out puts [MASK] in a token's place and takes the
change in the probability of the correct verb.

Every table takes several models, `--model bert,distilbert,roberta`, or joins the columns of several calls with `--out`.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.api import explain
from wherefrom.data.example import titled
from wherefrom.errors import InvalidInput, InvalidOption, NotDefined, UnsupportedModel, WherefromError
from wherefrom.metric.consistency import consistency
from wherefrom.metric.correlation import summary
from wherefrom.model import open_model
from wherefrom.papers.alti_models import REPOSITORY, choose_models, name_models, split_models
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.recipe import Measured, RecipeCall, Table, called, overall, recipe, reported, used
from wherefrom.papers.samples import changed, dataset_of

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
LARGE_MARGIN = 0.1
MARKS = {",": "comma", ".": "full stop"}

TABLE2 = reported("""
             | SST2 DistilBERT | SST2 BERT    | SST2 RoBERTa | SVA DistilBERT | SVA BERT     | SVA RoBERTa
Attn Rollout | 0.23 ± 0.24     | -0.03 ± 0.29 | 0.01 ± 0.24  | 0.23 ± 0.22    | -0.02 ± 0.20 | -0.09 ± 0.22
Norm Rollout | 0.29 ± 0.26     | 0.41 ± 0.26  | 0.37 ± 0.21  | 0.31 ± 0.20    | 0.19 ± 0.19  | 0.08 ± 0.22
ALTI         | 0.54 ± 0.17     | 0.55 ± 0.19  | 0.68 ± 0.17  | 0.41 ± 0.17    | 0.40 ± 0.16  | 0.43 ± 0.18
""")
FIGURE6 = reported("""
             | DistilBERT  | BERT        | RoBERTa
Attn Rollout | 0.90 ± 0.13 | 0.93 ± 0.07 | 0.83 ± 0.24
Norm Rollout | 0.81 ± 0.25 | 0.85 ± 0.20 | 0.83 ± 0.20
ALTI         | 0.23 ± 0.16 | 0.29 ± 0.22 | 0.29 ± 0.22
grad l2      | 0.48 ± 0.33 | 0.52 ± 0.21 | 0.39 ± 0.27
""")


# Table 2 --------------------------------------------------------------------------------------------------


def drop_foil(data: Dataset) -> Dataset:
    """Explain the correct verb alone, not the choice between two forms."""
    return changed(data, lambda example: replace(example, foil=None))


def _families(table: Table, task: str) -> list[str]:
    return [column.removeprefix(f"{task} ") for column in table.columns if column.startswith(f"{task} ")]


def _large_margin(table: Table, _: str) -> bool | None:
    """Check that in every SST2 column ALTI's mean is at least LARGE_MARGIN above that of the second best."""
    columns = [f"SST2 {family}" for family in _families(table, "SST2")]
    second = table.matrix(["Attn Rollout", "Norm Rollout"], columns).max(axis=0)
    margins = table.matrix(["ALTI"], columns)[0] - second
    known = margins[~np.isnan(margins)]
    return bool((known >= LARGE_MARGIN).all()) if len(known) else None


def _least_spread(table: Table, column: str) -> bool | None:
    """Check that ALTI has the smallest standard deviation of a column."""
    spread = {row: table.ours[row, column].deviation for row in table.rows if (row, column) in table.ours}
    if len(spread) < 2 or np.isnan(list(spread.values())).any():
        return None
    return min(spread, key=lambda row: spread[row]) == "ALTI"


def _only_distilbert(table: Table, _: str) -> bool | None:
    """Check that attention rollout correlates better on DistilBERT than on each deeper model, in both tasks."""
    pairs = [
        (table.mean("Attn Rollout", f"{task} DistilBERT"), table.mean("Attn Rollout", f"{task} {family}"))
        for task in ("SST2", "SVA")
        for family in ("BERT", "RoBERTa")
    ]
    answers = [first > second for first, second in pairs if not np.isnan([first, second]).any()]
    return all(answers) if answers else None


def _lower_for_verbs(table: Table, _: str) -> bool | None:
    """Check that the mean over methods and model families is lower on SVA than on SST2."""
    shared = [family for family in _families(table, "SVA") if family in _families(table, "SST2")]
    verbs, reviews = (table.matrix(columns=[f"{task} {family}" for family in shared]) for task in ("SVA", "SST2"))
    return bool(verbs.mean() < reviews.mean()) if shared else None


@recipe(
    "alti/table2",
    "Spearman's ρ of rolled-out scores with gradients (SST2) and with blank-out of the masked verb (SVA).",
    samples="500 random samples each of SST-2's test set and of Linzen's agreement data; three models",
    model="wherefrom/sentiment,wherefrom/mlm",
    data=("sst2", "linzen_lgd"),
    spare="own,grammar:distractor",
    limit=200,
    reported=TABLE2,
    joins=True,
    claims=(
        Claim("ALTI is above norm rollout and attention rollout.", "section 5", best("ALTI"), each=True),
        Claim(
            f"On SST2, ALTI outperforms both by a large margin (a mean at least {LARGE_MARGIN} above the second best).",
            "section 5",
            _large_margin,
            tested=False,
        ),
        Claim("ALTI has the smallest standard deviation.", "section 5", _least_spread, each=True, tested=False),
        Claim(
            "Attention rollout performs reasonably well only on DistilBERT, which has fewer layers.",
            "section 5",
            _only_distilbert,
            tested=False,
        ),
        Claim("Overall correlations are lower on SVA than on SST2.", "section 5", _lower_for_verbs, tested=False),
    ),
)
def table2(call: RecipeCall) -> Table:
    """A column for each dataset and each model that fits it: classifiers for SST2, masked language models for SVA."""
    cells: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    for name in call.data:
        verbs = next(iter(call.examples(name))).target is not None
        task = "masked-lm" if verbs else "classification"
        named = call.models.get(dataset_of(name))
        candidates = [named] if named else split_models(call.model)
        fitting = [model for model in candidates if open_model(model, device=call.device).task == task]
        metric = f"spearman:{'ablation(by=mask)' if verbs else GRADIENT}"
        examples = call.examples(name, drop_foil if verbs else None)
        for family, model in name_models(fitting, call.device).items():
            column = f"{'SVA' if verbs else 'SST2'} {family}"
            run = call.evaluate(examples, ROWS.values(), [metric], model=model)
            cells |= overall(run, ROWS, metric, column)
            sources[column] = used(run)
    if not sources:
        raise UnsupportedModel(
            f"{call.model} fits none of {', '.join(call.data)}; expected a classifier or a masked language model"
        )
    return Table(list(ROWS), list(sources), cells, "Mean ± standard deviation of ρ", sources)


# Figure 6 -------------------------------------------------------------------------------------------------


@recipe(
    "alti/figure6",
    "Relevance rank of tokens without meaning: 1 contributes most, 0 least.",
    samples="SST-2's test set; BERT, DistilBERT and RoBERTa. Its bars have no numbers in the text; "
    f"{REPOSITORY}, data/*_rank_special_tokens.json)",
    data=("sst2",),
    spare="own",
    limit=200,
    reported=FIGURE6,
    joins=True,
    claims=(
        Claim(
            "Rollout-based methods and grad l2 assign large scores to these tokens compared to ALTI.",
            "section 5, figure 6",
            best("ALTI", lowest=True),
            each=True,
        ),
    ),
)
def figure6(call: RecipeCall) -> Table:
    """A column for each model, over [CLS], [SEP], commas and full stops; then one for each of these tokens."""
    rows = {**ROWS, "grad l2": GRADIENT}
    examples = call.examples()
    pooled: dict[Place, Summary] = {}
    by_token: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    for family, model in choose_models(call, "classification").items():
        run = call.evaluate(examples, rows.values(), ["special-rank"], model=model)
        tokens = dict.fromkeys(key.metric.partition(" ")[2] for key in run.summary)
        columns = {token: f"{family}: {MARKS.get(token, token)}" for token in tokens if token}
        for token, column in columns.items():
            by_token |= overall(run, rows, f"special-rank {token}", column)
        pooled |= {(row, family): pool([by_token[row, column] for column in columns.values()]) for row in rows}
        sources |= dict.fromkeys((family, *columns.values()), used(run))
    cells = pooled | by_token
    columns_used = list(dict.fromkeys(column for _, column in cells))
    pictures = {"": partial(draw_ranks, pooled=True), "-tokens": partial(draw_ranks, pooled=False)}
    return Table(list(rows), columns_used, cells, "Mean ± standard deviation of the rank", sources, pictures=pictures)


def pool(columns: Sequence[Summary]) -> Summary:
    """All numbers of several columns, each example once for each column."""

    def values() -> dict[str, float]:
        by_column = [column.values() for column in columns if isinstance(column, Measured)]
        return {
            f"{place} {example}": value for place, cells in enumerate(by_column) for example, value in cells.items()
        }

    return Measured.of(summary(values().values()), values)


def draw_ranks(table: Table, *, pooled: bool) -> Picture:
    """Bars by model, or by model and token."""
    from wherefrom.view.plot import Series, bars

    columns = [column for column in table.columns if (": " in column) != pooled]
    complete = [column for column in columns if all((row, column) in table.ours for row in table.rows)]
    return bars(
        {row: Series.of(table.ours[row, column] for column in complete) for row in table.rows}, complete, y_label="rank"
    )


# Figure 7 -------------------------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def pair_models(call: RecipeCall) -> dict[str, tuple[Any, Any]]:
    """Every two models of the call by name; a single model is paired with itself without its last two blocks."""
    named = choose_models(call, "classification")
    opened = {family: open_model(model, device=call.device) for family, model in named.items()}
    if len(opened) > 1:
        return {f"{a} and {b}": (opened[a], opened[b]) for a, b in combinations(opened, 2)}
    ((family, first),) = opened.items()
    if first.depth < 3:
        raise InvalidOption(
            f"{call.model} has {first.depth} blocks, too few to leave two out; give two models separated by a comma"
        )
    shorter = {"num_hidden_layers": first.depth - 2}
    with _quiet():  # transformers lists the weights of the blocks left out
        second = open_model(named[family], device=call.device, model_kwargs=shorter)
    return {f"{family} and its first {first.depth - 2} of {first.depth} blocks": (first, second)}


def _gradient_second(table: Table, column: str) -> bool | None:
    return best("grad l2", "grad · input", "IG")(table, column)


@recipe(
    "alti/figure7",
    "Spearman's ρ between the explanations of two models that predict the same class.",
    samples="SST-2; BERT and DistilBERT. Its bars have no numbers in the text",
    data=("sst2",),
    spare="own",
    limit=60,
    options={"n_steps": 100},
    joins=True,
    claims=(
        Claim("ALTI is the most consistent.", "section 5, figure 7", best("ALTI"), each=True),
        Claim("Grad l2 follows behind.", "section 5, figure 7", _gradient_second, each=True),
    ),
)
def figure7(call: RecipeCall) -> Table:
    """`--model A,B` compares models that cut text into the same tokens; IG takes `n_steps` steps."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {
        "ALTI": ("alti", {}),
        "grad l2": ("saliency", {"of": "probability"}),
        "grad · input": ("gradient-x-input", {"of": "probability", "norm": "abs"}),
        "IG": ("integrated-gradients", {"of": "probability", "n_steps": call.options["n_steps"]}),
    }
    examples = call.examples()
    texts = [example.text for example in examples]
    cells: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    notes = []
    refused: WherefromError | None = None
    for column, models in pair_models(call).items():
        try:
            for row, (method, options) in rows.items():
                both = (explain_by_magnitude(texts, model, method, options) for model in models)
                values = {example.id: consistency(a, b) for example, a, b in zip(examples, *both, strict=True)}
                if np.isnan(list(values.values())).all():
                    raise NotDefined(f"no two predictions are equal on {len(texts)} examples; raise --limit")
                cells[row, column] = Measured.of(summary(values.values()), partial(dict, values))
        except (InvalidInput, NotDefined) as error:  # other tokens, other classes
            notes.append(f"{column} are left out: {error}.")
            refused = error
            continue
        count = cells["ALTI", column].count
        names = " and ".join(dict.fromkeys(called(model.name) for model in models))
        sources[column] = f"{column} ({names}) on {titled(examples.name, examples.split)}: n = {count}"
        notes.append(f"{column} predict the same class for {count} of {len(texts)} examples, which are those compared.")
    if refused is not None and not sources:
        raise refused
    of = "Mean ± standard deviation of ρ"
    return Table(list(rows), list(sources), cells, of, sources, notes, {"": draw_consistency})


def draw_consistency(table: Table) -> Picture:
    from wherefrom.view.plot import Series, bars

    by_pair = {column: Series.of(table.ours[row, column] for row in table.rows) for column in table.columns}
    return bars(by_pair, list(table.rows), y_label="ρ", written=len(by_pair) == 1)


def explain_by_magnitude(texts: list[Any], model: Any, method: str, options: dict[str, Any]) -> list[Explanation]:
    """Explanations with absolute scores, which the paper compares."""
    explanations = explain(texts, model, method=method, truncate=True, **options)
    return [replace(explanation, scores=np.abs(explanation.scores)) for explanation in explanations]
