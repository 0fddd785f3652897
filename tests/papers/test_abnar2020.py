"""Quantifying Attention Flow: tables recomputed from the paper's formulas, measures of its claims, and options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import stats

import tiny
import wherefrom
from wherefrom.data import drawn, up_to_mask
from wherefrom.errors import InvalidOption, Unsuited
from wherefrom.metric.correlation import Summary
from wherefrom.model import open_model
from wherefrom.papers import Result, Results, lookup
from wherefrom.papers.map_shape import received_variation, row_distance, self_weight
from wherefrom.papers.recipe import Table, Text, number


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


def made(name: str, **options: Any) -> Result:
    found = wherefrom.reproduce(name, **options)
    assert isinstance(found, Result)
    return found


def answers(name: str, table: Table) -> list[bool | None]:
    """What a recipe's claims say of a table."""
    return [verdict.holds for claim in lookup(name)[0].claims for verdict in claim.verdicts(table)]


# Tables 1 and 2 from the formulas -------------------------------------------------------------------------


def passes(limit: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Attention averaged over heads [L, n, n], the gradient of the gold logit and the embedding, by transformers."""
    opened = open_model("wherefrom/agreement")
    model, tokenizer = cast("Any", opened.model), cast("Any", opened.tokenizer)
    model.set_attn_implementation("eager")
    data = drawn(up_to_mask(wherefrom.data.read("grammar:distractor")), limit, 0)
    gold = {label: index for index, label in opened.labels.items()}
    for example in data:
        ids = tokenizer(example.text, return_tensors="pt")["input_ids"]
        words = model.get_input_embeddings()(ids).detach().requires_grad_()
        output = model(inputs_embeds=words, output_attentions=True)
        (gradient,) = torch.autograd.grad(output.logits[0, gold[str(example.label)]], words)
        positions = next(p for name, p in model.named_parameters() if name.endswith("wpe.weight"))[: ids.shape[1]]
        attention = np.stack([each[0].mean(0).detach().numpy() for each in output.attentions])
        yield attention, gradient[0].numpy(), (words[0] + positions).detach().numpy()


@pytest.mark.parametrize("norm", ["l2", "x-input"])
def test_table_2_is_the_formulas(norm: str) -> None:
    """Spearman's ρ of the readout row of raw attention and rollout with the size of the gradient."""
    rows: dict[str, list[list[float]]] = {"Raw": [], "Rollout": []}
    for attention, gradient, embedding in passes(3):
        size = np.linalg.norm(gradient, axis=-1) if norm == "l2" else np.abs((gradient * embedding).sum(-1))
        rolled = np.eye(attention.shape[1])
        raw, rollout = [], []
        for layer in attention:
            rolled = (0.5 * layer + 0.5 * np.eye(len(layer))) @ rolled
            raw.append(stats.spearmanr(layer[-1], size).statistic)
            rollout.append(stats.spearmanr(rolled[-1], size).statistic)
        rows["Raw"].append(raw)
        rows["Rollout"].append(rollout)
    table = made("abnar2020/table2", norm=norm, limit=3).table
    for row, values in rows.items():
        expected = np.mean(values, axis=0)
        assert table.matrix([row])[0] == pytest.approx(expected, abs=1e-6)


def test_a_sum_of_gradients_is_refused_where_it_is_zero() -> None:
    with pytest.raises(Unsuited):
        made("abnar2020/table2(norm=sum)", limit=2)
    assert made("abnar2020/table3(norm=sum)", limit=2).table.ours  # BERT's embeddings are read without a LayerNorm


def test_table_3_reads_the_test_set(tmp_path: Path) -> None:
    (tmp_path / "sst2").mkdir()
    for split, count in (("test", 2), ("validation", 3)):
        lines = ["sentence\tlabel", *["a deep film .\t1"] * count]
        (tmp_path / "sst2" / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    for options, count in (({}, 2), ({"split": "validation"}, 3)):
        found = made("abnar2020/table3", folder=tmp_path, **options)
        assert found.table.ours["Raw", "L1"].count == count
    other = tmp_path / "mine.tsv"
    other.write_text("text\tlabel\na deep film .\tpositive\n", encoding="utf-8")
    assert made("abnar2020/table3", data=str(other)).table.ours["Raw", "L1"].count == 1


def test_a_paper_takes_a_model_for_each_task(tmp_path: Path) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "test.tsv").write_text("sentence\tlabel\na deep film .\t1\n", encoding="utf-8")
    models = "sst2=wherefrom/sentiment,figure4=wherefrom/mlm"
    found = wherefrom.reproduce("abnar2020", model=models, folder=tmp_path)
    assert isinstance(found, Results)
    sources = {result.recipe.short: result.table.sources[0] for result in found}
    assert list(sources) == ["table3", "figure4"]
    assert sources["table3"] == "wherefrom/sentiment on sst2 test: n = 1"
    assert sources["figure4"].startswith("wherefrom/mlm on ")
    assert all("model" in str(omission.error) for omission in found.left_out if omission.recipe.short == "figure1")


# Claims ---------------------------------------------------------------------------------------------------


def test_the_evenness_claims_follow_the_table() -> None:
    def table(raw: float, rollout: float, flow: float, rollout_top: float, flow_top: float) -> Table:
        last = {"Raw": raw, "Rollout": rollout, "Flow": flow}
        last |= {"Rollout, top half": rollout_top, "Flow, top half": flow_top}
        ours = {
            (row, f"L{layer}"): Summary(mean, 0.1, 0.01, 50, 0) for row, mean in last.items() for layer in range(1, 6)
        }
        return Table(list(last), [f"L{layer}" for layer in range(1, 6)], ours, "", [])

    assert answers("abnar2020/evenness", table(0.95, 0.7, 0.8, 0.8, 0.9)) == [True, True, True, True]
    assert answers("abnar2020/evenness", table(0.6, 0.9, 0.8, 0.9, 0.8)) == [False, False, False, False]
    assert answers("abnar2020/evenness", table(0.905, 0.7, 0.8, 0.8, 0.9))[0] is None  # within the interval of 0.9


def test_shapes_of_maps_against_loops() -> None:
    a = np.random.default_rng(0).uniform(size=(5, 5))
    rows = [[value / sum(row) for value in row] for row in a.tolist()]
    columns = [sum(row[j] for row in rows) / 5 for j in range(5)]
    mean = sum(columns) / 5
    assert self_weight(a) == pytest.approx(sum(rows[i][i] for i in range(5)) / 5)
    spread = (sum((column - mean) ** 2 for column in columns) / 5) ** 0.5
    assert received_variation(a) == pytest.approx(spread / mean)
    distances = [sum(abs(row[j] - columns[j]) for j in range(5)) / 2 for row in rows]
    assert row_distance(a) == pytest.approx(sum(distances) / 5)
    assert [self_weight(np.eye(4)), received_variation(np.eye(4)), row_distance(np.eye(4))] == [1, 0, 0.75]
    assert row_distance(np.ones((3, 3))) == 0


def test_figure_1_measures_the_graph_that_it_draws() -> None:
    found = made("abnar2020/figure1")
    text = found.recipe.texts[0]
    flow = wherefrom.explain(text, found.recipe.model, method="attention-flow")
    assert flow.aggregated is not None
    assert found.table.mean("Flow: self weight", "L6") == pytest.approx(self_weight(flow.aggregated[-1]))
    both = made("abnar2020/figure1", texts=["the key", "the cabinets"])
    assert list(both.table.pictures) == ["-1", "-2"]
    assert both.table.ours["Raw: row distance", "L1"].count == 2


def test_figures_2_and_3_hold_every_layer_and_answer_their_claims() -> None:
    raw, rolled = made("abnar2020/figure2"), made("abnar2020/figure3")
    assert len(raw.table.notes) == 2
    explanation = wherefrom.explain(raw.recipe.texts[0], raw.recipe.model, method="attention", aggregate=None)
    assert explanation.maps is not None
    first = [row for row in raw.table.rows if row.startswith("1. ")]
    assert np.allclose(raw.table.matrix(first).T, explanation.maps[:, -1], atol=1e-6)
    rows = ["1. a", "1. b", "2. article", "2. x", "2. systems", "3. men", "3. y"]
    columns = [f"{name} L{layer}" for name in ("Rollout", "Flow") for layer in (1, 2)]
    shares = dict(
        zip(rows, ([0.9, 0.6], [0.1, 0.4], [0.5, 0.4], [0.1, 0.2], [0.4, 0.4], [0.8, 0.7], [0.2, 0.3]), strict=True)
    )
    ours = {(row, column): number(shares[row][column.startswith("Flow")], 1) for row in rows for column in columns}
    assert answers("abnar2020/figure3", Table(rows, columns, ours, "", [])) == [True, True, True]
    ours = {**ours, ("3. men", "Flow L2"): number(0.1, 1), ("2. systems", "Rollout L2"): number(0.01, 1)}
    assert answers("abnar2020/figure3", Table(rows, columns, ours, "", []))[:2] == [False, False]
    assert rolled.table.ours


def test_figure_2_tells_predictions_and_what_a_changed_word_does_to_them() -> None:
    second, third, articles, nasa = (
        "the article on nasa large systems",
        "here the men differ in that the female",
        "the articles on nasa large systems",
        "here the nasa differ in that the female",
    )

    def verdicts(**predictions: str | None) -> list[bool | None]:
        texts = {"second": second, "third": third, "articles": articles, "nasa": nasa}
        named: dict[Text, str | None] = {texts[name]: prediction for name, prediction in predictions.items()}
        return answers("abnar2020/figure2", Table([], [], {}, "", [], predictions=named))[1:]

    assert verdicts(second="singular", articles="plural", third="plural", nasa="singular") == [True] * 4
    assert verdicts(second="plural", articles="plural", third="singular", nasa="singular") == [False] * 4
    assert verdicts(second="0", third=None, nasa="1") == verdicts() == [None] * 4
    predictions = made("abnar2020/figure2").table.predictions
    for text in (second, third, articles, nasa):
        assert predictions[text] == wherefrom.explain(text, "wherefrom/agreement", method="attention").prediction


def pronoun_table(raw: list[float], rollout: float, flow: float, p_his: float, letter: str) -> Table:
    """What "his" gets in each layer of raw attention, and in the last of the others; "her" gets the rest of 1."""
    his, her = {"a": ("(a) author: his", "(a) sara: her"), "b": ("(b) john: his", "(b) mary: her")}[letter]
    values = {f"Raw L{layer}": value for layer, value in enumerate(raw, 1)}
    values |= {f"{name} L{layer}": value for name, value in (("Rollout", rollout), ("Flow", flow)) for layer in (1, 2)}
    ours = {(his, column): number(value, 1) for column, value in values.items()}
    ours |= {(her, column): number(1 - value, 1) for column, value in values.items()}
    ours |= {(his, "probability"): number(p_his, 1), (her, "probability"): number(0.2, 1)}
    return Table([his, her], ["probability", *values], ours, "", [])


def test_the_claims_of_figure_4() -> None:
    same, consistent, varies, only_flow = range(4)
    a = answers("abnar2020/figure4", pronoun_table([0.6, 0.4, 0.7, 0.4], 0.8, 0.6, 0.5, "a"))
    assert (a[same], a[consistent], a[varies], a[only_flow]) == (True, True, True, None)
    a = answers("abnar2020/figure4", pronoun_table([0.4, 0.4, 0.7, 0.6], 0.8, 0.3, 0.5, "a"))
    assert (a[same], a[consistent], a[varies]) == (False, False, False)
    b = answers("abnar2020/figure4", pronoun_table([0.6], 0.8, 0.3, 0.1, "b"))
    assert (b[same], b[only_flow]) == (None, True)
    assert answers("abnar2020/figure4", pronoun_table([0.6], 0.2, 0.3, 0.1, "b"))[only_flow] is False


def test_figure_4_takes_other_sentences_and_people() -> None:
    text = "the woman told the man about [MASK] dog ."
    found = made("abnar2020/figure4(references=man/woman)", texts=[text])
    assert list(found.table.rows) == ["(a) man: his", "(a) woman: her"]
    explanation = wherefrom.explain(text, "wherefrom/mlm", method="attention-rollout")
    place = explanation.pieces.index("man")
    assert found.table.mean("(a) man: his", "Rollout L10") == pytest.approx(explanation.scores[place])
    assert 0 < found.table.mean("(a) woman: her", "probability") < 1
    assert {verdict.holds for verdict in found.verdicts} == {None}
    every = made("abnar2020/figure4", texts=[text])
    assert len(every.table.rows) == len(explanation)
    for wrong in ("man", "man/nobody"):
        with pytest.raises(InvalidOption):
            made("abnar2020/figure4", references=wrong, texts=[text])
    with pytest.raises(InvalidOption):
        made("abnar2020/figure4", texts=[(text, text)])


def test_a_heads_rollout_is_the_appendixs_formula() -> None:
    """Ã(i, k) = A(i, k) Ā(i − 1): the head in its own layer, the mean of the heads below."""
    model, ids, head = tiny.model(dtype=torch.float64), tiny.ids(6), 2
    heads = wherefrom.explain(ids, model, method="attention", head="all", aggregate=None).head_maps
    found = wherefrom.explain(ids, model, method="attention-rollout", head=head)
    assert heads is not None
    assert found.aggregated is not None
    below = identity = np.eye(6)
    for layer, weights in enumerate(heads):
        expected = (0.5 * weights[head] + 0.5 * identity) @ below
        assert found.aggregated[layer] == pytest.approx(expected, abs=1e-12)
        below = (0.5 * weights.mean(0) + 0.5 * identity) @ below
