"""Texts longer than the model reads: every token is covered, and the joined scores are the mean over windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import open_model
from wherefrom.pipeline.windows import cut
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
MODEL: Any = tiny.model()  # reads 40 tokens: 38 between [CLS] and [SEP]
WORDS = ("the cat is good and the dog was bad , not a film of keys to the cabinets ! " * 6).split()
LONG = " ".join(WORDS[:100])


def explain(inputs: Any, method: str = "attcat", model: Any = MODEL, **more: Any) -> Any:
    return wherefrom.explain(inputs, model, TOKENIZER, method, long="windows", **more)


def by_hand(words: list[str], starts: list[int], method: str, target: int | None = None) -> tuple[Any, list[Any]]:
    """Each window as a text of its own, by `explain`; the mean over the windows that a token is in."""
    parts = [wherefrom.explain(" ".join(words[s : s + 38]), MODEL, TOKENIZER, method, target=target) for s in starts]
    total, count = np.zeros(len(words) + 2), np.zeros(len(words) + 2)
    for start, part in zip(starts, parts, strict=True):
        where = [0, *range(start + 1, start + 39), len(words) + 1]
        total[where] += part.scores
        count[where] += 1
    assert count.min() >= 1
    return total / count, parts


@pytest.mark.parametrize(("overlap", "starts"), [(0, [0, 38, 62]), (10, [0, 28, 56, 62]), (None, [0, 29, 58, 62])])
def test_scores_are_the_mean_over_windows(overlap: int | None, starts: list[int]) -> None:
    found = explain(LONG, overlap=overlap)
    _, parts = by_hand(WORDS[:100], starts, "attcat")
    means = {label: np.mean([part.probabilities[label] for part in parts]) for label in parts[0].probabilities}
    chosen = max(means, key=lambda label: means[label])
    assert found.prediction == found.target.label == chosen
    assert found.probabilities == pytest.approx(means, abs=1e-6)
    expected, _ = by_hand(WORDS[:100], starts, "attcat", found.target.index)
    assert np.allclose(found.scores, expected, atol=1e-5)
    assert found.tokens == TOKENIZER.convert_ids_to_tokens(TOKENIZER(LONG)["input_ids"])
    assert [LONG[span[1] : span[2]] for span in found.spans if span] == WORDS[:100]
    assert found.position == 0
    assert found.maps is found.aggregated is found.delta is None
    assert f"102 tokens are more than the model reads: explained in {len(starts)} windows" in found.notes[0]
    assert "highest mean probability" in found.notes[0]
    assert Explanation.from_dict(found.to_dict()).notes == found.notes


def test_maps_are_read_and_not_joined() -> None:
    found = explain(LONG, "attention-rollout", overlap=0)
    expected, parts = by_hand(WORDS[:100], [0, 38, 62], "attention-rollout")
    assert np.allclose(found.scores, expected, atol=1e-6)
    assert found.layer_scores.shape == (3, 102)
    assert np.allclose(found.layer_scores[-1], found.scores, atol=1e-6)
    assert np.allclose(found.layer_scores[0, 1:39], parts[0].aggregated[0, 0, 1:39], atol=1e-6)


def test_a_text_that_fits_is_explained_as_ever() -> None:
    short = " ".join(WORDS[:38])
    plain = wherefrom.explain(short, MODEL, TOKENIZER, "attcat")
    for found in (explain(short), explain([short, LONG, "a cat"])[0]):
        assert np.allclose(found.scores, plain.scores, atol=1e-6)
        assert found.notes == []
        assert found.target == plain.target


def test_all_windows_are_explained_towards_the_target() -> None:
    found = explain(LONG, target="LABEL_1", foil=0)
    assert str(found.target) == "class 'LABEL_1' rather than 'LABEL_0'"
    assert "highest mean" not in found.notes[0]
    every = explain(LONG, target="all")
    assert list(every) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    both = np.array(every["LABEL_1"].scores) - every["LABEL_0"].scores
    assert np.allclose(found.scores, both, atol=1e-4)  # AttCAT is linear in the logit


def test_windows_work_for_lists_comparisons_ids_and_words() -> None:
    one = explain(LONG)
    several = explain(["a cat", LONG, LONG + " !"])
    assert [len(each) for each in several] == [4, 102, 103]
    assert np.allclose(several[1].scores, one.scores, atol=1e-5)
    both = wherefrom.compare(LONG, MODEL, TOKENIZER, ["attcat", "alti"], long="windows")
    assert np.allclose(both["attcat"].scores, one.scores, atol=1e-5)
    for target in ("LABEL_0", "LABEL_1", None):  # a method that looks at no class is judged by the whole's prediction
        both = wherefrom.compare(LONG, MODEL, TOKENIZER, ["attcat", "alti"], long="windows", target=target)
        assert both["alti"].measured.label == both["alti"].prediction == one.prediction
    assert np.allclose(explain(TOKENIZER(LONG)["input_ids"]).scores, one.scores, atol=1e-5)
    words = explain(WORDS[:100], tokenizer_kwargs={"is_split_into_words": True})
    assert words.words().tokens == ["[CLS]", *WORDS[:100], "[SEP]"]
    assert len(next(wherefrom.explain_stream([LONG], MODEL, TOKENIZER, "attcat", long="windows"))) == 102


@pytest.mark.parametrize("n", [41, 60, 77, 78, 79, 200])
@pytest.mark.parametrize("overlap", [0, 1, 37, None])
def test_every_token_is_in_a_window(n: int, overlap: int | None) -> None:
    opened = open_model(MODEL, TOKENIZER)
    (sentence,), _ = opened.reader(long="windows").read(" ".join(["cat"] * (n - 2)))
    whole = cut(opened, sentence, 40, overlap)
    assert {i for window in whole.windows for i in window} == set(range(n))
    assert all(len(window) == 40 for window in whole.windows)
    assert all(a < b for a, b in zip(whole.windows, whole.windows[1:], strict=False))


def test_the_cost_is_that_of_the_windows() -> None:
    found = explain([LONG, "a cat"], overlap=0, estimate=True)
    assert (found.inputs, found.longest) == (4, 40)


def test_encoders_and_last_token_classifiers_are_read_in_windows() -> None:
    encoded = explain(LONG, "alti", tiny.model("bert", "encoder"))
    assert len(encoded) == 102
    assert encoded.prediction is None
    like = wherefrom.similarity("a cat")
    first, mean = (
        explain(LONG, "gradient-x-input", tiny.model("bert", "encoder"), target=like, position=where)
        for where in ("first", "mean")
    )
    assert (first.readout.why, mean.readout.why) == ("first token", "mean")
    assert not np.allclose(first.scores, mean.scores)
    decoded = explain(LONG, "attention-rollout", tiny.model("gpt2"))
    assert len(decoded) == 102
    assert decoded.position == 101  # every window ends in the same [SEP]


def test_options_that_windows_cannot_have_are_refused() -> None:
    for said, arguments in {
        "a pair of texts is not cut": {"inputs": (LONG, "a cat")},
        "position= names one token": {"inputs": LONG, "position": 3, "method": "alti"},
        "none of single heads": {"inputs": LONG, "head": "all", "method": "attention"},
        "overlap is 38; expected a number of tokens from 0 to 37": {"inputs": LONG, "overlap": 38},
        "overlap=0.5": {"inputs": LONG, "overlap": 0.5},
        "leave one of them out": {"inputs": LONG, "truncate": True},
        "stands at one place": {"inputs": LONG + " [MASK]", "model": tiny.model("bert", "masked-lm")},
    }.items():
        with pytest.raises(WherefromError, match=said):
            explain(**arguments)
    with pytest.raises(WherefromError, match="windows need the tokenizer"):
        wherefrom.explain(tiny.ids(50), MODEL, long="windows")
    with pytest.raises(WherefromError, match="long='cut'; expected 'error', 'truncate' or 'windows'"):
        wherefrom.explain(LONG, MODEL, TOKENIZER, long="cut")
    with pytest.raises(WherefromError, match="102 tokens but the model reads at most 40; use long='windows'"):
        wherefrom.explain(LONG, MODEL, TOKENIZER)
    for asked in (wherefrom.explain, wherefrom.compare):
        with pytest.raises(WherefromError, match="overlap=3 is of windows, and none are asked for; say long='windows'"):
            asked(["a cat", "a dog"], MODEL, TOKENIZER, overlap=3)
    assert len(wherefrom.explain(LONG, MODEL, TOKENIZER, long="truncate")) == 40
