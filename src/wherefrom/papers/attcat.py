"""AttCAT, tables 1 and 2: do the tokens of highest impact matter most to the prediction, and to this class alone?

Table 1 takes the highest-scored tokens away, tenth by tenth: deleted for AOPC, replaced by [PAD] for log-odds
(equations 13 and 14). Table 2 correlates the tokens' order towards the predicted class with that towards all others:
by arrays of token indices, as equation 15 is written, in the columns that bear the paper's names; beside them stands τ
of the scores themselves, which two classes with opposite logits bring near −1 for every gradient times input. The
figures: attcat_answers.py (3) and attcat_texts.py (4, 5).

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.model import open_model
from wherefrom.papers.claims import Claim, all_above, best
from wherefrom.papers.recipe import RecipeCall, Table, overall, recipe, reported, used
from wherefrom.papers.samples import changed

if TYPE_CHECKING:
    from wherefrom.data import Example
    from wherefrom.evaluation import Run
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

ATTENTION = {"RawAtt": "raw-attention", "Rollout": "attention-rollout"}
ROWS = {
    **ATTENTION,
    "Grads": "grads",
    "AttGrads": "attention-gradients",
    "PartialLRP": "partial-lrp",
    "TransAtt": "transformer-attribution",
    "CAT": "cat",
    "AttCAT": "attcat",
}
DATASETS = {"sst2": "SST2", "qqp": "QQP", "mnli": "MNLI", "amazon": "Amazon", "yelp": "Yelp", "imdb": "IMDB"}
AT = ("input", "output")  # of the blocks whose features CAT and AttCAT take: as the authors' code, or as the text
TABLE = {
    "samples": "the test sets of SST-2, QQP and MNLI, 2000 samples of Amazon, Yelp and IMDB each; BERT-base fine-tuned "
    "on each",
    "data": ("sst2", "amazon", "yelp", "imdb"),
    "columns": DATASETS,
    "spare": "own",
    "limit": 60,
    "joins": True,
}

TABLE1 = reported("""
           | SST2 AOPC | SST2 LOdds | QQP AOPC | QQP LOdds | MNLI AOPC | MNLI LOdds | Amazon AOPC | Amazon LOdds | Yelp AOPC | Yelp LOdds | IMDB AOPC | IMDB LOdds
RawAtt     | 0.331     | -0.885     | 0.143    | 0.149     | 0.138     | 0.235      | 0.384       | -1.729       | 0.394     | -2.017     | 0.298     | -1.245
Rollout    | 0.286     | -0.641     | 0.139    | 0.262     | 0.151     | 0.321      | 0.324       | -1.303       | 0.277     | -1.055     | 0.331     | -1.323
Grads      | 0.335     | -0.252     | 0.141    | 0.184     | 0.156     | 0.139      | 0.316       | -1.820       | 0.414     | -1.994     | 0.304     | -1.227
AttGrads   | 0.351     | -0.603     | 0.143    | 0.113     | 0.159     | 0.114      | 0.346       | -1.941       | 0.439     | -2.054     | 0.310     | -1.267
PartialLRP | 0.341     | -0.922     | 0.142    | 0.137     | 0.138     | 0.231      | 0.418       | -2.019       | 0.424     | -2.199     | 0.312     | -1.321
TransAtt   | 0.354     | -1.038     | 0.145    | 0.114     | 0.130     | 0.214      | 0.415       | -1.889       | 0.434     | -2.508     | 0.421     | -2.137
CAT        | 0.352     | -1.115     | 0.134    | 0.121     | 0.157     | 0.121      | 0.409       | -2.157       | 0.421     | -2.587     | 0.406     | -3.052
AttCAT     | 0.371     | -1.319     | 0.139    | 0.073     | 0.164     | 0.008      | 0.457       | -2.332       | 0.473     | -3.169     | 0.528     | -3.671
""")  # noqa: E501
TABLE2 = reported("""
           | SST2  | QQP   | MNLI  | Amazon | Yelp  | IMDB
Grads      | 0.150 | 0.236 | 0.169 | 0.146  | 0.174 | 0.098
AttGrads   | 0.116 | 0.198 | 0.156 | 0.148  | 0.132 | 0.064
PartialLRP | 0.955 | 0.949 | 0.935 | 0.965  | 0.952 | 0.858
TransAtt   | 0.336 | 0.222 | 0.339 | 0.152  | 0.121 | 0.043
CAT        | 0.101 | 0.373 | 0.339 | 0.095  | 0.107 | 0.056
AttCAT     | 0.018 | 0.349 | 0.017 | 0.015  | 0.008 | 0.023
""")


def methods_at(at: str, rows: Iterable[str] = ROWS) -> dict[str, str]:
    """The paper's rows and their methods; `at` is the side of the blocks whose features CAT and AttCAT take."""
    features = {"CAT", "AttCAT"} if at == "output" else ()
    return {row: f"{ROWS[row]}(at=output)" if row in features else ROWS[row] for row in rows}


def measure(call: RecipeCall, name: str, methods: Iterable[str], metrics: Iterable[str]) -> Run:
    """One dataset by its model; with `protocol=attcat-code` as the notebooks do: texts of ten tokens or more, with
    [CLS] and [SEP], explained towards their gold label.
    """
    model = call.model_for(name)
    if call.options["protocol"] != "attcat-code":
        return call.evaluate(call.examples(name), methods, metrics, model=model)
    tokenizer: Any = open_model(model).tokenizer

    def is_long(example: Example) -> bool:
        texts = (example.text,) if isinstance(example.text, str) else example.text
        return len(tokenizer(*texts)["input_ids"]) >= 10

    examples = call.examples(name, lambda data: changed(data, lambda example: example if is_long(example) else None))
    return call.evaluate(examples, methods, metrics, model=model, target="label")


# Claims ---------------------------------------------------------------------------------------------------


def is_lower_better(column: str) -> bool:
    return column.endswith("LOdds")


def is_best(table: Table, column: str) -> bool | None:
    return best("AttCAT", lowest=is_lower_better(column))(table, column)


def is_better_than(row: str) -> Callable[[Table, str], bool | None]:
    def holds(table: Table, column: str) -> bool | None:
        return best("AttCAT", row, lowest=is_lower_better(column))(table, column)

    return holds


def is_attention_worst(table: Table, column: str) -> bool | None:
    """True where one of the two methods that look at attention alone is below all others."""
    sign = 1 if is_lower_better(column) else -1
    worst = max(ATTENTION, key=lambda row: np.nan_to_num(sign * table.mean(row, column), nan=-np.inf))
    pairs = [(table.ours.get((row, column)), table.ours.get((worst, column))) for row in ROWS if row not in ATTENTION]
    return all_above((b, a) if sign > 0 else (a, b) for a, b in pairs)


# Tables ---------------------------------------------------------------------------------------------------


@recipe(
    "attcat/table1",
    "AOPC (higher is better) and log-odds (lower is better) as the highest-scored tokens are taken away.",
    reported=TABLE1,
    options={"protocol": ("text", "attcat-code"), "at": AT},
    claims=(  # each but where the paper's own table says otherwise
        Claim("AttCAT is the best.", "section 6.1, table 1", is_best, each=True, but=("QQP AOPC",)),
        Claim(
            "RawAtt or Rollout is the worst.",
            "section 6.1",
            is_attention_worst,
            each=True,
            but=("SST2 LOdds", "QQP AOPC", "MNLI AOPC", "Amazon AOPC", "IMDB LOdds"),
        ),
        Claim("AttCAT outperforms TransAtt.", "section 6.1", is_better_than("TransAtt"), each=True, but=("QQP AOPC",)),
        Claim("AttCAT outperforms CAT.", "section 6.1", is_better_than("CAT"), each=True),
    ),
    **TABLE,
)
def table1(call: RecipeCall) -> Table:
    """By the text, or by the notebooks: `protocol=attcat-code`, in nine steps and by absolute change."""
    added = ", protocol=attcat-code" if call.options["protocol"] == "attcat-code" else ""
    metrics = {"AOPC": f"aopc(by=delete{added})", "LOdds": f"log-odds(by=pad{added})"}
    rows = methods_at(call.options["at"])
    ours: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    for name in call.data:
        run = measure(call, name, rows.values(), metrics.values())
        for short, metric in metrics.items():
            column = f"{call.column(name)} {short}"
            sources[column] = used(run)
            ours |= overall(run, rows, metric, column)
    return Table(list(rows), list(sources), ours, "Mean ± standard deviation", sources)


@recipe(
    "attcat/table2",
    "Kendall's τ between the tokens' order towards the predicted class and towards the others; lower is better.",
    reported=TABLE2,
    options={"protocol": ("indices", "attcat-code"), "at": AT},
    claims=(  # each but where the paper's own table says otherwise
        Claim(
            "AttCAT is the lowest.",
            "section 6.1, table 2",
            best("AttCAT", lowest=True),
            each=True,
            but=("QQP", "QQP by scores"),
        ),
    ),
    **TABLE,
)
def table2(call: RecipeCall) -> Table:
    """By the index arrays of all other classes (equation 15), or of one other class (`protocol=attcat-code`)."""
    metrics = {"": f"confidence(protocol={call.options['protocol']})", " by scores": "confidence"}
    rows = methods_at(call.options["at"], [row for row in ROWS if row not in ATTENTION])
    ours: dict[Place, Summary] = {}
    sources: dict[str, str] = {}
    for name in call.data:
        run = measure(call, name, rows.values(), metrics.values())
        for added, metric in metrics.items():
            column = call.column(name) + added
            sources[column] = used(run)
            ours |= overall(run, rows, metric, column)
    return Table(list(rows), list(sources), ours, "Mean ± standard deviation of τ", sources)
