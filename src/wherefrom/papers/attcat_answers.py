"""AttCAT, figure 3: how many of the K highest-scored tokens belong to the answer of a question.

The text explains "the answer" and leaves open towards which number. The authors' notebooks explain the logit of the
answer's start and that of its end and add the two: as they are for SQuAD v1 (`combine=sum`), by magnitude for v2
(`combine=magnitudes`). They count the tokens of the first gold answer, and leave out questions without one. A model
that answers questions comes by --model, because none ships with wherefrom. Without one, a stand-in is measured: the
words of the grammar that decide at a mask take the place of the answer.

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from wherefrom.errors import UnsupportedModel
from wherefrom.metric.correlation import Summary
from wherefrom.model import open_model
from wherefrom.papers.attcat import AT, ROWS, methods_at
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.recipe import RecipeCall, Table, called, overall, recipe, reported, used
from wherefrom.papers.samples import changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wherefrom.data import Dataset
    from wherefrom.evaluation import Run
    from wherefrom.papers.recipe import Place
    from wherefrom.view.plot import Picture

FAMILIES = {"bert": "BERT", "distilbert": "DistilBERT", "roberta": "RoBERTa"}
GRAMMAR = "grammar"
MAXIMUM = "maximum"  # the largest count possible: the answer's tokens, at most K
LRP = ("PartialLRP", "TransAtt")
NOTEBOOK = (
    "RawAtt",
    "Rollout",
    "AttCAT",
)  # the rows of the authors' notebooks; others take long (relevance in float64)
KS = (1, 2, 5, 10, 15, 20, 25, 30)
ANSWERS = {
    "model": "wherefrom/mlm",
    "data": ("squad_v1", "squad_v2"),
    "columns": {"squad_v1": "SQuADv1", "squad_v2": "SQuADv2"},
    "spare": GRAMMAR,
    "limit": 100,
}
STAND_IN = (
    "A stand-in for question answering: cue words at a mask in place of answers. --model squad_v1=MODEL takes a model "
    "that answers questions."
)
FIGURE3 = reported("""
        | SQuADv1 BERT | SQuADv2 BERT
maximum | 3.72         | 3.84
""")


def first_answers(data: Dataset) -> Dataset:
    """The questions that have an answer, with the first gold one."""
    return changed(data, lambda example: replace(example, answer=example.answer[:1]) if example.answer else None)


def cues_for_answers(data: Dataset) -> Dataset:
    """Cue words in place of answers."""
    return replace(changed(data, lambda example: replace(example, answer=example.cues)), name=f"{data.name}, cues")


def is_stand_in(call: RecipeCall, name: str) -> bool:
    """True where the grammar's cues stand in for answers; refuses other models that answer no questions."""
    model, grammar = call.model_for(name), name.partition(":")[0] == GRAMMAR
    answers = open_model(model).task == "question-answering"
    if answers and grammar:
        raise UnsupportedModel(f"{model} answers questions, and {name} has none; add --data squad_v1 or a file of them")
    if not answers and not grammar and model != call.recipe.model:
        raise UnsupportedModel(f"{model} does not answer questions; expected a model with a question-answering head")
    return not answers


def precision_run(call: RecipeCall, name: str, ks: Sequence[int]) -> tuple[Run, dict[str, str], dict[int, str]]:
    """One dataset measured at every K: the run, its rows, and its metrics by K."""
    model, options = call.model_for(name), call.options
    chosen = NOTEBOOK if options["rows"] == "notebook" else tuple(ROWS)
    if is_stand_in(call, name):
        examples = call.examples(name if name.partition(":")[0] == GRAMMAR else GRAMMAR, cues_for_answers)
        rows = methods_at(options["at"], [row for row in chosen if row not in LRP])
        metrics = {k: f"precision@{k}" for k in ks}
    else:
        examples = call.examples(name, first_answers)
        rows = methods_at(options["at"], chosen)
        metrics = {k: f"answer-precision(combine={options['combine']})@{k}" for k in ks}
    return call.evaluate(examples, rows.values(), metrics.values(), model=model), rows, metrics


def counts(run: Run, rows: dict[str, str], metric: str, column: str) -> dict[Place, Summary]:
    """The count of every row, and the largest count possible."""
    largest = overall(run, {MAXIMUM: rows["AttCAT"]}, f"{metric} maximum", column)
    return overall(run, rows, f"{metric} count", column) | largest


def datasets(call: RecipeCall) -> Iterable[str]:
    """The call's datasets; once where the stand-in is measured in their place."""
    stand_in = [name for name in call.data if is_stand_in(call, name)]
    return [name for name in call.data if name not in stand_in[1:]]


def is_most(table: Table, column: str) -> bool | None:
    """True where AttCAT's count is above that of every other method in the column."""
    others = [row for row in ROWS if row != "AttCAT" and (row, column) in table.ours]
    return best("AttCAT", *others)(table, column)


def draw_bars(table: Table) -> Picture:
    from wherefrom.view.plot import Series, bars

    none = Summary(float("nan"), float("nan"), float("nan"), 0, 0)
    rows = [row for row in table.rows if any((row, column) in table.ours for column in table.columns)]
    series = {row: Series.of(table.ours.get((row, column), none) for column in table.columns) for row in rows}
    return bars(series, list(table.columns), y_label="answer tokens in top K", width="page")


def draw_curves(table: Table) -> Picture:
    from wherefrom.view.plot import Series, curves

    series = {row: Series.of(table.ours[row, column] for column in table.columns) for row in table.rows}
    x = [float(column.removeprefix("K = ")) for column in table.columns]
    return curves(series, x=x, x_label="K", y_label="answer tokens in top K", width="page")


@recipe(
    "attcat/figure3",
    "How many of the K highest-scored tokens belong to the answer, and how many can at most.",
    samples="SQuAD v1 and v2, K = 20; BERT, DistilBERT and RoBERTa. Its bars have no numbers in the text, its caption "
    "gives the maximum of each dataset: 3.72 (ours) and 3.84",
    reported=FIGURE3,
    options={"k": 20, "combine": ("sum", "magnitudes"), "rows": ("all", "notebook"), "at": AT},
    joins=True,
    claims=(
        Claim(
            "AttCAT finds the most.",
            "section 6.1, figure 3",
            lambda table, column: None if "stand-in" in column else is_most(table, column),
            each=True,
        ),
    ),
    **ANSWERS,
)
def figure3(call: RecipeCall) -> Table:
    """The stand-in's K is a tenth of the other, because its sentences have about ten tokens."""
    ours: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    notes: list[str] = []
    for name in datasets(call):
        model = call.model_for(name)
        if is_stand_in(call, name):
            k, column = max(1, call.options["k"] // 10), "grammar cues (stand-in)"
            notes.append(STAND_IN)
        else:
            k = call.options["k"]
            column = f"{call.column(name)} {FAMILIES.get(open_model(model).config.model_type, called(model))}"
        run, rows, metrics = precision_run(call, name, [k])
        ours |= counts(run, rows, metrics[k], column)
        sources[column] = f"{used(run)}, K = {k}"
    of = "Mean ± standard deviation of the count"
    return Table([*ROWS, MAXIMUM], list(sources), ours, of, sources, notes, {"": draw_bars})


@recipe(
    "attcat/appendix-k",
    "Figure 3 for other values of K.",
    samples="SQuAD v1 and v2; the results are in the appendix, which is not at hand",
    at_hand=False,
    options={"combine": ("sum", "magnitudes"), "rows": ("all", "notebook"), "at": AT},
    **ANSWERS,
)
def appendix_k(call: RecipeCall) -> Table:
    name = next(iter(datasets(call)))
    run, rows, metrics = precision_run(call, name, KS)
    ours = {place: cell for k in KS for place, cell in counts(run, rows, metrics[k], f"K = {k}").items()}
    notes = [STAND_IN] if is_stand_in(call, name) else []
    of = "Mean ± standard deviation of the count"
    return Table([*rows, MAXIMUM], [f"K = {k}" for k in KS], ours, of, [used(run)], notes, {"": draw_curves})
