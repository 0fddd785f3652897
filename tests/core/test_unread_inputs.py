"""What a mapping holds beside a text and no pass reads is refused: images, sounds, placeholders, other tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pictures
import tiny
import wherefrom
from wherefrom.errors import InvalidInput

TEXT: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
SOUND: dict[str, Any] = {
    "d_model": 16,
    "hidden_size": 16,
    "encoder_layers": 1,
    "num_hidden_layers": 1,
    "encoder_attention_heads": 2,
    "num_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "intermediate_size": 64,
    "num_mel_bins": 8,
    "max_source_positions": 20,
}
GIVEN: dict[str, dict[str, torch.Tensor]] = {
    "voxtral": {"input_features": torch.zeros(1, 8, 40)},
    "qwen2_audio": {"input_features": torch.zeros(1, 8, 40), "feature_attention_mask": torch.ones(1, 40)},
    "fuyu": {"image_patches": torch.zeros(1, 1, 48), "image_patches_indices": torch.zeros(1, 4)},
    "llava": {"pixel_values": torch.zeros(1, 3, 28, 28)},
}
IDS, MARK = [5, 6, 8, 7], 59


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    seen = {**TEXT, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14}
    llama, qwen, persimmon = ({**TEXT, "model_type": kind} for kind in ("llama", "qwen2", "persimmon"))
    torch.manual_seed(0)
    made = {
        "voxtral": transformers.VoxtralForConditionalGeneration(
            transformers.VoxtralConfig(text_config=llama, audio_config=SOUND, audio_token_id=MARK)
        ),
        "qwen2_audio": transformers.Qwen2AudioForConditionalGeneration(
            transformers.Qwen2AudioConfig(text_config=qwen, audio_config=SOUND, audio_token_index=MARK)
        ),
        "fuyu": transformers.FuyuForCausalLM(
            transformers.FuyuConfig(text_config=persimmon, **TEXT, patch_size=4, image_size=8, image_token_id=MARK)
        ),
        "llava": transformers.LlavaForConditionalGeneration(
            transformers.LlavaConfig(text_config=llama, vision_config=seen, image_token_index=MARK)
        ),
    }
    return {kind: wherefrom.open_model(model.eval()) for kind, model in made.items()}


@pytest.mark.parametrize("kind", GIVEN)
def test_images_and_sounds_beside_a_text_are_refused(kind: str, models: dict[str, Any]) -> None:
    batch = torch.tensor([IDS])
    for inputs in (
        {"input_ids": batch, **GIVEN[kind]},
        {"input_ids": torch.tensor([[*IDS, MARK]]), **GIVEN[kind]},
        [{"input_ids": IDS, **{name: each[0].tolist() for name, each in GIVEN[kind].items()}}],
        {"text": "a cat", **GIVEN[kind]},
    ):
        with pytest.raises(InvalidInput) as error:
            wherefrom.explain(inputs, models[kind], method="saliency")
        assert "the text alone" in str(error.value)  # which works today
        assert "open a model of images" not in str(error.value)
    assert len(wherefrom.explain({"input_ids": IDS}, models[kind], method="saliency")) == len(IDS)


@pytest.mark.parametrize("kind", GIVEN)
def test_placeholders_without_what_they_stand_for_are_refused(kind: str, models: dict[str, Any]) -> None:
    for inputs in ([*IDS, MARK], {"input_ids": torch.tensor([[*IDS, MARK]])}):
        with pytest.raises(InvalidInput) as error:
            wherefrom.explain(inputs, models[kind], method="saliency")
        assert str(MARK) in str(error.value)


def test_tensors_that_the_pass_does_not_read_are_refused() -> None:
    model, batch = tiny.model(), torch.tensor([IDS])
    for other in ({"position_bias": torch.zeros(1, 4)}, {"inputs_embeds": np.zeros((1, 4, 24))}, {"x": torch.ones(2)}):
        with pytest.raises(InvalidInput):
            wherefrom.explain({"input_ids": batch, **other}, model, method="saliency")
    boxes = {"input_ids": batch, "bbox": [[[0, 0, 1, 1]] * 4]}
    with pytest.raises(InvalidInput):
        wherefrom.explain(boxes, tiny.model("layoutlm"), method="saliency")
    pixels = {**pictures.pixels(), "input_ids": batch}
    with pytest.raises(InvalidInput):
        wherefrom.explain(pixels, pictures.model("clip-vision"), method="alti", position="first")


def test_what_tokenizers_and_datasets_add_is_passed_over() -> None:
    model, batch = tiny.model(), torch.tensor([IDS])
    bare = wherefrom.explain({"input_ids": batch}, model, method="saliency")[0]
    more = {"labels": torch.ones(1), "offset_mapping": torch.zeros(1, 4, 2), "note": "x", "special_tokens_mask": batch}
    found = wherefrom.explain(
        {"input_ids": batch, "attention_mask": torch.ones(1, 4), **more}, model, method="saliency"
    )
    np.testing.assert_array_equal(found[0].scores, bare.scores)
    row = {"text": "a cat", "embedding": np.zeros(8), "label": 1}
    assert len(wherefrom.explain(row, model, tiny.tokenizer(), method="saliency")) == 4
