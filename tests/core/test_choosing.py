"""Which method answers when none is named, and what a result says that it explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pictures
import tiny
import wherefrom
from wherefrom.defaults import COMPARED_BESIDE, COMPARED_MAPS, DEFAULT_METHODS
from wherefrom.errors import InvalidOption
from wherefrom.method import choose, lookup
from wherefrom.metric.spotcheck import checks
from wherefrom.patents import PATENT_NOTE, PATENTED_IDEA
from wherefrom.pipeline import execution
from wherefrom.pipeline.resolution import Question, resolve_job
from wherefrom.result.explanation import Explanation
from wherefrom.view.terminal import heading

TOKENIZER = tiny.tokenizer()
MAPS = [each.name for each in wherefrom.methods() if not each.class_specific and not each.random]


def explain(task: str = "classification", text: str = "the deep film", **asked: Any) -> Any:
    model = tiny.model("gpt2" if task == "causal-lm" else "bert", task)
    return wherefrom.explain(text, model, TOKENIZER, **asked)


@pytest.mark.parametrize(
    ("task", "text", "asked", "method"),
    [
        ("classification", "the deep film", {}, "deeplift"),
        ("classification", "the deep film", {"target": 1, "foil": 0}, "deeplift"),
        ("masked-lm", "the [MASK] film", {}, "deeplift"),
        ("masked-lm", "the deep film", {"position": 1}, "deeplift"),
        ("causal-lm", "the deep", {}, "alti-logit"),
        ("causal-lm", "the deep", {"target": "film"}, "alti-logit"),
        ("causal-lm", "the deep", {"target": "film is good"}, "alti-logit"),
        ("causal-lm", "the deep", {"target": "film is good", "foil": "cat"}, "alti-logit"),
        ("token-classification", "the deep film", {"position": 2}, "deeplift"),
        ("question-answering", "the deep film", {}, "deeplift"),
    ],
)
def test_an_output_is_explained_with_signs(task: str, text: str, asked: dict[str, Any], method: str) -> None:
    found = explain(task, text, **asked)
    assert (found.method, found.signed) == (method, True)
    assert found.target == found.measured
    assert found.target.kind != "none"


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        ("encoder", {}),
        ("masked-lm", {"aggregate": "rollout"}),
        ("token-classification", {"layers": (0, 1)}),
        ("classification", {"position": 1}),
        ("classification", {"layers": (0, 2)}),
        ("classification", {"aggregate": "flow"}),
        ("classification", {"aggregate": None}),
    ],
)
def test_maps_answer_where_there_is_no_output_or_a_map_is_asked_for(task: str, asked: dict[str, Any]) -> None:
    found = explain(task, **asked)
    assert found.method == "alti"
    assert found.maps is not None
    assert found.target.kind == "none"


def test_a_picture_is_explained_by_differences() -> None:
    """By the leaderboard's table of pictures."""
    found = wherefrom.explain(pictures.pixels(), pictures.model())
    assert found.method == "deeplift"
    assert found.target.kind == "class"


def test_with_one_head_the_default_is_attention_rollout() -> None:
    assert explain(head=1).method == "attention-rollout"


def test_a_method_without_heads_names_methods_that_take_one() -> None:
    able = [each.name for each in wherefrom.methods() if each.heads is not None]
    with pytest.raises(InvalidOption) as refused:
        explain(head=1, method="deeplift")
    assert str(refused.value).endswith(", ".join(able))


@pytest.mark.parametrize("variant", [*tiny.VARIANTS])
@pytest.mark.filterwarnings(
    "ignore::wherefrom.errors.WherefromWarning"
)  # a random model in half precision may miss a sum
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_family_has_an_answer(variant: str, dtype: torch.dtype) -> None:
    found = wherefrom.explain("a good film", tiny.model(variant, dtype=dtype), TOKENIZER)
    assert found.method in DEFAULT_METHODS["classification"]
    assert np.abs(found.scores).max() > 0


@pytest.mark.filterwarnings("error::wherefrom.WherefromWarning")
def test_what_cannot_answer_is_not_chosen() -> None:
    """Without a tokenizer there is no token for a baseline; the result says which method it was."""
    assert wherefrom.explain([5, 6, 7], tiny.model()).method == "attcat"
    assert wherefrom.explain([5, 6, 7], tiny.model(), baseline=4).method == "deeplift"
    assert list(wherefrom.compare([5, 6, 7], tiny.model())) == ["attcat", "alti", "attention-rollout"]


def test_falling_back_to_the_next_method_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its own check fails, which nobody knows before."""
    monkeypatch.setattr("wherefrom.method.exact_sum.SUM_TOLERANCE", -1)
    with pytest.warns(wherefrom.WherefromWarning, match="Explained by attcat instead"):
        assert wherefrom.explain("a good film", tiny.model(), TOKENIZER).method == "attcat"
    with pytest.warns(wherefrom.WherefromWarning, match="deeplift is missing from the comparison"):
        compared = wherefrom.compare("a good film", tiny.model(), TOKENIZER)
    assert list(compared) == ["attcat", "alti", "attention-rollout"]


def test_a_method_that_was_named_is_not_replaced() -> None:
    with pytest.raises(wherefrom.WherefromError, match="token for a baseline"):
        wherefrom.explain([5, 6, 7], tiny.model(), method="deeplift")
    with pytest.raises(wherefrom.WherefromError, match="it is deeplift: 'deeplift' has no option 'odd'"):
        explain(odd=1)
    assert explain(baseline="pad").options == {"baseline": "pad"}


def test_compared_by_default() -> None:
    both = DEFAULT_METHODS["masked-lm"]
    assert tuple(wherefrom.compare("the film", tiny.model(), TOKENIZER)) == (*both, *COMPARED_BESIDE)
    assert tuple(wherefrom.compare("the film", tiny.model(task="encoder"), TOKENIZER)) == COMPARED_MAPS


def test_what_is_named_in_the_defaults_exists() -> None:
    signed = [name for kind in ("causal-lm", "classification", "masked-lm", "image") for name in DEFAULT_METHODS[kind]]
    assert all(lookup(name)[0].signed and lookup(name)[0].class_specific for name in signed)
    assert all(lookup(name)[0].kind == "map" for name in COMPARED_MAPS)


@pytest.mark.parametrize("kind", [*DEFAULT_METHODS])
def test_no_default_is_relevance_propagation(kind: str) -> None:
    names = {*DEFAULT_METHODS[kind], *COMPARED_BESIDE, *COMPARED_MAPS}
    assert not [name for name in names if lookup(name)[0].idea == PATENTED_IDEA]


@pytest.mark.parametrize("foil", [None, "cat"])
def test_a_target_of_one_token_and_one_of_three_get_the_same_method(foil: str | None) -> None:
    one, three = (explain("causal-lm", "the deep", target=target, foil=foil) for target in ("film", "film is good"))
    assert (one.target.kind, three.target.kind) == ("token", "phrase")
    assert len(three.target.tokens) == 3
    assert one.method == three.method == DEFAULT_METHODS["causal-lm"][0]


def test_a_foil_of_a_translator_is_explained_by_a_method_with_signs() -> None:
    """ALTI answers for the text that the decoder reads, and looks at no foil."""
    model, source = wherefrom.open_model("wherefrom/translate"), "Das stimmt nicht!"
    for target in (" true", "That is not true!"):
        assert wherefrom.explain(source, model, target=target).method == "alti"
    assert wherefrom.explain(source, model, target=" true", foil=" false").method == "ablation"
    assert list(wherefrom.compare(source, model, target=" true")) == ["alti", "generic-attention", "attention-rollout"]


def test_the_patent_note_is_shown_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("wherefrom.view.terminal.SHOWN_ONCE", set())
    both = [explain(method=method) for method in ("attn-lrp", "transformer-attribution")]
    assert all(found.notes == [PATENT_NOTE] for found in both)
    assert PATENT_NOTE in both[0].to_html()
    for found in [*both, explain()]:
        found.show()
    assert " ".join(capsys.readouterr().out.split()).count(PATENT_NOTE) == 1
    assert PATENT_NOTE not in explain().notes
    said = wherefrom.generate("the deep", tiny.model("gpt2", "causal-lm"), TOKENIZER, "cp-lrp", max_new_tokens=2)
    assert PATENT_NOTE in said[1].notes
    assert PATENT_NOTE in said[:].notes


def test_the_estimate_is_of_the_same_method() -> None:
    assert wherefrom.estimate("the film", tiny.model(), TOKENIZER).method == "deeplift"
    assert wherefrom.estimate("the [MASK]", tiny.model(task="masked-lm"), TOKENIZER).method == "deeplift"
    assert wherefrom.estimate("the film", tiny.model(task="encoder"), TOKENIZER).method == "alti"
    phrase = wherefrom.estimate("the", tiny.model("gpt2", "causal-lm"), TOKENIZER, target="film is good")
    assert (phrase.method, phrase.longest) == ("alti-logit", len(TOKENIZER("the").input_ids) + 2)


# What is explained ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MAPS)
def test_a_method_that_looks_at_no_class_says_so_and_refuses_one(method: str) -> None:
    found = explain(method=method)
    assert str(found.target) == "what [CLS] is made of, not towards a class or word"
    assert found.measured.kind == "class"
    assert "class '" not in repr(found)
    for asked in ({"target": "LABEL_2"}, {"target": "LABEL_2", "foil": "LABEL_0"}, {"foil": 0}, {"target": "all"}):
        with pytest.raises(
            wherefrom.WherefromError, match=r"the same for every target; .* choose .* deeplift.* attcat"
        ):
            explain(method=method, **asked)


@pytest.mark.parametrize("method", [each.name for each in tiny.methods() if each.class_specific])
def test_a_method_that_takes_a_target_looks_at_it(method: str) -> None:
    one, other = (explain(method=method, target=target).scores for target in ("LABEL_0", "LABEL_2"))
    assert np.abs(one - other).max() > 1e-6


def test_a_word_at_the_mask_is_no_row_but_the_edge_of_an_answer_is() -> None:
    masked = explain("masked-lm", "the [MASK] film", method="alti")
    assert str(masked.target) == "what [MASK] is made of, not towards a class or word"
    with pytest.raises(wherefrom.WherefromError, match="the same for every target"):
        explain("masked-lm", "the [MASK] film", method="alti", target="cat")
    start, end = (explain("question-answering", method="alti", target=edge) for edge in ("start", "end"))
    assert (start.measured.kind, end.measured.kind) == ("start", "end")
    assert start.target.kind == "none"
    assert start.target.label == start.tokens[start.position]


def test_a_mean_readout_is_called_the_mean_of_all_tokens() -> None:
    found = explain(method="alti", position="mean")
    assert str(found.target).startswith("what the mean of all tokens is made of")


def test_side_by_side_each_says_what_it_explains() -> None:
    model = tiny.model()
    found = wherefrom.compare("the film", model, TOKENIZER, ["attcat", "alti"], target="LABEL_2", foil="LABEL_0")
    assert str(found["attcat"].target) == "class 'LABEL_2' rather than 'LABEL_0'"
    assert found["alti"].target.kind == "none"
    assert found["alti"].measured.label == found["alti"].prediction  # which is all that it can speak of
    assert found["alti"].measured.foil is None
    every = wherefrom.compare("the film", model, TOKENIZER, ["attcat", "alti"], target="all")
    assert list(every) == ["attcat: LABEL_0", "attcat: LABEL_1", "attcat: LABEL_2", "alti"]
    with pytest.raises(wherefrom.WherefromError, match="globenc, alti say what a representation is made of"):
        wherefrom.compare("the film", model, TOKENIZER, ["globenc", "alti"], target="LABEL_2")


def test_what_is_explained_is_saved_with_the_result() -> None:
    found = explain(method="alti")
    data = found.to_dict()
    assert data["target"] == {**data["target"], "kind": "none", "label": "[CLS]", "index": None}
    again = Explanation.from_dict(data)
    assert (again.target, again.measured) == (found.target, found.measured)
    del data["measured"]  # as files were written before
    data["target"] = {"kind": "class", "index": 1, "label": "LABEL_1"}
    assert Explanation.from_dict(data).measured.label == "LABEL_1"


def test_metrics_follow_the_prediction_whatever_is_explained() -> None:
    """`run` is what `evaluate` measures: its targets are the same for every method."""
    opened = wherefrom.open_model(tiny.model(), TOKENIZER)
    sentences = jobs_sentences(opened)
    both = {name: resolve_job(opened, choose(name), judged="target") for name in ("attcat", "alti")}
    (found,) = execution.run(opened, sentences, [Question(2, 0, None)], both, 1)
    (first,), (second,) = found["attcat"].explanations, found["alti"].explanations
    assert first.measured == second.measured
    assert first.measured.label == "LABEL_2"


@pytest.mark.parametrize("target", ["LABEL_0", "LABEL_1", "LABEL_2"])
def test_a_method_that_looks_at_no_class_is_checked_by_the_prediction(target: str) -> None:
    """Beside another class too, which the scores do not speak of: its evidence is that of a call without a target."""
    model = tiny.model()
    text = "the film is deep and not very good"
    with_target = wherefrom.compare(text, model, TOKENIZER, ["attcat", "alti"], target=target)
    alone = explain(text=text, method="alti")
    assert alone.measured.label == alone.prediction
    assert with_target["alti"].measured == alone.measured
    assert with_target["attcat"].measured.label == target
    beside, usual = (next(checks([each], model, TOKENIZER)) for each in (with_target["alti"], alone))
    assert beside.target == usual.target
    np.testing.assert_allclose(beside.probabilities, usual.probabilities, atol=1e-6)


def test_a_word_beside_another_is_judged_by_the_predicted_one() -> None:
    model = tiny.model(task="masked-lm")
    found = wherefrom.compare("the [MASK] film", model, TOKENIZER, ["attcat", "alti"], target="cat", foil="dog")
    best = explain("masked-lm", "the [MASK] film", method="attcat").target
    assert best.label not in ("cat", "dog")
    assert (found["attcat"].measured.label, found["alti"].measured) == ("cat", best)


def test_random_scores_say_so() -> None:
    found = wherefrom.compare("the film", tiny.model(), TOKENIZER, ["attcat", "random"])["random"]
    assert str(found.target) == "nothing: random scores, to compare with"
    assert found.measured.label == found.prediction
    assert (
        "made of" not in repr(found) + found.to_html().partition("<script>")[0] + heading(found, found.explained).plain
    )
    assert found.to_dict()["target"]["kind"] == "random"
    assert Explanation.from_dict(found.to_dict()).target == found.target
    with pytest.raises(wherefrom.WherefromError, match="random has random scores, the same for every target"):
        explain(method="random", target=1)


def jobs_sentences(opened: Any) -> Any:

    return opened.reader().read("the film")[0]
