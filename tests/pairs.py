"""Tiny random encoders with a decoder, one for each kind of row in model/pairs.py, and pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

import wherefrom
from wherefrom.model import Model, Sentence
from wherefrom.model.paired import followed_by

BART: dict[str, Any] = {
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 14,
    "vocab_size": 60,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "eos_token_id": 3,
    "bos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "scale_embedding": True,
    "tie_word_embeddings": False,
}
T5: dict[str, Any] = {
    "d_model": 12,
    "d_kv": 5,  # no part of the width
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 3,
    "vocab_size": 60,
    "pad_token_id": 0,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("bart", BART),
    "m2m_100": ("m2m_100", BART),
    "marian": ("marian", {**BART, "decoder_vocab_size": 60}),
    "mbart": ("mbart", BART),
    "pegasus": ("pegasus", BART),
    "blenderbot": ("blenderbot", BART),
    "blenderbot-small": ("blenderbot-small", BART),
    "t5": ("t5", {**T5, "feed_forward_proj": "relu"}),
    "flan-t5": ("t5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "mt5": ("mt5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "umt5": ("umt5", {**T5, "feed_forward_proj": "gated-gelu"}),
}


def model(layout: str, *, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """A tiny model with every weight random: γ, β and biases too."""
    kind, shape = CONFIGS[layout]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**shape, **changes})
    # In transformers 5.17 the other attention of UMT5's decoder sees the tokens that follow.
    way = {"attn_implementation": "eager"} if kind == "umt5" else {}
    found = transformers.AutoModelForSeq2SeqLM.from_config(config, **way)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if not weight.requires_grad:
                continue  # sines
            noise = torch.randn(weight.shape, generator=generator)
            norm = "norm" in name.split(".")[-2] and name.endswith("weight")
            weight.copy_(1 + 0.5 * noise if norm else 0.3 * noise)
        for name, buffer in found.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return found.to(dtype).eval()


def opened(layout: str, **changes: Any) -> Model:
    return wherefrom.open_model(model(layout, **changes))


def pair(model: Model, source: Sequence[int], said: Sequence[int]) -> Sentence:
    """Source ids and what the decoder says."""
    read, _ = model.reader().read(list(source))
    return followed_by(model, read[0], int(model.config.decoder_start_token_id), list(said))
