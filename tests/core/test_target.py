"""Which number is explained and which row it is read from, for every head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tiny
import wherefrom
from wherefrom.metric.erasure import erasure
from wherefrom.metric.spotcheck import checks
from wherefrom.model import Reader, collate, open_model
from wherefrom.model import answer as ask
from wherefrom.model.target import logit
from wherefrom.result.answer import Target

TOKENIZER = tiny.tokenizer()
LABELS = {"id2label": {0: "bad", 1: "so-so", 2: "Good"}, "label2id": {"bad": 0, "so-so": 1, "Good": 2}}


def output(model: Any, text: str) -> Any:
    with torch.no_grad():
        return model(**TOKENIZER(text, return_tensors="pt"))


def test_a_classifiers_prediction_is_explained_at_its_first_token() -> None:
    model = tiny.model(**LABELS)
    p = output(model, "the film is good").logits.softmax(-1)[0]
    found = wherefrom.explain("the film is good", model, TOKENIZER)
    assert found.target.index == int(p.argmax())
    assert found.target.kind == "class"
    assert found.prediction == found.target.label == ["bad", "so-so", "Good"][int(p.argmax())]
    assert found.probabilities == pytest.approx(
        {"bad": float(p[0]), "so-so": float(p[1]), "Good": float(p[2])}, abs=1e-6
    )
    assert (found.position, found.readout.why) == (0, "first token")
    by_maps = wherefrom.explain("the film is good", model, TOKENIZER, method="attention-rollout")
    assert (by_maps.scores == by_maps.aggregated[-1, 0]).all()
    for name in ("Good", "good", 2, "2"):
        assert wherefrom.explain("the film", model, TOKENIZER, target=name).target.index == 2
    contrast = wherefrom.explain("the film", model, TOKENIZER, target="good", foil="bad").target
    assert str(contrast) == "class 'Good' rather than 'bad'"


def test_a_word_with_its_space_keeps_its_own_probability() -> None:
    """ "Ġfilm" and "film" are both written film."""
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "good": 1, "Ġfilm": 2, "film": 3}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    model = tiny.model("llama", "causal-lm")
    with torch.no_grad():
        model.lm_head.weight.copy_(0.01 * model.lm_head.weight)
        last = model.model(torch.tensor([[1]])).last_hidden_state[0, -1]
        model.lm_head.weight[2], model.lm_head.weight[3] = 5 * last / last.norm(), 4 * last / last.norm()
        p = model(torch.tensor([[1]])).logits[0, -1].softmax(-1)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    found = wherefrom.explain("good", model, tokenizer, method="saliency")
    assert (found.prediction, found.target.index) == ("film", 2)
    assert found.probabilities["film"] == pytest.approx(float(p[2]), rel=1e-4)


def test_probabilities_of_several_labels_and_of_none() -> None:
    several = tiny.model(problem_type="multi_label_classification")
    logits = output(several, "the film").logits[0]
    found = wherefrom.explain("the film", several, TOKENIZER)
    assert list(found.probabilities.values()) == pytest.approx(torch.sigmoid(logits).tolist(), abs=1e-6)
    assert wherefrom.explain("the film", tiny.model(num_labels=1), TOKENIZER).probabilities == {}


@pytest.mark.parametrize(("position", "row"), [(2, 2), (-1, 4), ("first", 0), ("last", 4)])
def test_a_given_position_is_the_readout_position(position: Any, row: int) -> None:
    found = wherefrom.explain("the good film", tiny.model(), TOKENIZER, position=position)
    assert found.position == row
    assert (found.scores == found.aggregated[-1, row]).all()


def test_position_mean_averages_all_rows() -> None:
    found = wherefrom.explain("the good film", tiny.model(task="encoder"), TOKENIZER, position="mean")
    assert (found.position, found.readout.why, found.prediction) == (None, "mean", None)
    assert found.scores == pytest.approx(found.aggregated[-1].mean(0))


def test_a_gpt2_classifier_reads_its_last_token() -> None:
    model = tiny.model("gpt2")
    found = wherefrom.explain([5, 6, 7], model, method="attention-rollout")
    assert (found.position, found.readout.why) == (2, "last token")
    # It finds the end by its padding token, wherever that stands.
    assert wherefrom.explain([5, 6, 0], model, method="attention-rollout").position == 1


def test_a_word_at_the_mask_is_explained_there() -> None:
    model = tiny.model(task="masked-lm")
    text = "the keys to the cabinets [MASK] good"
    logits = output(model, text).logits[0, 6]
    found = wherefrom.explain(text, model, TOKENIZER)
    assert found.position == 6
    assert found.readout.why == "mask"
    assert found.target.index == int(logits.argmax())
    assert len(found.probabilities) == 10
    asked = wherefrom.explain(text, model, TOKENIZER, target="are", foil="is")
    assert (asked.target.label, asked.target.foil_label) == ("are", "is")
    assert asked.probabilities["are"] == pytest.approx(
        float(logits.softmax(-1)[TOKENIZER.convert_tokens_to_ids("are")])
    )
    assert asked.prediction == found.prediction
    elsewhere = wherefrom.explain(text, model, TOKENIZER, position=2)
    assert elsewhere.position == 2


@pytest.mark.parametrize(
    ("task", "says"),
    [("masked-lm", r"write \[MASK\] for the word"), ("token-classification", "say with position= .* which one")],
)
def test_without_a_mask_or_position_only_a_named_map_method_answers(task: str, says: str) -> None:
    """What was meant is not known, unless a method is named that explains a representation."""
    model = tiny.model(task=task)
    for call in (wherefrom.explain, wherefrom.compare):
        with pytest.raises(wherefrom.WherefromError, match=f"no number to explain: .*{says}"):
            call("the good film", model, TOKENIZER)
    found = wherefrom.explain("the good film", model, TOKENIZER, "alti")
    assert (found.target.kind, found.position) == ("none", 0)
    assert wherefrom.estimate("the good film", model, TOKENIZER).method == "deeplift"


def test_the_next_token_is_explained_at_the_last() -> None:
    model = tiny.model("gpt2", "causal-lm")
    with torch.no_grad():
        logits = model(torch.tensor([[5, 6, 7, 8]])).logits[0]
    found = wherefrom.explain([5, 6, 7, 8], model, method="attcat")
    assert (found.position, found.target.index, found.target.kind) == (3, int(logits[3].argmax()), "token")
    earlier = wherefrom.explain([5, 6, 7, 8], model, position=1, target=9, method="attcat")
    assert (earlier.position, earlier.target.index) == (1, 9)
    assert earlier.probabilities["9"] == pytest.approx(float(logits[1].softmax(-1)[9]), abs=1e-6)


def test_words_and_labels_that_look_alike_are_told_apart() -> None:
    model = tiny.model(id2label={0: "good", 1: "good", 2: "bad"}, label2id={"good": 1, "bad": 2})
    found = wherefrom.explain("the film", model, TOKENIZER, target="all")
    assert list(found) == ["good #0", "good #1", "bad"]
    assert len(found["bad"].probabilities) == 3
    assert sum(found["bad"].probabilities.values()) == pytest.approx(1)
    with pytest.raises(wherefrom.WherefromError, match="same token"):
        wherefrom.explain("the [MASK] film", tiny.model(task="masked-lm"), TOKENIZER, target="cat", foil="cat")


def test_targets_may_be_numbers_of_numpy_and_torch() -> None:
    found = wherefrom.explain("the film", tiny.model(), TOKENIZER, target=np.int64(2))
    assert found.target.index == 2
    assert wherefrom.explain("the film", tiny.model(), TOKENIZER, position=torch.tensor(1)).position == 1


def test_a_regression_predicts_a_number() -> None:
    model = tiny.model(num_labels=1)
    found = wherefrom.explain("the film", model, TOKENIZER)
    assert float(found.prediction) == pytest.approx(float(output(model, "the film").logits[0, 0]), rel=1e-3)


@pytest.mark.parametrize("method", ["ablation", "saliency", "integrated-gradients"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_regression_has_no_probabilities(method: str, count: int) -> None:
    model = tiny.model(num_labels=count, problem_type="regression")
    with pytest.raises(wherefrom.WherefromError, match=r"a regression has no probabilities.*of='logit'"):
        wherefrom.explain("the film", model, TOKENIZER, method=method, of="probability")
    if count > 1:
        with pytest.raises(wherefrom.WherefromError, match="a regression has no probabilities"):
            wherefrom.explain("the film", model, TOKENIZER, method=method, of="probability", target=0, foil=1)
    found = wherefrom.explain("the film", model, TOKENIZER, method=method, of="logit", target=count - 1)
    assert found.probabilities == {}
    expected = float(output(model, "the film").logits[0, count - 1])
    assert float(found.prediction) == pytest.approx(expected, rel=1e-3)
    with pytest.raises(wherefrom.WherefromError, match="a regression has no probabilities"):
        erasure("the film", found, model, TOKENIZER)
    with pytest.raises(
        wherefrom.WherefromError, match="a regression has no probabilities, by which the check measures"
    ):
        next(checks([found], model, TOKENIZER))


def test_a_tagger_explains_the_label_of_the_given_token() -> None:
    model = tiny.model(task="token-classification", **LABELS)
    logits = output(model, "the good film").logits[0]
    found = wherefrom.explain("the good film", model, TOKENIZER, position=2)
    assert (found.position, found.target.index) == (2, int(logits[2].argmax()))
    assert wherefrom.explain("the good film", model, TOKENIZER, position=2, target="bad").target.index == 0


def test_an_answer_is_explained_at_its_start_and_end() -> None:
    model = tiny.model(task="question-answering")
    pair = ("is the film good ?", "the deep film is very good")
    encoding = TOKENIZER(*pair, return_tensors="pt")
    with torch.no_grad():
        scores = model(**encoding)
    start = int(scores.start_logits.argmax())
    end = start + int(scores.end_logits[0, start:].argmax())
    found = wherefrom.explain(pair, model, TOKENIZER)
    assert (found.target.kind, found.position, found.readout.why) == ("start", start, "predicted start")
    assert wherefrom.explain(pair, model, TOKENIZER, target="end").position == end
    assert wherefrom.explain(pair, model, TOKENIZER, target="end", position=3).target.index == 3
    assert next(iter(found.probabilities.values())) == pytest.approx(
        float(scores.start_logits.softmax(-1).max()), abs=1e-6
    )


def test_an_answer_is_named_by_its_words() -> None:
    model = tiny.model(task="question-answering")
    first, last = 4, 5  # meaning ##ful
    opened = open_model(model, TOKENIZER)  # before the hook: the proof reads a shorter text than these logits are for
    model.qa_outputs.register_forward_hook(
        lambda _module, _args, out: 100 * torch.eye(out.shape[1])[[first, last]].T.expand(out.shape)
    )
    found = wherefrom.explain(("Good ?", "Meaningful film ."), opened, method="attention-rollout")
    assert found.tokens[first : last + 1] == ["meaning", "##ful"]
    assert found.prediction == "Meaningful"
    assert found.position == first


def _answered(model: Any, text: str, **asked: Any) -> tuple[Any, Any, Any]:
    opened = open_model(model, TOKENIZER)
    reader = Reader(TOKENIZER, opened.vocabulary_size, opened.pad_id, opened.max_length)
    sentences, _ = reader.read(text)
    with torch.no_grad():
        out = opened.forward(collate(sentences, opened.pad_id))
    return opened, out, ask(opened, sentences[0], out, 0, **asked)


def test_the_explained_number_is_an_entry_of_the_output() -> None:
    opened, out, found = _answered(tiny.model(), "the film", target=2)
    assert logit(opened, out, 0, found) == out.logits[0, 2]
    opened, out, found = _answered(tiny.model(), "the film", target=2, foil=0)
    assert logit(opened, out, 0, found) == out.logits[0, 2] - out.logits[0, 0]
    opened, out, found = _answered(tiny.model(task="masked-lm"), "the [MASK] film", target="cat", foil="dog")
    cat, dog = TOKENIZER.convert_tokens_to_ids(["cat", "dog"])
    assert logit(opened, out, 0, found) == out.logits[0, 2, cat] - out.logits[0, 2, dog]
    opened, out, found = _answered(tiny.model(task="question-answering"), "the film", target="end", position=1)
    assert logit(opened, out, 0, found) == out.end_logits[0, 1]
    opened, out, found = _answered(tiny.model(task="encoder"), "the film")
    with pytest.raises(wherefrom.WherefromError, match="no number to explain"):
        logit(opened, out, 0, found)


def test_a_position_may_be_a_word_of_the_text() -> None:
    model = tiny.model(task="token-classification")
    text = "the meaningful cat sat on the mat"
    found = wherefrom.explain(text, model, TOKENIZER, method="saliency", position="cat")
    assert found.tokens[found.position] == "cat"
    pieces = wherefrom.explain(text, model, TOKENIZER, method="alti", position="Meaningful")
    assert pieces.tokens[pieces.position] == "meaning"  # the first piece, as taggers read words
    assert found.tokens.index("##ful") == wherefrom.explain(text, model, TOKENIZER, "alti", position="##ful").position
    with pytest.raises(wherefrom.WherefromError, match="'the' stands 2 times in the text, at 1, 7; say which one"):
        wherefrom.explain(text, model, TOKENIZER, method="saliency", position="the")
    with pytest.raises(
        wherefrom.WherefromError, match="unknown position 'dog'; expected a token index, a word of the text"
    ):
        wherefrom.explain(text, model, TOKENIZER, method="saliency", position="dog")


def test_a_position_in_the_part_that_was_cut_off() -> None:
    with pytest.raises(wherefrom.WherefromError, match="'zebra' stands behind the 128 tokens that are read; shorten"):
        wherefrom.explain(
            "the cat sat on the mat . " * 30 + "A Zebra.",
            "wherefrom/mlm",
            method="alti",
            position="zebra",
            truncate=True,
        )


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("masked-lm", r"the text has no masked word; write \[MASK\] for the word"),
        ("token-classification", "which one is meant: its index, or the word itself"),
        ("encoder", "predicts nothing; use a model with a head"),
    ],
)
def test_what_is_missing_is_said_of_each_kind_of_model(task: str, said: str) -> None:
    with pytest.raises(wherefrom.WherefromError, match=said):
        wherefrom.explain("the cat sat", tiny.model(task=task), TOKENIZER, method="saliency")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (Target("none", label="'"), 'what "\'" is made of, not towards a class or word'),
        (Target("none", label="film"), "what 'film' is made of, not towards a class or word"),
        (Target("phrase", 1, "don't", foil=2, foil_label="do"), "phrase \"don't\" rather than 'do'"),
        (Target("similarity", label="it's", foil_label='a "b"'), 'similarity to "it\'s" rather than to \'a "b"\''),
        (Target("answer", 1, "of it", end=2), "answer of it"),
    ],
)
def test_quotes_are_none_that_the_label_holds(target: Target, said: str) -> None:
    assert str(target) == said


def test_of_a_vocabulary_all_is_a_word() -> None:
    for model, text in (("wherefrom/lm", "I want to thank you"), ("wherefrom/mlm", "[MASK] of them came .")):
        found = wherefrom.explain(text, model, target="all", method="saliency")
        assert (found.target.kind, found.target.label.strip()) == ("token", "all")
        same = wherefrom.explain(text, model, target=found.target.index, method="saliency")
        assert np.array_equal(found.scores, same.scores)


def test_the_name_of_a_listed_token_is_that_token() -> None:
    """ "##s" and "s" are two tokens of a vocabulary."""
    model = wherefrom.open_model("wherefrom/mlm")
    text = "the keys to the cabinet [MASK] on the table ."
    for name in ("##s", "s", "##ly", "are"):
        found = wherefrom.explain(text, model, method="saliency", target=name)
        assert (found.target.index, found.target.label) == (model.tokenizer.convert_tokens_to_ids(name), name)
    contrast = wherefrom.explain(text, model, method="saliency", target="##s", foil="s").target
    assert (contrast.label, contrast.foil_label) == ("##s", "s")


def test_a_token_may_be_asked_for_as_its_vocabulary_writes_it() -> None:
    model = wherefrom.open_model("wherefrom/lm")
    for name, word in (("\u0120are", " are"), ("\u0120is", "is")):
        found = wherefrom.explain("The keys to the cabinet", model, method="saliency", target=name).target
        assert found.index == model.tokenizer.convert_tokens_to_ids(name)
        assert found == wherefrom.explain("The keys to the cabinet", model, method="saliency", target=word).target
