"""Scores that others made: plain files and inseq's own. What shap, captum and LIME give is in tests/docs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wherefrom import Explanation, Generation
from wherefrom.errors import DamagedFile, InvalidInput

TOKENS = ["<|endoftext|>", "P", "ar", "is", "Ġis", "Ġthe", "Ġcapital", "Ġof", "ĠFrance", "Ġand"]
SCORES = np.full((10, 2), np.nan, np.float32)
SCORES[:8, 0] = np.arange(8)
SCORES[:9, 1] = np.arange(9) + 0.5


def packed(array: Any, dtype: str = "F32") -> str:
    """A tensor as inseq writes it: base64 of the safetensors format."""
    data = array.tobytes()
    header = json.dumps(
        {"attribution": {"dtype": dtype, "shape": array.shape, "data_offsets": [0, len(data)]}}
    ).encode()
    return base64.b64encode(len(header).to_bytes(8, "little") + header + data).decode()


def typed(name: str, **attributes: Any) -> dict[str, Any]:
    return {"__instance_type__": ["inseq.data.attribution", name], "attributes": attributes}


def saved_by_inseq(**changed: Any) -> dict[str, Any]:
    """The tree that `out.aggregate().save(path)` of inseq 0.7 writes."""
    tokens = [typed("TokenWithId", id=number, token=token) for number, token in enumerate(TOKENS)]
    half = (np.array([0.5, 0.25], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    sequence = {
        "attr_pos_start": 8,
        "attr_pos_end": 10,
        "source": tokens[:8],
        "target": tokens,
        "source_attributions": None,
        "target_attributions": packed(SCORES),
        "step_scores": {"probability": packed(half, "BF16")},
        "sequence_scores": {},
        **changed,
    }
    info = {
        "attribution_method": "input_x_gradient",
        "model_name": "some/model",
        "input_texts": ["Paris is the capital of"],
        "generated_texts": ["Paris is the capital of France and"],
    }
    made = [typed("FeatureAttributionSequenceOutput", **sequence)]
    return typed("FeatureAttributionOutput", info=info, sequence_attributions=made)


def test_tokens_and_scores_are_an_explanation(tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"tokens": ["good", "film"], "scores": [0.9, -0.1], "method": "mine"}))
    found = Explanation.load(path)
    assert (found.method, found.signed, found.top(1)) == ("mine", True, [(0, "good", 0.9)])


def test_what_inseq_saved_is_a_generation(tmp_path: Path) -> None:
    path = tmp_path / "inseq.json"
    path.write_text(json.dumps(saved_by_inseq()))
    found = Generation.load(path)
    assert (found.prompt, found.text, found.tokens) == ("Paris is the capital of", " France and", ["France", "and"])
    np.testing.assert_array_equal(found.scores, np.nan_to_num(SCORES).T)
    np.testing.assert_allclose(found.log_probabilities, np.log([0.5, 0.25]), rtol=1e-6)
    assert found[0].words().tokens == ["<|endoftext|>", "Paris", "is", "the", "capital", "of"]
    assert found.whole.method == "inseq input_x_gradient"
    found.show(1)
    again = Generation.load(found.save(tmp_path / "ours.json"))
    np.testing.assert_array_equal(again.scores, found.scores)
    assert found.to_html()


def test_a_translation_of_inseq_has_a_source(tmp_path: Path) -> None:
    source = np.arange(16, dtype=np.float32).reshape(8, 2)
    tree = saved_by_inseq(source_attributions=packed(source), target_attributions=None, step_scores={})
    tree["attributes"]["info"]["generated_texts"] = ["France and"]
    found = Generation.from_dict(tree)
    assert found.scores.shape == (2, 18)
    np.testing.assert_array_equal(found.scores[:, :8], source.T)
    assert found.whole.segments.count("source") == 8
    np.testing.assert_array_equal(found.source_contribution, 1.0)
    assert np.isnan(found.log_probabilities).all()
    assert np.isnan(Generation.load(found.save(tmp_path / "ours.json")).log_probabilities).all()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"target_attributions": packed(np.zeros((10, 2, 3), np.float32))}, r"out\.aggregate\(\)\.save"),
        ({"target_attributions": packed(np.zeros((10, 2), np.uint8), "U8")}, "scores_precision='float32'"),
        ({"target": 3}, "damaged"),
    ],
)
def test_what_is_not_read_is_said(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(DamagedFile, match=says):
        Generation.from_dict(saved_by_inseq(**changed))


def test_who_reads_it_is_said() -> None:
    with pytest.raises(DamagedFile, match=r"wherefrom\.Generation\.load reads it"):
        Explanation.from_dict(saved_by_inseq())
    tree = saved_by_inseq()
    tree["attributes"]["sequence_attributions"] *= 2
    with pytest.raises(DamagedFile, match="split_sequences=True"):
        Generation.from_dict(tree)


def test_whether_pieces_add_up_and_scores_have_signs_may_stand_in_a_plain_file() -> None:
    plain = {"tokens": ["▁un", "like", "ly"], "scores": [0.5, 0.25, 0.25], "word_ids": [0, 0, 0]}
    assert Explanation.from_dict(plain).words().scores == pytest.approx([1 / 3])
    found = Explanation.from_dict({**plain, "additive": True, "signed": True})
    assert found.signed
    assert found.words().scores == pytest.approx([1.0])
    with pytest.raises(InvalidInput, match="additive='yes'; expected True or False"):
        Explanation.from_dict({**plain, "additive": "yes"})


@pytest.mark.parametrize(
    ("tokens", "more", "message"),
    [
        (["a", 3], {}, "a token is no text"),
        (["a", "b"], {"target": "pos"}, "target='pos'; expected a"),
        (["a", "b"], {"texts": ("a b",), "spans": [(0, 0, 1), (0, 2, 99)]}, r"\(0, 2, 99\) lies outside the texts"),
        (
            ["a", "b"],
            {"texts": ("a b",), "spans": [(0, 1), (2, 3)]},
            r"\(0, 1\) .*expected \(which text, start",
        ),
        (["a", "b"], {"texts": "a b", "spans": [3, None]}, r"the span 3 .*; expected \(which text, start, end\)"),
        (["a", "b"], {"spans": [(0, 0, 1), None]}, "spans are given and no texts; expected texts="),
        (["a", "b"], {"layer_scores": [["x", "y"]]}, "layer_scores of type .* are not numbers"),
    ],
)
def test_what_is_no_explanation_is_refused(tokens: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Explanation.from_scores(tokens, [1.0, 2.0], **more)


def test_scores_may_be_a_tensor_with_a_gradient() -> None:
    scores = torch.tensor([1.0, -2.0], requires_grad=True)
    assert Explanation.from_scores(["a", "b"], scores).scores.tolist() == [1, -2]


@pytest.mark.parametrize("mark", ["▁", "Ġ"])
def test_words_by_number_have_no_marks_of_a_vocabulary(mark: str) -> None:
    tokens = ["<s>", f"{mark}un", "likely", f"{mark}film", mark]
    found = Explanation.from_scores(tokens, [1, 2, 3, 4, 5], word_ids=[None, 0, 0, 1, 2])
    assert found.words().tokens == ["<s>", "unlikely", "film", "␣"]
    assert Explanation.from_scores(tokens, [1, 2, 3, 4, 5]).words().tokens == tokens


def test_scores_come_as_other_libraries_have_them(tmp_path: Path) -> None:
    half = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
    tokens: list[str] = [*np.array(["a", "b"])]  # np.str_, as LIME has them
    spans: list[Any] = [[0, 0, 1], (0, 2, 3)]
    found = Explanation.from_scores(tokens, half, texts="a b", spans=spans, layer_scores=half[None])
    assert found.scores.tolist() == found.layer_scores[0].tolist() == [1.0, -2.0]
    assert [type(token) for token in found.tokens] == [str, str]
    assert (found.texts, found.spans, found.signed) == (("a b",), [(0, 0, 1), (0, 2, 3)], True)
    assert Explanation.load(found.save(tmp_path / "found.json")).spans == found.spans


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_spans_may_be_an_array(kind: Any) -> None:
    spans = kind([(0, 0, 1), (0, 2, 6), (0, 7, 11)])
    found = Explanation.from_scores(["a", "good", "film"], [1, 2, 3], texts="a good film", spans=spans)
    assert found.spans == [(0, 0, 1), (0, 2, 6), (0, 7, 11)]


def test_a_text_is_no_list_of_tokens() -> None:
    with pytest.raises(InvalidInput, match="the tokens are one text; expected a list of strings"):
        Explanation.from_scores("a good film", [1, 2, 3])


def test_words_by_number_need_no_text() -> None:
    tokens, words = ["[CLS]", "un", "##like", "##ly", "film", "s"], [None, 0, 0, 0, 1, 0]
    found = Explanation.from_scores(tokens, [9, 1, 2, 3, 4, 5], word_ids=words, additive=True)
    for joined in (found.words(), found.by("word")):
        assert joined.tokens == ["[CLS]", "unlikely", "film", "s"]  # a number that comes again is another word's
        assert joined.scores.tolist() == [9, 6, 4, 5]
    spans = [None, (0, 0, 2), (0, 2, 6), (0, 6, 8), (0, 9, 13), (0, 13, 14)]
    placed = Explanation.from_scores(tokens, [9, 1, 2, 3, 4, 5], texts="unlikely films", spans=spans, word_ids=words)
    assert placed.words().tokens == ["[CLS]", "unlikely", "film", "s"]
    arrays = Explanation.from_scores((each for each in tokens[1:]), np.arange(5), word_ids=np.array(words[1:], int))
    assert arrays.words().tokens == ["unlikely", "film", "s"]
    with pytest.raises(InvalidInput, match="word_ids are no whole numbers"):
        Explanation.from_scores(["a", "b"], [1, 2], word_ids=["a", "b"])
