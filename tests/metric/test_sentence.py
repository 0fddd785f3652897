"""The evidence of one explanation on its own sentence."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import processors

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.metric.erasure import erasure
from wherefrom.metric.spotcheck import LEVEL, Check, agreement, checks, others
from wherefrom.result.answer import Target
from wherefrom.result.explanation import Explanation

TEXT = "the cat sat on a mat and slept"
TOKENIZER = tiny.tokenizer()
METHODS = ["attcat", "attention-rollout", "gradient-x-input"]


def test_words_go_in_the_order_of_their_scores() -> None:
    """Against the model's own output on the text with the words cut out."""
    model = tiny.model()
    found = list(wherefrom.compare(TEXT, model, TOKENIZER, methods=METHODS).values())
    for explanation, check in zip(found, checks(found, model, TOKENIZER), strict=True):
        words = [
            (float(explanation.scores[i]), i, word)
            for i, word in enumerate(explanation.pieces)
            if not explanation.special[i]
        ]
        order = [word for _, _, word in sorted(words, key=lambda each: (-each[0], each[1]))]
        assert check.words == order
        for k, probability in zip(check.taken, check.probabilities, strict=True):
            left = [word for word in TEXT.split() if word not in order[:k]]
            with torch.no_grad():
                logits = model(**TOKENIZER(" ".join(left), return_tensors="pt")).logits[0]
            assert probability == pytest.approx(float(logits.softmax(-1)[explanation.measured.index]), abs=1e-6)
        assert check.random.shape == (19, len(check.taken))
        assert np.allclose(check.random[:, 0], check.probabilities[0])


@pytest.mark.parametrize("text", ["film good", "the film is", "a good film !"])
def test_of_a_short_text_random_words_are_any_of_its_words(text: str) -> None:
    """Against the mean over all ways to take as many words, those of the explanation's own order among them."""
    model = tiny.model(initializer_range=0.5)
    found = wherefrom.explain(text, model, TOKENIZER, method="attcat")
    (made,) = checks([found], model, TOKENIZER)
    words, expected = text.split(), []
    for order in permutations(range(len(words))):
        left = [" ".join(words[i] for i in sorted(order[k:])) for k in made.taken]
        with torch.no_grad():
            logits = torch.stack([model(**TOKENIZER(each, return_tensors="pt")).logits[0] for each in left])
        expected.append(logits.softmax(-1)[:, found.measured.index].numpy())
    exact, own = np.mean(expected, 0), made.probabilities
    assert np.abs(exact - own).max() > 1e-4
    if len(words) < 4:  # every order is there
        np.testing.assert_allclose(made.chance, exact, atol=1e-6)
    np.testing.assert_allclose(made.chance, own / (n := factorial(len(words))) + made.random.mean(0) * (1 - 1 / n))


def test_random_orders_are_the_same_for_every_method() -> None:
    model = tiny.model()
    first, second, _ = checks(
        list(wherefrom.compare(TEXT, model, TOKENIZER, methods=METHODS).values()), model, TOKENIZER
    )
    assert np.allclose(first.random, second.random, atol=1e-6)
    assert len({tuple(row) for row in first.random.round(9)}) > 1


def test_a_masked_word_stays_and_the_others_are_masked() -> None:
    text = "the keys to the cabinet [MASK] here ."
    found = wherefrom.explain(text, "wherefrom/mlm", target="are", foil="is", method="integrated-gradients", n_steps=20)
    (check,) = checks([found], "wherefrom/mlm")
    assert check.by == "mask"
    assert sorted(check.words) == sorted(["the", "keys", "to", "the", "cabinet", "here", "."])
    opened = wherefrom.open_model("wherefrom/mlm")
    gone = {i for i, piece in enumerate(found.tokens) if piece in ("key", "##s")}
    ids = opened.tokenizer(text)["input_ids"]
    ids = [opened.mask_id if i in gone else token for i, token in enumerate(ids)]
    with torch.no_grad():
        logits = opened.model(torch.tensor([ids])).logits[0, found.position]
    assert check.words[0] == "keys"
    taken = check.taken.index(1)
    expected = torch.sigmoid(logits[found.target.index] - logits[found.target.foil])
    assert check.probabilities[taken] == pytest.approx(float(expected), abs=1e-5)


def test_a_prompts_last_word_stays_and_the_sentence_says_so() -> None:
    """The others go in the order of their scores, whatever its own. A mask is no word of the text and is not named."""
    model = tiny.model("gpt2", "causal-lm")
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    for target in ("good", "very good"):
        found = wherefrom.explain("the keys to a cabinet", model, tokenizer, method="gradient-x-input", target=target)
        scores = np.array([1.0, 3.0, 2.0, 4.0, 9.0, *[0.0] * (len(found) - 5)])
        (said,) = checks([replace(found, scores=scores)], model, tokenizer)
        assert said.words == ["a", "keys", "to", "the"]
        assert said.kept == "cabinet"
        expected = (
            "Without its top 2 words (of all but “cabinet”, which stays: the answer is read there) the probability "
            f"of “{target}” "
        )
        assert str(said).startswith(expected)
    masked = wherefrom.explain("the keys [MASK] here", "wherefrom/mlm", method="saliency")
    assert next(checks([masked], "wherefrom/mlm")).kept == ""


def check(*probabilities: float, words: int = 10, orders: int = 19) -> Check:
    chance = np.array([[0.98, 0.97, 0.95]] * orders)
    gone = list("abcdefghij")[:words]
    return Check("m", Target("class", 0, "x"), "delete", gone, [0, 1, 2], np.array(probabilities), chance)


def test_the_sentence_and_verdict_state_the_numbers() -> None:
    good = check(0.98, 0.5, 0.12)
    assert (
        str(good)
        == "Without its top 2 words the probability of “x” falls from 0.98 to 0.12; without 2 random words it is 0.95."
    )
    assert good.told
    assert good.verdict == (
        "On average over 1 to 2 words erased, all 19 random orders leave a higher probability: better than chance "
        "(at the 5 % level)."
    )
    bad = check(0.98, 0.99, 0.981)
    assert "does not fall (0.98, then 0.98)" in str(bad)
    assert bad.told is False
    assert "19 of 19 random orders leave a probability as low or lower: on this sentence it cannot be" in bad.verdict
    nearly = replace(good, random=np.vstack([good.random[:-1], good.probabilities]))
    assert "1 of 19 random orders leaves a probability" in nearly.verdict
    assert "does not fall (0.50, then 0.60)" in str(check(0.5, 0.5, 0.6))
    small = replace(check(0.0021, 0.002, 0.0004), random=np.full((19, 3), 0.0015))
    assert "falls from 0.0021 to 0.0004; without 2 random words it is 0.0015." in str(small)
    assert "does not fall (0.00, then 0.00)" in str(check(0.0, 0.0, 0.0))
    phrase = replace(check(2e-20, 1e-20, 3e-21), random=np.full((19, 3), 1.6e-15))
    assert "falls from 2.0e-20 to 3.0e-21; without 2 random words it is 1.6e-15." in str(phrase)
    few = check(0.98, 0.5, 0.12, words=3, orders=5)
    assert few.told is None
    assert few.verdict == "3 words have only 6 orders: too few to tell this one from chance (at the 5 % level)."


def test_the_sentence_names_the_probability() -> None:
    """Of a word against another for a method that takes a foil, and of the predicted word for one that does not."""
    text = "the keys to the cabinet [MASK] here ."
    found = wherefrom.compare(text, "wherefrom/mlm", target="are", foil="is", methods=["attcat", "alti"])
    towards, map_ = checks(list(found.values()), "wherefrom/mlm")
    assert "the probability of “are” against “is” " in str(towards)
    assert f"the probability of “{found['alti'].prediction}” " in str(map_)
    assert "against" not in str(map_)
    answer = replace(check(0.98, 0.5, 0.12), target=Target("answer", 3, "denver broncos", end=4))
    assert "the probability of the answer “denver broncos” falls" in str(answer)
    assert "the probability falls" in str(replace(answer, target=Target("class", 0)))


def test_a_good_verdict_after_no_fall_says_that_it_is_about_the_whole_curve() -> None:
    """The top words alone change nothing, and all random orders are worse in the mean: both are true at once."""
    said = replace(check(0.0031, 0.001, 0.0032), random=np.full((19, 3), 0.005))
    assert "does not fall (0.0031, then 0.0032); without 2 random words it is 0.0050." in str(said)
    assert said.told
    assert said.verdict.startswith(
        "That was with 2 words gone; the verdict is about the whole curve. On average over 1 to 2 "
    )
    picture = replace(said, of="picture")
    assert picture.verdict.startswith("That was with 2 patches gone; the verdict is about the whole curve. ")
    assert check(0.98, 0.99, 0.981).verdict.startswith("On average")  # which contradicts nothing


def test_rounding_is_no_difference() -> None:
    """A model that does not react gives curves that differ in their last digits."""
    assert check(0.98 - 1e-8, 0.97 - 1e-8, 0.95 - 1e-8).told is False


def test_a_random_order_comes_first_exactly_as_often_as_stated() -> None:
    """Every order of three words, against every draw: the first of four in a quarter of cases."""
    every = list(permutations(range(3)))
    value = {order: place for place, order in enumerate(every)}  # any values will do, as long as no two are the same
    first = tried = 0
    for drawn in permutations(every, 4):
        for order in every:
            compared = [value[drawn[i]] for i in others(order, drawn, 3)]
            assert len(compared) == 3
            first += value[order] < min(compared)
            tried += 1
    assert 4 * first == tried


@pytest.mark.parametrize("words", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 12))])
def test_random_rankings_are_told_from_chance_at_the_level_stated(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences whose every set of words that is left has a probability of its own, ranked at random."""
    rng = np.random.default_rng(words)
    model = tiny.model()
    text = " ".join(["the", "cat", "sat", "on", "a", "mat", "and", "slept", "dog", "of", "good", "bad"][:words])
    found = wherefrom.explain(text, model, TOKENIZER)
    worth = rng.normal(size=words)

    def probabilities(_opened: Any, cases: Any, _blank: Any) -> Any:
        return 1 / (1 + np.exp([sum(worth[i - 1] for i in case.gone) for case in cases]))

    monkeypatch.setattr("wherefrom.metric.spotcheck.without", probabilities)
    told, tries = 0, 400
    for seed in range(tries):
        ranked = replace(found, scores=np.array([0, *rng.permutation(words), 0], dtype=float))
        told += bool(next(checks([ranked], model, TOKENIZER, seed=seed)).told)
    assert stats.binom.cdf(told, tries, LEVEL) < 0.999  # not more often than 5 %, ...
    assert stats.binom.cdf(told, tries, LEVEL) > 0.001  # ... nor, without ties, less often
    best = replace(found, scores=np.array([0, *worth, 0]))
    assert next(checks([best], model, TOKENIZER)).told


def test_agreement_is_spearmans_over_the_words() -> None:
    found = list(wherefrom.compare(TEXT, tiny.model(), TOKENIZER, methods=METHODS).values())
    matrix = agreement(found)
    inner = [each.scores[1:-1] for each in found]
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), 1)
    signed, unsigned = stats.spearmanr(inner[0], inner[2]).statistic, stats.spearmanr(abs(inner[0]), inner[1]).statistic
    assert matrix[0, 2] == pytest.approx(signed)  # both have signs
    assert matrix[0, 1] == pytest.approx(unsigned)


def test_words_of_several_pieces_agree_as_words_do() -> None:
    text = "An unforgettable , heartwarming mishmash of clichés , overlong , yet unpretentiously entertaining ."
    found = list(wherefrom.compare(text, methods=["deeplift", "alti"]).values())
    words = [each.words() for each in found]
    inner = [np.abs(each.scores[1:-1]) for each in words]
    assert len(inner[0]) < len(found[0].tokens) - 2
    assert agreement(found)[0, 1] == pytest.approx(stats.spearmanr(*inner).statistic)


def test_what_has_no_evidence() -> None:
    encoder = tiny.model(task="encoder")
    mapped = wherefrom.explain(TEXT, encoder, TOKENIZER)
    with pytest.raises(WherefromError, match="nothing is predicted"):
        list(checks([mapped], encoder, TOKENIZER))
    model = tiny.model()
    with pytest.raises(WherefromError, match="one word"):
        list(checks([wherefrom.explain("cat", model, TOKENIZER)], model, TOKENIZER))
    with pytest.raises(WherefromError, match="no text"):
        list(checks([Explanation.from_scores(["a"], [1.0])], model, TOKENIZER))
    with pytest.raises(WherefromError, match="different inputs"):
        agreement([wherefrom.explain(text, model, TOKENIZER) for text in (TEXT, "a cat sat")])


@pytest.mark.parametrize(("target", "foil"), [("film is good", "cat"), ("cat", "film is good"), ("a cat", "a film")])
def test_a_target_and_a_foil_of_several_words_are_two_texts(target: str, foil: str) -> None:
    model = tiny.model("gpt2", "causal-lm")
    found = wherefrom.explain("the cat sat on", model, TOKENIZER, target=target, foil=foil, method="gradient-x-input")
    with pytest.raises(WherefromError, match="without the foil"):
        list(checks([found], model, TOKENIZER))
    with pytest.raises(WherefromError, match="without the foil"):
        erasure("the cat sat on", found, model, TOKENIZER, by="attention")


def test_another_model_than_the_one_explained_is_refused() -> None:
    """Class 1 is the second token of a vocabulary, too, and another classifier's second class."""
    of_class, of_word = tiny.model(), tiny.model(task="masked-lm")
    named = wherefrom.explain(TEXT, of_class, TOKENIZER, method="saliency")
    masked = "the cat sat on a [MASK] and slept"
    filled = wherefrom.explain(masked, of_word, TOKENIZER, method="saliency")
    other = tiny.model()
    other.config.id2label = {0: "x", 1: "y", 2: "z"}
    for found, model, text in ((named, of_word, TEXT), (named, other, TEXT), (filled, of_class, masked)):
        with pytest.raises(WherefromError, match="pass the model that was explained"):
            next(checks([found], model, TOKENIZER))
        with pytest.raises(WherefromError, match="pass the model that was explained"):
            erasure(text, found, model, TOKENIZER, by="mask")


def test_a_picture_without_a_file_is_checked_when_it_is_given_again() -> None:
    colours = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    opened = wherefrom.open_model("wherefrom/picture")
    found = wherefrom.explain(colours, opened, method="gradient-x-input")
    with pytest.raises(WherefromError, match="without a file that it could be read from again"):
        list(checks([found], opened))
    (sentence,), _ = opened.reader().read(colours)  # as it is advised
    (check,) = checks([found], opened, sentence=sentence)
    assert check.of == "picture"


def test_a_comparison_is_checked_method_by_method() -> None:
    opened = wherefrom.open_model("wherefrom/sentiment")
    found = wherefrom.compare("a deep and meaningful film .", opened, methods=["attcat", "gradient-x-input"])
    assert [each.method for each in checks(found, opened)] == ["attcat", "gradient-x-input"]


def test_rounding_agrees_with_nothing() -> None:
    model = wherefrom.open_model(tiny.model(dtype=torch.float64), TOKENIZER)
    found = wherefrom.explain(TEXT, model, method="integrated-gradients")
    other = wherefrom.explain(TEXT, model, method="gradient-x-input")
    noise = replace(found, scores=1e-18 * other.scores)
    assert noise.rounding == "all zero up to rounding"
    assert agreement([noise, other])[0, 1] != agreement([noise, other])[0, 1]  # NaN
    assert np.isfinite(agreement([found, other])).all()


@pytest.mark.parametrize(
    ("target", "foil", "called", "leaves"),
    [
        ("similarity(a dog)", None, "the similarity to “a dog”", "similarity"),
        ("similarity(a dog)", "a mat", "the similarity to “a dog” less that to “a mat”", "similarity"),
        (7, 9, "dimension 7 less dimension 9", "value"),
    ],
)
def test_what_is_no_probability_is_not_called_one(target: Any, foil: Any, called: str, leaves: str) -> None:
    encoder = tiny.model(task="encoder")
    asked = {"position": "mean", "target": target, "foil": foil}
    found = wherefrom.explain(TEXT, encoder, TOKENIZER, method="gradient-x-input", **asked)
    (check,) = checks([found], encoder, TOKENIZER)
    said = f"{check} {check.verdict}"
    assert called in said
    assert f"a {leaves} as low or lower" in said or f"leave a higher {leaves}" in said
    assert "probability" not in said
