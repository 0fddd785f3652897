"""Every kind of input gives the same answer, and padding changes nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
import wherefrom
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
TEXT = "The film is deep and meaningful !"


def same(a: Explanation, b: Explanation, tolerance: float = 1e-5) -> None:
    assert a.tokens == b.tokens
    assert a.position == b.position
    assert a.target == b.target
    for x, y in ((a.maps, b.maps), (a.aggregated, b.aggregated), (a.scores, b.scores)):
        assert (x is None) == (y is None)
        if x is not None and y is not None:
            assert x.shape == y.shape
            assert np.abs(x - y).max() <= tolerance


def test_text_ids_array_tensor_and_encoding_agree() -> None:
    model = tiny.model()
    ids = TOKENIZER(TEXT)["input_ids"]
    expected = wherefrom.explain(TEXT, model, TOKENIZER, method="attention-rollout")
    for inputs in (
        ids,
        tuple(ids),
        np.array(ids),
        torch.tensor(ids),
        {"input_ids": ids},
        TOKENIZER(TEXT),
        {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(len(ids))},
    ):
        found = wherefrom.explain(inputs, model, TOKENIZER, method="attention-rollout")
        assert isinstance(found, Explanation)
        same(found, expected)
    without = wherefrom.explain(ids, model, method="attention-rollout")
    assert without.tokens == [str(i) for i in ids]
    assert np.allclose(without.scores, expected.scores, atol=1e-6)


def test_a_batch_axis_gives_a_list() -> None:
    model = tiny.model()
    expected = wherefrom.explain(TEXT, model, TOKENIZER)
    ids = TOKENIZER(TEXT)["input_ids"]
    for inputs in ([TEXT], [ids], torch.tensor([ids]), np.array([ids]), TOKENIZER(TEXT, return_tensors="pt")):
        found = wherefrom.explain(inputs, model, TOKENIZER)
        assert isinstance(found, list)
        assert len(found) == 1
        same(found[0], expected)


def test_a_pair_is_read_as_two_texts() -> None:
    model = tiny.model()
    found = wherefrom.explain(("the cat", "is good ."), model, TOKENIZER)
    assert found.tokens == ["[CLS]", "the", "cat", "[SEP]", "is", "good", ".", "[SEP]"]
    assert found.texts == ("the cat", "is good .")
    assert [span and span[0] for span in found.spans] == [None, 0, 0, None, 1, 1, 1, None]
    encoding = TOKENIZER("the cat", "is good .")
    assert 1 in encoding["token_type_ids"]
    same(wherefrom.explain(encoding, model, TOKENIZER), found)
    both = wherefrom.explain([("the cat", "is good ."), ["the cat", "is good ."]], model, TOKENIZER)
    same(both[0], found)
    same(both[1], found)
    other = wherefrom.explain({**encoding, "token_type_ids": [0] * 8}, model, TOKENIZER)
    assert np.abs(other.scores - found.scores).max() > 1e-4  # the second text is marked as such for the model


def test_a_pair_keeps_its_types_beside_bare_ids() -> None:
    model = tiny.model()
    pair, _ = wherefrom.explain([("the good film", "a cat"), [5, 6, 7]], model, TOKENIZER)
    same(pair, wherefrom.explain(("the good film", "a cat"), model, TOKENIZER))


def test_ids_find_their_text_again() -> None:
    found = wherefrom.explain(TOKENIZER("the cat", "deep , meaningful")["input_ids"], tiny.model(), TOKENIZER)
    assert found.texts == ("the cat", "deep, meaningful")  # as the tokenizer writes its tokens back
    assert found.pieces == ["[CLS]", "the", "cat", "[SEP]", "deep", ",", "meaning", "ful", "[SEP]"]
    assert found.special == [True, False, False, True, False, False, False, False, True]
    # An unknown word has no text to go back to; its token stands for itself.
    unknown = wherefrom.explain([2, TOKENIZER.unk_token_id, 3], tiny.model(), TOKENIZER)
    assert unknown.pieces == ["[CLS]", "[UNK]", "[SEP]"]


def test_tokenizer_kwargs_reach_the_tokenizer() -> None:
    found = wherefrom.explain("the cat", tiny.model(), TOKENIZER, tokenizer_kwargs={"add_special_tokens": False})
    assert found.tokens == ["the", "cat"]


LENGTHS = (3, 9, 5, 2, 12)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_a_batch_gives_what_one_sentence_gives(variant: str, batch_size: int) -> None:
    model = tiny.model(variant)
    inputs = [tiny.ids(n, seed=n) for n in LENGTHS]
    together = wherefrom.explain(inputs, model, method="attention-rollout", batch_size=batch_size)
    for ids, found in zip(inputs, together, strict=True):
        same(found, wherefrom.explain(ids, model, method="attention-rollout"))


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_padding_on_either_side_changes_nothing(variant: str, side: str) -> None:
    model = tiny.model(variant)
    pad = model.config.pad_token_id
    rows, masks = [], []
    for n in LENGTHS:
        left = {"left": 12 - n, "right": 0, "both": (12 - n) // 2}[side]
        right = 12 - n - left
        rows.append([pad] * left + tiny.ids(n, seed=n) + [pad] * right)
        masks.append([0] * left + [1] * n + [0] * right)
    encoding = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}
    for n, found in zip(LENGTHS, wherefrom.explain(encoding, model, method="attention-rollout"), strict=True):
        assert len(found) == n
        same(found, wherefrom.explain(tiny.ids(n, seed=n), model, method="attention-rollout"))


@pytest.mark.parametrize("task", ["classification", "causal-lm"])
def test_gpt2_without_a_padding_token(task: str) -> None:
    model = tiny.model("gpt2", task, pad_token_id=None)
    found = wherefrom.explain([tiny.ids(n, seed=n) for n in LENGTHS], model, method="attention-rollout")
    for n, each in zip(LENGTHS, found, strict=True):
        same(each, wherefrom.explain(tiny.ids(n, seed=n), model, method="attention-rollout"))


def test_a_mask_over_real_tokens_hides_them_from_attention() -> None:
    model = tiny.model()
    ids = TOKENIZER(TEXT)["input_ids"]
    mask = [0, *[1] * (len(ids) - 2), 0]  # what AttCAT's notebooks do to [CLS] and [SEP]
    found = wherefrom.explain({"input_ids": ids, "attention_mask": mask}, model, TOKENIZER, method="attention")
    assert found.tokens[0] == "[CLS]"
    assert len(found) == len(ids)
    assert (found.maps[:, :, [0, -1]] == 0).all()
    with torch.no_grad():
        logits = model(torch.tensor([ids]), attention_mask=torch.tensor([mask])).logits
    assert found.probabilities["LABEL_1"] == pytest.approx(float(logits.softmax(-1)[0, 1]), abs=1e-6)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 99))
def test_any_mixture_of_lengths_gives_what_single_texts_give(lengths: list[int], batch_size: int, seed: int) -> None:
    model = _MODEL
    inputs = [tiny.ids(n, seed=seed + i) for i, n in enumerate(lengths)]
    found = wherefrom.explain(inputs, model, method="attention-rollout", batch_size=batch_size)
    for ids, each in zip(inputs, found, strict=True):
        assert each.maps.shape == (3, len(ids), len(ids))
        assert np.allclose(each.maps.sum(-1), 1, atol=1e-5)
        assert np.allclose(each.aggregated.sum(-1), 1, atol=1e-5)
        same(each, wherefrom.explain(ids, model, method="attention-rollout"))


_MODEL: Any = tiny.model()


@pytest.mark.parametrize("method", ["attention", "globenc", "value-zeroing", "attcat"])
def test_a_causal_row_that_sees_nothing_is_the_same_in_every_batch(method: str) -> None:
    """The first real token is hidden, so its row has no key at all."""
    model = tiny.model("gpt2", dtype=torch.float64)
    hidden = {"input_ids": [[7, 8, 9, 10]], "attention_mask": [[0, 1, 1, 1]]}
    wide = {"input_ids": [[7, 8, 9, 10, 0, 0, 0], tiny.ids(7)], "attention_mask": [[0, 1, 1, 1, 0, 0, 0], [1] * 7]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wherefrom.WherefromWarning)  # its row holds no contribution, and says so
        same(wherefrom.explain(wide, model, method=method)[0], wherefrom.explain(hidden, model, method=method)[0])


def test_targets_foils_and_positions_may_be_lists() -> None:
    both = [tiny.ids(4), tiny.ids(5)]
    found = wherefrom.explain(both, tiny.model(), method="attcat", target=[0, "LABEL_2"])
    assert [each.target.index for each in found] == [0, 2]
    found = wherefrom.explain(both, tiny.model(), method="alti", position=["mean", -1])
    assert [each.position for each in found] == [None, 4]


def test_a_folder_opens_by_name_and_is_read_again_when_it_changes(tmp_path: Any) -> None:
    tiny.model(seed=1).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    first = wherefrom.explain(TEXT, str(tmp_path), method="attention-rollout")
    same(first, wherefrom.explain(TEXT, tiny.model(seed=1), TOKENIZER, method="attention-rollout"))
    same(first, wherefrom.explain(TEXT, tmp_path, method="attention-rollout"))
    tiny.model(seed=2).save_pretrained(tmp_path)
    second = wherefrom.explain(TEXT, str(tmp_path), method="attention-rollout")
    same(second, wherefrom.explain(TEXT, tiny.model(seed=2), TOKENIZER, method="attention-rollout"))
    assert np.abs(first.scores - second.scores).max() > 1e-4
    double = wherefrom.explain(TEXT, str(tmp_path), dtype="float64", device="cpu", method="attention-rollout")
    assert double.maps.dtype == np.float64
    assert second.maps.dtype == np.float32
    headless = wherefrom.explain(
        TEXT, str(tmp_path), task="encoder", model_kwargs={"output_attentions": True}, method="attention-rollout"
    )
    assert headless.target.kind == "none"


@pytest.mark.parametrize("method", ["integrated-gradients", "ablation"])
def test_a_mask_is_a_word_of_the_text_however_it_comes_in(method: str) -> None:
    """Not one of the tokenizer's own: it is blanked out and takes part in a baseline as words do."""
    model, text = tiny.model(task="masked-lm"), "the [MASK] film"
    asked: dict[str, Any] = {"baseline": "unknown", "n_steps": 20} if method != "ablation" else {"by": "delete"}
    expected = wherefrom.explain(text, model, TOKENIZER, method, position=3, **asked)
    found = wherefrom.explain(TOKENIZER(text)["input_ids"], model, TOKENIZER, method, position=3, **asked)
    assert found.special == expected.special == [True, False, False, False, True]
    assert np.allclose(found.scores, expected.scores, atol=1e-6)
    assert abs(found.scores[2]) > 1e-6
