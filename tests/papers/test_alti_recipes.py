"""ALTI's recipes: several models in one table, and each quantity recomputed from the paper's formula."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import tiny
import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption, UnsupportedModel
from wherefrom.metric.correlation import summary
from wherefrom.papers import Result, lookup
from wherefrom.papers.alti import pool
from wherefrom.papers.alti_figures import row_distance
from wherefrom.papers.alti_models import name_models
from wherefrom.papers.claims import Claim
from wherefrom.papers.recipe import Measured, Place, Table, number
from wherefrom.papers.request import ReproduceRequest, resolve

pytestmark = pytest.mark.filterwarnings("ignore:integrated gradients have not converged")  # of few steps
TEXTS = ["the cat is good .", "a deep film , not a bad film .", "the keys to the cabinets are very good !"]
VERBS = [("the cat [MASK] good .", "is"), ("the keys to the cabinets [MASK] very good .", "are")]


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alti")


def save(folder: Path, variant: str, task: str = "classification", **changes: Any) -> str:
    """A tiny model in a folder of its own, written once."""
    path = folder / "-".join([variant, task, *map(str, changes.values())])
    if not path.exists():
        tiny.model(variant, task, **changes).save_pretrained(path)
        tiny.tokenizer().save_pretrained(path)
    return str(path)


def save_rows(folder: Path, rows: list[dict[str, Any]], name: str) -> str:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def reviews(folder: Path) -> str:
    return save_rows(folder, [{"text": text} for text in TEXTS], "reviews")


@pytest.fixture(scope="module")
def verbs(folder: Path) -> str:
    return save_rows(folder, [{"text": text, "target": word, "foil": "was"} for text, word in VERBS], "verbs")


@pytest.fixture(scope="module")
def bert(folder: Path) -> str:
    return save(folder, "bert", seed=3)  # predicts the first class for all of TEXTS, with one block too


@pytest.fixture(scope="module")
def distilbert(folder: Path) -> str:
    return save(folder, "distilbert")


def run(name: str, **arguments: Any) -> Result:
    found = wherefrom.reproduce(f"alti/{name}", **arguments)
    assert isinstance(found, Result)
    return found


# Several models -------------------------------------------------------------------------------------------


def test_models_are_named_by_family(bert: str, distilbert: str, folder: Path) -> None:
    second, electra = save(folder, "bert", seed=0), save(folder, "electra")
    assert name_models([distilbert, bert, second, electra]) == {
        "DistilBERT": distilbert,
        "BERT": bert,
        f"BERT ({Path(second).name})": second,
        Path(electra).name: electra,
    }


def test_table2_has_a_column_for_each_model_and_task(
    bert: str, distilbert: str, folder: Path, reviews: str, verbs: str
) -> None:
    masked = save(folder, "roberta", "masked-lm")
    found = run("table2", model=f"{bert},{masked},{distilbert}", data=f"{reviews},{verbs}").table
    assert list(found.columns) == ["SST2 BERT", "SST2 DistilBERT", "SVA RoBERTa"]
    assert isinstance(found.used, dict)
    assert list(found.used) == list(found.columns)
    with pytest.raises(UnsupportedModel):
        run("table2", model=masked, data=reviews)


def test_table2_is_spearmans_rho_with_the_change_of_the_verb(folder: Path, verbs: str) -> None:
    """Blank-out by hand: [MASK] in each token's place, and the change in the probability of the correct verb."""
    path = save(folder, "bert", "masked-lm")
    found = run("table2", model=path, data=verbs).table.ours["ALTI", "SVA BERT"]
    model, tokenizer = wherefrom.open_model(path), tiny.tokenizer()
    by_hand = []
    for text, word in VERBS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        at = int((ids[0] == tokenizer.mask_token_id).nonzero())
        verb = tokenizer.convert_tokens_to_ids(word)

        def probability(batch: torch.Tensor, at: int = at, verb: int = verb) -> Any:
            with torch.no_grad():
                return model.pretrained(input_ids=batch).logits[:, at].softmax(-1)[:, verb]

        blanked = ids.repeat(ids.shape[1], 1)
        blanked.fill_diagonal_(tokenizer.mask_token_id)
        change = (probability(ids) - probability(blanked)).abs().numpy()
        alti = wherefrom.explain(text, path, method="alti").scores
        by_hand.append(stats.spearmanr(alti, change).statistic)
    assert found.mean == pytest.approx(np.mean(by_hand), abs=1e-6)
    assert found.count == 2


@pytest.mark.parametrize("name", ["table2", "figure3", "figure6", "figure7"])
def test_calls_add_their_columns(name: str, bert: str, distilbert: str, reviews: str, tmp_path: Path) -> None:
    pairs = {"figure7": [f"{bert},{distilbert}", f"{bert},{bert}"]}.get(name, [bert, distilbert])
    more = {"n_steps": 2} if name == "figure7" else {}
    tables = [run(name, model=model, data=reviews, out=tmp_path, **more).table for model in pairs]
    assert set(tables[0].columns) < set(tables[1].columns)
    together = run(name, model=pairs[1], data=reviews, out=tmp_path, **more)
    for place, cell in tables[0].ours.items():
        assert together.table.ours[place].mean == pytest.approx(cell.mean, nan_ok=True)
    assert list((tmp_path / "alti").glob(f"{name}*.svg"))


# Figure 3 -------------------------------------------------------------------------------------------------


def test_figure3_has_the_measured_cosines_and_names_the_pairs(bert: str, folder: Path, reviews: str) -> None:
    deep = save(folder, "distilbert", n_layers=5)
    for pairs in ("sentence", "all"):
        table = run("figure3", model=f"{bert},{deep}", data=reviews, pairs=pairs).table
        for family, path, depth in (("BERT", bert, 3), ("DistilBERT", deep, 5)):
            found = wherefrom.anisotropy(TEXTS, path, pairs=pairs)
            rows = [f"L{layer}" for layer in range(1, depth + 1)]
            for kind, values in (("outputs", found.outputs), ("transformed", found.transformed)):
                assert table.matrix(rows, [f"{family} {kind}"])[:, 0] == pytest.approx(values, abs=1e-6)
        assert any(f"pairs={pairs}" in note for note in table.notes)
        assert isinstance(table.ours["L1", "BERT outputs"], Measured) == (pairs == "sentence")
    with pytest.raises(InvalidOption):
        run("figure3", model=bert, data=reviews, pairs="layer")


def test_figure4_is_the_length_of_a_sum(bert: str) -> None:
    """Of the outputs of one text, by hand: unit vectors added up."""
    table = run("figure4", model=bert, texts=TEXTS[0]).table
    model = wherefrom.open_model(bert)
    for layer in wherefrom.capture(TEXTS[0], model).layers:
        norm = layer.block.first_norm
        assert norm is not None
        y = torch.nn.functional.normalize(norm(layer.u)[0], dim=-1)
        expected = float(y.sum(0).norm() / len(y))
        assert table.mean(f"L{layer.index + 1}", "BERT outputs") == pytest.approx(expected, abs=1e-4)


# Figures 6 and 7 ------------------------------------------------------------------------------------------


def test_figure6_is_the_mean_rank_of_tokens_without_meaning(bert: str, reviews: str) -> None:
    """[CLS], [SEP], comma and full stop of every text together; rank 1 is the highest score."""
    table = run("figure6", model=bert, data=reviews).table
    ranks: dict[str, list[float]] = {}
    for explanation in wherefrom.explain(TEXTS, bert, method="alti"):
        order = (stats.rankdata(explanation.scores) - 1) / (len(explanation) - 1)
        for token, rank in zip(explanation.tokens, order, strict=True):
            if token in ("[CLS]", "[SEP]", ",", "."):
                ranks.setdefault({",": "comma", ".": "full stop"}.get(token, token), []).append(rank)
    for token, values in ranks.items():
        assert table.mean("ALTI", f"BERT: {token}") == pytest.approx(np.mean(values))
    pooled = table.ours["ALTI", "BERT"]
    assert pooled.mean == pytest.approx(np.mean([rank for values in ranks.values() for rank in values]))
    assert pooled.count == sum(map(len, ranks.values()))


def test_pooled_columns_keep_every_value() -> None:
    first, second = {"a": 1.0, "b": 2.0}, {"a": 6.0}
    columns = [Measured.of(summary(each.values()), partial(dict, each)) for each in (first, second)]
    pooled = pool(columns)
    assert (pooled.mean, pooled.count) == (3.0, 3)
    assert isinstance(pooled, Measured)
    assert sorted(pooled.values().values()) == [1.0, 2.0, 6.0]


def test_figure7_is_spearmans_rho_between_models(bert: str, folder: Path, reviews: str) -> None:
    other = save(folder, "bert", seed=0)
    table = run("figure7", model=f"{bert},{other}", data=reviews, n_steps=3).table
    (column,) = table.columns
    both = [
        wherefrom.explain(TEXTS, model, method="integrated-gradients", of="probability", n_steps=3)
        for model in (bert, other)
    ]
    by_hand = [
        stats.spearmanr(np.abs(a.scores), np.abs(b.scores)).statistic
        for a, b in zip(*both, strict=True)
        if a.prediction == b.prediction
    ]
    assert table.ours["IG", column].count == len(by_hand) > 0
    assert table.mean("IG", column) == pytest.approx(np.mean(by_hand), abs=1e-5)


def test_figure7_takes_100_steps_and_names_a_shortened_model(bert: str, folder: Path, reviews: str) -> None:
    assert resolve(lookup("alti/figure7")[0], ReproduceRequest()).options == {"n_steps": 100}
    assert list(run("figure7", model=bert, data=reviews, n_steps=1).table.columns) == [
        "BERT and its first 1 of 3 blocks"
    ]
    with pytest.raises(InvalidOption):
        run("figure7", model=save(folder, "bert", num_hidden_layers=2), data=reviews)


def test_figure7_leaves_out_models_with_other_tokens(bert: str, folder: Path, reviews: str) -> None:
    second, cased = save(folder, "bert", seed=0), folder / "cased"
    tiny.model("distilbert", "classification").save_pretrained(cased)
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["go"])
    tokenizer.save_pretrained(cased)
    tiny.model("distilbert", "classification", vocab_size=len(tokenizer)).save_pretrained(cased)
    found = run("figure7", model=f"{bert},{second},{cased}", data=reviews, n_steps=1).table
    assert len(found.columns) == 1
    assert sum("are left out" in note for note in found.notes) == 2
    with pytest.raises(InvalidInput):
        run("figure7", model=f"{bert},{cased}", data=reviews, n_steps=1)


# Texts ----------------------------------------------------------------------------------------------------


def scores_by_hand(path: str, text: str) -> dict[str, np.ndarray[Any, Any]]:
    """Appendix B's formulas by torch alone, in float64, before they are divided by their sums."""
    model = wherefrom.open_model(path).pretrained.double()
    tokenizer = tiny.tokenizer()
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    x = model.bert.embeddings(ids).detach()
    masked = torch.full_like(ids, tokenizer.mask_token_id)
    masked[0, 0], masked[0, -1] = ids[0, 0], ids[0, -1]
    baseline = model.bert.embeddings(masked).detach()
    target = int(model(input_ids=ids).logits[0].argmax())

    def gradient(embeddings: torch.Tensor) -> torch.Tensor:
        embeddings = embeddings.detach().requires_grad_()
        hook = model.bert.embeddings.register_forward_hook(lambda *_: embeddings)
        probability = model(input_ids=ids).logits.softmax(-1)[0, target]
        hook.remove()
        return torch.autograd.grad(probability, embeddings)[0][0]

    m = 400
    path_gradient = torch.stack([gradient(baseline + k / m * (x - baseline)) for k in range(1, m + 1)]).mean(0)
    g = gradient(x)
    return {
        "Grad l2": g.norm(dim=-1).numpy(),
        "Grad · input": (g * x[0]).sum(-1).abs().numpy(),
        "Integrated Gradients": ((x - baseline)[0] * path_gradient).sum(-1).abs().numpy(),
    }


def test_scores_of_texts_are_those_of_appendix_b(folder: Path) -> None:
    path = save(folder, "bert", num_hidden_layers=1)
    table = run("table1", model=path, texts=TEXTS[0]).table
    assert list(table.columns) == ["Grad l2", "Grad · input", "Integrated Gradients", "ALTI"]
    for method, scores in scores_by_hand(path, TEXTS[0]).items():
        tolerance = 0.01 if method == "Integrated Gradients" else 1e-5  # a right-hand sum against Gauss–Legendre
        assert table.matrix(columns=[method])[:, 0] == pytest.approx(scores / scores.sum(), abs=tolerance)


def test_several_models_and_texts_are_blocks_of_rows(bert: str, distilbert: str, tmp_path: Path) -> None:
    found = run("table6", model=f"{bert},{distilbert}", texts=TEXTS[:2], n_steps=2, out=tmp_path)
    rows = list(found.table.rows)
    assert rows[0] == "BERT: 1: [CLS]"
    assert "DistilBERT: 2: film (2)" in rows
    shares = found.table.matrix()
    assert shares.sum(0) == pytest.approx(4)  # two models, two texts
    assert (shares >= 0).all()
    assert {each.stem for each in (tmp_path / "alti").glob("*.svg")} == {"table6-n_steps=2"}


def test_a_masked_verb_is_read_with_the_models_own_mask(folder: Path) -> None:
    path = folder / "masked"
    if not path.exists():
        tiny.model("roberta", "masked-lm").save_pretrained(path)
        tokenizer = tiny.tokenizer()
        tokenizer.add_special_tokens({"mask_token": "<mask>"})
        tokenizer.save_pretrained(path)
        ids = len(tokenizer)
        tiny.model("roberta", "masked-lm", vocab_size=ids).save_pretrained(path)
    table = run("table8", model=str(path), texts=VERBS[0][0], n_steps=2, target="is").table
    assert "<mask>" in table.rows
    assert "towards is" in table.sources[0]
    assert list(table.columns) == ["Grad l2", "Grad · input", "Integrated Gradients", "Blank-out", "ALTI"]


def test_texts_need_a_model_of_their_task(bert: str) -> None:
    with pytest.raises(UnsupportedModel):
        run("table8", model=bert)


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("table1", "Grad l2, Grad · input, Integrated Gradients, ALTI"),
        ("table3", "Blank-out, Grad l2, ALTI"),
        ("table4", "Grad l2, Grad · input, Integrated Gradients, Attn Rollout, Norm Rollout, ALTI"),
        ("table5", "Grad l2, Grad · input, Integrated Gradients, Attn Rollout, Norm Rollout, ALTI"),
        ("table6", "Grad l2, Grad · input, Integrated Gradients, ALTI"),
        ("table7", "Grad l2, Grad · input, Integrated Gradients, ALTI"),
        ("table9", "Grad l2, Grad · input, Integrated Gradients, Blank-out, ALTI"),
    ],
)
def test_tables_have_the_papers_methods(name: str, methods: str, bert: str, folder: Path) -> None:
    model = save(folder, "bert", "masked-lm") if name in ("table3", "table9") else bert
    more = {} if name == "table3" else {"n_steps": 1}
    text = VERBS[0][0] if name in ("table3", "table9") else TEXTS[0]
    assert ", ".join(run(name, model=model, texts=text, **more).table.columns) == methods


def claim_of(name: str, start: str) -> Claim:
    (recipe,) = lookup(f"alti/{name}")
    (claim,) = [claim for claim in recipe.claims if claim.says.startswith(start)]
    return claim


def table_of(cells: dict[Place, float]) -> Table:
    rows, columns = (list(dict.fromkeys(place[i] for place in cells)) for i in (0, 1))
    return Table(rows, columns, {place: number(value, 1) for place, value in cells.items()}, "", [])


def test_claims_about_texts() -> None:
    gradients = ("Grad l2", "Grad · input", "Integrated Gradients")
    words = {(word, method): 0.1 for word in ("179", "-", "on") for method in (*gradients, "ALTI")}
    irrelevant = claim_of("table1", "Gradient").holds
    assert irrelevant(table_of(words | {(word, "ALTI"): 0.05 for word in ("179", "-", "on")}), "") is True
    assert irrelevant(table_of(words), "") is False
    assert irrelevant(table_of({("on", "ALTI"): 1.0}), "") is None
    blank = {
        ("map", "Blank-out"): 0.6,
        ("a", "Blank-out"): 0.01,
        ("s", "Blank-out"): 0.02,
        ("[SEP]", "Blank-out"): 0.37,
    }
    assert claim_of("table3", "Blank-out gives").holds(table_of(blank), "") is True
    assert claim_of("table3", "Blank-out ignores").holds(table_of(blank), "") is False  # half, and no more
    assert claim_of("table3", "Blank-out ignores").holds(table_of(blank | {("of", "Blank-out"): 0.0}), "") is True
    scores = {"BERT": ((1, 3), (2, 2), (3, 1)), "DistilBERT": ((1, 1), (2, 2), (3, 3))}
    cells = {
        (f"{model}: {token}", method): float(value)
        for model, rows in scores.items()
        for token, row in zip("abc", rows, strict=True)
        for method, value in zip(("ALTI", "Grad l2"), row, strict=True)
    }
    consistent = claim_of("table4", "Between").holds
    assert consistent(table_of(cells), "") is True
    assert consistent(table_of({("a", "ALTI"): 1.0}), "") is None


def test_claims_about_table_2() -> None:
    cells = {
        ("Attn Rollout", f"{task} {family}"): value
        for task in ("SST2", "SVA")
        for family, value in (("DistilBERT", 0.2), ("BERT", 0.0))
    }
    only = claim_of("table2", "Attention rollout").holds
    assert only(table_of(cells), "") is True
    assert only(table_of(cells | {("Attn Rollout", "SVA BERT"): 0.3}), "") is False
    assert only(table_of({("Attn Rollout", "SST2 BERT"): 0.3}), "") is None
    lower = claim_of("table2", "Overall").holds
    both = {
        (row, column): value
        for row in ("Norm Rollout", "ALTI")
        for column, value in (("SST2 BERT", 0.5), ("SVA BERT", 0.4))
    }
    assert lower(table_of(both), "") is True
    assert lower(table_of(both | {("ALTI", "SVA BERT"): 0.7}), "") is False
    assert lower(table_of({("ALTI", "SVA BERT"): 0.1, ("ALTI", "SST2 RoBERTa"): 0.6}), "") is None
    margin = claim_of("table2", "On SST2").holds
    best = {("Attn Rollout", "SST2 BERT"): 0.1, ("Norm Rollout", "SST2 BERT"): 0.3, ("ALTI", "SST2 BERT"): 0.45}
    assert margin(table_of(best), "") is True
    assert margin(table_of(best | {("ALTI", "SST2 BERT"): 0.35}), "") is False
    assert margin(table_of(best | {("ALTI", "SVA BERT"): 0.1, ("Norm Rollout", "SVA BERT"): 0.2}), "") is True
    assert margin(table_of({("ALTI", "SVA BERT"): 0.1, ("ALTI", "SST2 RoBERTa"): 0.6}), "") is None
    assert margin(table_of({("ALTI", "SVA BERT"): 0.1}), "") is None
    spread = claim_of("table2", "ALTI has").holds
    rows = {row: summary(values) for row, values in (("ALTI", [1.0, 1.1]), ("Attn Rollout", [0.0, 1.0]))}
    assert spread(Table(list(rows), ["x"], {(row, "x"): cell for row, cell in rows.items()}, "", []), "x") is True
    assert spread(table_of({("ALTI", "x"): 1.0, ("Attn Rollout", "x"): 2.0}), "x") is None


# Maps -----------------------------------------------------------------------------------------------------


def test_figure1_has_equation_10(bert: str) -> None:
    table = run("figure1", model=bert, texts=TEXTS[0], layer=2).table
    maps = wherefrom.explain(TEXTS[0], bert, method="alti").maps
    assert maps is not None
    assert table.matrix() == pytest.approx(maps[1], abs=1e-6)
    with pytest.raises(InvalidOption):
        run("figure1", model=bert, texts=TEXTS[0], layer=4)


def test_figure2_adds_up_all_paths(bert: str) -> None:
    """Â = 0.5 A + 0.5 I of two layers, from the raw attention of the model itself."""
    found = run("figure2", model=bert, texts=TEXTS[0])
    model = wherefrom.open_model(bert)
    first, second = (
        layer.attention[0].mean(0).double().numpy() for layer in wherefrom.capture(TEXTS[0], model).layers[:2]
    )
    a, b = (0.5 * each + 0.5 * np.eye(len(each)) for each in (first, second))
    paths = [b[0, j] * a[j, 0] for j in range(len(a))]
    assert found.table.matrix()[: len(paths), 0] == pytest.approx(paths, abs=1e-6)
    assert found.table.mean("R²", "[CLS]") == pytest.approx((b @ a)[0, 0], abs=1e-6)
    assert [verdict.holds for verdict in found.verdicts] == [True]


@pytest.mark.parametrize("name", ["figure5", "figure8", "figure9", "figure10"])
def test_relevances_are_products_of_the_layers_maps(name: str, bert: str, distilbert: str, tmp_path: Path) -> None:
    method = {"figure8": "attention-rollout", "figure9": "norm-residual-ln(normalize=True)"}.get(name, "alti")
    found = run(name, model=f"{bert},{distilbert}", texts=TEXTS[0], out=tmp_path)
    maps = wherefrom.explain(TEXTS[0], bert, method=method).maps
    assert maps is not None
    relevance = maps[0]
    for layer in maps[1:]:
        relevance = layer @ relevance
    rows = [row for row in found.table.rows if row.startswith("BERT: ") and "distance" not in row]
    assert found.table.matrix(rows)[:, -1] == pytest.approx(relevance[0], abs=1e-6)
    assert {each.stem for each in (tmp_path / "alti").glob("*.svg")} == {f"{name}-bert", f"{name}-distilbert"}


def test_row_distance_is_half_the_absolute_difference() -> None:
    assert row_distance(np.full((3, 3), 1 / 3)) == 0
    assert row_distance(np.eye(3)) == 1
    assert row_distance(np.array([[1, 0], [0.5, 0.5]])) == 0.5


def test_claims_about_figure_8() -> None:
    converges, special = (claim_of("figure8", start).holds for start in ("The relevance", "The highest"))
    cells = {
        ("[CLS]", "L1"): 0.4, ("[CLS]", "L2"): 0.4, ("good", "L1"): 0.2, ("good", "L2"): 0.2,
        ("[SEP]", "L1"): 0.4, ("[SEP]", "L2"): 0.4, ("distance between rows", "L1"): 0.5,
        ("distance between rows", "L2"): 0.01,
    }  # fmt: skip
    assert converges(table_of(cells), "") is True
    assert converges(table_of(cells | {("distance between rows", "L2"): 0.1}), "") is False
    assert special(table_of(cells), "") is True
    assert special(table_of(cells | {("good", "L2"): 0.5}), "") is False


def test_numbers_of_the_authors_repository_are_in_the_figures() -> None:
    figure3, figure6 = (lookup(f"alti/{name}")[0] for name in ("figure3", "figure6"))
    assert figure3.reported["L12", "BERT transformed"].mean == 0.299
    assert ("L7", "DistilBERT transformed") not in figure3.reported
    assert figure6.reported["ALTI", "DistilBERT"] == (0.23, 0.16)
    assert all("authors' repository" in recipe.samples for recipe in (figure3, figure6))
