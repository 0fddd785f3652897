"""The layouts that architectures share, by the names of the first that had them; layout.py says what a row may say."""

from __future__ import annotations

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
DEBERTA = DEBERTA_V2.but(
    "deberta",
    attention={
        **dict.fromkeys(("query", "key", "value"), "attention.self.in_proj"),
        "packed": "by-head",
        "value_bias": "attention.self.v_bias",
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
        "biased": True,
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

XLM = Family(
    name="xlm",
    layers="attentions.* layer_norm1.* ffns.* layer_norm2.*",
    embeddings="layer_norm_emb",
    attention=Attention("0.q_lin", "0.k_lin", "0.v_lin", "0.out_lin", post="1", module="0"),
    ffn=FFN(up="2.lin1", activation="2.act", down="2.lin2", post="3"),
)

# Encoders whose norms come first ----------------------------------------------------------------------------

ROBERTA_PRELAYERNORM = ROBERTA.but(
    "roberta-prelayernorm",
    attention={"norm": "attention.LayerNorm", "post": ""},
    ffn={"norm": "intermediate.LayerNorm", "post": ""},
    closing="LayerNorm",
)
XLM_ROBERTA_XL = ROBERTA_PRELAYERNORM.but(
    "xlm-roberta-xl",
    attention={"norm": "attention.self_attn_layer_norm"},
    ffn={"norm": "LayerNorm"},
    closing="encoder.LayerNorm",
)
MEGATRON_BERT = RETURNING.but(
    "megatron-bert",
    attention={"norm": "attention.ln", "post": ""},
    ffn={"norm": "ln", "post": ""},
    closing="encoder.ln",
)
ESM = ROBERTA_PRELAYERNORM.but(
    "esm",
    ffn={"norm": "LayerNorm", "activation": "intermediate:gelu"},
    closing="encoder.emb_layer_norm_after",
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
EXPERTS = {"up": "", "gate": "", "activation": "", "down": "", "packed": "", "module": "mlp"}
UNGATED = {"gate": ""}
GATE_UP = {"up": "mlp.gate_up_proj", "gate": "", "packed": "gate-up", "activation": "mlp.activation_fn"}
ONE_PROJECTION = dict.fromkeys(("query", "key", "value"), "self_attn.qkv_proj")
LATENT = {"query": "", "key": "", "value": ""}  # no linear maps: values are made through a latent (DeepSeek)
FC = {**UNGATED, "up": "mlp.fc1", "down": "mlp.fc2", "activation": "mlp.activation_fn"}
GRANITE = LLAMA.but("granite", multiplier="residual_multiplier")
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
    ffn={**FC, "norm": "input_layernorm"},
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
        biased=True,
    ),
    ffn=FFN(
        up="mlp.dense_h_to_4h", activation="mlp.gelu_impl", down="mlp.dense_4h_to_h", norm="post_attention_layernorm"
    ),
    causal=True,
    reads="last",
    closing="ln_f",
)
FALCON = BLOOM.but(
    "falcon", embeddings="", attention={"biased": False}, ffn={"activation": "mlp.act"}
)  # sequential (falcon-rw)
FALCON_7B = FALCON.but("falcon", attention={"packed": "in-turn"}, ffn={"norm": "input_layernorm"}, parallel=True)
FALCON_40B = FALCON.but(
    "falcon", attention={"packed": "by-group", "norm": "ln_attn"}, ffn={"norm": "ln_mlp"}, parallel=True
)
MPT = Family(
    name="mpt",
    layers="blocks.*",
    embeddings="",
    attention=Attention(
        "attn.Wqkv",
        "attn.Wqkv",
        "attn.Wqkv",
        "attn.out_proj",
        norm="norm_1",
        packed="in-turn",
        module="attn",
        biased=True,
    ),
    ffn=FFN(up="ffn.up_proj", activation="ffn.act", down="ffn.down_proj", norm="norm_2"),
    causal=True,
    reads="last",
    closing="norm_f",
)
CODEGEN = GPTJ.but(
    "codegen",
    attention={**dict.fromkeys(("query", "key", "value"), "attn.qkv_proj"), "packed": "by-quarter"},
)
OPENAI_GPT = GPT2.but(
    "openai-gpt",
    attention={"norm": "", "post": "ln_1", "module": "attn"},
    ffn={"norm": "", "post": "ln_2"},
    closing="",
)
CTRL = Family(
    name="ctrl",
    layers="h.*",
    embeddings="dropout",
    attention=Attention(
        query="multi_head_attention.Wq",
        key="multi_head_attention.Wk",
        value="multi_head_attention.Wv",
        output="multi_head_attention.dense",
        norm="layernorm1",
        module="multi_head_attention",
    ),
    ffn=FFN(up="ffn.0", activation="ffn.1", down="ffn.2", norm="layernorm2"),
    causal=True,
    reads="last",
    closing="layernorm",
)
MODERNBERT_DECODER = MODERNBERT.but(
    "modernbert-decoder",
    attention={"query": "attn.q_proj", "key": "attn.k_proj", "value": "attn.v_proj", "packed": ""},
    causal=True,
    reads="last",
)
DBRX = Family(
    name="dbrx",
    layers="blocks.*",
    embeddings="",
    # Values are clipped, so that they are no linear maps.
    attention=Attention("", "", "", "norm_attn_norm.attn.out_proj", norm="norm_attn_norm.norm_1"),
    ffn=FFN(module="ffn", norm="norm_attn_norm.norm_2"),
    causal=True,
    reads="last",
    closing="norm_f",
)
MBART = OPT.but("mbart", closing="decoder.layer_norm")  # the decoder of a translation model, alone

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
    LLAMA.but("llama with latent values", attention=LATENT, ffn=EXPERTS),
    OLMO2.but("olmo2 with experts", ffn=EXPERTS),
    GLM4.but("glm4 with experts", ffn=EXPERTS),
    GRANITE,
    PHI,
    GPT_NEOX,
    OPT,
    OPT_POST,
    BIOGPT,
    MBART,
    GPT2,
    BERT,
    NOMIC_BERT,
    RETURNING,
    ROBERTA_PRELAYERNORM,
    BLOOM,
)
