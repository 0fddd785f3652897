"""The result object: reading, saving, loading, and refusing what is not one."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
MODEL = tiny.model()


def example(**kwargs: Any) -> Explanation:
    found = wherefrom.explain("Very meaningful, the film!", MODEL, TOKENIZER, **kwargs)
    assert isinstance(found, Explanation)
    return found


def equal(a: Explanation, b: Explanation) -> None:
    for name in a.__dataclass_fields__:
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        else:
            assert left == right


def test_numpy_and_plain_values_only() -> None:
    found = example(head="all", method="attention")
    assert found.maps.shape == found.aggregated.shape == (3, 9, 9)
    assert found.head_maps.shape == (3, 4, 9, 9)
    assert found.layer_scores is None
    assert found.model == "BertForSequenceClassification"
    assert found.seconds > 0
    assert "torch" not in str(pickle.dumps(found))
    assert (
        repr(found)
        == "<Explanation by attention of what [CLS] is made of, not towards a class or word: 9 tokens, 3 layers>"
    )


def test_top_gives_the_largest_scores() -> None:
    found = Explanation.from_scores(list("abcd"), [0.1, -0.9, 0.5, 0.2])
    assert found.signed
    assert found.top(2) == [(1, "b", -0.9), (2, "c", 0.5)]
    unsigned = Explanation.from_scores(list("abcd"), [0.1, 0.9, 0.5, 0.2], special=[False, True, False, False])
    assert [i for i, _, _ in unsigned.top(9)] == [1, 2, 3, 0]
    assert [i for i, _, _ in unsigned.top(2, special=False)] == [2, 3]
    assert unsigned.top(0) == []
    for k in (-1, 1.5, "two"):
        with pytest.raises(WherefromError, match=f"k={k!r}; expected a whole number, at least 0"):
            unsigned.top(k)


def test_indexing_by_layer_and_token() -> None:
    found = example(method="attention")
    assert (found[1] == found.maps[1]).all()
    assert (found[-1, "film"] == found.maps[-1, 6]).all()
    assert found[0, "[CLS]", "Very"] == found.maps[0, 0, 1]
    assert found[0, "##ful", -1] == found.maps[0, 3, 8]
    assert found[:, 2, 3].shape == (3,)
    for key, message in (
        ((3,), "layer 3 is outside the model's 3 layers"),
        ((0, 9), "token 9 is outside the 9 tokens"),
        ((0, "dog"), "'dog' does not stand among the tokens"),
        (("film",), "expected"),
        ((0, 1, 2, 3), "expected"),
        (1.5, r"expected \[layer\] or \[layer, token, token\]; got 1.5"),
        ((0, 1.5), "expected"),
    ):
        with pytest.raises(wherefrom.WherefromError, match=message):
            found[key]
    twice = wherefrom.explain("the the", MODEL, TOKENIZER, method="attention-rollout")
    with pytest.raises(wherefrom.WherefromError, match="stands 2 times"):
        twice[0, "the"]
    with pytest.raises(wherefrom.WherefromError, match="no layers to index"):
        Explanation.from_scores(["a"], [1.0])[0]
    layered = Explanation.from_scores(["a", "b"], [1.0, 2.0], layer_scores=np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert layered[1, "b"] == 4.0


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_what_is_saved_is_loaded_unchanged(tmp_path: Path, suffix: str) -> None:
    for name, found in {
        "tokens": example(head="all", method="attention"),
        "words": example().words(),
        "mean": example(position="mean"),
        "mask": wherefrom.explain("the [MASK] film", tiny.model(task="masked-lm"), TOKENIZER, target="cat", foil="dog"),
        "scores": Explanation.from_scores(["ä", "<b>"], np.array([1, -2])),
        "double": wherefrom.explain([5, 6], tiny.model(dtype=torch.float64), method="attention-rollout"),
    }.items():
        equal(Explanation.load(found.save(tmp_path / (name + suffix))), found)
        equal(Explanation.from_dict(json.loads(json.dumps(found.to_dict()))), found)


def test_files_written_under_the_former_name_are_read() -> None:
    """The library was called whence when the first explanations were saved."""
    found = example()
    written = found.to_dict()
    assert "reading" in written  # the field's name in files, whatever the attribute is called
    assert Explanation.from_dict({**written, "format": "whence.explanation"}).readout == found.readout
    several = Comparison({"one": found}).to_dict()
    assert list(Comparison.from_dict({**several, "format": "whence.comparison"})) == ["one"]


def test_a_comparison_is_saved_and_loaded(tmp_path: Path) -> None:
    comparison = wherefrom.compare("the film", MODEL, TOKENIZER, methods=["attention", "rollout"])
    loaded = Comparison.load(comparison.save(tmp_path / "c.json"))
    assert list(loaded) == ["attention", "rollout"]
    for name in loaded:
        equal(loaded[name], comparison[name])
    assert "film" in comparison.save(tmp_path / "c.html").read_text()
    assert comparison.words()["attention"].granularity == "word"
    with pytest.raises(wherefrom.WherefromError, match=r"ending in \.json, \.html, \.png, \.svg, \.pdf"):
        comparison.save(tmp_path / "c.npz")
    with pytest.raises(wherefrom.WherefromError, match="a wherefrom explanation and no comparison"):
        Comparison.load(example().save(tmp_path / "e.json"))
    with pytest.raises(wherefrom.WherefromError, match="there is no file"):
        Comparison.load(tmp_path / "missing.json")
    with pytest.raises(wherefrom.WherefromError, match="holds no explanations"):
        Comparison.from_dict({"format": "wherefrom.comparison", "version": 1})
    for unwritable in ("x.json", "x.npz", "x.html"):
        with pytest.raises(wherefrom.WherefromError, match="cannot write"):
            example().save(tmp_path / "nowhere" / unwritable)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    def refused(name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(wherefrom.WherefromError, match=message):
            Explanation.load(tmp_path / name)

    good = example().save(tmp_path / "good.json").read_bytes()
    packed = example().save(tmp_path / "good.npz").read_bytes()
    refused("a.json", good[: len(good) // 2], "damaged")
    refused("b.json", b"[1, 2]", "not a wherefrom explanation")
    refused("c.json", b"\xff\xfe", "damaged")
    refused("d.npz", packed[: len(packed) // 2], r"damaged .* a \.npz is a zip file")
    refused("e.npz", good, r"damaged .* a \.npz is a zip file")
    refused("f.json", good.replace(b'"version": 1', b'"version": 99'), "version 99")
    data = json.loads(good)
    del data["tokens"]
    refused("g.json", json.dumps(data).encode(), "damaged: it has no 'tokens'")
    data = json.loads(good)
    data["scores"] = data["scores"][:-1]
    refused("h.json", json.dumps(data).encode(), "scores do not fit the 9 tokens")
    np.savez(tmp_path / "foreign.npz", x=np.ones(3))
    refused("i.npz", (tmp_path / "foreign.npz").read_bytes(), "damaged or not a wherefrom explanation")
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"a": 1}], dtype=object))
    refused("j.npz", (tmp_path / "pickled.npz").read_bytes(), "damaged or not a wherefrom explanation")
    with pytest.raises(wherefrom.WherefromError, match="there is no file"):
        Explanation.load(tmp_path / "missing.json")
    refused("k.txt", good, r"ending in \.json or \.npz")
    with pytest.raises(wherefrom.WherefromError, match=r"ending in \.json, \.npz, \.html, \.png, \.svg, \.pdf"):
        example().save(tmp_path / "x.pkl")


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(wherefrom.WherefromError, match="scores do not fit the 1 tokens"):
        Explanation.from_scores(["a"], [0.1, 0.2])
    with pytest.raises(wherefrom.WherefromError, match="maps do not fit"):
        Explanation.from_scores(["a"], [0.1], maps=np.ones((2, 3, 3)))
    with pytest.raises(wherefrom.WherefromError, match="not numbers"):
        Explanation.from_scores(["a"], ["x"])
    with pytest.raises(wherefrom.WherefromError, match="NaN or infinite"):
        Explanation.from_scores(["a", "b"], [0.1, float("nan")])


def test_methods_are_listed_with_their_papers() -> None:
    listed = {each.name: each for each in wherefrom.methods()}
    assert listed["attention"].symbols == ("W", "Attn")
    assert "Abnar & Zuidema (2020). Quantifying Attention Flow" in str(listed["attention"].paper)
    assert all(each.summary and each.needs_in_words and each.kind in ("map", "scores") for each in listed.values())


def test_who_reads_a_file_of_the_other_kind_is_said(tmp_path: Path) -> None:
    found = wherefrom.compare([5, 6, 7], tiny.model(), methods=["alti"])
    both, one = found.save(tmp_path / "both.json"), found["alti"].save(tmp_path / "one.json")
    with pytest.raises(wherefrom.WherefromError, match=r"a wherefrom comparison .* wherefrom\.Comparison\.load"):
        wherefrom.Explanation.load(both)
    with pytest.raises(wherefrom.WherefromError, match=r"a wherefrom explanation .* wherefrom\.Explanation\.load"):
        wherefrom.Comparison.load(one)


def test_to_go_over_an_explanation_asks_over_what() -> None:
    found = Explanation.from_scores(["a", "b"], [1.0, 2.0])
    for go in (list, np.array, lambda it: "a" in it):
        with pytest.raises(wherefrom.WherefromError, match=r"over tokens or over layers\? Go through zip"):
            go(found)
