"""Words by offsets: every token belongs to exactly one word, whatever the tokenizer did to the text."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
import wherefrom
from wherefrom.errors import InvalidOption
from wherefrom.result.explanation import Explanation
from wherefrom.result.units import grouped
from wherefrom.result.words import group, word_spans


def words(text: str) -> list[str]:
    return [text[a:b] for a, b in word_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A deep, meaningful film.", ["A", "deep", ",", "meaningful", "film", "."]),
        ("didn't well-made 'quoted'", ["didn't", "well-made", "'", "quoted", "'"]),
        ("didn ' t", ["didn", "'", "t"]),
        ("電影 is good", ["電", "影", "is", "good"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("naïve café — 3.5%", ["naïve", "café", "—", "3", ".", "5", "%"]),
        ("  two\tlines\n", ["two", "lines"]),
        ("", []),
    ],
)
def test_a_text_is_split_into_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_tokens_that_cross_words_join_them() -> None:
    # GPT-2 has tokens such as ");" and " film" (with its space).
    assert group(["f(x); y"], [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 5), (0, 5, 7)]) == [[0], [1], [2], [3], [4]]
    assert group(["a b"], [(0, 0, 1), (0, 1, 3)]) == [[0], [1]]
    assert group(["ab cd"], [(0, 0, 1), (0, 1, 4), (0, 4, 5)]) == [[0, 1, 2]]
    assert group(["ab", "ab"], [(0, 0, 2), (1, 0, 1), (1, 1, 2)]) == [[0], [1, 2]]
    assert group(["a  b"], [(0, 0, 1), (0, 1, 2), (0, 2, 4)]) == [[0, 1], [2]]


def test_accents_that_a_vocabulary_leaves_out_stay_with_their_letter() -> None:
    """An e and a combining accent, as some keyboards and file systems write é."""
    text = "Cafe\N{COMBINING ACUTE ACCENT} cre\N{COMBINING GRAVE ACCENT}me"
    found = wherefrom.explain(text, method="random")
    assert found.tokens[1:-1] == ["ca", "##fe", "cre", "##me"]
    assert found.words().tokens[1:-1] == text.split()
    for word in ("\u0928\u092e\u0938\u094d\u0924\u0947", "\u2764\ufe0f"):  # vowels of Hindi, a heart made red
        assert wherefrom.explain(f"good {word}", method="random").words().tokens[2] == word


@given(st.text(max_size=30), st.data())
def test_no_token_is_lost(text: str, data: st.DataObject) -> None:
    """Any way of cutting any text: the groups are a partition of the tokens, in order."""
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=10))})
    spans = [(0, a, b) for a, b in itertools.pairwise(cuts)]
    groups = group([text], [None, *spans, None])
    assert [token for members in groups for token in members] == list(range(len(spans) + 2))


TOKENIZER = tiny.tokenizer()


def test_scores_and_maps_are_joined_over_words() -> None:
    found = wherefrom.explain("Very meaningful, the film!", tiny.model(), TOKENIZER, method="attention")
    assert found.tokens == ["[CLS]", "very", "meaning", "##ful", ",", "the", "film", "!", "[SEP]"]
    by_word = found.words()
    assert by_word.tokens == ["[CLS]", "Very", "meaningful", ",", "the", "film", "!", "[SEP]"]
    assert by_word.granularity == "word"
    assert by_word.special == [True, *[False] * 6, True]
    groups = [[0], [1], [2, 3], [4], [5], [6], [7], [8]]
    reductions = {"mean": np.mean, "max": np.max, "sum": np.sum, "first": lambda part: part.flat[0]}
    for how, reduce in reductions.items():
        joined = found.words(how)
        assert joined.scores == pytest.approx([reduce(found.scores[g]) for g in groups], abs=1e-7)
        for a, rows in enumerate(groups):
            for b, columns in enumerate(groups):
                part = found.maps[1][np.ix_(rows, columns)]
                assert joined.maps[1, a, b] == pytest.approx(float(reduce(part)), abs=1e-7)
    kept = found.words("sum", rows="mean")
    assert np.allclose(kept.maps.sum(-1), 1, atol=1e-5)
    again = by_word.words()
    assert again.tokens == by_word.tokens
    assert (again.scores == by_word.scores).all()


ADDITIVE = [each.name for each in tiny.methods() if each.additive]


@pytest.mark.parametrize("method", ADDITIVE)
def test_what_adds_up_adds_up_to_the_same_over_words(method: str) -> None:
    found = wherefrom.explain("Very meaningful, the film!", tiny.model(), TOKENIZER, method=method)
    by_word = found.words()
    assert found.additive
    assert by_word.scores[2] == pytest.approx(found.scores[2] + found.scores[3], rel=1e-5)
    assert by_word.scores.sum() == pytest.approx(found.scores.sum(), rel=1e-4, abs=1e-6)
    assert by_word.delta == found.delta
    for name in ("maps", "aggregated"):
        if (before := getattr(found, name)) is None:
            continue
        after = getattr(by_word, name)
        rows = np.delete(before.sum(-1), 3, axis=1)
        rows[:, 2] = before[:, 2:4].sum(-1).mean(1)
        assert np.allclose(after.sum(-1), rows, rtol=1e-4)
    assert found.words("mean").scores[2] == pytest.approx(found.scores[2:4].mean(), rel=1e-5)


def test_rows_of_shares_stay_shares() -> None:
    found = wherefrom.explain("Very meaningful, the film!", tiny.model(), TOKENIZER, method="alti").words()
    assert np.allclose(found.maps.sum(-1), 1, atol=1e-5)
    assert np.allclose(found.aggregated.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "options"),
    [("saliency", {}), ("ablation", {"unit": "word"}), ("hta", {}), ("IG", {"norm": "l2"}), ("grads", {})],
)
def test_what_does_not_add_up_is_averaged(method: str, options: dict[str, str]) -> None:
    found = wherefrom.explain("Very meaningful, the film!", tiny.model(), TOKENIZER, method=method, **options)
    assert not found.additive
    assert found.words().scores[2] == pytest.approx(found.scores[2:4].mean(), rel=1e-5)
    assert (found.words().scores == found.words("mean").scores).all()


def test_delta_is_that_of_the_sum() -> None:
    found = wherefrom.explain("Very meaningful, the film!", tiny.model(), TOKENIZER, method="deeplift")
    assert found.words().delta == found.delta is not None
    assert found.words("mean").delta is None
    whole = wherefrom.explain("the film", tiny.model(), TOKENIZER, method="deeplift")  # no word of several pieces
    assert whole.words("mean").delta == whole.delta


def test_an_explanation_saved_before_there_was_additive() -> None:
    found = wherefrom.explain("very meaningful film", tiny.model(), TOKENIZER, method="deeplift")
    data = found.to_dict()
    assert wherefrom.Explanation.from_dict(data).additive
    del data["additive"]
    assert not wherefrom.Explanation.from_dict(data).additive


def test_the_position_moves_with_the_words() -> None:
    found = wherefrom.explain("very meaningful film", tiny.model(), TOKENIZER, position=4)
    assert found.tokens[4] == "film"
    assert found.words().position == 3
    assert found.words().tokens[3] == "film"


def test_signed_max_keeps_the_sign() -> None:
    spans = [(0, 0, 2), (0, 2, 4), (0, 4, 6)]
    found = Explanation.from_scores(["go", "##od", "##ie"], [0.2, -0.9, 0.5], texts=("goodie",), spans=spans)
    assert found.words("signed-max").scores.tolist() == [-0.9]
    assert found.words("max").scores.tolist() == [0.5]
    with pytest.raises(wherefrom.WherefromError, match="unknown way to join pieces 'median'"):
        found.words("median")


def test_tokens_without_a_text_stand_alone() -> None:
    found = wherefrom.explain([5, 6, 7], tiny.model(), method="attention-rollout")
    assert found.words().tokens == found.tokens == ["5", "6", "7"]


def test_a_short_form_ends_no_sentence_and_spans_lie_apart_inside_the_text() -> None:
    text = "Mr. J. Smith met Dr. Ba. Plan B? Yes, e.g. now. End"
    places = [(0, found.start(), found.end()) for found in re.finditer(r"\S+", text)]
    found = [text[places[each[0]][1] : places[each[-1]][2]] for each in grouped("sentence", [text], places, [])]
    assert found == ["Mr. J. Smith met Dr. Ba.", "Plan B?", "Yes, e.g. now.", "End"]
    for spans, said in (([(0, 8), (5, 12)], "begins inside another"), ([(0, 5800)], "no part of a text of 51 char")):
        with pytest.raises(InvalidOption, match=said):
            grouped(spans, [text], places, [])
