"""AttCAT, figures 4 and 5: impact scores of single texts, layer by layer and as colors.

Figure 4's sentence and its scale are those of the authors' notebook: all numbers of the picture are divided by the root
of the sum of their squares. Its rollout multiplies the scores of a token over the layers (`rollout=tokens`);
`rollout=maps` multiplies the layers' matrices. The notebook hides [CLS] and [SEP] from attention while it explains;
here they take part. Figure 5a explains the start and the end of the answer together.

Qiang et al. (2022), AttCAT: Explaining Transformers via Attentive Class Activation Tokens. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wherefrom.errors import UnsupportedModel
from wherefrom.model import open_model
from wherefrom.papers.attcat import AT, methods_at
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, token_table
from wherefrom.papers.recipe import RecipeCall, Table, called, number, recipe, reported

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place
    from wherefrom.view.plot import Picture

SENTENCE = "I do not like this movie"
REVIEW = "i really didn ' t like this movie . some of the actors were good , but overall the movie was boring ."
QUESTION = (
    "which nfl team represented the afc at super bowl 50 ?",
    "super bowl 50 was an american football game to determine the champion of the national football league (nfl) for "
    "the 2015 season , the american football conference (afc) champion denver broncos defeated the national football "
    "conference (nfc) champion carolina panthers 24 - 10 to earn their third super bowl title . the game was played on "
    "february 7 , 2016 , at levi ' s stadium in the san francisco bay area at santa clara , california . as this was "
    'the 50th super bowl , the league emphasized the " golden anniversary " with various gold - themed initiatives , '
    "as well as temporarily suspending the tradition of naming each super bowl game with roman numerals (under which "
    'the game would have been known as " super bowl I ") , so that the logo could prominently feature the arabic '
    "numerals 50 .",
)
MASKED = "mary saw [MASK] houses ."
STAND_IN = (
    "A stand-in for question answering: the word at a mask is explained. --model squad_v1=MODEL takes a model that "
    "answers questions."
)
AGAINST = ("like", "really")
NEGATIVE = ("boring", "didn", "t")
IRRELEVANT = ("overall", "but", ".", ". (2)", ",")
FIGURE4 = reported("""
     | Sum
not  | 0.72
like | -0.37
""")

Holds = Callable[[Table, str], bool | None]


# Figure 4 -------------------------------------------------------------------------------------------------


def is_extreme(token: str, highest: bool) -> Holds:
    """A claim that a token has the highest, or the lowest, score of the sum; None where the text lacks it."""

    def holds(table: Table, _: str) -> bool | None:
        scores = table.matrix(columns=["Sum"])
        extreme = np.nanmax(scores) if highest else np.nanmin(scores)
        return bool(table.mean(token, "Sum") == extreme) if token in table.rows else None

    return holds


def is_rollout_minimal(table: Table, _: str) -> bool | None:
    if "Rollout" not in table.columns:
        return None
    return bool(largest(table, ["Rollout"]) < largest(table, ["Sum"]) / 10)


def largest(table: Table, columns: Sequence[str]) -> float:
    return float(np.abs(table.matrix(columns=columns)).max())


def is_deeper_lower(measure: Callable[[Any], float]) -> Holds:
    """A claim that a measure of the last two layers is below its mean over the layers before."""

    def holds(table: Table, _: str) -> bool | None:
        layers = [column for column in table.columns if column.startswith("L")]
        if len(layers) < 4:
            return None
        deep, shallow = ([measure(table.matrix(columns=[c])) for c in part] for part in (layers[-2:], layers[:-2]))
        return bool(np.mean(deep) < np.mean(shallow))

    return holds


@recipe(
    "attcat/figure4",
    "AttCAT's impact of every token in every layer, their sum and their rollout.",
    samples="one sentence of negative sentiment, with “not” and “like”; BERT-base",
    reported=FIGURE4,
    model_of="sst2",
    texts=(SENTENCE,),
    options={"rollout": ("tokens", "maps"), "at": AT},
    claims=(
        Claim(
            "The scores are smaller in the two deepest layers.",
            "section 6.2",
            is_deeper_lower(lambda scores: np.abs(scores).mean()),
            tested=False,
        ),
        Claim(
            "The scores are more uniform in the two deepest layers.",
            "section 6.2",
            is_deeper_lower(lambda scores: scores.std()),
            tested=False,
        ),
        Claim(
            "Rollout gives only minimal scores: less than a tenth of the sum's largest.",
            "section 6.2",
            is_rollout_minimal,
            tested=False,
        ),
        Claim(
            "By the sum, “not” speaks most for the prediction.", "section 6.2", is_extreme("not", True), tested=False
        ),
        Claim("By the sum, “like” speaks most against it.", "section 6.2", is_extreme("like", False), tested=False),
    ),
)
def figure4(call: RecipeCall) -> Table:
    ours: dict[Place, Summary] = {}
    rows: list[str] = []
    columns: list[str] = []
    sources: list[str] = []
    pictures: dict[str, Draw] = {}
    for place, text in enumerate(call.texts, 1):
        name = methods_at(call.options["at"], ["AttCAT"])["AttCAT"]
        total = explained(call, text, [name])[name]
        scores = impact_columns(call, text, total)
        scale = np.sqrt(sum((row**2).sum() for row in scores.values())) or 1.0
        tokens = numbered(total.pieces, f"{place}. " if len(call.texts) > 1 else "")
        columns = list(scores)
        ours |= {
            (token, column): number(float(score / scale), 1)
            for column, row in scores.items()
            for token, score in zip(tokens, row, strict=True)
        }
        rows += tokens
        sources.append(f"{called(call.model)} on “{text}”, which it calls {total.prediction}")
        pictures[f"-{place}" if len(call.texts) > 1 else ""] = draw_layers(tokens, total.pieces)
    of = "Impact scores, divided by the root of the sum of their squares"
    return Table(rows, columns, ours, of, sources, pictures=pictures)


def impact_columns(call: RecipeCall, text: Any, total: Any) -> dict[str, Any]:
    """The scores of every layer from the first (L0) on, their rollout and their sum."""
    if call.options["rollout"] == "tokens":
        rollout = np.prod(total.layer_scores, axis=0)
    else:
        name = f"attcat(join=rollout, at={call.options['at']})"
        rollout = explained(call, text, [name])[name].scores
    return {**{f"L{i}": row for i, row in enumerate(total.layer_scores)}, "Rollout": rollout, "Sum": total.scores}


def numbered(pieces: Sequence[str], before: str = "") -> list[str]:
    """Tokens as names of rows: one that occurred before gets a number."""
    return [
        before + piece + (f" ({pieces[: i + 1].count(piece)})" if piece in pieces[:i] else "")
        for i, piece in enumerate(pieces)
    ]


def draw_layers(tokens: Sequence[str], pieces: Sequence[str]) -> Draw:
    """The layers as rows and the tokens as columns, as in the paper."""

    def draw(table: Table) -> Picture:
        from wherefrom.view.plot import grid

        return grid(table.matrix(rows=tokens).T, list(table.columns), list(pieces))

    return draw


# Figure 5 -------------------------------------------------------------------------------------------------


def ranks_high(tokens: Sequence[str], column: str, count: Callable[[int], int]) -> Holds:
    """A claim that tokens are among the first `count` of a column; None where one of them is not there."""

    def holds(table: Table) -> bool:
        top = sorted(table.rows, key=lambda row: -table.mean(row, column))[: count(len(table.rows))]
        return set(tokens) <= set(top)

    return on_tokens(tokens, holds)


def on_tokens(tokens: Sequence[str], holds: Callable[[Table], bool]) -> Holds:
    """A claim about a text that has these tokens; None for any other."""
    return lambda table, _: holds(table) if set(tokens) <= set(table.rows) else None


def are_signs_right(table: Table) -> bool:
    against = [table.mean(token, "AttCAT") < 0 for token in AGAINST]
    return table.mean("boring", "AttCAT") > 0 and all(against)


def is_irrelevant_above(table: Table) -> bool:
    irrelevant, negative = (table.matrix(tokens, ["RawAtt"]).mean() for tokens in (IRRELEVANT, NEGATIVE))
    return bool(irrelevant > negative)


def is_rollout_uniform(table: Table) -> bool:
    scores = np.abs(table.matrix())
    variation = dict(zip(table.columns, scores.std(0) / scores.mean(0), strict=True))
    return min(variation, key=lambda column: variation[column]) == "Rollout"


@recipe(
    "attcat/figure5a",
    "A question and its context colored by AttCAT.",
    samples="one question of SQuAD; BERT-base",
    model="wherefrom/mlm",
    model_of="squad_v1",
    texts=(QUESTION,),
    options={"at": AT},
    claims=(
        Claim(
            "“denver” and “broncos” have the highest scores.",
            "section 6.2, figure 5a",
            ranks_high(("denver", "broncos"), "AttCAT", lambda _: 2),
            tested=False,
        ),
    ),
)
def figure5a(call: RecipeCall) -> Table:
    """The start and the end of the answer are explained together. Without a model that answers, a word at a mask is."""
    answers = open_model(call.model).task == "question-answering"
    if not answers and call.model != call.recipe.model:
        raise UnsupportedModel(f"{call.model} does not answer questions; expected a question-answering head")
    stand_in = not answers and call.texts == call.recipe.texts
    methods, question = methods_at(call.options["at"], ["AttCAT"]), {"target": "answer"} if answers else None
    texts = (MASKED,) if stand_in else call.texts
    table = token_table(call, texts, methods, "text", "Scores of every token", question=question)
    return table if answers else replace(table, notes=[STAND_IN])


@recipe(
    "attcat/figure5b",
    "A review colored by AttCAT, TransAtt, RawAtt and Rollout.",
    samples="one sentence of SST-2; BERT-base",
    model_of="sst2",
    texts=(REVIEW,),
    options={"at": AT},
    claims=(
        *(
            Claim(
                f"“boring”, “didn” and “t” are in the highest quarter by {row}.",
                "section 6.2, figure 5b",
                ranks_high(NEGATIVE, row, lambda n: n // 4),
                tested=False,
            )
            for row in ("AttCAT", "TransAtt")
        ),
        Claim(
            "By AttCAT, “boring” speaks for the prediction, “like” and “really” against it.",
            "section 6.2, figure 5b",
            on_tokens(("boring", *AGAINST), are_signs_right),
            tested=False,
        ),
        Claim(
            "TransAtt has no score below zero.",
            "section 6.2, figure 5b",
            lambda table, _: bool(table.matrix(columns=["TransAtt"]).min() >= 0),
            tested=False,
        ),
        Claim(
            "RawAtt gives “overall”, “but” and the punctuation more than “boring”, “didn” and “t”.",
            "section 6.2, figure 5b",
            on_tokens((*IRRELEVANT, *NEGATIVE), is_irrelevant_above),
            tested=False,
        ),
        Claim(
            "Rollout's scores are the most uniform.",
            "section 6.2, figure 5b",
            lambda table, _: is_rollout_uniform(table),
            tested=False,
        ),
    ),
)
def figure5b(call: RecipeCall) -> Table:
    methods = methods_at(call.options["at"], ["AttCAT", "TransAtt", "RawAtt", "Rollout"])
    return token_table(call, call.texts, methods, "text", "Scores of every token")
