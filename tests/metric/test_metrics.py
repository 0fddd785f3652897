"""The metrics against their definitions, the authors' figures and scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from tokenizers import processors

import golden
import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.metric import correlation, precision
from wherefrom.metric.erasure import ERASER, NINE, erasure
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
TEXT = "the film is not very meaningful and not good !"


# Erasure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", golden.having("attcat_metrics"), ids=lambda case: case.name)
def test_erasure_as_attcats_notebooks_do_it(case: golden.Golden) -> None:
    model = case.model()
    # Where their AttGrads is 0/0 there is nothing to rank.
    keys = [key for key in case.keys("attcat_metrics") if key.endswith("_attribution")]
    keys = [key for key in keys if np.isfinite(case["attcat_metrics", key]).all()]
    assert keys
    for key in keys:
        sentence, target, method, _ = key.split("_")
        prefix = f"{sentence}_{target}_{method}_"
        ids = case.ids(sentence)
        found = Explanation.from_scores(
            [str(i) for i in ids],
            case["attcat_metrics", key],
            special=[i in (101, 102) for i in ids],
            target=wherefrom.explain(ids, model, method="attcat", target=int(target[1:])).target,
        )
        for by, name in (("delete", "trunc"), (0, "replaced")):
            curve = erasure(ids, found, model, by=by, protocol="attcat-code")
            assert curve.probabilities[0] == pytest.approx(
                float(case["attcat_metrics", f"{sentence}_{target}_orig_prob"])
            )
            assert np.allclose(curve.probabilities[1:], case["attcat_metrics", f"{prefix}{name}_probs"], rtol=1e-9)
            short = {"trunc": "trunc", "replaced": "replace"}[name]
            assert curve.aopc == pytest.approx(float(case["attcat_metrics", f"{prefix}aopc_{short}"]), rel=1e-9)
            assert curve.log_odds == pytest.approx(float(case["attcat_metrics", f"{prefix}logodds_{short}"]), rel=1e-9)


def test_erasure_step_by_step() -> None:
    model = tiny.model(dtype=torch.float64)
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="ablation", target=1)
    ids = TOKENIZER(TEXT)["input_ids"]
    order = [i for i in np.argsort(-found.scores, kind="stable") if 0 < i < len(ids) - 1]

    def p(ids: list[int]) -> float:
        with torch.no_grad():
            inputs = torch.tensor([ids])
            return float(model(inputs, token_type_ids=torch.zeros_like(inputs)).logits.softmax(-1)[0, 1])

    curve = erasure(TEXT, found, model, TOKENIZER)
    taken = [round(share / 10 * len(order)) for share in range(11)]
    assert curve.taken.tolist() == taken
    expected = [p([token for i, token in enumerate(ids) if i not in order[:k]]) for k in taken]
    assert np.allclose(curve.probabilities, expected, atol=1e-12)
    assert curve.aopc == pytest.approx(np.mean([p(ids) - value for value in expected]))
    assert curve.log_odds == pytest.approx(np.mean([np.log(value / p(ids)) for value in expected]))
    masked = erasure(TEXT, found, model, TOKENIZER, by="mask", shares=(0, 0.5))
    half = [TOKENIZER.mask_token_id if i in order[: taken[5]] else token for i, token in enumerate(ids)]
    assert masked.probabilities[1] == pytest.approx(p(half), abs=1e-12)
    kept = erasure(TEXT, found, model, TOKENIZER, keep=True, shares=(0, 0.5))
    left = [token for i, token in enumerate(ids) if i not in order[taken[5] :]]
    assert kept.probabilities[1] == pytest.approx(p(left), abs=1e-12)
    assert kept.mean_drop == pytest.approx(p(ids) - p(left), abs=1e-12)


@pytest.mark.parametrize("text", [TEXT, "good film", "a cat"])
def test_comprehensiveness_and_sufficiency_as_altis_code_has_them(text: str) -> None:
    model = tiny.model(dtype=torch.float64)
    found = wherefrom.explain(text, model, TOKENIZER, method="globenc")
    ids = TOKENIZER(text)["input_ids"]
    order = [i for i in sorted(range(len(ids)), key=lambda i: -found.scores[i]) if i not in (0, len(ids) - 1)]

    def probability(kept: set[int]) -> float:
        left = [token for i, token in enumerate(ids) if i in kept or i in (0, len(ids) - 1)]
        with torch.no_grad():
            return float(model(torch.tensor([left])).logits.softmax(-1)[0, found.measured.index])

    bins = [0, *(int(np.ceil(share * len(order))) for share in (0.01, 0.05, 0.1, 0.2, 0.5))]
    whole = probability(set(order))
    without = [min(probability(set(order[j:])) for j in bins[: k + 1]) for k in range(6)]
    alone = [max(probability(set(order[:j])) for j in bins[: k + 1]) for k in range(6)]
    asked = {"shares": ERASER, "protocol": "alti-code"}
    comprehensive = erasure(text, found, model, TOKENIZER, **asked).mean_drop
    sufficient = erasure(text, found, model, TOKENIZER, keep=True, **asked).mean_drop
    assert comprehensive == pytest.approx(sum(whole - p for p in without[1:]) / 6, abs=1e-9)
    assert sufficient == pytest.approx(sum(whole - p for p in alone[1:]) / 6, abs=1e-9)


@pytest.mark.parametrize("keep", [False, True])
def test_altis_code_never_takes_the_mask_that_is_read(keep: bool) -> None:
    model, text = tiny.model(task="masked-lm", dtype=torch.float64), "the [MASK] is very good"
    scores = [0, 1, 9, 2, 4, 3, 0]  # the mask highest
    asked = {"by": "unknown", "shares": (0.2, 0.5), "keep": keep, "protocol": "alti-code"}
    explained = wherefrom.explain(text, model, TOKENIZER, target="film")
    found = replace(explained, scores=np.array(scores, dtype=float))
    ids = TOKENIZER(text)["input_ids"]

    def probability(gone: tuple[int, ...]) -> float:
        left = torch.tensor([[TOKENIZER.unk_token_id if i in gone else token for i, token in enumerate(ids)]])
        with torch.no_grad():
            return float(model(left).logits[0, 2].softmax(-1)[found.target.index])

    whole, first, half = probability(()), probability((4,)), probability((4, 5))
    drops = [whole - min(whole, first), whole - min(whole, first, half)]
    if keep:
        none, first, half = probability((1, 3, 4, 5)), probability((1, 3, 5)), probability((1, 3))
        drops = [whole - max(none, first), whole - max(none, first, half)]
    assert erasure(text, found, model, TOKENIZER, **asked).mean_drop == pytest.approx(sum(drops) / 3, abs=1e-9)


def test_a_small_share_of_a_short_sentence_is_one_token() -> None:
    model = tiny.model(dtype=torch.float64)
    found = wherefrom.explain("a good cat", model, TOKENIZER, method="ablation", target=1)
    ids = TOKENIZER("a good cat")["input_ids"]
    best = max((1, 2, 3), key=lambda i: found.scores[i])

    def p(chosen: list[int]) -> float:
        with torch.no_grad():
            inputs = torch.tensor([[ids[i] for i in chosen]])
            return float(model(inputs, token_type_ids=torch.zeros_like(inputs)).logits.softmax(-1)[0, 1])

    whole = p([0, 1, 2, 3, 4])
    taken = erasure("a good cat", found, model, TOKENIZER, shares=(0.01,))
    assert taken.taken.tolist() == [0, 1]
    assert taken.mean_drop == pytest.approx(whole - p([i for i in range(5) if i != best]), abs=1e-12)
    kept = erasure("a good cat", found, model, TOKENIZER, shares=(0.01,), keep=True)
    assert kept.mean_drop == pytest.approx(whole - p([0, best, 4]), abs=1e-12)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("task", ["classification", "masked-lm"])
def test_accuracy_counts_the_predictions_step_by_step(task: str, keep: bool) -> None:
    model, text = tiny.model(task=task, dtype=torch.float64), f"{TEXT} [MASK]"
    found = wherefrom.explain(text, model, TOKENIZER, method="gradient-x-input")
    ids = TOKENIZER(text)["input_ids"]
    read = found.position if task == "masked-lm" else None
    order = [i for i in np.argsort(-found.scores, kind="stable") if 0 < i < len(ids) - 1 and i != read]

    def prediction(gone: list[int]) -> int:
        left = torch.tensor([[TOKENIZER.mask_token_id if i in gone else token for i, token in enumerate(ids)]])
        with torch.no_grad():
            logits = model(left, token_type_ids=torch.zeros_like(left)).logits[0]
        return int((logits if read is None else logits[read]).argmax())

    taken = [round(share * len(order)) for share in NINE]
    expected = [prediction(order[k:] if keep else order[:k]) for k in taken]
    curve = erasure(text, found, model, TOKENIZER, by="mask", shares=NINE, keep=keep)
    assert curve.predictions is not None
    assert curve.predictions.tolist() == [prediction([]), *expected]
    for wanted in {0, *expected}:
        assert curve.accuracy(wanted) == pytest.approx(expected.count(wanted) / 9)
    assert curve.accuracy() == pytest.approx(expected.count(prediction([])) / 9)


def test_what_chooses_nothing_has_no_accuracy() -> None:
    model = tiny.model()
    model.config.problem_type = "multi_label_classification"
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="gradient-x-input", target=1)
    with pytest.raises(WherefromError, match="chooses no single class"):
        erasure(TEXT, found, model, TOKENIZER, by="mask").accuracy()


def test_erasure_of_a_list_is_that_of_each() -> None:
    model = tiny.model(dtype=torch.float64)
    texts = [TEXT, "a good cat", "the keys to the cabinets are here"]
    found = wherefrom.explain(texts, model, TOKENIZER, method="attcat")
    together = erasure(texts, found, model, TOKENIZER)
    for text, each, curve in zip(texts, found, together, strict=True):
        alone = erasure(text, each, model, TOKENIZER)
        assert np.allclose(alone.probabilities, curve.probabilities, atol=1e-10)
        assert 0 <= curve.area <= 1


def test_what_is_read_once_is_the_same_question() -> None:
    """The same tokens asked for another class, or marked as two texts, are read again."""
    model = tiny.model(dtype=torch.float64)
    ids = TOKENIZER(TEXT)["input_ids"]
    half = len(ids) // 2
    inputs = [{"input_ids": ids, "token_type_ids": [0] * half + [second] * (len(ids) - half)} for second in (0, 0, 1)]
    found = [
        wherefrom.explain(each, model, TOKENIZER, "saliency", target=target)
        for each, target in zip(inputs, (0, 1, 1), strict=True)
    ]
    together = erasure(inputs, found, model, TOKENIZER, by="mask")
    for sentence, one, curve in zip(inputs, found, together, strict=True):
        alone = erasure(sentence, one, model, TOKENIZER, by="mask")
        assert np.allclose(curve.probabilities, alone.probabilities, atol=1e-12)
    wholes = [curve.probabilities[0] for curve in together]
    assert min(abs(wholes[0] - wholes[1]), abs(wholes[1] - wholes[2])) > 1e-4


def test_what_erasure_refuses() -> None:
    model = tiny.model()
    found = wherefrom.explain(TEXT, model, TOKENIZER, method="attcat")
    for message, arguments, options in (
        ("1 explanations for 2 inputs", ([TEXT, TEXT], [found]), {}),
        ("other tokens than the input", ("a cat", found), {}),
        ("other tokens than the input", (TEXT, found.words()), {}),
        ("by='fire'", (TEXT, found), {"by": "fire"}),
        ("no token to erase by 99", (TEXT, found), {"by": 99}),
        ("protocol='mine'", (TEXT, found), {"protocol": "mine"}),
        ("between 0 and 1", (TEXT, found), {"shares": (0, 2)}),
        ("increasing numbers", (TEXT, found), {"shares": (0.5, 0.1)}),
        ("expected a list of numbers", (TEXT, found), {"shares": ("all",)}),
        ("measures the probability", (TEXT, Explanation.from_scores(found.tokens, found.scores)), {}),
    ):
        with pytest.raises(WherefromError, match=message):
            erasure(*arguments, model, TOKENIZER, **options)


def test_a_text_without_any_token_is_what_a_text_begins_with() -> None:
    """Of a tokenizer that adds nothing, all tokens may go; what is then read is its token for a beginning."""
    model, bare = tiny.model(), tiny.tokenizer()
    bare.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    found = wherefrom.explain(TEXT, model, bare, method="attcat")
    assert not any(found.special)
    curve = erasure(TEXT, found, model, bare)
    alone = wherefrom.explain([bare.cls_token_id], model, method="attcat", target=found.target.label)
    probability = alone.probabilities[str(found.target.label)]
    assert curve.taken[-1] == len(found)
    assert curve.probabilities[-1] == pytest.approx(probability, abs=1e-6)
    bare.cls_token = None
    with pytest.raises(WherefromError, match="no token that a text begins with"):
        erasure(TEXT, found, model, bare)


def test_where_nothing_can_go_there_is_no_curve() -> None:
    model = tiny.model(task="masked-lm")
    found = wherefrom.explain("[MASK]", model, TOKENIZER, method="attention")
    with pytest.raises(WherefromError, match="no token that could be taken away"):
        erasure("[MASK]", found, model, TOKENIZER, by="mask")


# Agreement -------------------------------------------------------------------------------------------------


def test_dense_spearman_as_the_authors_have_it() -> None:
    with golden.load_arrays(golden.ENCODERS, "spearman_dense", "attention_flow") as figures:
        for x, y, expected in zip(figures["x"], figures["y"], figures["coef"], strict=True):
            assert correlation.spearman(x, y, protocol="dense") == pytest.approx(float(expected), abs=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=12), st.integers(0, 99))
def test_correlations_against_their_definitions(values: list[int], seed: int) -> None:
    x = np.array(values, dtype=float)
    y = np.random.default_rng(seed).integers(-3, 3, len(x)).astype(float)
    if len(set(x)) == 1 or len(set(y)) == 1:
        for found in (correlation.spearman(x, y), correlation.spearman(x, y, "dense"), correlation.kendall(x, y)):
            assert np.isnan(found)
        return
    ranks = [[(v < t).sum() + ((v == t).sum() - 1) / 2 for t in v] for v in (x, y)]
    assert correlation.spearman(x, y) == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-12)
    assert correlation.pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i in range(len(x)) for j in range(i)]
    bottom = np.sqrt(sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs))
    assert correlation.kendall(x, y) == pytest.approx(sum(a * b for a, b in signs) / bottom, abs=1e-12)


def test_summary_counts_what_has_no_value() -> None:
    found = correlation.summary([0.1, 0.3, np.nan, 0.5])
    assert (found.count, found.undefined) == (3, 1)
    assert found.mean == pytest.approx(0.3)
    assert found.deviation == pytest.approx(0.2)
    assert found.interval == pytest.approx(9.924843 * 0.2 / np.sqrt(3), rel=1e-6)  # t(0.995, 2)
    assert str(found) == "0.300 ± 1.146 (n = 3, 1 undefined)"  # the interval, as in the tables of a run
    one = correlation.summary([0.25])
    assert np.isnan([one.deviation, one.interval]).all()
    assert str(one) == "0.250 (n = 1)"
    with pytest.raises(WherefromError, match="nothing to summarise"):
        correlation.summary([np.nan])


def test_what_cannot_be_correlated() -> None:
    for a, b in (([1, 2], [1, 2, 3]), ([1], [1]), ([1, np.nan], [1, 2])):
        with pytest.raises(WherefromError, match="cannot correlate"):
            correlation.spearman(a, b)
    with pytest.raises(WherefromError, match="protocol='"):
        correlation.spearman([1, 2], [2, 1], protocol="theirs")


# Known tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", golden.having("attcat_squad"), ids=lambda case: case.name)
def test_precision_at_20_as_attcat_counts_it(case: golden.Golden) -> None:
    for scores, (start, end), expected in zip(
        case["attcat_squad", "count_attr"],
        case["attcat_squad", "count_spans"],
        case["attcat_squad", "count_at20"],
        strict=True,
    ):
        answer = np.zeros(len(scores))
        answer[start : end + 1] = 1
        found = precision.precision_at(scores, answer, k=[5, 20])
        assert found[20].count == expected
        assert found[20].fraction == expected / 20


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 99))
def test_average_precision_is_that_of_scikit_learn(values: list[int], seed: int) -> None:
    relevant = np.random.default_rng(seed).integers(0, 2, len(values))
    if not relevant.any():
        relevant[0] = 1
    expected = average_precision_score(relevant, values)
    assert precision.average_precision(values, relevant) == pytest.approx(expected, abs=1e-12)


def test_cues_and_rationales_by_hand() -> None:
    scores, cues = [0.1, 0.5, 0.3, 0.1], [0, 0, 1, 1]
    assert precision.dot_product(scores, cues) == pytest.approx(0.4)
    assert np.isnan(precision.dot_product(np.zeros(len(scores)), cues))
    assert precision.probes_needed(scores, cues) == 1
    assert precision.probes_needed([0.3, 0.3, 0.3, 0.1], cues) == 2  # ties count against the cue
    assert precision.reciprocal_rank(scores, cues) == 0.5
    assert precision.reciprocal_rank([0.3, 0.3, 0.3, 0.1], cues) == pytest.approx(1 / 3)
    assert precision.dot_product([-1, 1, -1, 1], cues, signed=True) == 0  # cues that speak against count against
    assert precision.dot_product([1, -2, 3, 2], cues, signed=True) == pytest.approx(5 / 8)
    assert precision.precision_at(scores, cues, 20)[20] == precision.Precision(2, 0.5)  # of 4, and not of 20
    found = precision.overlap(scores, cues)
    assert found == precision.Overlap(0.5, 0.5, 0.5, 1 / 3)
    assert precision.overlap(scores, cues, k=3).recall == 0.5
    assert precision.overlap([1, 1, 0, 0], cues).f1 == 0.0
    for message, call in (
        ("without signs", lambda: precision.dot_product([-1, 1], [0, 1])),
        ("one entry per token", lambda: precision.dot_product([1, 1], [1])),
        ("other than 0 and 1", lambda: precision.dot_product([1, 1], [0, 2])),
        ("at least one cue", lambda: precision.probes_needed([1, 1], [0, 0])),
        ("at least one relevant", lambda: precision.average_precision([1, 1], [0, 0])),
        ("marks no token", lambda: precision.overlap([1, 1], [0, 0])),
        ("K is 0", lambda: precision.precision_at([1, 1], [0, 1], k=0)),
        ("NaN", lambda: precision.dot_product([np.nan, 1], [0, 1])),
    ):
        with pytest.raises(WherefromError, match=message):
            call()


@pytest.mark.parametrize("by", ["pad", "unknown"])
@pytest.mark.parametrize("variant", ["roberta", "gpt2"])
def test_erased_by_padding_the_rest_stays_where_it_is(variant: str, by: str) -> None:
    """RoBERTa counts positions without padding, and GPT-2's classifier reads the last token that is none."""
    tokenizer = tiny.tokenizer(unk_token="[PAD]")  # one token for all, as GPT-2's users have it
    model = tiny.model(variant, dtype=torch.float64, pad_token_id=0)
    text = "the film is deep and good"
    found = wherefrom.explain(text, model, tokenizer, method="gradient-x-input")
    curve = erasure(text, found, model, tokenizer, by=by)
    ids = tokenizer(text)["input_ids"]
    inner = [int(i) for i in np.argsort(-found.scores, kind="stable") if not found.special[i]]
    for taken, probability in zip(curve.taken, curve.probabilities, strict=True):
        left = torch.tensor([[0 if i in inner[:taken] else token for i, token in enumerate(ids)]])
        places = torch.arange(len(ids))[None] + (1 if variant == "roberta" else 0)
        with torch.no_grad():
            logits = model(
                inputs_embeds=model.get_input_embeddings()(left),
                position_ids=places,
                token_type_ids=torch.zeros_like(left),
            ).logits
        assert probability == pytest.approx(float(logits.softmax(-1)[0, found.target.index]), abs=1e-10)


def test_erasure_goes_in_tenths() -> None:
    """As docs/evidence.md and the docstrings say of 13 tokens, to the last one."""
    ids, model = tiny.ids(13), tiny.model()
    found = erasure(ids, wherefrom.explain(ids, model, method="random"), model, by=4)
    assert found.taken.tolist() == [0, 1, 3, 4, 5, 6, 8, 9, 10, 12, 13]
    assert found.aopc == pytest.approx(float((found.probabilities[0] - found.probabilities).sum()) / 11)
