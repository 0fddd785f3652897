"""Where each architecture keeps its parts: one row per family, nothing else; layout.py says what a row may say.

To add an architecture, copy the row that resembles it most, change what differs and add a tiny configuration to
`tests/tiny.py`. A row need not be trusted: on opening, every block is rebuilt from these parts and must give
the model's own hidden states (proof.py).
"""

from __future__ import annotations

from dataclasses import replace

from wherefrom.model.layout import FFN, Attention, Family

# BERT and its kin: a norm on the stream after each sublayer -------------------------------------------------

BERT = Family(
    name="bert",
    layers="encoder.layer.*",
    embeddings="embeddings",
    attention=Attention(
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        output="attention.output.dense",
        post="attention.output.LayerNorm",
    ),
    ffn=FFN(
        up="intermediate.dense",
        activation="intermediate.intermediate_act_fn",
        down="output.dense",
        post="output.LayerNorm",
    ),
)
ROBERTA = BERT.but("roberta", positions_after_pad=True)
RETURNING = BERT.but("returning", attention={"module": "attention.self"})  # attention outside of the interface
DISTILBERT = Family(
    name="distilbert",
    layers="transformer.layer.*",
    embeddings="embeddings",
    attention=Attention(
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        post="sa_layer_norm",
    ),
    ffn=FFN(up="ffn.lin1", activation="ffn.activation", down="ffn.lin2", post="output_layer_norm"),
)
ALBERT = Family(
    name="albert",
    layers="encoder.albert_layer_groups.*.albert_layers.*",
    embeddings="embeddings",
    attention=Attention(
        query="attention.query",
        key="attention.key",
        value="attention.value",
        output="attention.dense",
        post="attention.LayerNorm",
    ),
    ffn=FFN(up="ffn", activation="activation", down="ffn_output", post="full_layer_layer_norm"),
)
DEBERTA_V2 = RETURNING.but(
    "deberta-v2",
    attention={
        "query": "attention.self.query_proj",
        "key": "attention.self.key_proj",
        "value": "attention.self.value_proj",
    },
)
MPNET = BERT.but(
    "mpnet",
    attention={
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "output": "attention.attn.o",
        "post": "attention.LayerNorm",
        "module": "attention.attn",
    },
    positions_after_pad=True,
)
NOMIC_BERT = Family(
    name="nomic_bert",
    layers="layers.*",
    embeddings="embeddings",
    attention=Attention(
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.o_proj",
        post="post_attention_layernorm",
    ),
    ffn=FFN(
        up="mlp.up_proj",
        gate="mlp.gate_proj",
        activation="mlp.act_fn",
        down="mlp.down_proj",
        post="post_mlp_layernorm",
    ),
)

# Encoders whose norms come first ----------------------------------------------------------------------------

ROBERTA_PRELAYERNORM = ROBERTA.but(
    "roberta-prelayernorm",
    attention={"norm": "attention.LayerNorm", "post": ""},
    ffn={"norm": "intermediate.LayerNorm", "post": ""},
    closing="LayerNorm",
)
MEGATRON_BERT = RETURNING.but(
    "megatron-bert",
    attention={"norm": "attention.ln", "post": ""},
    ffn={"norm": "ln", "post": ""},
    closing="encoder.ln",
)
MODERNBERT = Family(
    name="modernbert",
    layers="layers.*",
    embeddings="embeddings",
    attention=Attention("attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo", norm="attn_norm", packed="in-turn"),
    ffn=FFN(up="mlp.Wi", packed="gate-up", activation="mlp.act", down="mlp.Wo", norm="mlp_norm"),
    closing="final_norm",
)

# Decoders ---------------------------------------------------------------------------------------------------

# Causal by default; with config.is_causal = False an encoder, as Abnar & Zuidema (2020) use it.
GPT2 = Family(
    name="gpt2",
    layers="h.*",
    embeddings="drop",
    attention=Attention("attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", norm="ln_1", packed="in-turn"),
    ffn=FFN(up="mlp.c_fc", activation="mlp.act", down="mlp.c_proj", norm="ln_2"),
    causal=True,
    reads="last",
    closing="ln_f",
)
LLAMA = Family(
    name="llama",
    layers="layers.*",
    embeddings="",
    attention=Attention(
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.o_proj",
        norm="input_layernorm",
    ),
    ffn=FFN(
        up="mlp.up_proj",
        gate="mlp.gate_proj",
        activation="mlp.act_fn",
        down="mlp.down_proj",
        norm="post_attention_layernorm",
    ),
    causal=True,
    reads="last",
    closing="norm",
)
EXPERTS = {"up": "", "gate": "", "activation": "", "down": "", "module": "mlp"}
UNGATED = {"gate": ""}
GATE_UP = {"up": "mlp.gate_up_proj", "gate": "", "packed": "gate-up", "activation": "mlp.activation_fn"}
ONE_PROJECTION = dict.fromkeys(("query", "key", "value"), "self_attn.qkv_proj")
OLMO2 = LLAMA.but(
    "olmo2",
    attention={"norm": "", "after": "post_attention_layernorm"},
    ffn={"norm": "", "after": "post_feedforward_layernorm"},
)
GEMMA2 = LLAMA.but(
    "gemma2",
    attention={"after": "post_attention_layernorm"},
    ffn={"norm": "pre_feedforward_layernorm", "after": "post_feedforward_layernorm"},
)
GLM4 = LLAMA.but(
    "glm4", attention={"after": "post_self_attn_layernorm"}, ffn={**GATE_UP, "after": "post_mlp_layernorm"}
)
PHI3 = LLAMA.but("phi3", attention={**ONE_PROJECTION, "packed": "in-turn"}, ffn=GATE_UP)
COHERE = LLAMA.but("cohere", ffn={"norm": "input_layernorm"}, parallel=True)
STARCODER2 = LLAMA.but("starcoder2", ffn={**UNGATED, "up": "mlp.c_fc", "activation": "mlp.act", "down": "mlp.c_proj"})
APERTUS = LLAMA.but(
    "apertus", attention={"norm": "attention_layernorm"}, ffn={**UNGATED, "norm": "feedforward_layernorm"}
)
PHI = LLAMA.but(
    "phi",
    attention={"output": "self_attn.dense"},
    ffn={
        **UNGATED,
        "up": "mlp.fc1",
        "down": "mlp.fc2",
        "activation": "mlp.activation_fn",
        "norm": "input_layernorm",
    },
    parallel=True,
    closing="final_layernorm",
)
GPT_NEOX = Family(
    name="gpt_neox",
    layers="layers.*",
    embeddings="",
    attention=Attention(
        query="attention.query_key_value",
        key="attention.query_key_value",
        value="attention.query_key_value",
        output="attention.dense",
        norm="input_layernorm",
        packed="by-head",
    ),
    ffn=FFN(up="mlp.dense_h_to_4h", activation="mlp.act", down="mlp.dense_4h_to_h", norm="post_attention_layernorm"),
    parallel=True,
    causal=True,
    reads="last",
    closing="final_layer_norm",
)
PERSIMMON = GPT_NEOX.but(
    "persimmon",
    attention={
        **dict.fromkeys(("query", "key", "value"), "self_attn.query_key_value"),
        "output": "self_attn.dense",
    },
    parallel=False,
    closing="final_layernorm",
)
OPT = LLAMA.but(
    "opt",
    layers="decoder.layers.*",
    attention={"output": "self_attn.out_proj", "norm": "self_attn_layer_norm"},
    ffn={**UNGATED, "up": "fc1", "down": "fc2", "activation": "activation_fn", "norm": "final_layer_norm"},
    closing="decoder.final_layer_norm",
)
OPT_POST = OPT.but(  # the 350M model, whose norms come after
    "opt",
    attention={"norm": "", "post": "self_attn_layer_norm"},
    ffn={"norm": "", "post": "final_layer_norm"},
    closing="",
)
BIOGPT = OPT.but("biogpt", layers="layers.*", closing="layer_norm")
GPT_BIGCODE = GPT2.but("gpt_bigcode")
GPTJ = Family(
    name="gptj",
    layers="h.*",
    embeddings="drop",
    attention=Attention(
        query="attn.q_proj",
        key="attn.k_proj",
        value="attn.v_proj",
        output="attn.out_proj",
        norm="ln_1",
        module="attn",
    ),
    ffn=FFN(up="mlp.fc_in", activation="mlp.act", down="mlp.fc_out", norm="ln_1"),
    parallel=True,
    causal=True,
    reads="last",
    closing="ln_f",
)
GPT_NEO = Family(
    name="gpt_neo",
    layers="h.*",
    embeddings="drop",
    attention=Attention(
        query="attn.attention.q_proj",
        key="attn.attention.k_proj",
        value="attn.attention.v_proj",
        output="attn.attention.out_proj",
        norm="ln_1",
        module="attn.attention",
    ),
    ffn=FFN(up="mlp.c_fc", activation="mlp.act", down="mlp.c_proj", norm="ln_2"),
    causal=True,
    reads="last",
    closing="ln_f",
)
BLOOM = Family(
    name="bloom",
    layers="h.*",
    embeddings="word_embeddings_layernorm",
    attention=Attention(
        query="self_attention.query_key_value",
        key="self_attention.query_key_value",
        value="self_attention.query_key_value",
        output="self_attention.dense",
        norm="input_layernorm",
        packed="by-head",
        module="self_attention",
    ),
    ffn=FFN(
        up="mlp.dense_h_to_4h", activation="mlp.gelu_impl", down="mlp.dense_4h_to_h", norm="post_attention_layernorm"
    ),
    causal=True,
    reads="last",
    closing="ln_f",
)
FALCON = BLOOM.but("falcon", embeddings="", ffn={"activation": "mlp.act"})  # sequential (falcon-rw)
FALCON_7B = FALCON.but("falcon", attention={"packed": "in-turn"}, ffn={"norm": "input_layernorm"}, parallel=True)
FALCON_40B = FALCON.but(
    "falcon", attention={"packed": "by-group", "norm": "ln_attn"}, ffn={"norm": "ln_mlp"}, parallel=True
)
MPT = Family(
    name="mpt",
    layers="blocks.*",
    embeddings="",
    attention=Attention(
        "attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.out_proj", norm="norm_1", packed="in-turn", module="attn"
    ),
    ffn=FFN(up="ffn.up_proj", activation="ffn.act", down="ffn.down_proj", norm="norm_2"),
    causal=True,
    reads="last",
    closing="norm_f",
)

# An architecture without a row of its own is tried against these shapes, in this order, and opened by proof alone.
SHAPES: tuple[Family, ...] = (
    LLAMA,
    GEMMA2,
    OLMO2,
    GLM4,
    PHI3,
    COHERE,
    STARCODER2,
    LLAMA.but("llama with plain FFN", ffn=UNGATED),
    LLAMA.but("llama with experts", ffn=EXPERTS),
    PHI,
    GPT_NEOX,
    OPT,
    BIOGPT,
    GPT2,
    BERT,
    NOMIC_BERT,
    RETURNING,
    ROBERTA_PRELAYERNORM,
    BLOOM,
)

# Key: config.model_type. Where a type has several layouts, the first whose proof holds.
FAMILIES: dict[str, tuple[Family, ...]] = {
    name: rows if isinstance(rows, tuple) else (rows,)
    for name, rows in {
        "albert": ALBERT,
        "apertus": APERTUS,
        "arcee": LLAMA.but("arcee", ffn=UNGATED),
        "bert": BERT,
        "biogpt": BIOGPT,
        "bloom": BLOOM,
        "camembert": ROBERTA.but("camembert"),
        "cohere": COHERE,
        "cohere2": COHERE.but("cohere2"),
        "data2vec-text": ROBERTA.but("data2vec-text"),
        "deberta": DEBERTA_V2.but(
            "deberta",
            attention={
                **dict.fromkeys(("query", "key", "value"), "attention.self.in_proj"),
                "packed": "by-head",
                "value_bias": "attention.self.v_bias",
            },
        ),
        "deberta-v2": DEBERTA_V2,
        "distilbert": DISTILBERT,
        "electra": BERT.but("electra"),
        "ernie": BERT.but("ernie"),
        "ernie4_5": LLAMA.but("ernie4_5"),
        "eurobert": LLAMA.but("eurobert", causal=False, reads="first"),
        "exaone4": OLMO2.but("exaone4"),
        "falcon": (FALCON_40B, FALCON_7B, FALCON),
        "gemma": LLAMA.but("gemma"),
        "gemma2": GEMMA2,
        "gemma3_text": GEMMA2.but("gemma3_text"),
        "glm": LLAMA.but("glm", ffn=GATE_UP),
        "glm4": GLM4,
        "gpt2": GPT2,
        "gpt_bigcode": GPT_BIGCODE,
        "gpt_neo": GPT_NEO,
        "gpt_neox": (GPT_NEOX, GPT_NEOX.but("gpt_neox", parallel=False)),
        "gpt_oss": LLAMA.but("gpt_oss", ffn=EXPERTS),
        "gptj": GPTJ,
        "granite": LLAMA.but("granite", multiplier="residual_multiplier"),
        "helium": LLAMA.but("helium"),
        "hunyuan_v1_dense": LLAMA.but("hunyuan_v1_dense"),
        "llama": LLAMA,
        "megatron-bert": MEGATRON_BERT,
        "ministral": LLAMA.but("ministral"),
        "mistral": LLAMA.but("mistral"),
        "mixtral": LLAMA.but("mixtral", ffn=EXPERTS),
        "modernbert": MODERNBERT,
        "mpnet": MPNET,
        "mpt": MPT,
        "nemotron": LLAMA.but("nemotron", ffn=UNGATED),
        "nomic_bert": NOMIC_BERT,
        "olmo": LLAMA.but("olmo"),
        "olmo2": OLMO2,
        "olmoe": LLAMA.but("olmoe", ffn=EXPERTS),
        "opt": (OPT, OPT_POST),
        "persimmon": PERSIMMON,
        "phi": PHI,
        "phi3": PHI3,
        "phimoe": LLAMA.but("phimoe", ffn=EXPERTS),
        "qwen2": LLAMA.but("qwen2"),
        "qwen2_moe": LLAMA.but("qwen2_moe", ffn=EXPERTS),
        "qwen3": LLAMA.but("qwen3"),
        "qwen3_moe": LLAMA.but("qwen3_moe", ffn=EXPERTS),
        "rembert": RETURNING.but("rembert"),
        "roberta": ROBERTA,
        "roberta-prelayernorm": ROBERTA_PRELAYERNORM,
        "roformer": RETURNING.but("roformer"),
        "seed_oss": LLAMA.but("seed_oss"),
        "smollm3": LLAMA.but("smollm3"),
        "stablelm": (LLAMA.but("stablelm"), COHERE.but("stablelm")),
        "starcoder2": STARCODER2,
        "xlm-roberta": ROBERTA.but("xlm-roberta"),
        "xlm-roberta-xl": ROBERTA_PRELAYERNORM.but(
            "xlm-roberta-xl",
            attention={"norm": "attention.self_attn_layer_norm"},
            ffn={"norm": "LayerNorm"},
            closing="encoder.LayerNorm",
        ),
    }.items()
}


def candidates(model_type: str) -> tuple[Family, ...]:
    """The rows that a model of this type may fit, its own before the shapes that others share."""
    own = FAMILIES.get(model_type)
    return own if own is not None else tuple(replace(shape, name=model_type) for shape in SHAPES)


def unmapped(name: str) -> Family:
    """No parts are known: the model is embeddings, something, and an output."""
    nowhere = Attention("", "", "", "")
    return Family(name, layers="", embeddings="", attention=nowhere, ffn=FFN(), reads="unknown")
