"""Figures 1 and A.1 to A.6 of GlobEnc: attributions of single texts (globenc.py has the tables and the other figures).

Figure 1 shows two sentences that the paper prints. The texts of figures A.1 to A.6 are in pictures only: figure A.1
looks for misclassified examples in SST-2 where that is on this machine; the others show texts of our own, or those of
--text, --pair or --data.

Modarressi et al. (2022), GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in
Transformers. NAACL. https://aclanthology.org/2022.naacl-main.19
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from wherefrom.evaluation.gold import gold_classes
from wherefrom.model import open_model
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, token_layer_table, token_table
from wherefrom.papers.globenc import BERT, BERT_LARGE, ELECTRA, ROWS, family_of
from wherefrom.papers.recipe import RecipeCall, Table, layers, recipe
from wherefrom.papers.samples import refuse_foreign_labels

if TYPE_CHECKING:
    from wherefrom.papers.recipe import Text

SENTENCES = ("a deep and meaningful film .", "big fat waste of time .")
SENTIMENT_WORDS = ("meaningful", "waste")
MISREAD = ("not a single scene feels wasted .", "i expected a masterpiece and got a headache .")
PAIRS = (
    ("the committee met twice in june .", "the committee never met ."),
    ("a man is playing a guitar on the street .", "someone is making music outside ."),
)
# A rollout of norms grows from layer to layer, so that only shares can be compared.
SHARES = "Shares of what the readout token draws on up to each layer"


def describe_model(call: RecipeCall, family: str, dataset: str) -> list[str]:
    """A note where the model is not the one of the paper's figure."""
    if call.model == call.recipe.model and (family, dataset) != (BERT, "SST-2"):
        return [f"{call.model} stands in: the paper shows {family} fine-tuned on {dataset}; name one by --model."]
    own = family_of(call.model)
    return [] if own == family else [f"{call.model} is a {own}; the paper shows {family}."]


# Figure 1 -------------------------------------------------------------------------------------------------


def word_shares(table: Table, place: int, word: str, column: str) -> tuple[float, list[float]] | None:
    """The share of a word, its pieces added up, and of every other token but the special ones; None without it."""
    rows = [row for row in table.rows if row.startswith(f"{place}. ")]
    pieces = [row.partition(". ")[2].partition(" (")[0] for row in rows]
    for start in range(len(pieces)):
        for end in range(start + 1, len(pieces) + 1):
            if "".join(pieces[start:end]) == word:
                others = [row for row, piece in zip(rows, pieces, strict=True) if not piece.startswith("[")]
                kept = [row for row in others if row not in rows[start:end]]
                return sum(table.mean(row, column) for row in rows[start:end]), [
                    table.mean(row, column) for row in kept
                ]
    return None


def _in_both_sentences(holds: Callable[[Table, int, str], bool | None]) -> Callable[[Table, str], bool | None]:
    def both(table: Table, _: str) -> bool | None:
        found = [holds(table, place, word) for place, word in enumerate(SENTIMENT_WORDS, 1)]
        return None if None in found else all(found)

    return both


def _focuses_on_the_word(table: Table, place: int, word: str) -> bool | None:
    found = word_shares(table, place, word, layers(table.ours)[-1])
    return None if found is None else found[0] > max(found[1])


def _shifts_to_the_word(table: Table, place: int, word: str) -> bool | None:
    """[CLS] holds most of itself in the first layer; then its share falls, and the word's rises."""
    first, last = layers(table.ours)[0], layers(table.ours)[-1]
    before, after = (word_shares(table, place, word, column) for column in (first, last))
    if before is None or after is None:
        return None
    itself = [table.mean(f"{place}. [CLS]", column) for column in (first, last)]
    rows = [row for row in table.rows if row.startswith(f"{place}. ")]
    return itself[0] == max(table.matrix(rows, [first])[:, 0]) and itself[0] > itself[1] and after[0] > before[0]


@recipe(
    "globenc/figure1",
    "What [CLS] holds of every token up to each layer, by GlobEnc.",
    samples="two sentences of SST-2, both classified correctly; BERT-base",
    texts=SENTENCES,
    model_of="sst2",
    claims=(
        Claim(
            "GlobEnc focuses on the words of sentiment, “meaningful” and “waste” (largest share in the last layer).",
            "section 4.5.5",
            _in_both_sentences(_focuses_on_the_word),
            tested=False,
        ),
        Claim(
            "In the first layer [CLS] mostly attends to itself, and attribution shifts to the words of sentiment.",
            "section 4.5.5",
            _in_both_sentences(_shifts_to_the_word),
            tested=False,
        ),
    ),
)
def figure1(call: RecipeCall) -> Table:
    return token_layer_table(call, call.texts, {"N_Enc": ROWS["N_Enc"]}, SHARES, shares=True)


# Figures A.1 to A.6 ---------------------------------------------------------------------------------------


def misclassified(call: RecipeCall) -> Iterator[tuple[Text, str]]:
    """Texts that the model puts into another class than their label, with the label."""
    data = call.examples()
    refuse_foreign_labels(call.model, data, call.names)
    opened = open_model(call.model)
    classes = gold_classes(opened.labels, data.labels, data.labels, call.names)
    for example in data:
        label = str(example.label)
        gold = opened.labels[classes[label]] if label in classes else label
        found = explained(call, example.text, [ROWS["W"]], truncate=True)
        if next(iter(found.values())).prediction != gold:
            yield example.text, gold


@recipe(
    "globenc/figure-a1",
    "GlobEnc up to each layer, for sentences that the model misclassifies.",
    samples="misclassified examples of SST-2; BERT-base",
    data=("sst2",),
    limit=500,
    texts=MISREAD,
    model_of="sst2",
    options={"n_examples": 2},
)
def figure_a1(call: RecipeCall) -> Table:
    """The first misclassified ones among `limit` examples, as many as `n_examples`."""
    methods = {"N_Enc": ROWS["N_Enc"]}
    if call.texts != call.recipe.texts or not call.data:
        return token_layer_table(call, call.texts, methods, SHARES, shares=True)
    found = list(islice(misclassified(call), call.options["n_examples"]))
    notes = [f"{place}. is labeled {label}." for place, (_, label) in enumerate(found, 1)]
    notes = notes or [f"None of {call.limit} examples is misclassified; these are sentences of our own."]
    texts = [text for text, _ in found] or call.texts
    return replace(token_layer_table(call, texts, methods, SHARES, shares=True), notes=notes)


@recipe(
    "globenc/figure-a2",
    "What [CLS] draws on in every layer, by all eight methods rolled out.",
    samples="examples of SST-2; BERT-base",
    texts=SENTENCES[:1],
    model_of="sst2",
)
def figure_a2(call: RecipeCall) -> Table:
    of = "Shares of what the readout token draws on in the last layer"
    return token_table(call, call.texts, ROWS, "layers", of, shares=True, width="page")


@recipe(
    "globenc/figure-a3",
    "What every token draws on in the last layer, by all eight methods rolled out.",
    samples="examples of SST-2; BERT-base, layer 12",
    texts=SENTENCES[:1],
    model_of="sst2",
)
def figure_a3(call: RecipeCall) -> Table:
    of = "Shares of what the readout token draws on in the last layer"
    return token_table(call, call.texts, ROWS, "map", of, shares=True, scale="row", width="page")


def pair_figure(call: RecipeCall, family: str) -> Table:
    table = token_layer_table(call, call.texts, {"N_Enc": ROWS["N_Enc"]}, SHARES, shares=True, width="page")
    return replace(table, notes=describe_model(call, family, "MNLI"))


NLI = {"texts": PAIRS, "model_of": "mnli"}


@recipe("globenc/figure-a4", "GlobEnc up to each layer, for pairs of sentences.", samples="MNLI; BERT-base", **NLI)
def figure_a4(call: RecipeCall) -> Table:
    return pair_figure(call, BERT)


@recipe("globenc/figure-a5", "GlobEnc up to each layer, for pairs of sentences.", samples="MNLI; ELECTRA", **NLI)
def figure_a5(call: RecipeCall) -> Table:
    return pair_figure(call, ELECTRA)


@recipe("globenc/figure-a6", "GlobEnc up to each layer, for pairs of sentences.", samples="MNLI; BERT-large", **NLI)
def figure_a6(call: RecipeCall) -> Table:
    return pair_figure(call, BERT_LARGE)
