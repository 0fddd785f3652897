"""Figures 1 to 4 of Quantifying Attention Flow in Transformers: attention in single sentences (abnar2020.py).

The claims about them come without a measure; ours are named in abnar2020.py and in each claim.

Abnar & Zuidema (2020), Quantifying Attention Flow in Transformers. ACL. https://aclanthology.org/2020.acl-main.385
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from wherefrom.errors import InvalidOption
from wherefrom.metric.evenness import evenness
from wherefrom.papers import map_shape
from wherefrom.papers.abnar2020 import ROWS, UNIFORM
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, picture, quote, token_layer_table, token_rows
from wherefrom.papers.recipe import RecipeCall, Table, called, layers, number, recipe

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place, Text
    from wherefrom.result.explanation import Explanation

SENTENCES = {"model": "wherefrom/agreement", "model_of": "linzen_lgd"}
# The second and third example hold tags of rare words (NNP, NNS), for which words stand here.
EXAMPLES = ("the key to the cabinets", "the article on nasa large systems", "here the men differ in that the female")
FLIPPED = {  # the same sentence with the change that flips the decision of the authors' model
    EXAMPLES[1]: "the articles on nasa large systems",
    EXAMPLES[2]: "here the nasa differ in that the female",
}
NUMBERS = ("singular", "plural")
PRONOUNS = {  # with the person of each pronoun, in the order of PAIR
    "the author talked to sara about [MASK] book .": ("author", "sara"),
    "mary convinced john of [MASK] love .": ("john", "mary"),
}
PAIR = "his/her"


SHAPES: Mapping[str, Callable[[np.ndarray], float]] = {
    "self weight": map_shape.self_weight,
    "received variation": map_shape.received_variation,
    "row distance": map_shape.row_distance,
}


def _row(table: Table, row: str) -> list[float]:
    return [table.mean(row, column) for column in layers(table.ours)]


def _residuals_fade(table: Table, _: str) -> bool:
    rows = [_row(table, f"{name}: self weight") for name in ("Rollout", "Flow")]
    return all(upper < lower for row in rows for lower, upper in pairwise(row))


def _patterns_become_distinctive(table: Table, _: str) -> bool:
    rises = {name: _row(table, f"{name}: received variation") for name in ROWS}
    return all((row[-1] > row[0]) == (name != "Raw") for name, row in rises.items())


def _first_layers_differ_most(table: Table, _: str) -> bool:
    row = _row(table, "Raw: row distance")
    return min(row[:2]) > max(row[2:], default=0.0)


@recipe(
    "abnar2020/figure1",
    "The attention graph of one sentence: raw attention, rollout and flow.",
    samples="one sentence that is classified correctly; the verb-number model",
    texts=EXAMPLES[:1],
    claims=(
        Claim(
            "Only in the first two layers does raw attention differ between positions (row distance).",
            "section 2",
            _first_layers_differ_most,
            tested=False,
        ),
        Claim(
            "In the first layer rollout and flow are the same (every shape).",
            "section 4",
            lambda table, _: all(
                np.isclose(table.mean(f"Rollout: {shape}", "L1"), table.mean(f"Flow: {shape}", "L1"), atol=1e-6)
                for shape in SHAPES
            ),
            tested=False,
        ),
        Claim(
            "Residual connections fade away in rollout and flow: the self weight falls from layer to layer.",
            "section 4",
            _residuals_fade,
            tested=False,
        ),
        Claim(
            "In contrast to raw attention, rollout and flow become more distinctive in the higher layers "
            "(received variation, last layer against first).",
            "section 4",
            _patterns_become_distinctive,
            tested=False,
        ),
    ),
    **SENTENCES,
)
def figure1(call: RecipeCall) -> Table:
    every: dict[Place, list[float]] = {}
    lines, pictures = [], {}
    for place, text in enumerate(call.texts, 1):
        named = dict(zip(ROWS, explained(call, text, list(ROWS.values())).values(), strict=True))
        for name, explanation in named.items():
            maps = explanation.maps if explanation.aggregated is None else explanation.aggregated
            assert maps is not None
            for layer, map_ in enumerate(maps, 1):
                for shape, measure in SHAPES.items():
                    every.setdefault((f"{name}: {shape}", f"L{layer}"), []).append(measure(map_))
        lines.append(f"{called(call.model)} on {quote(text)}, which it calls {next(iter(named.values())).prediction}")
        pictures[f"-{place}" if len(call.texts) > 1 else ""] = picture(named, "graph")
    ours = {place: number(float(np.mean(values)), len(values)) for place, values in every.items()}
    rows = [f"{name}: {shape}" for shape in SHAPES for name in ROWS]
    return Table(rows, layers(ours), ours, "Shapes of the attention map of each layer", lines, pictures=pictures)


def _sentences(table: Table) -> list[list[str]]:
    """The rows of each sentence."""
    grouped: dict[str, list[str]] = {}
    for row in table.rows:
        head = row.partition(". ")[0]
        grouped.setdefault(head if head.isdigit() else "", []).append(row)
    return list(grouped.values())


def _every_sentence(holds: Callable[[Table, list[str]], bool]) -> Callable[[Table, str], bool | None]:
    return lambda table, _: all(holds(table, rows) for rows in _sentences(table))


def _stand_out(*rows: str) -> Callable[[Table, str], bool | None]:
    """Tell whether each of these tokens gets more than an equal share in the last layer."""

    def holds(table: Table, _: str) -> bool | None:
        if not set(rows) <= set(table.rows):
            return None
        (sentence,) = (every for every in _sentences(table) if rows[0] in every)
        last = layers({(row, column.split()[-1]): cell for (row, column), cell in table.ours.items()})[-1]
        shares = {name: table.matrix(sentence, [f"{name} {last}"])[:, 0] for name in ("Rollout", "Flow")}
        places = [sentence.index(row) for row in rows]
        return all(bool((share[places] / share.sum() > 1 / len(share)).all()) for share in shares.values())

    return holds


def _calls(text: str, verb_number: str) -> Callable[[Table, str], bool | None]:
    """Tell whether the prediction for a text is this number; None without the text, or for other labels."""

    def holds(table: Table, _: str) -> bool | None:
        prediction = table.predictions.get(text)
        return prediction == verb_number if prediction in NUMBERS else None

    return holds


def _flips(text: str) -> Callable[[Table, str], bool | None]:
    """Tell whether the paper's change of a text changes the prediction."""

    def holds(table: Table, _: str) -> bool | None:
        before, after = (table.predictions.get(each) for each in (text, FLIPPED[text]))
        return None if before is None or after is None else before != after

    return holds


def _sentence_is_uniform(table: Table, rows: list[str]) -> bool:
    return all(evenness(table.matrix(rows, [column])[:, 0]) >= UNIFORM for column in table.columns[3:])


def _rollout_is_focused(table: Table, rows: list[str]) -> bool:
    found = [evenness(table.matrix(rows, [column])[:, 0]) for column in table.columns]
    depth = len(found) // 2
    return found[depth - 1] < found[-1]


@recipe(
    "abnar2020/figure2",
    "Raw attention of the readout token in every layer, for three sentences.",
    samples="three sentences, the last of them misclassified; the verb-number model",
    texts=EXAMPLES,
    claims=(
        Claim(
            f"Above layer three raw attention is almost uniform, in every sentence (evenness of at least {UNIFORM}).",
            "section 4",
            _every_sentence(_sentence_is_uniform),
            tested=False,
        ),
        Claim(
            "The second sentence is classified correctly, as singular.",
            "section 4",
            _calls(EXAMPLES[1], "singular"),
            tested=False,
        ),
        Claim(
            "In the second sentence “articles” in place of “article” flips the decision.",
            "section 4",
            _flips(EXAMPLES[1]),
            tested=False,
        ),
        Claim(
            "The third sentence is misclassified, as plural.",
            "section 4",
            _calls(EXAMPLES[2], "plural"),
            tested=False,
        ),
        Claim(
            "In the third sentence a proper noun in place of the plural noun flips the decision.",
            "section 4",
            _flips(EXAMPLES[2]),
            tested=False,
        ),
    ),
    **SENTENCES,
)
def figure2(call: RecipeCall) -> Table:
    table = token_layer_table(call, call.texts, {"Raw": ROWS["Raw"]}, "Raw attention of the readout token")
    changes = {text: FLIPPED[text] for text in call.texts if isinstance(text, str) and text in FLIPPED}
    calls: dict[Text, str | None] = {
        changed: next(iter(explained(call, changed, [ROWS["Raw"]]).values())).prediction for changed in changes.values()
    }
    notes = [f"With the change that flips the decision in the paper, {quote(changed)}, it calls the verb {prediction}."
             for changed, prediction in calls.items()]  # fmt: skip
    return replace(table, notes=notes, predictions={**table.predictions, **calls})


@recipe(
    "abnar2020/figure3",
    "Rollout and flow of the readout token in every layer, for three sentences.",
    samples="three sentences, the last of them misclassified; the verb-number model",
    texts=EXAMPLES,
    claims=(
        Claim(
            "In the second sentence rollout and flow give subject and attractor more than an equal share.",
            "section 4",
            _stand_out("2. article", "2. systems"),
            tested=False,
        ),
        Claim(
            "In the third sentence rollout and flow give the plural noun, no subject, more than an equal share.",
            "section 4",
            _stand_out("3. men"),
            tested=False,
        ),
        Claim(
            "Rollout is more focused than flow (less even) in the last layer of every sentence.",
            "section 4",
            _every_sentence(_rollout_is_focused),
            tested=False,
        ),
    ),
    **SENTENCES,
)
def figure3(call: RecipeCall) -> Table:
    methods = {row: ROWS[row] for row in ("Rollout", "Flow")}
    return token_layer_table(call, call.texts, methods, "Rollout and flow of the readout token up to each layer")


# Figure 4: pronouns ---------------------------------------------------------------------------------------


def person_row(letter: str, person: str, pronoun: str) -> str:
    return f"({letter}) {person}: {pronoun}"


def _people(letter: str) -> list[str]:
    """The rows of the paper's sentence, first the person of "his"."""
    people = list(PRONOUNS.values())["ab".index(letter)]
    return [person_row(letter, person, pronoun) for person, pronoun in zip(people, PAIR.split("/"), strict=True)]


def _preferences(table: Table, letter: str, name: str) -> list[bool] | None:
    """Whether a method gives the person of "his" more, layer by layer; None for other sentences."""
    his, her = _people(letter)
    if not {his, her} <= set(table.rows):
        return None
    columns = [column for column in table.columns if column.startswith(f"{name} L")]
    return [table.mean(his, column) > table.mean(her, column) for column in columns]


def _is_consistent(table: Table, letter: str, name: str) -> bool | None:
    """Tell whether the last layer prefers the person of the more probable pronoun."""
    found = _preferences(table, letter, name)
    his, her = _people(letter)
    return None if found is None else found[-1] == (table.mean(his, "probability") > table.mean(her, "probability"))


def _consistent_are(letter: str, **expected: bool) -> Callable[[Table, str], bool | None]:
    def holds(table: Table, _: str) -> bool | None:
        found = {name: _is_consistent(table, letter, name) for name in expected}
        return None if None in found.values() else found == expected

    return holds


def _rollout_and_flow_agree(table: Table, _: str) -> bool | None:
    found = [_preferences(table, "a", name) for name in ("Rollout", "Flow")]
    return None if None in found else found[0][-1] == found[1][-1]  # type: ignore[index]


def _raw_varies(table: Table, _: str) -> bool | None:
    found = _preferences(table, "a", "Raw")
    return None if found is None else sum(a != b for a, b in pairwise(found)) >= 2


@recipe(
    "abnar2020/figure4",
    "Which of two people a masked pronoun draws on in every layer, and the probabilities of “his” and “her”.",
    samples="two sentences; a pre-trained BERT",
    model="wherefrom/mlm",
    texts=tuple(PRONOUNS),
    options={"pronouns": PAIR, "references": ""},
    claims=(
        Claim("In (a), rollout and flow point at the same person.", "section 4", _rollout_and_flow_agree, tested=False),
        Claim(
            "In (a), rollout and flow are consistent with the prediction, and the last layer of raw attention is not.",
            "section 4",
            _consistent_are("a", Raw=False, Rollout=True, Flow=True),
            tested=False,
        ),
        Claim(
            "In (a), raw attention varies across layers (its preferred person changes at least twice).",
            "section 4",
            _raw_varies,
            tested=False,
        ),
        Claim(
            "In (b), only flow is consistent with the prediction.",
            "section 4",
            _consistent_are("b", Raw=False, Rollout=False, Flow=True),
            tested=False,
        ),
    ),
)
def figure4(call: RecipeCall) -> Table:
    """The rows of a text without known people are all of its tokens."""
    pronouns = call.options["pronouns"].split("/")
    references = _references(call, pronouns)
    ours: dict[Place, Summary] = {}
    rows: list[str] = []
    columns: dict[str, None] = {}
    pictures, lines = {}, []
    for letter, (text, people) in zip("abcdefghijklmnopqrstuvwxyz", references.items(), strict=False):
        # The probability of the target is kept for a method that explains it.
        found = explained(call, text, [*ROWS.values(), "saliency"], target=pronouns[0])
        named = dict(zip(ROWS, found.values(), strict=False))
        first = named["Raw"]
        places = [_place(first, person, text) for person in people] or range(len(first))
        names = [person_row(letter, *each) for each in zip(people, pronouns, strict=True)] if people else []
        names = names or token_rows(first.pieces, f"({letter}) ")
        rows += names
        for name, explanation in named.items():
            assert explanation.readout_rows is not None
            for layer, scores in enumerate(explanation.readout_rows, 1):
                columns[f"{name} L{layer}"] = None
                ours |= {(row, f"{name} L{layer}"): number(scores[place], 1)
                         for row, place in zip(names, places, strict=True)}  # fmt: skip
        likely = {word: first.probabilities[word] for word in pronouns if word in first.probabilities}
        if people:
            columns = {"probability": None, **columns}
            ours |= {(row, "probability"): number(likely[word], 1)
                     for row, word in zip(names, pronouns, strict=True) if word in likely}  # fmt: skip
        lines.append(
            f"{called(call.model)} on {quote(text)}: " + ", ".join(f"p({word}) = {p:.3f}" for word, p in likely.items())
        )
        shown = {"tokens": people} if people else {}
        pictures[f"-{letter}"] = picture(named, "layers", probabilities=list(likely), width="page", **shown)
    of = "What the mask draws on up to each layer, and the probability of each person's pronoun"
    return Table(rows, list(columns), ours, of, lines, pictures=pictures)


def _references(call: RecipeCall, pronouns: list[str]) -> dict[str, tuple[str, ...]]:
    """The people of every text, in the order of the pronouns."""
    texts = [text for text in call.texts if isinstance(text, str)]
    words = [word for word in call.options["references"].split("/") if word]
    if len(texts) < len(call.texts):
        raise InvalidOption(f"{call.recipe.name} takes single texts, and one of them is a pair; leave --pair out")
    if not words:
        return {text: PRONOUNS.get(text, ()) for text in texts}
    if len(words) != len(pronouns) * len(texts):
        raise InvalidOption(
            f"references={'/'.join(words)} names {len(words)} words for {len(texts)} texts; expected one for each of "
            f"{', '.join(pronouns)} in every text, as in references=author/sara"
        )
    return {text: tuple(words[place : place + len(pronouns)])
            for text, place in zip(texts, range(0, len(words), len(pronouns)), strict=True)}  # fmt: skip


def _place(explanation: Explanation, word: str, text: str) -> int:
    if word not in explanation.pieces:
        raise InvalidOption(f"references= names '{word}', which is no token of “{text}”; expected one of its tokens")
    return explanation.pieces.index(word)


# Appendix -------------------------------------------------------------------------------------------------


@recipe(
    "abnar2020/appendix-heads",
    "Rollout of the readout token by each head of every layer, heads averaged in the layers below.",
    samples="the formula Ã(i, k) = A(i, k) Ā(i), without an example (appendix A.1)",
    texts=EXAMPLES[:1],
    **SENTENCES,
)
def appendix_heads(call: RecipeCall) -> Table:
    from wherefrom.model import open_model

    methods = {f"H{head + 1}": f"attention-rollout(head={head})" for head in range(open_model(call.model).heads)}
    return token_layer_table(call, call.texts, methods, "Rollout of the readout token by one head of each layer")
