"""Value Zeroing's appendix: other distances, probes needed, two more models, and the maps of one sentence.

Figures A.5 to A.18 are the context mixing maps of every layer of the fine-tuned model, each method by itself and
rolled out. Their tables hold the row of the mask, the pictures the whole maps.

Mohebbi et al. (2023), Quantifying Context Mixing in Transformers. EACL. https://aclanthology.org/2023.eacl-main.245
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from wherefrom.metric.probing import compression_against_alignment
from wherefrom.papers.agreement_tuning import fine_tune, measured_examples
from wherefrom.papers.claims import Claim
from wherefrom.papers.figures import explained, picture, token_rows
from wherefrom.papers.recipe import (
    RecipeCall,
    Table,
    by_layer,
    called,
    layers,
    number,
    over_layers,
    recipe,
    used,
)
from wherefrom.papers.value_zeroing import (
    AGREEMENT,
    ALIGNED,
    BALANCE,
    EXAMPLE,
    METRICS,
    OPTIONS,
    SAMPLES,
    alignment_table,
    best_in_every_layer,
    best_on_average,
    draw_grid,
    layer_columns,
)
from wherefrom.papers.value_zeroing_faithfulness import read_text

if TYPE_CHECKING:
    from wherefrom.metric.correlation import Summary
    from wherefrom.papers.recipe import Draw, Place

MODELS = ("PT", "FT")
DISTANCES = {
    f"{metric}{', normalized' if standardize else ''}": f"value-zeroing(metric={metric}, standardise={standardize})"
    for standardize in (False, True)
    for metric in ("cosine", "euclidean", "spearman")
}
SAME_PATTERN = 0.8  # ρ over the layers
SENTENCE = "the sentence “The pictures of some hat [MASK] scaring Marcus.”; BERT-base, fine-tuned"


# Alignment with the cues ----------------------------------------------------------------------------------


def _alike(rows: Iterable[str]) -> Callable[[Table, str], bool]:
    """Whether the layers of these rows rank as those of cosine, in both models."""

    def holds(table: Table, _: str) -> bool:
        return all(
            compression_against_alignment(*table.matrix(["cosine", row], layer_columns(table, model))) > SAME_PATTERN
            for row in rows
            for model in MODELS
        )

    return holds


@recipe(
    "value-zeroing/figure-a1",
    "Value Zeroing's share of the scores on cue words by other distances, with and without normalized vectors.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT)",
    options=BALANCE,
    claims=(
        Claim(
            "The distances show the same pattern: over the layers, each correlates with cosine by ρ > 0.8.",
            "appendix A.1",
            _alike(["euclidean", "spearman"]),
            tested=False,
        ),
        Claim(
            "Normalized vectors make no noticeable difference: ρ > 0.8 over the layers with cosine.",
            "appendix A.1",
            _alike([row for row in DISTANCES if row.endswith("normalized")]),
            tested=False,
        ),
    ),
    **AGREEMENT,
)
def figure_a1(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    ours: dict[Place, Summary] = {}
    columns, sources = [], []
    for name, model in zip(MODELS, (call.model, tuned.folder), strict=True):
        run = call.evaluate(measured_examples(call), DISTANCES.values(), [METRICS["dot"]], model=model)
        found = by_layer(run, DISTANCES, METRICS["dot"])
        shown = layers(found)
        for row in DISTANCES:
            ours |= {(row, f"{name} {column}"): found[row, column] for column in shown}
            ours[row, f"{name} mean"] = over_layers([found[row, column] for column in shown])
        columns += [f"{name} {column}" for column in (*shown, "mean")]
        sources.append(used(run, called(call.model) if name == "PT" else f"{called(call.model)}, fine-tuned here,"))
    pictures: dict[str, Draw] = {f"-{name}": draw_grid(name, rows=list(DISTANCES)) for name in MODELS}
    of = "Mean ± standard deviation of the dot product with the cue vector"
    return Table(list(DISTANCES), columns, ours, of, sources, [tuned.note], pictures)


@recipe(
    "value-zeroing/figure-a2",
    "How many tokens have a higher score than the best cue word, in every layer of both models.",
    samples=SAMPLES + "pre-trained (PT) and fine-tuned (FT)",
    options=OPTIONS,
    claims=tuple(
        claim(model, f"probes needed ({model})", "footnote 4, appendix A.2", lowest=True)
        for model in MODELS
        for claim in (best_on_average, best_in_every_layer)
    ),
    **AGREEMENT,
)
def figure_a2(call: RecipeCall) -> Table:
    tuned = fine_tune(call)
    models = dict(zip(MODELS, (call.model, tuned.folder), strict=True))
    return alignment_table(call, models, ("probes",), "Probes needed; lower is better", [tuned.note])


def _other_model(figure: str, family: str, hub: str) -> None:
    """Figures 1 and 2 of another family."""

    @recipe(
        f"value-zeroing/{figure}",
        f"Figures 1 and 2 for {family}: cue words in every layer, pre-trained and fine-tuned (--model {hub}).",
        samples=f"BLiMP's five agreement paradigms; {hub}, pre-trained (PT) and fine-tuned (FT)",
        options=OPTIONS,
        claims=tuple(
            claim(f"{model} {metric}", f"{measure} ({model})", "appendix A.3")
            for model in MODELS
            for metric, measure in (("dot", "dot product"), ("AP", "average precision"))
            for claim in (best_on_average, best_in_every_layer)
        ),
        **AGREEMENT,
    )
    def figure_a3_or_a4(call: RecipeCall) -> Table:
        tuned = fine_tune(call)
        models = dict(zip(MODELS, (call.model, tuned.folder), strict=True))
        stand_in = [f"{call.model} stands in for {hub}; give --model {hub}."] * (call.model == call.recipe.model)
        return alignment_table(call, models, ("dot", "AP"), ALIGNED, [tuned.note, *stand_in])


_other_model("figure-a3", "RoBERTa", "roberta-base")
_other_model("figure-a4", "ELECTRA", "google/electra-base-generator")


# Maps of one sentence -------------------------------------------------------------------------------------


def _maps(figure: str, name: str, method: str, *, rollout: bool) -> None:
    """The map of every layer, the method's own or rolled out up to each layer."""
    rolled = " with rollout" if rollout else ""

    @recipe(
        f"value-zeroing/{figure}",
        f"{name}{rolled}: the map of one sentence in every layer of the fine-tuned model.",
        samples=SENTENCE,
        texts=(EXAMPLE,),
        options=BALANCE,
        **AGREEMENT,
    )
    def maps_of_texts(call: RecipeCall) -> Table:
        tuned = fine_tune(call)
        ours: dict[Place, Summary] = {}
        rows: list[str] = []
        sources, pictures = [], {}
        for place, text in enumerate(call.texts, 1):
            found = explained(call, read_text(call, text, tuned.folder), [method], tuned.folder)[method]
            maps = found.aggregated if rollout else found.maps
            assert maps is not None  # each of these methods has maps, and is rolled out by default
            several = len(call.texts) > 1
            labels = token_rows(found.pieces, f"{place}. " if several else "")
            rows += labels
            for layer, row in enumerate(found.readout.row(each) for each in maps):
                shares = row / row.sum()  # "positive values and sum to one" (section 4.3)
                ours |= {(label, f"L{layer + 1}"): number(part, 1) for label, part in zip(labels, shares, strict=True)}
            sources.append(f"{called(call.model)}, fine-tuned here, on “{text}”, where it says {found.prediction}")
            pictures[f"-{place}" if several else ""] = picture({f"{name}{rolled}": found}, "maps", own=not rollout)
        of = f"Shares of what the mask draws on by {name}{rolled}: its row of each layer's map"
        return Table(rows, layers(ours), ours, of, sources, [tuned.note], pictures)


for _first, _name, _method, _rolled in (
    (5, "Attn", "attention", "attention-rollout"),
    (7, "Attn-norm", "norm", "norm"),
    (9, "Attn-norm + RES", "norm-residual", "norm-residual"),
    (11, "Attn-norm + RES + LN", "norm-residual-ln", "norm-residual-ln"),
    (13, "GlobEnc", "globenc", "globenc"),
    (15, "ALTI", "alti", "alti"),
    (17, "Value Zeroing", "value-zeroing", "value-zeroing"),
):
    _maps(f"figure-a{_first}", _name, _method, rollout=False)
    _maps(f"figure-a{_first + 1}", _name, _rolled, rollout=True)
