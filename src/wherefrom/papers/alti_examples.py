"""ALTI's tables 1 and 3 to 9: single texts colored by the scores of several methods, model under model.

A score is shown as the share of the absolute scores, a_j = |s_j| / Σ_k |s_k| (appendix B); ALTI's row and those of the
two rollouts sum to 1 as they are. Gradients are of the predicted class's probability, or of the predicted word's at the
mask; `target=` names another word.

Ferrando et al. (2022), Measuring the Mixing of Contextual Information in the Transformer. EMNLP.
https://aclanthology.org/2022.emnlp-main.595
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from wherefrom.data import Example
from wherefrom.metric.correlation import spearman
from wherefrom.model import open_model
from wherefrom.papers.alti_models import choose_models
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, picture
from wherefrom.papers.recipe import Place, RecipeCall, Table, called, number, recipe
from wherefrom.result.explanation import Explanation

GRADIENT = "saliency(of=probability)"
GRADIENTS = {
    "Grad l2": GRADIENT,
    "Grad · input": "gradient-x-input(of=probability, norm=abs)",
    "Integrated Gradients": "integrated-gradients(of=probability, n_steps={n_steps})",
}
ROLLOUTS = {"Attn Rollout": "attention-rollout", "Norm Rollout": "norm-residual-ln(normalize=True)"}
ALTI = {"ALTI": "alti"}
BLANK_OUT = {"Blank-out": "ablation(by=mask)"}

MEDITATION = "a remarkable 179-minute meditation on the nature of revolution ."
JOHNSON = "an engaging overview of johnson 's eccentric career ."
CUT_ABOVE = "it turns out to be a cut above the norm , thanks to some clever writing and sprightly acting ."
DUMBEST = "this may be the dumbest , sketchiest movie on record about an aspiring writer 's coming-of-age ."
TRACKS = "certainly the tracks listed on the chart all [MASK] to be very obscure ."
DEFENSES = "a 1770s map of philadelphia 's naval defenses [MASK] a fort on the island , but it is unidentified ."
IRRELEVANT = ("179", "-", "on")  # "irrelevant words" of table 1


def score_texts(call: RecipeCall, methods: Mapping[str, str], task: str) -> Table:
    """The share of every token by every method: rows of one model under those of the next, and all in one picture."""
    models = choose_models(call, task)
    target = call.options.get("target") or None
    shares: dict[Place, Any] = {}
    rows, sources = [], []
    drawn: dict[str, Explanation] = {}
    for family, model in models.items():
        mask = getattr(open_model(model, device=call.device).tokenizer, "mask_token", None)
        for place, text in enumerate(call.texts, 1):
            named = replace(call, model=model)
            specs = [method.format(**call.options) for method in methods.values()]
            masked = Example("", text).with_mask(mask).text if mask else text
            explanations = explained(named, masked, specs, target=target)
            parts = [family] if len(models) > 1 else []
            parts += [str(place)] if len(call.texts) > 1 else []
            columns = dict(zip(methods, map(take_shares, explanations.values()), strict=True))
            first = next(iter(columns.values()))
            labels = number_tokens(first.pieces, "".join(f"{part}: " for part in parts))
            rows += labels
            for column, colored in columns.items():
                shares |= {(row, column): number(share, 1) for row, share in zip(labels, colored.scores, strict=True)}
                drawn[", ".join([*parts, column])] = colored
            explains = f", explained towards {target}" if target else ""
            sources.append(f"{called(model)} on “{text}”, predicts {first.prediction}{explains}")
    return Table(
        rows, list(methods), shares, "Share of the absolute scores", sources, pictures={"": picture(drawn, "text")}
    )


def take_shares(explanation: Explanation) -> Explanation:
    """Absolute scores divided by their sum."""
    scores = np.abs(explanation.scores)
    return replace(explanation, scores=scores / (scores.sum() or 1.0), signed=False, additive=False, delta=None)


def number_tokens(pieces: list[str], prefix: str = "") -> list[str]:
    """Tokens as row names, the second of the same kind with its number."""
    seen: dict[str, int] = {}
    names = []
    for piece in pieces:
        seen[piece] = seen.get(piece, 0) + 1
        names.append(prefix + piece + (f" ({seen[piece]})" if seen[piece] > 1 else ""))
    return names


# Claims ---------------------------------------------------------------------------------------------------


def _plain(row: str) -> str:
    """The token of a row."""
    return row.rpartition(": ")[2].partition(" (")[0]


def _irrelevant_words(table: Table, _: str) -> bool | None:
    """Check that ALTI gives the irrelevant words of table 1 a smaller share than each gradient method."""
    rows = [row for row in table.rows if _plain(row) in IRRELEVANT]
    if {_plain(row) for row in rows} != set(IRRELEVANT):
        return None
    total = {method: sum(table.mean(row, method) for row in rows) for method in table.columns}
    return all(total["ALTI"] < total[method] for method in GRADIENTS)


def _ignores_words(table: Table, _: str) -> bool | None:
    """Check that blank-out gives more than half of the tokens less than a tenth of its largest score."""
    shares = table.matrix(columns=["Blank-out"])[:, 0]
    return bool((shares < 0.1 * shares.max()).mean() > 0.5)


def _favors_separator(table: Table, _: str) -> bool | None:
    """Check that blank-out gives the last special token more than an even share."""
    rows = [row for row in table.rows if _plain(row) in ("[SEP]", "</s>")]
    if not rows:
        return None
    return table.mean(rows[-1], "Blank-out") > 1 / len(table.rows)


def _most_consistent(table: Table, _: str) -> bool | None:
    """Check that ALTI's scores agree best between models that cut the text into the same tokens (Spearman's ρ)."""
    blocks: dict[str, dict[str, str]] = {}
    for row in table.rows:
        model, separator, token = row.partition(": ")
        if separator:
            blocks.setdefault(model, {})[token] = row
    pairs = [(a, b) for a, b in combinations(blocks.values(), 2) if list(a) == list(b)]
    if not pairs:
        return None
    agreement = {
        method: np.mean([spearman(*(table.matrix(block.values(), [method])[:, 0] for block in pair)) for pair in pairs])
        for method in table.columns
    }
    return all(agreement["ALTI"] > value for method, value in agreement.items() if method != "ALTI")


CONSISTENT = Claim(
    "Between models with the same prediction, ALTI gives more consistent explanations.",
    "section 5",
    _most_consistent,
    tested=False,
)
SENTIMENT = "wherefrom/sentiment"
MASKED = "wherefrom/mlm"
THREE = "RoBERTa, BERT and DistilBERT; the paper colors the text and prints no numbers"
Maker = Callable[[RecipeCall], Table]


def _register(
    name: str,
    about: str,
    text: str,
    methods: Mapping[str, str],
    samples: str,
    claims: tuple[Claim, ...] = (CONSISTENT,),
) -> Maker:
    """A recipe that shows one text by several methods."""
    masked = "[MASK]" in text
    options: dict[str, Any] = {"n_steps": 100} if "Integrated Gradients" in methods else {}
    return recipe(
        f"alti/{name}",
        about,
        samples=samples,
        model=MASKED if masked else SENTIMENT,
        model_of="linzen_lgd" if masked else "sst2",
        texts=(text,),
        options=options | ({"target": ""} if masked else {}),
        claims=claims,
    )(partial(score_texts, methods=methods, task="masked-lm" if masked else "classification"))


_register(
    "table1",
    "A positive review by three gradient methods and ALTI.",
    MEDITATION,
    GRADIENTS | ALTI,
    "one sentence of SST-2's test set; BERT. The paper colors the text and prints no numbers",
    (
        Claim(
            'Gradient-based methods give higher scores than ALTI to irrelevant words, such as "179", "-" or "on".',
            "table 1",
            _irrelevant_words,
            tested=False,
        ),
    ),
)
_register(
    "table3",
    "A sentence with a masked verb by blank-out, gradient and ALTI.",
    DEFENSES,
    BLANK_OUT | {"Grad l2": GRADIENT} | ALTI,
    "one sentence of Linzen's agreement data; BERT, which predicts “shows”. The paper colors the text and prints no "
    "numbers",
    (
        Claim(
            "Blank-out ignores most of the words (less than a tenth of its largest score).",
            "section 5",
            _ignores_words,
            tested=False,
        ),
        Claim(
            "Blank-out gives a large score to [SEP] (above an even share).",
            "section 5",
            _favors_separator,
            tested=False,
        ),
    ),
)
_register("table4", "A positive review by six methods.", JOHNSON, GRADIENTS | ROLLOUTS | ALTI, f"one sentence; {THREE}")
_register(
    "table5", "The review of table 1 by six methods.", MEDITATION, GRADIENTS | ROLLOUTS | ALTI, f"one sentence; {THREE}"
)
_register(
    "table6", "A positive review by gradient methods and ALTI.", CUT_ABOVE, GRADIENTS | ALTI, f"one sentence; {THREE}"
)
_register(
    "table7", "A negative review by gradient methods and ALTI.", DUMBEST, GRADIENTS | ALTI, f"one sentence; {THREE}"
)
_register(
    "table8",
    "A sentence with a masked verb by gradient methods, blank-out and ALTI.",
    TRACKS,
    GRADIENTS | BLANK_OUT | ALTI,
    f"one sentence; {THREE}. RoBERTa predicts “seem”, the others “appear”",
)
_register(
    "table9",
    "The sentence of table 3 by gradient methods, blank-out and ALTI.",
    DEFENSES,
    GRADIENTS | BLANK_OUT | ALTI,
    f"one sentence; {THREE}. All three predict “shows”",
)
