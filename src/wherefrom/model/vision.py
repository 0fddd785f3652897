"""Where vision transformers keep their parts: one row per type; layout.py says what a row may say.

All of them are pre-norm blocks over patches. `special` are the tokens before the first patch, `registers` the number in
the configuration that says how many more there are; `reads` is what a classifier reads.
"""

from __future__ import annotations

from dataclasses import replace

from wherefrom.model.layout import FFN, Attention, Family

VIT = Family(
    name="vit",
    layers="layers.*",
    embeddings="embeddings",
    attention=Attention(
        query="attention.q_proj",
        key="attention.k_proj",
        value="attention.v_proj",
        output="attention.o_proj",
        norm="layernorm_before",
    ),
    ffn=FFN(up="mlp.fc1", activation="mlp.activation_fn", down="mlp.fc2", norm="layernorm_after"),
    closing="layernorm",
    images=True,
    special=("[CLS]",),
)
BEIT = VIT.but("beit", attention={"scale": "lambda_1"}, ffn={"scale": "lambda_2"})
DINOV2 = VIT.but(
    "dinov2",
    layers="encoder.layer.*",
    attention={"norm": "norm1", "scale": "layer_scale1.lambda1"},
    ffn={"norm": "norm2", "scale": "layer_scale2.lambda1"},
    reads="class-and-patches",
)
# As transformers wrote it until 5.17: other names, and both halves of a gated FFN in one matrix.
DINOV2_OLD = DINOV2.but(
    "dinov2",
    attention={
        "query": "attention.attention.query",
        "key": "attention.attention.key",
        "value": "attention.attention.value",
        "output": "attention.output.dense",
    },
    ffn={"activation": "mlp.activation"},
)
PACKED = {
    "up": "mlp.weights_in",
    "packed": "gate-up",
    "activation": "mlp:nn.functional.silu",
    "down": "mlp.weights_out",
}
GATED = {"up": "mlp.up_proj", "gate": "mlp.gate_proj", "activation": "mlp.act_fn", "down": "mlp.down_proj"}
DINOV2S = (DINOV2, DINOV2.but("", ffn=GATED), DINOV2_OLD, DINOV2_OLD.but("", ffn=PACKED))
CLIP = VIT.but(
    "clip",
    layers="encoder.layers.*",
    embeddings="pre_layrnorm",
    attention={
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "output": "self_attn.out_proj",
        "norm": "layer_norm1",
    },
    ffn={"norm": "layer_norm2"},
    closing="post_layernorm",
)
SIGLIP = CLIP.but("siglip", embeddings="embeddings", special=(), reads="mean")


def _inside(row: Family) -> Family:
    """The same where the vision model is a part of the whole, as in a classifier; no norm follows the last block."""
    layers, embeddings = (f"vision_model.{path}" for path in (row.layers, row.embeddings))
    return replace(row, layers=layers, embeddings=embeddings, closing="")


CLIP_CLASSIFIER = _inside(CLIP).but("clip", reads="patches")
SIGLIP_CLASSIFIER = _inside(SIGLIP).but("siglip", closing="vision_model.post_layernorm")

# Key: config.model_type. Where a type has several layouts, the first whose proof holds.
VISION: dict[str, tuple[Family, ...]] = {
    name: tuple(replace(row, name=name) for row in rows)
    for name, rows in {
        "beit": (BEIT,),
        "clip": (CLIP_CLASSIFIER,),
        "clip_vision_model": (CLIP,),
        "deit": (VIT.but("", special=("[CLS]", "[DIST]")),),
        "dinov2": DINOV2S,
        "dinov2_with_registers": tuple(row.but("", registers="num_register_tokens") for row in DINOV2S),
        "siglip": (SIGLIP_CLASSIFIER,),
        "siglip_vision_model": (SIGLIP,),
        "vit": (VIT,),
    }.items()
}
