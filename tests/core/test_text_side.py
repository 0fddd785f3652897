"""Models that read pictures beside texts (Gemma 3, LLaVA, Qwen-VL): on texts, what their language model gives alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import NotDefined, UnsupportedModel
from wherefrom.testing import refuse_changes, state

TEXT: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
PICTURE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 28,
    "patch_size": 14,
}
IDS = tiny.ids(7, high=57)  # without the placeholders


def whole(kind: str) -> Any:
    """A tiny model of texts and pictures, with random weights everywhere."""
    if kind == "gemma3":
        texts: Any = transformers.Gemma3TextConfig(**TEXT, sliding_window=4, bos_token_id=2)
        marks = {"image_token_index": 59, "boi_token_index": 58, "eoi_token_index": 57}
        config: Any = transformers.Gemma3Config(
            text_config=texts.to_dict(), vision_config=PICTURE, mm_tokens_per_image=4, **marks
        )
        made: Any = transformers.Gemma3ForConditionalGeneration
    elif kind == "qwen3_vl":
        turned = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
        seen = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32}
        config = transformers.Qwen3VLConfig(
            text_config={**TEXT, "rope_parameters": turned}, vision_config={**seen, "deepstack_visual_indexes": []}
        )
        made = transformers.Qwen3VLForConditionalGeneration
    else:
        one = transformers.LlamaConfig(**TEXT) if kind == "llava" else transformers.GemmaConfig(**TEXT)
        marks = {"image_token_index": 59} if kind == "llava" else {"image_token_index": 59, "projection_dim": 32}
        name = {"llava": "Llava", "paligemma": "PaliGemma"}[kind]
        of_pictures = transformers.CLIPVisionConfig if kind == "llava" else transformers.SiglipVisionConfig
        config = getattr(transformers, f"{name}Config")(text_config=one, vision_config=of_pictures(**PICTURE), **marks)
        made = getattr(transformers, f"{name}ForConditionalGeneration")
    torch.manual_seed(0)
    model = made(config).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model


def alone(model: Any) -> Any:
    """Its language model, as transformers has it by itself."""
    side = model.model.language_model
    made = {"gemma3_text": transformers.Gemma3ForCausalLM, "llama": transformers.LlamaForCausalLM}
    found = made[side.config.model_type](side.config).double().eval()
    found.model.load_state_dict(side.state_dict())
    found.lm_head.load_state_dict(model.lm_head.state_dict())
    return found


@pytest.mark.parametrize("kind", ["gemma3", "llava"])
def test_every_method_gives_what_the_language_model_gives_alone(kind: str) -> None:
    model = whole(kind)
    before = state(model)
    ours, theirs = wherefrom.open_model(model), wherefrom.open_model(alone(model))
    assert (ours.family, ours.depth, ours.max_length) == (theirs.family, theirs.depth, theirs.max_length)
    defined = 0
    for each in (*wherefrom.methods(), *wherefrom.presets()):
        asked: dict[str, Any] = {"target": 9} if getattr(each, "class_specific", False) else {}
        if "baseline" in getattr(each, "options", {}):
            asked["baseline"] = 3
        try:
            wanted = wherefrom.explain(IDS, theirs, method=each.name, **asked)
        except NotDefined:
            with pytest.raises(NotDefined):
                wherefrom.explain(IDS, ours, method=each.name, **asked)
            continue
        found = wherefrom.explain(IDS, ours, method=each.name, **asked)
        scale = np.abs(wanted.scores).max()
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-9 * scale, rtol=0, err_msg=each.name)
        defined += 1
    assert defined > 30
    refuse_changes(before, state(model), kind)


MORE = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
LLAMA, QWEN = ({"model_type": kind, **TEXT, **MORE} for kind in ("llama", "qwen2"))
SAM = {**PICTURE, "mlp_dim": 16, "output_channels": 16, "window_size": 2, "global_attn_indexes": [0]}


def other_norms(kind: str) -> Any:
    """A tiny model whose tower for pictures or sounds has norms of other kinds."""
    if kind == "janus":  # GroupNorm
        channels = {"base_channels": 32, "latent_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1}
        drawn = {**channels, "embed_dim": 4, "num_embeddings": 8, "projection_dim": 32, "image_token_embed_dim": 32}
        seen = {**PICTURE, "projection_dim": 32, "mlp_ratio": 2.0, "num_image_tokens": 4}
        config: Any = transformers.JanusConfig(
            text_config=LLAMA, vision_config=seen, vq_config=drawn, image_token_id=59
        )
        made: Any = transformers.JanusForConditionalGeneration
    elif kind == "granite_speech":  # BatchNorm1d
        heard = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "dim_head": 8, "input_dim": 8, "output_dim": 8}
        config = transformers.GraniteSpeechConfig(
            text_config={**LLAMA, "model_type": "granite"},
            encoder_config={**heard, "context_size": 8, "max_pos_emb": 8},
            projector_config={"model_type": "blip_2_qformer", **PICTURE, "encoder_hidden_size": 16},
            audio_token_index=59,
            has_lora_adapter=False,
        )
        made = transformers.GraniteSpeechForConditionalGeneration
    elif kind == "got_ocr2":  # a LayerNorm of channels
        config = transformers.GotOcr2Config(text_config=QWEN, vision_config=SAM, image_token_index=59)
        made = transformers.GotOcr2ForConditionalGeneration
    else:
        heard = {"hidden_size": 16, "intermediate_size": 16, "num_blocks": 1, "num_attention_heads": 2, "input_size": 8}
        config = transformers.Phi4MultimodalConfig(
            **{**TEXT, **MORE},
            vision_config={**PICTURE, "crop_size": 28, "image_token_id": 59},
            audio_config={**heard, "ext_pw_out_channel": 16, "nemo_conv_channels": 16, "audio_token_id": 58},
        )
        made = transformers.Phi4MultimodalForCausalLM
    torch.manual_seed(0)
    return made(config).eval()


@pytest.mark.parametrize("kind", ["janus", "granite_speech", "got_ocr2", "phi4_multimodal"])
def test_norms_that_a_text_never_reaches_do_not_stop_relevance(kind: str) -> None:
    """Equal to gradient x input of the model whose norms' scales and activations' ratios are constants."""
    model = other_norms(kind)
    opened = wherefrom.open_model(model)
    relevance, taken = (
        wherefrom.explain(IDS, opened, method=name, target=9) for name in ("cp-lrp", "decompx(bias=none, gate=gate)")
    )
    np.testing.assert_allclose(relevance.scores, taken.scores, atol=1e-5 * np.abs(taken.scores).max())
    assert len(wherefrom.explain(IDS, opened, method="attn-lrp", target=9)) == len(IDS)


def test_a_norm_of_another_kind_that_runs_is_refused() -> None:
    class OtherNorm(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.normalize(t, p=1.0, dim=-1)

    model = tiny.model("bert")
    model.classifier = torch.nn.Sequential(OtherNorm(), model.classifier)
    with pytest.raises(UnsupportedModel):
        wherefrom.explain(IDS, model, method="attn-lrp")


@pytest.mark.parametrize("kind", ["gemma3", "llava", "qwen3_vl"])
def test_a_batch_gives_what_one_text_gives(kind: str) -> None:
    opened = wherefrom.open_model(whole(kind))
    texts = [tiny.ids(9, high=57), tiny.ids(4, seed=1, high=57)]
    for method in ("attn-lrp", "alti", "ablation"):
        asked: dict[str, Any] = {} if method == "alti" else {"target": 9}
        for found, text in zip(wherefrom.explain(texts, opened, method=method, **asked), texts, strict=True):
            single = wherefrom.explain(text, opened, method=method, **asked)
            np.testing.assert_allclose(found.scores, single.scores, atol=1e-9 * np.abs(single.scores).max())


def test_a_picture_that_was_seen_before_moves_nothing() -> None:
    model = whole("qwen3_vl")
    opened = wherefrom.open_model(model)

    def said() -> tuple[Any, Any]:
        ablated = wherefrom.explain(IDS, opened, method="ablation", target=9)
        return ablated.scores, wherefrom.generate(IDS, opened, max_new_tokens=3).ids

    scores, tokens = said()
    model.model.rope_deltas = moved = torch.full((1, 1), 7)  # as after a text with a picture in it
    again, once_more = said()
    np.testing.assert_allclose(again, scores, atol=1e-12)
    assert once_more == tokens
    assert model.model.rope_deltas is moved


def test_a_side_that_does_more_than_its_row_says_is_known_by_its_output_alone() -> None:
    """PaliGemma's prompt sees all of itself, where a Gemma sees what came before."""
    model = whole("paligemma")
    opened = wherefrom.open_model(model)
    assert not opened.family.mapped
    found = wherefrom.explain(IDS, opened, method="gradient-x-input", target=9)
    with torch.no_grad():
        own = model(input_ids=torch.tensor([IDS])).logits[0, -1].softmax(-1)
    assert found.probabilities[found.target.label] == pytest.approx(float(own[9]), abs=1e-6)


@pytest.mark.parametrize("kind", ["gemma3", "llava"])
def test_a_folder_opens_with_what_is_for_pictures(kind: str, tmp_path: Path) -> None:
    model = whole(kind).float()
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    for task in (None, "causal-lm"):
        opened = wherefrom.open_model(tmp_path, task=task)
        assert type(opened.model) is type(model)
        assert (opened.task, opened.family.mapped) == ("causal-lm", True)
    found = wherefrom.explain("the cat is", opened, method="gradient-x-input")
    ids = tiny.tokenizer()("the cat is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = model(input_ids=ids).logits[0, -1].softmax(-1)
    assert found.probabilities[found.prediction] == pytest.approx(float(own.max()), abs=1e-5)
