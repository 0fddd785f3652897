"""Quantifying Attention Flow in Transformers: does attention, followed down to the input, point at what matters?

Tables 1 and 2 correlate raw attention, rollout and flow of the readout token with blank-out and with gradients, layer
by layer, for a model of verb number; table 3 does so for a sentiment model. Their script for table 3 takes the largest
entry of each column of a map; here the readout row is read in all three, as the text has it.

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. ACL. https://aclanthology.org/2020.acl-main.385
"""

from __future__ import annotations

from collections.abc import Callable

from wherefrom.data import Dataset, up_to_mask
from wherefrom.papers.claims import Claim, above, all_above, averaged
from wherefrom.papers.figures import explained, layer_curves, picture, token_table
from wherefrom.papers.recipe import RecipeCall, Table, number, recipe, reported

ROWS = {"Raw": "raw-attention", "Rollout": "attention-rollout", "Flow": "attention-flow"}
BLANK_OUT = "spearman:ablation@layers"
GRADIENTS = "spearman:saliency@layers"
VERB_NUMBER = {"model": "wherefrom/agreement", "data": ("linzen_lgd",), "spare": "grammar:distractor", "limit": 300}
# Their second and third example hold tags of rare words (NNP, NNS), for which words stand here.
EXAMPLES = ("the key to the cabinets", "the article on nasa large systems", "here the men differ in that the female")
PRONOUNS = (("the author talked to sara about [MASK] book .", "author", "sara"),
            ("mary convinced john of [MASK] love .", "mary", "john"))  # fmt: skip

TABLE1 = reported("""
        | L1          | L2          | L3           | L4           | L5          | L6
Raw     | 0.69 ± 0.27 | 0.10 ± 0.43 | -0.11 ± 0.49 | -0.09 ± 0.52 | 0.20 ± 0.45 | 0.29 ± 0.39
Rollout | 0.32 ± 0.26 | 0.38 ± 0.27 | 0.51 ± 0.26  | 0.62 ± 0.26  | 0.70 ± 0.25 | 0.71 ± 0.24
Flow    | 0.32 ± 0.26 | 0.44 ± 0.29 | 0.70 ± 0.25  | 0.70 ± 0.22  | 0.71 ± 0.22 | 0.70 ± 0.22
""")
TABLE2 = reported("""
        | L1          | L2          | L3           | L4           | L5          | L6
Raw     | 0.53 ± 0.33 | 0.16 ± 0.38 | -0.06 ± 0.42 | 0.00 ± 0.47  | 0.24 ± 0.40 | 0.46 ± 0.35
Rollout | 0.22 ± 0.31 | 0.27 ± 0.32 | 0.39 ± 0.32  | 0.47 ± 0.32  | 0.53 ± 0.32 | 0.54 ± 0.31
Flow    | 0.22 ± 0.31 | 0.31 ± 0.34 | 0.54 ± 0.32  | 0.61 ± 0.28  | 0.60 ± 0.28 | 0.61 ± 0.28
""")
TABLE3 = reported("""
        | L1          | L3          | L5          | L6          | last
Raw     | 0.12 ± 0.21 | 0.09 ± 0.21 | 0.08 ± 0.20 | 0.09 ± 0.21 | 0.09 ± 0.21
Rollout | 0.11 ± 0.19 | 0.12 ± 0.21 | 0.13 ± 0.21 | 0.13 ± 0.20 | 0.13 ± 0.20
Flow    | 0.11 ± 0.19 | 0.11 ± 0.21 | 0.12 ± 0.22 | 0.14 ± 0.21 | 0.14 ± 0.21
""")


def above_raw(row: str) -> Claim:
    def holds(table: Table, _: str) -> bool | None:
        upper = [column for column in table.columns if column != "last"][len(table.columns) // 2 :]
        return above(table, row, "Raw", upper)

    return Claim(f"{row} agrees better than raw attention, in every layer of the upper half.", "section 4", holds)


ABOVE_RAW = (above_raw("Rollout"), above_raw("Flow"))
FLOW_FIRST = Claim(  # "attention flow weights are more reliable", of tables 1 and 2
    "Flow agrees better than rollout, on average over the layers.",
    "section 4",
    lambda table, _: all_above([(averaged(table, "Flow"), averaged(table, "Rollout"))]),
)


def layer_table(asked: RecipeCall, metric: str, of: str, change: Callable[[Dataset], Dataset] | None = None) -> Table:
    run = asked.evaluate(asked.examples(change=change), ROWS.values(), [BLANK_OUT, GRADIENTS], target="label")
    return layer_curves(run, ROWS, metric, of, asked.recipe.reported, y_label="Spearman's ρ")


@recipe(
    "abnar2020/table1",
    "Spearman's ρ of what the readout token draws on with blank-out scores, by layer (verb number).",
    samples="2000 samples of Linzen's test set; GPT-2 blocks without mask, 6 layers, accuracy 0.96",
    reported=TABLE1,
    claims=(*ABOVE_RAW, FLOW_FIRST),
    **VERB_NUMBER,
)
def table1(asked: RecipeCall) -> Table:
    return layer_table(asked, BLANK_OUT, "ρ with |blank-out| of the gold class", up_to_mask)


@recipe(
    "abnar2020/table2",
    "Spearman's ρ of what the readout token draws on with input gradients, by layer (verb number).",
    samples="2000 samples of Linzen's test set; GPT-2 blocks without mask, 6 layers, accuracy 0.96",
    reported=TABLE2,
    claims=(*ABOVE_RAW, FLOW_FIRST),
    **VERB_NUMBER,
)
def table2(asked: RecipeCall) -> Table:
    return layer_table(asked, GRADIENTS, "ρ with ‖gradient‖₂ of the gold class", up_to_mask)


@recipe(
    "abnar2020/table3",
    "Spearman's ρ of what [CLS] draws on with input gradients, by layer (sentiment).",
    samples="100 samples of SST-2's test set; DistilBERT, 6 layers",
    data=("sst2",),
    spare="own",
    limit=100,
    reported=TABLE3,
    claims=ABOVE_RAW,
)
def table3(asked: RecipeCall) -> Table:
    return layer_table(asked, GRADIENTS, "ρ with ‖gradient‖₂ of the gold class")


# Figures --------------------------------------------------------------------------------------------------


@recipe(
    "abnar2020/figure1",
    "The attention graph of one sentence: raw attention, rollout and flow.",
    samples="one sentence that is classified correctly; the verb-number model",
    model="wherefrom/agreement",
)
def figure1(asked: RecipeCall) -> Table:
    return token_table(asked, EXAMPLES[:1], ROWS, "graph")


@recipe(
    "abnar2020/figure2",
    "Raw attention of the readout token in every layer, for three sentences.",
    samples="three sentences, the last of them misclassified; the verb-number model",
    model="wherefrom/agreement",
)
def figure2(asked: RecipeCall) -> Table:
    return token_table(asked, EXAMPLES, {"Raw": ROWS["Raw"]}, "layers")


@recipe(
    "abnar2020/figure3",
    "Rollout and flow of the readout token in every layer, for three sentences.",
    samples="three sentences, the last of them misclassified; the verb-number model",
    model="wherefrom/agreement",
)
def figure3(asked: RecipeCall) -> Table:
    return token_table(asked, EXAMPLES, {row: ROWS[row] for row in ("Rollout", "Flow")}, "layers")


def _points_at(table: Table, letter: str, method: str) -> str:
    """The person who gets more."""
    return max((row for row in table.rows if row.startswith(f"({letter})")), key=lambda row: table.mean(row, method))


@recipe(
    "abnar2020/figure4",
    "Which of two people a masked pronoun draws on, and the probabilities of “his” and “her”.",
    samples="two sentences; a pre-trained BERT",
    model="wherefrom/mlm",
    claims=(
        Claim(
            "In (a), rollout and flow point at the same person.",
            "section 4",
            lambda table, _: _points_at(table, "a", "Rollout") == _points_at(table, "a", "Flow"),
            tested=False,
        ),
    ),
)
def figure4(asked: RecipeCall) -> Table:
    ours, rows, pictures, said = {}, [], {}, []
    for letter, (text, *people) in zip("ab", PRONOUNS, strict=True):
        # The probability of "his" is kept for a method that is asked about it.
        found = explained(asked, text, [*ROWS.values(), "saliency"], target="his")
        named = dict(zip(ROWS, found.values(), strict=False))
        likely = named["Raw"].probabilities
        for person in people:
            rows.append(f"({letter}) {person}")
            place = named["Raw"].pieces.index(person)
            ours.update({(rows[-1], name): number(each.scores[place], 1) for name, each in named.items()})
        pronouns = [word for word in ("his", "her") if word in likely]
        said.append(f"{asked.model} on “{text}”: " + ", ".join(f"p({word}) = {likely[word]:.3f}" for word in pronouns))
        pictures[f"-{letter}"] = picture(named, "layers", tokens=people, probabilities=pronouns, width="page")
    return Table(rows, list(ROWS), ours, "What the mask draws on in the last layer", said, pictures=pictures)
