"""Models of which only embeddings and output are known: architectures without a row, and heads of one's own.

What can be had of them is right by the plainest oracle there is, transformers alone: `inputs_embeds`, `backward()` and
one forward pass per changed text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import tiny
import wherefrom
from wherefrom.errors import UnsupportedModel, WherefromError
from wherefrom.model import traits
from wherefrom.testing import state

SHAPE: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "vocab_size": 60,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "num_labels": 3,
}
# DiffLlama takes one attention from another, ConvBERT mixes by convolutions too: they fit no shape.
CONFIGS: dict[str, dict[str, Any]] = {
    "diffllama": SHAPE,
    "convbert": {**SHAPE, "embedding_size": 24},
}
WITHOUT_BLOCKS = ("ablation", "saliency", "gradient-x-input", "integrated-gradients", "random")
OPTIONS: dict[str, dict[str, Any]] = {
    "ablation": {"by": 4},
    "ablation-pairs": {"by": 4},
    "integrated-gradients": {"baseline": 4},
}
TOKENIZER = tiny.tokenizer()


def model(name: str, task: str = "classification") -> Any:
    """Random far from the initial weights, so that scores are not all alike."""
    torch.manual_seed(0)
    found = tiny.HEADS[task].from_config(transformers.AutoConfig.for_model(name, **CONFIGS[name]))
    with torch.no_grad():
        for weight in found.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    return found.eval()


class Headed(nn.Module):
    """Somebody's classifier over the mean of BERT's last states."""

    def __init__(self, returns: str = "tensor") -> None:
        super().__init__()
        self.encoder = tiny.model(task="encoder")
        self.out = nn.Linear(24, 5)
        self.returns = returns

    def forward(self, input_ids: Any = None, attention_mask: Any = None, inputs_embeds: Any = None) -> Any:
        given = {"inputs_embeds": inputs_embeds} if input_ids is None else {"input_ids": input_ids}
        logits = self.out(self.encoder(**given, attention_mask=attention_mask).last_hidden_state.mean(1))
        return {"logits": logits, "tensor": logits, "tuple": (logits, None), "mapping": {"logits": logits}}[
            self.returns
        ]


def models() -> dict[str, Any]:
    return {**{name: model(name) for name in CONFIGS}, "headed": Headed().eval()}


MODELS = models()


def logits(found: Any, **inputs: Any) -> torch.Tensor:
    output = found(**inputs)
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize("name", MODELS)
def test_ablation_is_one_forward_pass_per_token(name: str) -> None:
    ids = tiny.ids(6, low=5)
    found = wherefrom.explain(ids, MODELS[name], method="ablation", by=4)
    with torch.no_grad():
        p = [
            logits(MODELS[name], input_ids=torch.tensor([each])).softmax(-1)[0]
            for each in (ids, *([*ids[:i], 4, *ids[i + 1 :]] for i in range(6)))
        ]
    best = int(p[0].argmax())
    np.testing.assert_allclose(found.scores, [float(p[0][best] - each[best]) for each in p[1:]], atol=2e-6)
    pairs = wherefrom.explain(ids, MODELS[name], method="ablation-pairs", by=4).maps
    np.testing.assert_allclose(np.diag(pairs[0]), found.scores, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_input_embeddings(name: str) -> None:
    ids = tiny.ids(6, low=5)
    found = MODELS[name]
    inner = found.encoder if name == "headed" else found
    e = inner.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
    y = logits(found, inputs_embeds=e)
    y[0, int(y[0].argmax())].backward()
    expected = {"saliency": e.grad[0].norm(dim=-1), "gradient-x-input": (e.grad * e)[0].sum(-1)}
    for parameter in found.parameters():
        parameter.grad = None
    for method, scores in expected.items():
        mine = wherefrom.explain(ids, found, method=method).scores
        np.testing.assert_allclose(
            mine, scores.detach().numpy(), rtol=2e-4, atol=1e-5 * float(scores.detach().abs().max())
        )


@pytest.mark.parametrize("name", MODELS)
def test_integrated_gradients_sum_to_the_change(name: str) -> None:
    pytest.importorskip("captum", reason="integrated gradients is captum's (extra captum)")
    ids = tiny.ids(6, low=5)
    found = wherefrom.explain(ids, MODELS[name], method="integrated-gradients", baseline=4, n_steps=200)
    with torch.no_grad():
        y, base = (logits(MODELS[name], input_ids=torch.tensor([each]))[0] for each in (ids, [4] * 6))
    change = float((y - base)[found.target.index])
    assert found.scores.sum() == pytest.approx(change, rel=0.05, abs=0.05)


@pytest.mark.parametrize("method", WITHOUT_BLOCKS)
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_gives_what_one_gives_and_the_model_comes_back(name: str, method: str) -> None:
    if method == "integrated-gradients":
        pytest.importorskip("captum", reason="integrated gradients is captum's (extra captum)")
    found, options = MODELS[name], OPTIONS.get(method, {})
    inputs = [tiny.ids(n, seed=n) for n in (5, 3, 5)]
    before = state(found)
    together = wherefrom.explain(inputs, found, method=method, **options)
    assert state(found) == before
    for ids, each in zip(inputs, together, strict=True):
        alone = wherefrom.explain(ids, found, method=method, **options)
        np.testing.assert_allclose(each.scores, alone.scores, rtol=1e-4, atol=1e-6)
    for side in ("left", "right"):
        rows = [[0, 0, *inputs[1]] if side == "left" else [*inputs[1], 0, 0], inputs[0]]
        mask = [[int(token > 0) for token in row] for row in rows]
        padded = wherefrom.explain({"input_ids": rows, "attention_mask": mask}, found, method=method, **options)
        np.testing.assert_allclose(padded[0].scores, together[1].scores, rtol=1e-4, atol=1e-6)


def test_language_models_and_taggers_are_explained() -> None:
    llama, bert = model("diffllama", "causal-lm"), model("convbert", "masked-lm")
    following = wherefrom.explain("the cat is", llama, TOKENIZER, method="ablation", target="good")
    assert following.target.label == "good"
    assert following.readout.position == 4
    masked = wherefrom.explain("the cat [MASK] good", bert, TOKENIZER, method="saliency", target="is", foil="are")
    assert masked.readout.position == 3
    assert (masked.scores > 0).all()
    tagged = wherefrom.explain(tiny.ids(5), model("convbert", "token-classification"), method="saliency", position=2)
    assert tagged.target.kind == "class"
    for method in ("auto", "saliency"):  # what follows blocks is no way out here
        with pytest.raises(WherefromError, match=r"which one is meant: its index, or the word itself$"):
            wherefrom.explain(tiny.ids(5), model("convbert", "token-classification"), method=method)


@pytest.mark.parametrize("returns", ["tensor", "tuple", "mapping"])
def test_a_head_of_ones_own_may_return_its_logits_in_any_wrapping(returns: str) -> None:
    found = wherefrom.explain(tiny.ids(5), Headed(returns), method="ablation", by=4, target="all")
    assert list(found) == [f"LABEL_{i}" for i in range(5)]


def test_a_subclass_with_a_head_of_its_own() -> None:
    class Mine(transformers.BertPreTrainedModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.bert = transformers.BertModel(config)
            self.out = nn.Linear(24, 2)
            self.post_init()

        def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
            return {"logits": self.out(self.bert(input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])}

    found = wherefrom.explain(tiny.ids(5), Mine(transformers.BertConfig(**tiny.SHAPE)), method="saliency")
    assert len(found.scores) == 5
    assert found.prediction in ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("method", [each.name for each in wherefrom.methods() if each.blocks])
def test_methods_that_look_inside_are_refused_by_name(method: str) -> None:
    with pytest.raises(
        WherefromError, match=rf"'{method}' follows a model through its blocks.*'diffllama'.*alone: .*ablation"
    ):
        wherefrom.explain(tiny.ids(4), MODELS["diffllama"], method=method)


def test_what_else_looks_inside_is_refused() -> None:
    for call in (wherefrom.capture, wherefrom.mixing_ratios, wherefrom.estimate):
        with pytest.raises(WherefromError, match="wherefrom does not know for 'diffllama'"):
            call(tiny.ids(4), MODELS["diffllama"])
    pytest.importorskip("captum", reason="integrated gradients is captum's (extra captum)")
    with pytest.raises(WherefromError, match="layer= follows a model through its blocks"):
        wherefrom.explain(tiny.ids(4), MODELS["diffllama"], method="integrated-gradients", baseline=4, layer=0)


def test_modules_without_logits_or_text_are_refused() -> None:
    class Twice(Headed):
        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            first, second = (super(Twice, self).forward(input_ids, attention_mask) for _ in range(2))
            return first - second

    class Nothing(Headed):
        def forward(self, input_ids: Any) -> Any:
            return f"no logits for {len(input_ids)}"

    with pytest.raises(WherefromError, match="embeds its input more than once"):
        wherefrom.explain(tiny.ids(4), Twice(), method="saliency")
    with pytest.raises(WherefromError, match=r"gives no logits.*returned a str"):
        wherefrom.explain(tiny.ids(4), Nothing(), method="saliency")
    vision = transformers.ViTModel(transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(WherefromError, match="given to a model of images"):
        wherefrom.explain(tiny.ids(4), vision, method="saliency")
    both = transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=60)
    with pytest.raises(WherefromError, match="an encoder with a decoder"):
        wherefrom.explain(tiny.ids(4), transformers.T5ForConditionalGeneration(both), method="alti")


def test_a_number_for_each_token_is_no_class() -> None:
    class PerToken(Headed):
        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            return self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state[..., 0]

    electra = transformers.ElectraForPreTraining(transformers.ElectraConfig(**tiny.CONFIGS["electra"]))
    for found in (electra, PerToken()):
        for n in (3, 5):
            with pytest.raises(WherefromError, match=r"one number for each token.*\[1, 3\] for .*three.*\[1, 4\] for"):
                wherefrom.explain(tiny.ids(n), found, method="saliency")


def xlnet() -> Any:
    """Its embeddings are [tokens, texts], and it has no longest text."""
    shape = {"vocab_size": 60, "d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 40, "num_labels": 3}
    return transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**shape, pad_token_id=0))


def longformer() -> Any:
    """It pads its tokens to whole windows of attention."""
    config = transformers.LongformerConfig(**{**SHAPE, "pad_token_id": 1}, attention_window=4)
    return transformers.LongformerForSequenceClassification(config)


@pytest.mark.parametrize("make", [xlnet, longformer])
def test_models_that_embed_otherwise_than_they_are_given(make: Any) -> None:
    """What needs the embedding of each token is refused beforehand, and ablation answers, by itself too."""
    torch.manual_seed(0)
    model = make().eval()
    inputs = [tiny.ids(6), tiny.ids(3), tiny.ids(6, seed=1)]
    found = wherefrom.explain(inputs, model, method="ablation", by=4)
    with torch.no_grad():
        for ids, each in zip(inputs, found, strict=True):
            texts = [ids, *([*ids[:i], 4, *ids[i + 1 :]] for i in range(len(ids)))]
            p = [float(model(torch.tensor([text])).logits.softmax(-1)[0, each.target.index]) for text in texts]
            np.testing.assert_allclose(each.scores, p[0] - np.array(p[1:]), atol=2e-6)
    refused = [each.method for each in wherefrom.doctor(model).methods if each.verdict == "not defined here"]
    for method in ("saliency", "gradient-x-input", "integrated-gradients"):
        assert method in refused
        with pytest.raises(WherefromError, match="embeds tokens in another order, or more of them"):
            wherefrom.explain(inputs[0], model, method=method)
    assert not {"ablation", "ablation-pairs", "context-cite"} & {*refused}
    with pytest.raises(WherefromError, match="and output alone: ") as told:
        wherefrom.explain(inputs[0], model, method="attention-rollout")
    advised = str(told.value).partition("and output alone: ")[2].split(", ")
    assert "ablation" in advised
    assert not {*advised} & {*refused}
    assert wherefrom.explain("a meaningful film .", model, TOKENIZER).method == "ablation"


def test_a_pass_that_embeds_otherwise_than_the_probe_did_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traits, "embeds_otherwise", lambda _: False)
    for method in ("saliency", "integrated-gradients(baseline=4)"):
        with pytest.raises(WherefromError, match=r"order.*\[6, 1\] where \[1, 6\].*without gradients: ablation"):
            wherefrom.explain(tiny.ids(6), xlnet().eval(), method=method)


def test_opened_by_name(tmp_path: Any) -> None:
    MODELS["diffllama"].save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    found = wherefrom.explain("the cat is good", tmp_path, method="gradient-x-input")
    expected = wherefrom.explain("the cat is good", MODELS["diffllama"], TOKENIZER, method="gradient-x-input")
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


def test_gpt2_embeds_its_token_types_by_the_table_of_its_words() -> None:
    """The second use of the table is not the sentence: gradients are taken of the words."""
    model, tokenizer = tiny.model("gpt2", "causal-lm"), tiny.tokenizer()
    given = dict(tokenizer("the film is good", return_tensors="pt"))
    given["token_type_ids"] = torch.tensor([[0, 0, 0, 1, 1, 1]])
    found = wherefrom.explain(given, model, tokenizer, method="saliency", norm="l2")
    found = found[0] if isinstance(found, list) else found
    words = model.get_input_embeddings()(given.pop("input_ids")).detach().requires_grad_()
    model(inputs_embeds=words, **given).logits[0, -1, found.target.index].backward()
    np.testing.assert_allclose(found.scores, words.grad[0].norm(dim=-1).numpy(), rtol=1e-4, atol=1e-6)


def test_an_encoder_without_its_decoder_is_followed_where_it_embeds(tmp_path: Path) -> None:
    """T5's encoder by itself: what `get_input_embeddings` names shares its weight with the module that runs."""
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=60, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4)
    encoder = transformers.T5EncoderModel(config).eval()
    ids = tiny.ids(5)
    found = wherefrom.explain(ids, encoder, method="gradient-x-input", target=3, position=1)
    embedded = encoder.encoder.embed_tokens(torch.tensor([ids])).detach().requires_grad_()
    encoder(inputs_embeds=embedded).last_hidden_state[0, 1, 3].backward()
    assert found.scores == pytest.approx((embedded.grad * embedded)[0].sum(-1).detach().numpy(), abs=1e-5)
    whole = wherefrom.explain(ids, encoder, method="integrated-gradients", target=3, position=1, baseline="zero")
    assert whole.delta == pytest.approx(0, abs=1e-3)
    mean = wherefrom.explain(ids, encoder, method="gradient-x-input", target=3)
    assert mean.readout.why == "mean"
    with pytest.raises(WherefromError, match=r"there is no number to explain: .* predicts nothing"):
        wherefrom.explain(ids, encoder)
    encoder.save_pretrained(tmp_path)
    opened = wherefrom.open_model(str(tmp_path), task="encoder")
    assert type(opened.model).__name__ == "T5EncoderModel"
    again = wherefrom.explain(ids, opened, method="gradient-x-input", target=3, position=1)
    assert again.scores == pytest.approx(found.scores, abs=1e-6)


def test_an_output_without_logits_says_what_it_has() -> None:
    class Scored(Headed):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return {"scores": super().forward(*args, **kwargs), "other": None}

    with pytest.raises(wherefrom.WherefromError, match="the model returned scores, other; expected an output with log"):
        wherefrom.explain(tiny.ids(5), Scored(), method="ablation")


def test_where_gradients_are_taken_of_a_module_of_ones_own_is_noted() -> None:
    for method, noted in (("gradient-x-input", True), ("gradient-x-input(at=word)", False), ("ablation", False)):
        found = wherefrom.explain("the film is good", Headed().eval(), tiny.tokenizer(), method=method)
        assert any("taken at the word embeddings" in each for each in found.notes) == noted
    known = wherefrom.explain("the film is good", tiny.model(), tiny.tokenizer(), method="gradient-x-input")
    assert not known.notes


def test_a_model_that_cannot_run_is_refused_on_opening(tmp_path: Any) -> None:
    config = transformers.XLNetConfig(vocab_size=40, d_model=24, n_layer=2, n_head=4, d_inner=32)
    transformers.XLNetForSequenceClassification(config).save_pretrained(tmp_path)
    model = transformers.XLNetForSequenceClassification.from_pretrained(tmp_path)
    assert wherefrom.open_model(model).task == "classification"
    model.transformer.word_embedding.double()  # as where transformers loads a part of a model in another dtype
    with pytest.raises(wherefrom.WherefromError, match="the model's own forward pass fails, with or without wherefrom"):
        wherefrom.open_model(model)
    assert not wherefrom.doctor(model).opens


def test_what_such_a_model_says_is_explained_too() -> None:
    ids = tiny.ids(5, low=5)
    said = wherefrom.generate(ids, model("diffllama", "causal-lm"), max_new_tokens=3, eos_token_id=None)
    assert said.whole.method == "gradient-x-input"  # no token stands for nothing, which integrated gradients begin at
    again = wherefrom.explain(ids, model("diffllama", "causal-lm"), of="log-probability", target=said.ids[5])
    np.testing.assert_allclose(said[0].scores, again.scores, atol=1e-6)


def test_a_decoder_that_may_see_pictures_says_the_next_word() -> None:
    """LLaVA is called …ForConditionalGeneration, as encoders with a decoder are."""
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    text = transformers.LlamaConfig(**small, vocab_size=60, pad_token_id=0, bos_token_id=2, eos_token_id=3)
    image = transformers.CLIPVisionConfig(**small, image_size=32, patch_size=16)
    config = transformers.LlavaConfig(text_config=text, vision_config=image, image_token_index=59)
    torch.manual_seed(0)
    opened = wherefrom.open_model(transformers.LlavaForConditionalGeneration(config).eval(), tiny.tokenizer())
    assert opened.task == "causal-lm"
    phrase = wherefrom.explain("a good film", opened, method="gradient-x-input", target="good film").target
    assert (phrase.kind, len(phrase.tokens)) == ("phrase", 2)


def test_a_row_that_does_not_fit_leaves_what_needs_no_blocks() -> None:
    """Granite's hybrid with Mamba layers, which its row does not know: like a type without a row."""
    model = tiny.model(
        "granitemoehybrid",
        "causal-lm",
        layer_types=["attention", "mamba", "attention"],
        mamba_n_heads=4,
        mamba_d_state=8,
        mamba_n_groups=1,
        shared_intermediate_size=20,
    )
    opened = wherefrom.open_model(model, tiny.tokenizer())
    assert not opened.family.mapped
    found = wherefrom.doctor(opened)
    assert found.opens
    assert "self_attn" in str(found.why_not)
    suited = {each.method for each in found.methods if each.verdict != "not defined here"}
    assert {"gradient-x-input", "integrated-gradients", "ablation", "saliency", "context-cite"} <= suited
    ids = torch.tensor([tiny.ids(6)])
    words = model.get_input_embeddings()(ids).detach().requires_grad_()
    logit = model(inputs_embeds=words).logits[0, -1].max()
    expected = (words * torch.autograd.grad(logit, words)[0]).sum(-1)[0]
    scores = wherefrom.explain(ids[0].tolist(), opened, method="gradient-x-input").scores
    np.testing.assert_allclose(scores, expected.detach().numpy(), atol=1e-5)
    with pytest.raises(UnsupportedModel) as error:
        wherefrom.explain(ids[0].tolist(), opened, method="alti")
    assert str(error.value).count("CONTRIBUTING") == 0


def test_a_module_between_blocks_is_named_and_no_map_is_made() -> None:
    """The convolution of DeBERTa-v2, which the larger ones have after their first block."""
    opened = wherefrom.open_model(tiny.model("deberta-v2", conv_kernel_size=3), tiny.tokenizer())
    for method in ("alti", "attention-rollout", "decompx"):
        with pytest.raises(UnsupportedModel) as error:
            wherefrom.explain("the cat is good", opened, method=method)
        assert "encoder.conv (ConvLayer)" in str(error.value)
    doctor = wherefrom.doctor(opened)
    assert {each.method for each in doctor.methods if each.verdict == "not defined here"} >= {"alti", "decompx"}
    assert wherefrom.open_model(tiny.model("deberta-v2"), tiny.tokenizer()).family.mapped


def test_a_change_of_the_stream_between_blocks_is_found() -> None:
    """By a hook on what runs before the next block: the blocks by themselves are as they should be."""
    model = tiny.model()
    wherefrom.open_model(model, tiny.tokenizer())
    model.bert.encoder.layer[1].register_forward_pre_hook(lambda _, args: (args[0] * 1.5, *args[1:]))
    with pytest.raises(UnsupportedModel) as error:
        wherefrom.open_model(model, tiny.tokenizer())
    assert "between block 0 and block 1" in str(error.value)
