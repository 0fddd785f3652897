"""Models whose own forward pass changes them, or fails: they come back as they were, and what fails says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import Unsuited, UnsupportedModel

IDS = [2, *range(5, 17), 3]


def rwkv() -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "vocab_size": 60, "context_length": 64, "rescale_every": 1}
    return transformers.RwkvForCausalLM(transformers.RwkvConfig(**shape)).eval()


def recurrent_gemma() -> Any:
    torch.manual_seed(0)
    shape = {**tiny.GROUPED, "block_types": ["recurrent", "attention"], "lru_width": 24, "attention_window_size": 8}
    return transformers.RecurrentGemmaForCausalLM(transformers.RecurrentGemmaConfig(**shape)).eval()


def written(model: Any) -> list[Any]:
    """What is written on the modules beside their parts, and the weights."""
    plain = (bool, int, float, str, type(None), torch.Tensor)
    own = [{name: value for name, value in vars(part).items() if isinstance(value, plain)} for part in model.modules()]
    return [*own, *(weight.detach().clone() for weight in model.parameters())]


@pytest.mark.parametrize("make", [rwkv, recurrent_gemma])
@pytest.mark.parametrize("training", [False, True])
def test_what_a_pass_writes_on_the_model_is_gone(make: Any, training: bool) -> None:
    model = make().train(training)
    before = written(model)
    found = wherefrom.explain(IDS, model, method="gradient-x-input")
    for one, other in zip(written(model), before, strict=True):
        assert one.keys() == other.keys() if isinstance(one, dict) else torch.equal(one, other)
        if isinstance(one, dict):
            assert all(one[name] is other[name] or one[name] == other[name] for name in one)
    with torch.no_grad():
        own = model.eval()(input_ids=torch.tensor([IDS])).logits[0, -1].softmax(-1)
    assert max(found.probabilities.values()) == pytest.approx(float(own.max()), abs=1e-4)


def test_a_model_that_cannot_be_gone_back_through_is_explained_by_forward_passes() -> None:
    """Reformer asserts that it is in training."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 24, "num_attention_heads": 2, "attention_head_size": 12, "vocab_size": 60}
    places = {"axial_pos_embds": False, "max_position_embeddings": 64, "attn_layers": ["local"]}
    config = transformers.ReformerConfig(**shape, **places, feed_forward_size=16, is_decoder=False, pad_token_id=0)
    model = transformers.ReformerForSequenceClassification(config).eval()
    with pytest.raises(Unsuited, match="own code does not take but in training; choose a method that is: ablation"):
        wherefrom.explain("a good film", model, tiny.tokenizer(), method="saliency")
    assert wherefrom.explain("a good film", model, tiny.tokenizer()).method == "ablation"
    verdicts = {each.method: each.verdict for each in wherefrom.doctor(model, tiny.tokenizer()).methods}
    assert (verdicts["saliency"], verdicts["ablation"]) == ("not defined here", "exact and fast")


def test_a_second_stream_beside_the_tokens_is_not_followed() -> None:
    """LiLT's embeddings come with positions, and its blocks pass on layouts."""
    shape = {**tiny.SHAPE, "hidden_size": 48}
    torch.manual_seed(0)
    model = transformers.LiltForSequenceClassification(transformers.LiltConfig(**shape, initializer_range=0.5)).eval()
    opened = wherefrom.open_model(model, tiny.tokenizer())
    assert not opened.family.mapped
    ids = torch.tensor([opened.tokenizer("a good film")["input_ids"]])
    words = model.get_input_embeddings()(ids).detach().requires_grad_()
    found = wherefrom.explain("a good film", opened, method="gradient-x-input", at="word")
    model(inputs_embeds=words).logits[0, found.target.index].backward()
    torch.testing.assert_close(torch.tensor(found.scores).double(), (words * words.grad).sum(-1)[0].detach().double())
    for method in ("saliency", "integrated-gradients", "ablation", "context-cite"):
        assert len(wherefrom.explain("a good film", opened, method=method)) == ids.shape[1]


def test_what_fails_in_the_own_code_of_a_model_is_said_in_a_sentence() -> None:
    """Funnel pools tokens two by two, and reads no single one."""
    shape = {"vocab_size": 60, "d_model": 24, "n_head": 4, "d_head": 6, "d_inner": 40, "block_sizes": [1, 1]}
    torch.manual_seed(0)
    model = transformers.FunnelForSequenceClassification(transformers.FunnelConfig(**shape)).eval()
    with pytest.raises(
        Unsuited, match=r"does not read this text: the model's own code \(models.funnel.modeling_funnel\)"
    ):
        wherefrom.explain([5], model, method="gradient-x-input")
    with pytest.raises(Unsuited, match="'context-cite' has no value here: the model's own code"):
        wherefrom.explain(IDS[1:-1], model, tiny.tokenizer(), method="context-cite")


@pytest.mark.parametrize("kind", ["CanineForSequenceClassification", "Wav2Vec2ForSequenceClassification"])
def test_a_model_without_a_table_of_tokens_is_refused(kind: str) -> None:
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
    more = {"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (3,), "num_conv_pos_embeddings": 4}
    made = getattr(transformers, kind)
    sounds = {**more, "num_conv_pos_embedding_groups": 2} if kind.startswith("Wav") else {}
    with pytest.raises(UnsupportedModel, match=f"{kind} has no embeddings of tokens"):
        wherefrom.open_model(made(made.config_class(**small, **sounds)))


class Normed(torch.nn.Module):
    """Somebody's own head, which draws and keeps statistics in training."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.norm = tiny.model("bert", "encoder"), torch.nn.BatchNorm1d(tiny.SHAPE["hidden_size"])
        self.drop, self.vote = torch.nn.Dropout(0.5), torch.nn.Linear(tiny.SHAPE["hidden_size"], 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
        scores: torch.Tensor = self.vote(self.drop(self.norm(states.transpose(1, 2))).mean(2))
        return scores


def xlnet() -> Any:
    """One whose blocks are not known, with such statistics in its head."""
    shape = {"vocab_size": 60, "d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 40, "num_labels": 3}
    model: Any = transformers.XLNetForSequenceClassification(transformers.XLNetConfig(**shape))
    model.logits_proj = torch.nn.Sequential(torch.nn.BatchNorm1d(24), torch.nn.Linear(24, 3))
    return model


@pytest.mark.parametrize("make", [Normed, xlnet])
def test_nothing_is_drawn_or_counted_in_training_mode(make: Any) -> None:
    model = make().train()
    before, drawn = {name: each.clone() for name, each in model.named_buffers()}, torch.get_rng_state()
    wherefrom.explain(IDS, model, tiny.tokenizer(), method="ablation")
    wherefrom.doctor(model, tiny.tokenizer())
    assert all(torch.equal(each, before[name]) for name, each in model.named_buffers())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(part.training for part in model.modules())
