"""Yin & Neubig: do explanations of one word rather than another find the words that grammar says decide between them?

A language model reads a sentence of BLiMP up to the word in which it differs from its ungrammatical twin. Gradient norm
(S_GN), gradient × input (S_GI) and erasure (S_E, the drop when no token sees one any more) explain the right word; the
same with a star explain why it is that word rather than the wrong one. How well they agree with the words that decide
is measured three ways: the dot product (the share of the scores on them), how many tokens are ranked above the best of
them, and the reciprocal of its rank. Tokens are ranked by their scores with signs, those that the tokenizer adds itself
left aside. As in the later code of Ferrando et al., a word stands for its first piece, and pairs that begin alike are
left out.

The numbers that the paper prints are not at hand, and none stand beside ours.

Yin & Neubig (2022), Interpreting Language Models with Contrastive Explanations. EMNLP.
https://arxiv.org/abs/2202.10419
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wherefrom.data.blimp import PROMPTS
from wherefrom.papers.alti_logit import ALL, BASELINES, HOW, MRR
from wherefrom.papers.claims import Claim, above
from wherefrom.papers.figures import bar_picture
from wherefrom.papers.recipe import RecipeCall, Table, called, overall, recipe, together, used_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wherefrom.data import Example
    from wherefrom.evaluation import Run
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Place

PHENOMENA = {  # paradigms of BLiMP, and of our grammar
    "anaphor": (PROMPTS["aga"], PROMPTS["ana"], "anaphor"),
    "argument": (PROMPTS["asp"],),
    "determiner": tuple(PROMPTS[name] for name in ("dna", "dnai", "dnaa", "dnaai")),
    "NPI": (PROMPTS["npi"],),
    "verb": (*(PROMPTS[name] for name in ("darn", "ipsv", "rpsv")), "distractor", "subject-verb"),
}
PLAIN = {
    "S_GN": "saliency(norm=l1, at=word)",
    "S_GI": "gradient-x-input(at=word)",
    "S_E": "ablation(by=attention)",
}
CONTRAST = dict(zip((f"{row}*" for row in PLAIN), BASELINES.values(), strict=True))
RANDOM = {"Rand": "random"}
MEASURES = {"dot": f"cue-dot({HOW})@scores", "probes": f"cue-probes({HOW})@scores", "MRR": MRR}


def contrast_is_better(row: str, measure: str) -> Claim:
    """Whether a method's contrastive explanation is above its plain one; of probes needed, below."""
    pair = (row, f"{row}*") if measure == "probes" else (f"{row}*", row)
    return Claim(
        f"By {measure}, {row}* agrees better with the evidence than {row}.",
        "abstract",
        lambda table, _: above(table, *pair, [f"{ALL} {measure}"]),
    )


CLAIMS = tuple(contrast_is_better(row, measure) for row in PLAIN for measure in MEASURES)


@recipe(
    "yin-neubig/alignment",
    "How well plain and contrastive explanations of a next word agree with the words that decide it.",
    samples="GPT-2 and GPT-Neo on five phenomena of BLiMP",
    at_hand=False,
    model="wherefrom/lm",
    data=("blimp-prompts",),
    spare="grammar",
    limit=200,
    claims=CLAIMS,
)
def alignment(asked: RecipeCall) -> Table:
    rows = [*(row for pair in zip(PLAIN, CONTRAST, strict=True) for row in pair), *RANDOM]
    ours: dict[Place, Summary] = {}
    runs: dict[str, Run] = {}
    for name, groups in PHENOMENA.items():
        for contrast, methods in ((False, PLAIN), (True, {**CONTRAST, **RANDOM})):
            data = asked.prompts(partial(_of, groups), contrast=contrast)
            if data is None:
                continue
            run = asked.evaluate(data, methods.values(), MEASURES.values())
            for measure, metric in MEASURES.items():
                ours |= overall(run, methods, metric, f"{name} {measure}")
            runs[name] = run
    ours |= _overall(ours, rows, list(runs))
    columns = [f"{name} {measure}" for name in (*runs, ALL) for measure in MEASURES]
    said = [used_each(runs, called(asked.model))]
    of = "Dot product with the words that decide, tokens ranked above the best of them (lower is better), 1 / its rank"
    return Table(rows, columns, ours, of, said, [], {"": bar_picture(ours, rows, f"{ALL} MRR")})


def _of(groups: Sequence[str], example: Example) -> bool:
    return example.group in groups


def _overall(ours: Mapping[Place, Summary], rows: Sequence[str], names: Sequence[str]) -> dict[Place, Summary]:
    return {
        (row, f"{ALL} {measure}"): together([ours[row, f"{name} {measure}"] for name in names])
        for row in rows
        for measure in MEASURES
    }
