"""Where each architecture keeps its parts: one row per family, nothing else; layout.py says what a row may say.

To add an architecture, copy the row that resembles it most, change what differs and add a tiny configuration to
`tests/tiny.py`. A row need not be trusted: on opening, every block is rebuilt from these parts and must give
the model's own hidden states (proof.py).
"""

from __future__ import annotations

from dataclasses import replace

from wherefrom.model.layout import FFN, Attention, Family
from wherefrom.model.pairs import PAIRS
from wherefrom.model.shapes import (
    ALBERT,
    APERTUS,
    BERT,
    BIOGPT,
    BLOOM,
    CODEGEN,
    COHERE,
    CTRL,
    DBRX,
    DEBERTA,
    DEBERTA_V2,
    DISTILBERT,
    ESM,
    EXPERTS,
    FALCON,
    FALCON_7B,
    FALCON_40B,
    FC,
    GATE_UP,
    GEMMA2,
    GLM4,
    GPT2,
    GPT_NEO,
    GPT_NEOX,
    GPTJ,
    GRANITE,
    LATENT,
    LLAMA,
    MEGATRON_BERT,
    MODERNBERT,
    MODERNBERT_DECODER,
    MPNET,
    MPT,
    NOMIC_BERT,
    OLMO2,
    OPENAI_GPT,
    OPT,
    OPT_POST,
    PERSIMMON,
    PHI,
    PHI3,
    RETURNING,
    ROBERTA,
    ROBERTA_PRELAYERNORM,
    SHAPES,
    STARCODER2,
    UNGATED,
    XLM,
    XLM_ROBERTA_XL,
)
from wherefrom.model.vision import VISION

LLAMA_PLAIN = LLAMA.but("plain", ffn=UNGATED)
LLAMA_MOE = LLAMA.but("experts", ffn=EXPERTS)
LLAMA4 = LLAMA_MOE.but("llama4", ffn={"module": "feed_forward"})
DEEPSEEK = LLAMA.but("deepseek", attention=LATENT, ffn=EXPERTS)
GRANITE_MOE = GRANITE.but("experts", ffn={**EXPERTS, "module": "block_sparse_moe"})
GRANITE_SHARED = GRANITE.but("shared", ffn={**EXPERTS, "module": "block_sparse_moe + shared_mlp"})
GRANITE_HYBRID = GRANITE.but(
    "hybrid",
    ffn={
        **GATE_UP,
        "up": "shared_mlp.input_linear",
        "down": "shared_mlp.output_linear",
        "activation": "shared_mlp.activation",
    },
)

# Key: config.model_type. Where a type has several layouts, the first whose proof holds.
FAMILIES: dict[str, tuple[Family, ...]] = {
    name: tuple(replace(row, name=name) for row in (rows if isinstance(rows, tuple) else (rows,)))
    for name, rows in {
        # Encoders
        "albert": ALBERT,
        "bert": BERT,
        "camembert": ROBERTA,
        "data2vec-text": ROBERTA,
        "deberta": DEBERTA,
        "deberta-v2": DEBERTA_V2,
        "distilbert": DISTILBERT,
        "electra": BERT,
        "ernie": BERT,
        "esm": (ESM, ESM.but("", closing="")),
        "eurobert": LLAMA.but("", causal=False, reads="first"),
        "flaubert": XLM,
        "gte": NOMIC_BERT,
        "jina_embeddings_v3": NOMIC_BERT.but("", ffn=FC),
        "layoutlm": BERT,
        "markuplm": BERT,
        "megatron-bert": MEGATRON_BERT,
        "modernbert": MODERNBERT,
        "mpnet": MPNET,
        "nomic_bert": NOMIC_BERT,
        "rembert": RETURNING,
        "roberta": ROBERTA,
        "roberta-prelayernorm": ROBERTA_PRELAYERNORM,
        "roc_bert": BERT,
        "roformer": RETURNING,
        "tapas": RETURNING,
        "ultrabert": LLAMA,
        "xlm": XLM,
        "xlm-roberta": ROBERTA,
        "xlm-roberta-xl": XLM_ROBERTA_XL,
        # Decoders
        "apertus": APERTUS,
        "arcee": LLAMA_PLAIN,
        "biogpt": BIOGPT,
        "bloom": BLOOM,
        "codegen": CODEGEN,
        "cohere": COHERE,
        "cohere2": COHERE,
        "ctrl": CTRL,
        "cwm": LLAMA,
        "ernie4_5": LLAMA,
        "exaone4": OLMO2,
        "falcon": (FALCON_40B, FALCON_7B, FALCON),
        "flint": (LLAMA, LLAMA_MOE),
        "gemma": LLAMA,
        "gemma2": GEMMA2,
        "gemma3_text": GEMMA2,
        "glm": LLAMA.but("", ffn=GATE_UP),
        "glm4": GLM4,
        "gpt-sw3": GPT2,
        "gpt2": GPT2,
        "gpt_bigcode": GPT2,
        "gpt_neo": GPT_NEO,
        "gpt_neox": (GPT_NEOX, GPT_NEOX.but("", parallel=False)),
        "gptj": GPTJ,
        "granite": GRANITE,
        "helium": LLAMA,
        "hunyuan_v1_dense": LLAMA,
        "hyperclovax": GRANITE.but("", attention={"after": "post_norm1"}, ffn={"after": "post_norm2"}),
        "jais2": LLAMA_PLAIN,
        "llama": LLAMA,
        "minicpm3": LLAMA.but("", attention=LATENT, multiplier="residual_scale"),
        "ministral": LLAMA,
        "ministral3": LLAMA,
        "mistral": LLAMA,
        "modernbert-decoder": MODERNBERT_DECODER,
        "mpt": MPT,
        "nanochat": LLAMA.but("", ffn=FC),
        "nemotron": LLAMA_PLAIN,
        "olmo": LLAMA,
        "olmo2": OLMO2,
        "olmo3": OLMO2,
        "openai-gpt": OPENAI_GPT,
        "opt": (OPT, OPT_POST),
        "persimmon": PERSIMMON,
        "phi": PHI,
        "phi3": PHI3,
        "qwen2": LLAMA,
        "qwen3": LLAMA,
        "seed_oss": LLAMA,
        "smollm3": LLAMA,
        "stablelm": (LLAMA, COHERE),
        "starcoder2": STARCODER2,
        "vaultgemma": LLAMA.but("", ffn={"norm": "pre_feedforward_layernorm"}),
        "xglm": BIOGPT.but("", attention={"module": "self_attn"}),
        "youtu": LLAMA.but("", attention=LATENT),
        # Mixtures of experts
        "aria_text": LLAMA_MOE,
        "axk1": DEEPSEEK,
        "cohere2_moe": COHERE.but("", ffn=EXPERTS),
        "dbrx": DBRX,
        "deepseek_v2": DEEPSEEK,
        "deepseek_v3": DEEPSEEK,
        "dots1": LLAMA_MOE,
        "ernie4_5_moe": LLAMA_MOE,
        "exaone_moe": LLAMA_MOE,
        "flex_olmo": OLMO2.but("", ffn=EXPERTS),
        "glm4_moe": LLAMA_MOE,
        "glm4_moe_lite": DEEPSEEK,
        "gpt_oss": LLAMA_MOE,
        "granitemoe": GRANITE_MOE,
        "granitemoehybrid": (GRANITE_HYBRID, GRANITE_SHARED),
        "granitemoeshared": (GRANITE_SHARED, GRANITE_MOE),  # the latter where the shared one has no units
        "hunyuan_v1_moe": LLAMA_MOE,
        "hy_v3": LLAMA_MOE,
        "kolibri1": GLM4.but("", ffn=EXPERTS),
        "llama4_text": (LLAMA4, LLAMA4.but("", layers="model.layers.*", closing="model.norm")),
        "mellum": LLAMA_MOE,
        "mimo_v2_flash": DEEPSEEK,
        "minimax_m2": LLAMA_MOE,
        "mistral4": DEEPSEEK,
        "mixtral": LLAMA_MOE,
        "olmoe": LLAMA_MOE,
        "phimoe": LLAMA_MOE,
        "qwen2_moe": LLAMA_MOE,
        "qwen3_moe": LLAMA_MOE,
        "solar_open": LLAMA_MOE,
    }.items()
}


def has_row(model_type: str, *, pair: bool = False) -> bool:
    """Whether the type has a row of its own; `pair`: as an encoder with a decoder."""
    return model_type in PAIRS if pair else model_type in FAMILIES or model_type in VISION


def candidates(model_type: str, *, pair: bool = False) -> tuple[Family, ...]:
    """The rows that a model of this type may fit, its own before the shapes that others share.

    `pair`: of an encoder with a decoder, of which there are no other shapes.
    """
    own = PAIRS.get(model_type, ()) if pair else FAMILIES.get(model_type) or VISION.get(model_type)
    return own if own is not None else tuple(replace(shape, name=model_type) for shape in SHAPES)


def unmapped(name: str) -> Family:
    """No parts are known: the model is embeddings, something, and an output."""
    nowhere = Attention("", "", "", "")
    return Family(name, layers="", embeddings="", attention=nowhere, ffn=FFN(), reads="unknown")
