"""AttCAT: do the tokens with the highest impact scores matter most to the prediction, and to this class alone?

Table 1 takes the highest-scored tokens away, tenth by tenth: deleted for AOPC, replaced by [PAD] for log-odds. Table 2
correlates the scores towards the two or three classes: equation 15 takes arrays of token indices, in the columns that
bear the paper's names; beside them stands τ of the scores themselves, which two classes with opposite logits bring near
−1 for every gradient times input. AOPC and log-odds follow the paper's text.

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wherefrom.api import explain
from wherefrom.model import open_model
from wherefrom.papers.claims import Claim, best
from wherefrom.papers.figures import bar_picture, explained, token_table
from wherefrom.papers.recipe import RecipeCall, Table, number, overall, recipe, reported, used
from wherefrom.papers.samples import changed

if TYPE_CHECKING:
    from wherefrom.data import Dataset
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

ROWS = {
    "RawAtt": "raw-attention",
    "Rollout": "attention-rollout",
    "Grads": "grads",
    "AttGrads": "attention-gradients",
    "PartialLRP": "partial-lrp",
    "TransAtt": "transformer-attribution",
    "CAT": "cat",
    "AttCAT": "attcat",
}
OF_A_CLASS = {row: method for row, method in ROWS.items() if row not in ("RawAtt", "Rollout")}
DATASETS = {"sst2": "SST2", "qqp": "QQP", "mnli": "MNLI", "amazon": "Amazon", "yelp": "Yelp", "imdb": "IMDB"}
REVIEWS = {"data": ("sst2", "amazon", "yelp", "imdb"), "spare": "own", "limit": 60, "columns": DATASETS}
SAMPLES = (
    "the test sets of SST-2, QQP and MNLI, 2000 samples of Amazon, Yelp and IMDB each; BERT-base fine-tuned on each"
)
AOPC, LOG_ODDS = "aopc", "log-odds(by=pad)"
BY_INDEX, BY_SCORE = "confidence(protocol=indices)", "confidence"
REVIEW = "i really didn ' t like this movie . some of the actors were good , but overall the movie was boring ."
QUESTION = (
    "which nfl team represented the afc at super bowl 50 ?",
    "super bowl 50 was an american football game to determine the champion of the national football league ( nfl ) for "
    "the 2015 season . the american football conference ( afc ) champion denver broncos defeated the national football "
    "conference ( nfc ) champion carolina panthers 24 - 10 to earn their third super bowl title .",
)

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
FIGURE4 = reported("""
     | Sum
not  | 0.72
like | -0.37
""")


def best_in_its_way(table: Table, column: str) -> bool | None:
    """Higher is better for AOPC, lower for log-odds."""
    return best("AttCAT", lowest=column.endswith("LOdds"))(table, column)


@recipe(
    "attcat/table1",
    "AOPC (higher is better) and log-odds (lower is better) as the highest-scored tokens go.",
    samples=SAMPLES,
    reported=TABLE1,
    # "in most settings": in all but one of the paper's table
    claims=(Claim("AttCAT is the best.", "section 6.1, table 1", best_in_its_way, each=True, but=("QQP AOPC",)),),
    **REVIEWS,
)
def table1(asked: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    columns, said = [], []
    for name in asked.data:
        run = asked.evaluate(asked.examples(name), ROWS.values(), [AOPC, LOG_ODDS])
        said.append(used(run))
        for metric, short in ((AOPC, "AOPC"), (LOG_ODDS, "LOdds")):
            columns.append(f"{asked.column(name)} {short}")
            ours |= overall(run, ROWS, metric, columns[-1])
    return Table(list(ROWS), columns, ours, "Mean ± standard deviation", said)


@recipe(
    "attcat/table2",
    "Kendall's τ between the scores towards the predicted class and the others; lower is better.",
    samples=SAMPLES,
    reported=TABLE2,
    claims=(  # "on most data sets": on all but QQP in the paper's table
        Claim(
            "AttCAT is the lowest.",
            "section 6.1, table 2",
            best("AttCAT", lowest=True),
            each=True,
            but=("QQP", "QQP by scores"),
        ),
    ),
    **REVIEWS,
)
def table2(asked: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    columns, said = [], []
    for name in asked.data:
        run = asked.evaluate(asked.examples(name), OF_A_CLASS.values(), [BY_INDEX, BY_SCORE])
        said.append(used(run))
        for metric, added in ((BY_INDEX, ""), (BY_SCORE, " by scores")):
            columns.append(asked.column(name) + added)
            ours |= overall(run, OF_A_CLASS, metric, columns[-1])
    return Table(list(OF_A_CLASS), columns, ours, "Mean ± standard deviation of τ", said)


# Answers --------------------------------------------------------------------------------------------------


def cues_for_answers(data: Dataset) -> Dataset:
    return replace(changed(data, lambda each: replace(each, answer=each.cues)), name=f"{data.name}, cues as answers")


@recipe(
    "attcat/figure3",
    "How many of the K highest-scored tokens belong to the answer.",
    samples="SQuAD v1 and v2, K = 20; BERT, DistilBERT and RoBERTa. Its bars have no numbers in the text",
    model="wherefrom/mlm",
    data=("grammar",),
    spare="grammar",
    limit=100,
    claims=(Claim("AttCAT finds the most.", "section 6.1", lambda table, _: best("AttCAT")(table, table.columns[0])),),
)
def figure3(asked: RecipeCall) -> Table:
    """K = 20 for a model that answers questions (`--model … --data squad_v1`).

    None ships with wherefrom: by default the words that decide at a mask stand for the answer, and K is 2.
    """
    answers = open_model(asked.model).task == "question-answering"
    k, change = (20, None) if answers else (2, cues_for_answers)
    rows = {
        row: ROWS[row] for row in ROWS if answers or row in ("RawAtt", "Rollout", "Grads", "AttGrads", "CAT", "AttCAT")
    }
    metric = f"precision@{k}"
    run = asked.evaluate(asked.examples(change=change), rows.values(), [metric])
    ours = overall(run, rows, f"{metric} count", f"tokens of the answer in the top {k}")
    ours |= overall(run, rows, metric, f"share of the top {k}")
    columns = list(dict.fromkeys(column for _, column in ours))
    notes = (
        [] if answers else ["A stand-in: cue words at a mask in place of answers. --model takes a model that answers."]
    )
    draw = bar_picture(ours, list(rows), columns[0])
    return Table(list(rows), columns, ours, "Mean ± standard deviation", [used(run)], notes, {"": draw})


# Single sentences -----------------------------------------------------------------------------------------


@recipe(
    "attcat/figure4",
    "AttCAT's impact of every token in every layer, their sum and their rollout.",
    samples="one sentence of negative sentiment, with “not” and “like”; BERT-base",
    reported=FIGURE4,
    claims=(
        Claim(
            "By the sum, “not” speaks most for the prediction.",
            "section 6.2",
            lambda table, _: bool(table.mean("not", "Sum") == np.nanmax(table.matrix(columns=["Sum"]))),
            tested=False,
        ),
        Claim(
            "By the sum, “like” speaks most against it.",
            "section 6.2",
            lambda table, _: bool(table.mean("like", "Sum") == np.nanmin(table.matrix(columns=["Sum"]))),
            tested=False,
        ),
        Claim(
            "Rollout gives only minimal scores: less than a tenth of the sum's largest.",
            "section 6.2",
            lambda table, _: (
                None
                if "Rollout" not in table.columns
                else bool(
                    np.abs(table.matrix(columns=["Rollout"])).max() < np.abs(table.matrix(columns=["Sum"])).max() / 10
                )
            ),
            tested=False,
        ),
    ),
)
def figure4(asked: RecipeCall) -> Table:
    text = "i do not like this film ."
    total = explained(asked, text, ["attcat"])["attcat"]
    rolled = explain(text, asked.model, method="attcat", join="rollout", device=asked.device)
    assert total.layer_scores is not None
    columns = {
        **{f"L{i}": row for i, row in enumerate(total.layer_scores, 1)},
        "Rollout": rolled.scores,
        "Sum": total.scores,
    }
    largest = max(np.abs(each).max() for each in columns.values())
    ours = {
        (piece, column): number(float(score / largest), 1)
        for column, scores in columns.items()
        for piece, score in zip(total.pieces, scores, strict=True)
    }
    said = [f"{asked.model} on “{text}”, which it calls {total.prediction}"]
    of = "Impact scores, divided by the largest of all"
    return Table(total.pieces, list(columns), ours, of, said)  # drawn as it is: both joins have the same layers


@recipe(
    "attcat/figure5",
    "Text coloured by AttCAT, TransAtt, RawAtt and Rollout.",
    samples="one sentence of SST-2 and one question of SQuAD; BERT-base",
    claims=(
        Claim(
            "By AttCAT, “boring” speaks for the prediction and “like” against it.",
            "section 6.2",
            lambda table, _: (
                None
                if "boring" not in table.rows
                else table.mean("boring", "AttCAT") > 0 > table.mean("like", "AttCAT")
            ),
            tested=False,
        ),
    ),
)
def figure5(asked: RecipeCall) -> Table:
    answers = open_model(asked.model).task == "question-answering"
    methods = {row: ROWS[row] for row in (("AttCAT",) if answers else ("AttCAT", "TransAtt", "RawAtt", "Rollout"))}
    of = "Scores of every token"
    return token_table(asked, [QUESTION if answers else REVIEW], methods, "text", of)
