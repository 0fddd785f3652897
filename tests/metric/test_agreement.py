"""Confidence between classes, ranks of special tokens, consistency of two models, and agreement layer by layer."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

import golden
import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.metric import correlation, precision
from wherefrom.metric.confidence import confidence, confidence_of
from wherefrom.metric.consistency import consistency, same_prediction
from wherefrom.metric.layerwise import layer_rows, map_agreement, row_agreement
from wherefrom.metric.ranks import relevance_ranks, token_ranks
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
TEXT = "the film is not very meaningful , and not good ."


def tau(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's τ of two orders without ties: concordant less discordant pairs."""
    x, y = np.asarray(x), np.asarray(y)
    pairs = [np.sign((x[i] - x[j]) * (y[i] - y[j])) for i in range(len(x)) for j in range(i)]
    return float(np.mean(pairs))


# Confidence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", golden.having("attcat_metrics"), ids=lambda case: case.name)
def test_confidence_as_attcats_notebooks_do_it(case: golden.Golden) -> None:
    keys = [key for key in case.keys("attcat_metrics") if key.endswith("_kendall")]
    compared = 0
    for key in keys:
        prefix = key.removesuffix("kendall")
        scores = [case["attcat_metrics", f"{prefix}attribution{which}"] for which in ("", "_other")]
        if not np.isfinite(scores).all():  # their AttGrads is 0/0 here
            continue
        target = int(prefix.split("_")[1][1:])
        by_class = scores if target == 0 else scores[::-1]
        found, theirs = confidence(by_class, target, protocol="attcat-code"), float(case["attcat_metrics", key])
        # [CLS] and [SEP] are tied at 0, and numpy's default sort puts them as the processor likes.
        last = len(scores[0]) - 1
        orders = [(np.argsort(-row, kind="stable"), last - np.argsort(-row[::-1], kind="stable")) for row in scores]
        possible = [tau(a, b) for a in orders[0] for b in orders[1]]
        for value in (found, theirs):
            assert min(abs(value - each) for each in possible) < 1e-9
        if last < 16:  # short arrays are sorted by insertion, in the same way everywhere
            assert found == pytest.approx(theirs, abs=1e-9)
            compared += 1
    assert compared


@given(st.permutations(range(7)), st.permutations(range(7)), st.permutations(range(7)))
def test_confidence_is_the_mean_over_the_other_classes(a: list[int], b: list[int], c: list[int]) -> None:
    scores = np.array([a, b, c], dtype=float)
    assert confidence(scores, 1) == pytest.approx((tau(b, a) + tau(b, c)) / 2)
    orders = [sorted(range(7), key=lambda i, row=row: -row[i]) for row in scores]
    assert confidence(scores, 1, "indices") == pytest.approx(
        (tau(orders[1], orders[0]) + tau(orders[1], orders[2])) / 2
    )
    assert confidence(scores, 0, "attcat-code") == pytest.approx(tau(orders[0], orders[1]))
    assert confidence(scores, 2, "attcat-code") == pytest.approx(tau(orders[2], orders[1]))


def test_equation_15_of_attcat_from_its_text() -> None:
    """S_k lists the token indices by decreasing score, and the predicted class is compared with all others."""
    model = tiny.model(dtype=torch.float64, num_labels=3)
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="attcat", target="all")
    assert len(found) == 3
    predicted = next(iter(found.values())).prediction
    index_arrays = {}
    for label, explanation in found.items():
        left, index_arrays[label] = list(range(len(explanation))), []
        while left:
            highest = max(left, key=lambda token, scores=explanation.scores: scores[token])
            index_arrays[label].append(highest)
            left.remove(highest)
    others = [tau(index_arrays[predicted], array) for label, array in index_arrays.items() if label != predicted]
    assert confidence_of(found, protocol="indices") == pytest.approx(sum(others) / 2, abs=1e-12)
    assert others[0] != others[1]  # one other class would not do


def test_a_method_that_ignores_the_class_has_no_confidence() -> None:
    model = tiny.model(dtype=torch.float64)
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="attcat", target="all")
    rolled = wherefrom.explain(TEXT, model, TOKENIZER, method="attention-rollout")
    blind = {label: replace(rolled, measured=each.target) for label, each in found.items()}
    assert confidence_of(blind) == pytest.approx(1.0)
    assert len(found) == 3
    predicted = next(iter(found.values())).prediction
    labels = list(found)
    scores = [found[label].scores for label in labels]
    others = [correlation.kendall(scores[labels.index(predicted)], found[k].scores) for k in labels if k != predicted]
    assert confidence_of(found) == pytest.approx(np.mean(others))
    assert confidence_of(found) < 0.9
    shuffled = dict(reversed(list(found.items())))  # the order of the classes is theirs, not the mapping's
    for label in labels:
        assert confidence_of(shuffled, label, "attcat-code") == confidence_of(found, label, "attcat-code")


def test_what_confidence_refuses() -> None:
    for message, call in (
        ("two classes or more", lambda: confidence([[1, 2, 3]], 0)),
        ("class 2 was chosen", lambda: confidence([[1, 2], [2, 1]], 2)),
        ("protocol='", lambda: confidence([[1, 2], [2, 1]], 0, "mine")),
        ("compares classes", lambda: confidence_of({"a": Explanation.from_scores(["x", "y"], [1, 2])})),
    ):
        with pytest.raises(WherefromError, match=message):
            call()
    for protocol in ("scores", "indices"):  # a class that ranks nothing
        assert np.isnan(confidence([[1, 1, 1], [1, 2, 3]], 0, protocol))
    found = wherefrom.explain(TEXT, tiny.model(), TOKENIZER, method="attcat", target="all")
    with pytest.raises(WherefromError, match="no explanation of the class 'maybe'"):
        confidence_of(found, "maybe")
    with pytest.raises(WherefromError, match="different inputs or methods"):
        confidence_of({**found, "LABEL_0": replace(found["LABEL_0"], method="other")})


# Ranks -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=10))
def test_ranks_against_their_definition(values: list[int]) -> None:
    n = len(values)
    expected = [(sum(v < w for v in values) + (values.count(w) - 1) / 2) / (n - 1) for w in values]
    assert relevance_ranks(values) == pytest.approx(expected)
    if len(set(values)) > 1:
        levels = sorted(set(values))
        dense = [levels.index(w) / (len(levels) - 1) for w in values]
        assert relevance_ranks(values, ties="dense") == pytest.approx(dense)


def test_ranks_of_special_tokens_and_punctuation() -> None:
    found = wherefrom.explain(TEXT, tiny.model(), TOKENIZER, method="alti")
    order = sorted(range(len(found)), key=lambda i: found.scores[i])
    ranks = token_ranks(found)
    assert set(ranks) == {"[CLS]", "[SEP]", ",", "."}
    for token, rank in ranks.items():
        assert rank == pytest.approx(order.index(found.tokens.index(token)) / (len(found) - 1))
    pair = wherefrom.explain(("a cat .", "a dog ."), tiny.model(), TOKENIZER, method="alti")
    every = relevance_ranks(pair.scores)
    assert token_ranks(pair)["[SEP]"] == pytest.approx(
        every[[i for i, t in enumerate(pair.tokens) if t == "[SEP]"]].mean()
    )
    signed = Explanation.from_scores(["[CLS]", "bad", "good"], [0.1, -3.0, 1.0], special=[True, False, False])
    assert token_ranks(signed, punctuation=["bad"]) == {"[CLS]": 0.0, "bad": 1.0}
    for message, call in (
        ("cannot rank", lambda: relevance_ranks([1.0])),
        ("cannot rank", lambda: relevance_ranks([1.0, np.nan])),
        ("ties='max'", lambda: relevance_ranks([1.0, 2.0], ties="max")),
    ):
        with pytest.raises(WherefromError, match=message):
            call()


# Consistency -----------------------------------------------------------------------------------------------


def test_consistency_counts_only_equal_predictions() -> None:
    texts = [TEXT, "a good cat", "the dog is bad .", "keys to the cabinets"]
    first, second = tiny.model("bert", num_labels=2), tiny.model("distilbert", seed=2, num_labels=2)
    one, other = (wherefrom.explain(texts, model, TOKENIZER, method="norm") for model in (first, second))
    same = [a.prediction == b.prediction for a, b in zip(one, other, strict=True)]
    assert True in same
    assert False in same
    values = [consistency(a, b) for a, b in zip(one, other, strict=True)]
    expected = [correlation.spearman(a.scores, b.scores) for a, b in zip(one, other, strict=True)]
    for value, by_hand, agree in zip(values, expected, same, strict=True):
        assert value == by_hand if agree else np.isnan(value)
    summary = correlation.summary(values)
    assert (summary.count, summary.undefined) == (sum(same), len(same) - sum(same))
    assert consistency(one[0], one[0]) == pytest.approx(1.0)


def test_consistency_refuses_what_cannot_be_compared() -> None:
    fields = {"prediction": "yes", "probabilities": {"no": 0.2, "yes": 0.8}}
    one = Explanation.from_scores(["a", "b", "c"], [1, 2, 3], **fields)
    other = replace(one, prediction="LABEL_1", probabilities={"LABEL_0": 0.1, "LABEL_1": 0.9})
    with pytest.raises(WherefromError, match="different classes"):
        same_prediction(one, other)
    assert consistency(one, other, labels={"LABEL_0": "no", "LABEL_1": "yes"}) == pytest.approx(1.0)
    assert np.isnan(consistency(one, other, labels={"LABEL_1": "no", "LABEL_0": "yes"}))
    with pytest.raises(WherefromError, match="methods differ"):
        consistency(one, replace(one, method="another"))
    with pytest.raises(WherefromError, match="different tokens"):
        consistency(one, replace(one, tokens=["a", "b", "d"]))


# Layers ----------------------------------------------------------------------------------------------------


def test_rows_of_layers_are_those_of_the_maps() -> None:
    model = tiny.model()
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="globenc")
    assert found.maps is not None
    assert found.aggregated is not None
    assert np.array_equal(layer_rows(found), found.aggregated[:, 0])
    assert np.array_equal(layer_rows(found, of="maps"), found.maps[:, 0])
    assert np.array_equal(layer_rows(found)[-1], found.scores)
    assert np.array_equal(layer_rows(found, row="max"), found.aggregated.max(1))
    assert np.allclose(layer_rows(found, row="mean"), found.aggregated.mean(1))
    last = wherefrom.explain(TEXT, model, TOKENIZER, method="globenc", position=-1)
    assert last.aggregated is not None
    assert np.array_equal(layer_rows(last), last.aggregated[:, -1])
    reading = wherefrom.explain(TEXT, model, TOKENIZER, method="globenc", rows="readout", keep="maps")
    assert np.allclose(layer_rows(reading), layer_rows(found), atol=1e-6)
    assert np.allclose(layer_rows(reading, of="maps"), layer_rows(found, of="maps"), atol=1e-6)
    kept = wherefrom.explain(TEXT, model, TOKENIZER, method="globenc", keep="row")
    assert np.allclose(layer_rows(kept), layer_rows(found), atol=1e-6)
    with pytest.raises(WherefromError, match="holds no maps"):  # what was kept is aggregated
        layer_rows(kept, of="maps")
    gradients = wherefrom.explain(TEXT, model, TOKENIZER, method="saliency")
    assert layer_rows(gradients).shape == layer_rows(gradients, of="maps").shape == layer_rows(found).shape
    with pytest.raises(WherefromError, match="holds no aggregated"):
        layer_rows(Explanation.from_scores(["a", "b"], [1, 2]))
    with pytest.raises(WherefromError, match="row='"):
        layer_rows(found, row="first")
    with pytest.raises(WherefromError, match="of='heads'"):
        layer_rows(found, of="heads")


def test_agreement_by_layer_is_that_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    rows, reference = rng.random((4, 9)), rng.random(9)
    ranked = np.argsort(np.argsort(rows, 1), 1), np.argsort(np.argsort(reference))
    expected = [np.corrcoef(row, ranked[1])[0, 1] for row in ranked[0]]
    assert row_agreement(rows, reference) == pytest.approx(expected)
    cues = [0, 0, 1, 0, 1, 0, 0, 0, 0]
    mass = [(row[2] + row[4]) / row.sum() for row in rows]
    assert row_agreement(rows, cues, precision.dot_product) == pytest.approx(mass)
    ours, theirs = rng.random((2, 4, 9, 9))
    flat = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(ours, theirs, strict=True)]
    assert map_agreement(ours, theirs) == pytest.approx(flat)
    by_row = [np.mean([correlation.spearman(a[i], b[i]) for i in range(9)]) for a, b in zip(ours, theirs, strict=True)]
    assert map_agreement(ours, theirs, "globenc-code") == pytest.approx(by_row)
    for message, call in (
        ("one row of tokens per layer", lambda: row_agreement(reference, reference)),
        (r"\[layers, tokens, tokens\]", lambda: map_agreement(ours, theirs[:2])),
        ("protocol='", lambda: map_agreement(ours, theirs, "dense")),
    ):
        with pytest.raises(WherefromError, match=message):
            call()


@pytest.mark.parametrize("n", range(2, 13))
def test_scores_agree_with_themselves(n: int) -> None:
    """Within rounding, which is another on every machine; hence nothing may ask whether it is 1 exactly."""
    rng = np.random.default_rng(n)
    for scores in (rng.normal(size=n), rng.permutation(n) / 7, np.arange(n) * 1e-30, 1e30 * rng.random(n)):
        for measure in (correlation.spearman, correlation.pearson, correlation.kendall):
            assert measure(scores, scores) == pytest.approx(1, abs=1e-12)
            assert measure(scores, -scores) == pytest.approx(-1, abs=1e-12)
            assert abs(measure(scores, scores)) <= 1
        assert correlation.spearman(scores, scores, protocol="dense") == pytest.approx(1, abs=1e-12)


def test_nothing_asks_whether_an_agreement_is_exactly_one() -> None:
    computed = re.compile(r"spearman|pearson|kendall|correlat|agree|\brho\b|mean\(|\.dot\(|\.sum\(|@")
    found = []
    for path in Path(wherefrom.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
                sides = [ast.unparse(each) for each in (node.left, *node.comparators)]
                ones = [each for each in sides if each.replace(" ", "") in ("1", "1.0", "-1", "-1.0")]
                if ones and any(computed.search(each) for each in sides):
                    found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert found == []
