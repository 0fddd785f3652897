"""What cannot be answered rightly is refused, with a sentence that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import pairs
import tiny
import wherefrom
from wherefrom.errors import WherefromError, WherefromWarning

TOKENIZER = tiny.tokenizer()


def refused(match: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(WherefromError, match=match):
        wherefrom.explain(*args, **kwargs)


def test_a_misspelt_argument_is_refused() -> None:
    model = tiny.model()
    refused(r"explain has no argument 'metod'; did you mean 'method'\?", "the cat", model, TOKENIZER, metod="alti")
    refused(r"no option 'n_step'; did you mean 'n_steps'\?", "a", model, TOKENIZER, "integrated-gradients", n_step=3)
    refused("no option 'xyzzy'; its options", "the cat", model, TOKENIZER, "attcat", xyzzy=1)
    with pytest.raises(WherefromError, match=r"estimate has no argument 'aggregat'; did you mean 'aggregate'\?"):
        wherefrom.estimate("the cat", model, TOKENIZER, aggregat="flow")
    with pytest.raises(TypeError, match=r"compare has no argument 'method'; did you mean 'methods'\?"):
        wherefrom.compare("the cat", model, TOKENIZER, method="alti")  # type: ignore[call-arg]


def test_a_misspelt_argument_of_the_tokenizer_is_refused() -> None:
    meant = r"tokenizer_kwargs has 'is_split_into_word'; did you mean 'is_split_into_words'\?"
    refused(meant, ["the", "cat"], tiny.model(), TOKENIZER, tokenizer_kwargs={"is_split_into_word": True})
    wherefrom.explain("the cat", tiny.model(), TOKENIZER, tokenizer_kwargs={"split_special_tokens": True})


def test_a_class_is_no_similarity() -> None:
    target = wherefrom.similarity("a dog")
    refused("similarity to 'a dog' is of a sentence embedder", "the cat", tiny.model(), TOKENIZER, target=target)
    for model in (tiny.model("gpt2", "causal-lm"), tiny.model("bert", "masked-lm"), pairs.model("bart")):
        refused("similarity to 'a dog' is of a sentence embedder", "the [MASK]", model, TOKENIZER, target=target)


def test_an_architecture_that_fits_no_shape_is_refused() -> None:
    config = transformers.AutoConfig.for_model("bitnet", **{**tiny.GROUPED, "head_dim": 6})
    model = transformers.AutoModel.from_config(config)
    refused(
        r"does not know for 'bitnet' .*\. Taken for the shape that comes nearest, block . rebuilt .*: off by \d",
        [5, 6],
        model,
        method="alti",
    )


def test_remote_code_is_refused() -> None:
    cls = type("Custom", (transformers.BertModel,), {"__module__": "transformers_modules.somebody.modeling"})
    refused("remote code", [5, 6], cls(transformers.BertConfig(**tiny.SHAPE)))


def test_a_model_with_other_parts_than_its_family_is_refused() -> None:
    model = tiny.model("bert")
    model.bert.encoder.layer[1].output = torch.nn.Identity()
    refused("own forward pass fails", [5, 6], model)


def test_a_block_that_goes_around_its_parts_is_refused() -> None:
    model = tiny.model("bert")
    layer = model.bert.encoder.layer[0]
    layer.forward = lambda hidden, *_, **__: hidden
    refused("did not pass through", [5, 6], model)


def test_cross_attention_is_refused() -> None:
    model = transformers.BertModel(transformers.BertConfig(**tiny.SHAPE, is_decoder=True, add_cross_attention=True))
    refused("cross-attention", [5, 6], model)


def test_heads_that_are_not_known_are_refused() -> None:
    model = transformers.BertForNextSentencePrediction(transformers.BertConfig(**tiny.SHAPE))
    refused("does not know for 'BertForNextSentencePrediction'", [5, 6], model, method="alti")


def test_what_is_not_a_model_is_refused() -> None:
    refused("model is a Linear", [5, 6], torch.nn.Linear(2, 2))


def test_options_that_a_loaded_model_cannot_take_are_refused() -> None:
    refused("device and dtype cannot be given with a loaded model", [5], tiny.model(), device="cpu", dtype="float64")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("part", ["bert.encoder.layer.1.attention.self.query.weight", "classifier.weight"])
def test_broken_weights_are_refused(part: str, value: float) -> None:
    model = tiny.model()
    with torch.no_grad():
        model.get_parameter(part)[0, 0] = value
    refused(f"NaN or infinite values \\({part}\\)", [5, 6], model)


@pytest.mark.parametrize(("dtype", "finer"), [(torch.float16, "float32"), (torch.float32, "float64")])
def test_an_output_that_overflows_is_refused(dtype: torch.dtype, finer: str) -> None:
    model = tiny.model(dtype=dtype)
    with torch.no_grad():
        model.classifier.weight.fill_(0.9 * torch.finfo(dtype).max)
        model.bert.pooler.dense.bias.fill_(100)
    refused(f"although its weights are finite.*try dtype='{finer}'", [5, 6], model)


@pytest.mark.parametrize("text", ["", "  \n", ("the cat", " "), ["the cat", ""]])
def test_empty_text_is_refused(text: Any) -> None:
    refused("(input 1: )?the (second )?text is empty", text, tiny.model(), TOKENIZER)


def test_text_without_tokens_is_refused() -> None:
    refused("no tokens of", "\u200b\u00ad", tiny.model(), TOKENIZER)


@pytest.mark.parametrize("ids", [[], torch.tensor([]), [[5], []], {"input_ids": []}])
def test_an_empty_list_of_ids_is_refused(ids: Any) -> None:
    refused("(input 1: )?(the list of token ids|the list of inputs|nothing to explain)", ids, tiny.model())


def test_a_text_too_long_is_refused() -> None:
    refused("42 tokens but the model reads at most 40.*truncate", "cat " * 40, tiny.model(), TOKENIZER)
    refused("41 tokens but the model reads at most 40", tiny.ids(41), tiny.model())
    # RoBERTa's positions start after its padding index, here 1: two of its 40 are never used.
    refused("39 tokens but the model reads at most 38", tiny.ids(39), tiny.model("roberta"))
    assert len(wherefrom.explain(tiny.ids(38), tiny.model("roberta"), method="attention-rollout")) == 38
    assert len(wherefrom.explain(tiny.ids(40), tiny.model("gpt2"), method="attention-rollout")) == 40


def test_truncate_cuts_a_long_text() -> None:
    found = wherefrom.explain("cat " * 50, tiny.model(), TOKENIZER, truncate=True)
    assert len(found) == 40
    assert found.tokens[-1] == "[SEP]"


def test_wrong_attention_masks_are_refused() -> None:
    model = tiny.model()
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    refused("hides every token", {"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])}, model)
    refused("other than 0 and 1", {"input_ids": ids, "attention_mask": torch.full((2, 3), 2)}, model)
    refused("more axes than input_ids", {"input_ids": ids, "attention_mask": torch.ones(2, 3, 3)}, model)
    refused("does not fit input_ids", {"input_ids": ids, "attention_mask": torch.ones(2, 2)}, model)
    refused("does not fit input_ids", {"input_ids": [[5, 6, 7]], "attention_mask": torch.ones(1, 1, 3, 3)}, model)
    refused("no input_ids", {"inputs": ids}, model)


def test_padding_without_a_mask_is_noticed() -> None:
    with pytest.warns(WherefromWarning, match="padding"):
        wherefrom.explain(torch.tensor([[5, 6, 7], [8, 9, 0]]), tiny.model(), method="attention-rollout")


@pytest.mark.parametrize("inputs", [5, None, 3.5, [["a", "b", "c"]], [[["the"]]], object(), [5, 6.5]])
def test_inputs_of_no_known_kind_are_refused(inputs: Any) -> None:
    refused("cannot read inputs|is itself a list|tokens", inputs, tiny.model(), TOKENIZER)


def test_more_wrong_inputs_and_arguments_are_refused() -> None:
    refused("0 axes; expected one", torch.tensor(5), tiny.model())
    refused("surrogate", "bad \ud800 text", tiny.model(), TOKENIZER)
    refused("position_ids are not supported", {"input_ids": [5, 6], "position_ids": [1, 2]}, tiny.model())
    refused("batch_size='a'; expected a whole number, at least 1", [5, 6], tiny.model(), batch_size="a")
    refused("unknown target '²'", [5, 6], tiny.model(), target="²")
    refused("leave the foil out", [5, 6], tiny.model(), target="all", foil=1)
    refused("the model has no other; leave foil out", [5, 6], tiny.model(num_labels=1), foil=0)
    refused("attcat follows the logit", [5, 6], tiny.model(), method="attcat", position=1)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    refused("token id 60 is outside the model's vocabulary of 60", [5, 60], tiny.model())
    refused("token id -1 is outside", [5, -1], tiny.model())


def test_text_without_a_tokenizer_is_refused() -> None:
    refused("no tokenizer", "the cat", tiny.model())


def test_tokenizer_arguments_that_belong_to_wherefrom_are_refused() -> None:
    def said(sentence: str, **options: object) -> None:
        refused(sentence, "the cat", tiny.model(), TOKENIZER, tokenizer_kwargs=options)

    said("may not set padding", padding=True)
    said(r"may not set text_pair.*a pair is one input: \(text, pair\)", text_pair="hi")
    said("may not set return_overflowing_tokens.*long='windows'", return_overflowing_tokens=True)
    said("cuts long texts: give it beside truncate=True", max_length=3)


def test_a_mask_that_is_cut_off_is_missed() -> None:
    text = "the cat " * 40 + "[MASK]"
    with pytest.raises(wherefrom.errors.InvalidInput, match=r"\[MASK\] stands behind the 40 tokens that are read"):
        wherefrom.explain(text, tiny.model(task="masked-lm"), TOKENIZER, truncate=True)
    assert len(wherefrom.explain(text, tiny.model(), TOKENIZER, truncate=True)) == 40  # a classifier fills in nothing


def test_a_length_of_ones_own_cuts_where_cutting_was_asked_for() -> None:
    def cut(n: object) -> wherefrom.Explanation:
        return wherefrom.explain(
            "the cat " * 40, tiny.model(), TOKENIZER, truncate=True, tokenizer_kwargs={"max_length": n}
        )

    assert len(cut(5)) == 5
    assert "are left out" in cut(5).remarks[0]
    assert len(cut(1000)) == wherefrom.open_model(tiny.model()).max_length  # never more than the model reads
    for n in (0, 1, 2, "5", None):
        with pytest.raises(wherefrom.errors.InvalidOption, match="expected a number of tokens from 3 up"):
            cut(n)


def test_unknown_methods_options_and_heads_are_refused() -> None:
    misspelt = "unknown method 'atention'; did you mean 'attention'.*`wherefrom methods` lists them all$"  # not the 42
    refused(misspelt, [5, 6], tiny.model(), method="atention")
    refused("unknown method 'xyzzy'; expected one of .*alti", [5, 6], tiny.model(), method="xyzzy")
    refused("unknown method 7", [5, 6], tiny.model(), method=7)
    refused("no option 'metric'; its options: none", [5, 6], tiny.model(), method="attention", metric="l1")
    refused("unknown aggregation 'average'", [5, 6], tiny.model(), aggregate="average")
    refused("head 4 is outside the model's 4 heads", [5, 6], tiny.model(), method="attention", head=4)
    refused(
        "head='first'; expected 'all', a whole number or None", [5, 6], tiny.model(), method="attention", head="first"
    )
    with pytest.raises(WherefromError, match="named twice"):
        wherefrom.compare([5, 6], tiny.model(), methods=["attention", "attention"])
    with pytest.raises(WherefromError, match="'globenc' and 'N_Enc' are both globenc"):
        wherefrom.compare([5, 6], tiny.model(), methods=["globenc", "N_Enc"])
    with pytest.raises(WherefromError, match="no methods"):
        wherefrom.compare([5, 6], tiny.model(), methods=[])


def test_unknown_targets_are_refused() -> None:
    refused("unknown target 'happy'; the classes of this model are 0 'LABEL_0'", [5, 6], tiny.model(), target="happy")
    refused("unknown target 3", [5, 6], tiny.model(), target=3)
    refused("unknown target -1", [5, 6], tiny.model(), target=-1)
    refused("target=True; expected a whole number, a word or None", [5, 6], tiny.model(), target=True)
    refused("same class", [5, 6], tiny.model(), target=1, foil="LABEL_1")
    refused("bare encoder", [5, 6], tiny.model(task="encoder"), target="film", method="attcat")
    refused("position 6 is outside the sentence of 2 tokens", [5, 6], tiny.model(), position=6)
    refused("unknown position 'middle'", [5, 6], tiny.model(), position="middle")
    refused("2 entries in target for 3 inputs", [[5, 6]] * 3, tiny.model(), target=[0, 1])
    refused("batch_size=0", [5, 6], tiny.model(), batch_size=0)


def test_words_that_cannot_stand_at_a_mask_are_refused() -> None:
    model = tiny.model(task="masked-lm")
    refused("'meaningful' is not one token .* meaning ##ful", "the [MASK] film", model, TOKENIZER, target="meaningful")
    refused("'xyz' is not one token", "the [MASK] film", model, TOKENIZER, target="xyz")
    refused("has no mask token", "the good film", model, TOKENIZER, target="good")
    refused("has 2 mask tokens", "the [MASK] [MASK]", model, TOKENIZER)
    refused("no tokenizer", [5, 6], model, target="good", position=1)
    refused("outside the vocabulary", [5, 6], model, target=99, position=1)
    refused("means nothing here", "the [MASK] film", model, TOKENIZER, position="mean")


def test_questions_that_taggers_and_answers_cannot_have_are_refused() -> None:
    refused("say which token", [5, 6], tiny.model(task="token-classification"), target=1)
    refused("means nothing here", [5, 6], tiny.model(task="token-classification"), position="mean")
    refused("expected one of start, end, answer", [5, 6], tiny.model(task="question-answering"), target="middle")
    refused("has no foil", [5, 6], tiny.model(task="question-answering"), foil="end")


def test_names_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    refused("cannot open the model .*expected a shipped model: wherefrom/", "text", str(tmp_path / "nothing"))
    for nowhere in ("path/to/another", "./nothing", str(tmp_path / "nothing")):  # the Hub would talk of its repo ids
        refused("there is no such folder, and it is no name on the Hub", "text", nowhere)
    refused("no shipped model is called 'wherefrom/nothing'", "text", "wherefrom/nothing")
    refused("unknown dtype 'float31'", "text", str(tmp_path), dtype="float31")
    refused("unknown task 'tagging'", "text", str(tmp_path), task="tagging")
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    refused("cannot open the model", "text", str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    refused("cannot open the model", "text", str(tmp_path))


def test_a_text_where_a_name_belongs_is_refused_however_long() -> None:
    """Asked about a file of such a name, the system itself fails."""
    text = "a long text of many words " * 60
    refused("it is no name on the Hub; it looks like a text", "wherefrom/sentiment", text)
    refused("there is no file 'a long text", text, "wherefrom/picture")
    for read in (wherefrom.data.read, wherefrom.Explanation.load):
        with pytest.raises(wherefrom.WherefromError, match="there is no"):
            read(text)
    with pytest.raises(wherefrom.WherefromError, match="it looks like a text"):
        wherefrom.doctor(text)


def test_every_method_advised_for_a_target_takes_it() -> None:
    model = wherefrom.open_model(tiny.model(task="encoder"), TOKENIZER)
    asked = {"target": wherefrom.similarity("the dog"), "position": "mean"}
    with pytest.raises(wherefrom.WherefromError, match="looks at them: ") as told:
        wherefrom.explain("the cat is good", model, method="alti", **asked)
    advised = str(told.value).partition("looks at them: ")[2].split(", ")
    assert {"cp-lrp", "saliency"} <= {*advised}
    for method in advised:
        assert wherefrom.explain("the cat is good", model, method=method, **asked).prediction


def test_a_task_that_the_architecture_has_not_is_refused() -> None:
    refused("no marian for classification; leave task= out", "text", "wherefrom/translate", task="classification")
    with pytest.raises(wherefrom.WherefromError, match=r"open it with the head it was trained with \(task=\)$"):
        wherefrom.open_model("wherefrom/translate", task="encoder")  # to which "as a bare encoder" is no advice


def test_a_head_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    tiny.model(task="encoder").save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    refused(
        "no weights for classifier.bias, classifier.weight, which would be random",
        "the cat",
        tmp_path,
        task="classification",
    )
    assert wherefrom.explain("the cat", tmp_path).target.kind == "none"


def test_question_answering_by_a_beam_is_refused_and_the_simple_one_opens() -> None:
    config = transformers.XLMConfig(vocab_size=60, emb_dim=24, n_layers=2, n_heads=4)
    pair = ("is it good ?", "the film is good")
    beam, simple = (
        kind(config).eval()
        for kind in (transformers.XLMForQuestionAnswering, transformers.XLMForQuestionAnsweringSimple)
    )
    refused("by a beam .*XLMForQuestionAnsweringSimple, or by AutoModelForQuestionAnswering", pair, beam, TOKENIZER)
    assert wherefrom.explain(pair, simple, TOKENIZER, method="saliency").target.kind == "start"


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA; the test is about machines without it")
    tiny.model().save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    refused("cannot use the device 'cuda'", "the cat", str(tmp_path), device="cuda")


@pytest.mark.parametrize(
    ("saved", "asked"), [("classification", "token-classification"), ("token-classification", "classification")]
)
def test_a_head_over_the_text_is_none_over_its_tokens(tmp_path: Path, saved: str, asked: str) -> None:
    """Their weights have the same names and shapes."""
    tiny.model(task=saved).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    refused(f"its head was trained for {saved} and not for {asked}; leave task= out", "the cat", tmp_path, task=asked)
    assert wherefrom.open_model(str(tmp_path)).task == saved
