"""The evidence of one explanation on its own sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import tiny
import whence
from whence.errors import WhenceError
from whence.evidence.sentence import Check, agreement, checks
from whence.explanation import Explanation

TEXT = "the cat sat on a mat and slept"
TOKENIZER = tiny.tokenizer()
METHODS = ["attcat", "attention-rollout", "gradient-x-input"]


def test_words_go_in_the_order_of_their_scores() -> None:
    """Against the model's own output on the text with the words cut out."""
    model = tiny.model()
    found = list(whence.compare(TEXT, model, TOKENIZER, methods=METHODS).values())
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
            assert probability == pytest.approx(float(logits.softmax(-1)[explanation.target.index]), abs=1e-6)
        assert check.random.shape == (10, len(check.taken))
        assert np.allclose(check.random[:, 0], check.probabilities[0])


def test_random_orders_are_the_same_for_every_method() -> None:
    model = tiny.model()
    first, second, _ = checks(list(whence.compare(TEXT, model, TOKENIZER, methods=METHODS).values()), model, TOKENIZER)
    assert (first.random == second.random).all()
    assert len({tuple(row) for row in first.random.round(9)}) > 1


def test_a_masked_word_stays_and_the_others_are_masked() -> None:
    text = "the keys to the cabinet [MASK] here ."
    found = whence.explain(text, "whence/mlm", target="are", foil="is", method="integrated-gradients", n_steps=20)
    (check,) = checks([found], "whence/mlm")
    assert check.by == "mask"
    assert sorted(check.words) == sorted(["the", "keys", "to", "the", "cabinet", "here", "."])
    opened = whence.open_model("whence/mlm")
    gone = {i for i, piece in enumerate(found.tokens) if piece in ("key", "##s")}
    ids = opened.tokenizer(text)["input_ids"]
    ids = [opened.mask_id if i in gone else token for i, token in enumerate(ids)]
    with torch.no_grad():
        logits = opened.model(torch.tensor([ids])).logits[0, found.position]
    assert check.words[0] == "keys"
    taken = check.taken.index(1)
    expected = torch.sigmoid(logits[found.target.index] - logits[found.target.foil])
    assert check.probabilities[taken] == pytest.approx(float(expected), abs=1e-5)


def test_what_it_says() -> None:
    target = whence.explain(TEXT, tiny.model(), TOKENIZER).target
    words, taken = list("abcdefghij"), [0, 1, 2]
    chance = np.array([[0.98, 0.97, 0.95]] * 10)

    def check(*probabilities: float) -> Check:
        return Check("m", target, "delete", words, taken, np.array(probabilities), chance)

    good = check(0.98, 0.5, 0.12)
    assert str(good) == "Without its top 2 words the probability falls from 0.98 to 0.12; random words: 0.95."
    assert good.verdict == "Better than 10 of 10 random orders."
    assert "stays at 0.98" in str(check(0.98, 0.99, 0.981))
    assert check(0.98, 0.99, 0.981).verdict.endswith("cannot be told from chance.")
    assert "rises from 0.50 to 0.60" in str(check(0.5, 0.5, 0.6))


def test_agreement_is_spearmans_over_the_words() -> None:
    found = list(whence.compare(TEXT, tiny.model(), TOKENIZER, methods=METHODS).values())
    matrix = agreement(found)
    inner = [each.scores[1:-1] for each in found]
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), 1)
    signed, unsigned = stats.spearmanr(inner[0], inner[2]).statistic, stats.spearmanr(abs(inner[0]), inner[1]).statistic
    assert matrix[0, 2] == pytest.approx(signed)  # both have signs
    assert matrix[0, 1] == pytest.approx(unsigned)


def test_what_has_no_evidence() -> None:
    encoder = tiny.model(task="encoder")
    mapped = whence.explain(TEXT, encoder, TOKENIZER)
    with pytest.raises(WhenceError, match="nothing is predicted"):
        list(checks([mapped], encoder, TOKENIZER))
    model = tiny.model()
    with pytest.raises(WhenceError, match="one word"):
        list(checks([whence.explain("cat", model, TOKENIZER)], model, TOKENIZER))
    with pytest.raises(WhenceError, match="no text"):
        list(checks([Explanation.from_scores(["a"], [1.0])], model, TOKENIZER))
    with pytest.raises(WhenceError, match="different inputs"):
        agreement([whence.explain(text, model, TOKENIZER) for text in (TEXT, "a cat sat")])
