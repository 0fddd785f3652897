"""Tiny random models, one configuration per family of the table, and tokenizers made on the spot.

Weights, biases, γ and β are all random and far from their initial values, so that a forgotten bias, a wrong ε
or a swapped index shows.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import CONFIG_MAPPING, PreTrainedModel, PreTrainedTokenizerFast

import wherefrom


def methods() -> list[Any]:
    """The methods that are defined on all of these models: not those that need a stream without norms on it."""
    return [each for each in wherefrom.methods() if "bare-stream" not in each.needs]


SHAPE: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "vocab_size": 60,
    "max_position_embeddings": 40,
    "layer_norm_eps": 1e-3,  # large enough that a formula without it is caught
    "pad_token_id": 0,
    "num_labels": 3,
}
GPT2_SHAPE: dict[str, Any] = {
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "vocab_size": 60,
    "n_positions": 40,
    "layer_norm_epsilon": 1e-3,
    "pad_token_id": 0,
    "num_labels": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
}

# model_type -> a small configuration. A new family joins every test of test_families.py by a line in OTHERS; these join
# those of every method, formula by formula.
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": SHAPE,
    "ernie": SHAPE,
    "electra": {**SHAPE, "embedding_size": 16},  # with the projection from embeddings to blocks
    "roberta": {**SHAPE, "pad_token_id": 1},
    "xlm-roberta": {**SHAPE, "pad_token_id": 1},
    "camembert": {**SHAPE, "pad_token_id": 1},
    "distilbert": {
        "dim": 24,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 40,
        "vocab_size": 60,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "num_labels": 3,
    },
    "albert": {**SHAPE, "embedding_size": 16, "num_hidden_groups": 1, "inner_group_num": 2},
    "gpt2": GPT2_SHAPE,
}

PLAIN: dict[str, Any] = {**{key: value for key, value in SHAPE.items() if key != "layer_norm_eps"}, "eos_token_id": 3}
GROUPED: dict[str, Any] = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 2}  # 4 heads of 8 in 24
EXPERTS: dict[str, Any] = {"num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2}
ROUTED: dict[str, Any] = {
    **GROUPED,
    **EXPERTS,
    "n_routed_experts": 3,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,  # the first block without experts
}
LATENT: dict[str, Any] = {
    **PLAIN,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 10,
    "head_dim": 4,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 8,
}
ROUTED_LATENT: dict[str, Any] = {**ROUTED, **LATENT}
XLM_SHAPE: dict[str, Any] = {
    "emb_dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "vocab_size": 60,
    "max_position_embeddings": 40,
    "pad_index": 0,
    "pad_token_id": 0,
}
BLOOM_SHAPE: dict[str, Any] = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
OTHERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("apertus", "arcee", "cohere", "ernie4_5", "eurobert", "exaone4", "gemma", "glm", "glm4"), GROUPED),
    **dict.fromkeys(("hunyuan_v1_dense", "llama", "ministral", "nemotron", "olmo", "olmo2", "phi3", "qwen2"), GROUPED),
    **dict.fromkeys(("cwm", "flint", "jais2", "ministral3", "nanochat", "olmo3", "qwen3", "seed_oss"), GROUPED),
    **dict.fromkeys(("smollm3", "starcoder2", "ultrabert", "vaultgemma"), GROUPED),
    **dict.fromkeys(("biogpt", "data2vec-text", "gpt_neox", "megatron-bert", "mpnet", "nomic_bert", "rembert"), PLAIN),
    **dict.fromkeys(("esm", "gte", "jina_embeddings_v3", "layoutlm", "markuplm", "modernbert-decoder"), PLAIN),
    **dict.fromkeys(("roberta-prelayernorm", "roformer", "tapas", "xlm-roberta-xl"), PLAIN),
    **dict.fromkeys(("aria_text", "flex_olmo", "granitemoe", "kolibri1", "mellum", "minimax_m2"), ROUTED),
    **dict.fromkeys(
        ("cohere2_moe", "dots1", "exaone_moe", "glm4_moe", "hunyuan_v1_moe", "hy_v3", "solar_open"), ROUTED
    ),
    **dict.fromkeys(("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"), ROUTED_LATENT),
    **dict.fromkeys(("minicpm3", "youtu"), LATENT),
    "bloom": BLOOM_SHAPE,
    "codegen": {**GPT2_SHAPE, "rotary_dim": 4},
    "cohere2": {**GROUPED, "sliding_window": 4},
    "ctrl": {**GPT2_SHAPE, "dff": 40},
    "dbrx": {
        "d_model": 24,
        "n_heads": 4,
        "n_layers": 3,
        "vocab_size": 60,
        "max_seq_len": 40,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.0, "rope_theta": 10000.0},
        "ffn_config": {"hidden_size": 24, "ffn_hidden_size": 40, "moe_num_experts": 3, "moe_top_k": 2},
    },
    "deberta": {**PLAIN, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {**PLAIN, "relative_attention": True, "pos_att_type": ["c2p"], "position_buckets": 8},
    "ernie4_5_moe": {**ROUTED, "moe_num_experts": 3, "moe_k": 2},
    "falcon": BLOOM_SHAPE,
    "flaubert": XLM_SHAPE,
    "gemma2": {**GROUPED, "sliding_window": 4, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
    "gemma3_text": {**GROUPED, "sliding_window": 4, "query_pre_attn_scalar": 8},
    "gpt-sw3": GPT2_SHAPE,
    "gpt_bigcode": GPT2_SHAPE,
    "gpt_neo": {
        **BLOOM_SHAPE,
        "num_layers": 3,
        "num_heads": 4,
        "attention_types": [[["global", "local", "global"], 1]],
        "window_size": 3,
        "max_position_embeddings": 40,
    },
    "gpt_oss": {**GROUPED, **EXPERTS, "sliding_window": 4},
    "gptj": {**GPT2_SHAPE, "rotary_dim": 4},
    "granite": {**GROUPED, "residual_multiplier": 0.5, "embedding_multiplier": 2.0},
    "granitemoehybrid": {
        **GROUPED,
        "layer_types": ["attention"] * 3,  # as Granite 4 Micro, without any Mamba
        "num_local_experts": 0,
        "mamba_n_heads": 4,
        "residual_multiplier": 0.5,
    },
    "granitemoeshared": {**ROUTED, "residual_multiplier": 0.5, "shared_intermediate_size": 20},
    "helium": {**GROUPED, "head_dim": 6},
    "hyperclovax": {**GROUPED, "residual_multiplier": 0.5, "use_post_norm": True},
    "llama4_text": {**ROUTED, "intermediate_size_mlp": 40, "attention_chunk_size": 6, "interleave_moe_layer_step": 2},
    "mimo_v2_flash": {**ROUTED, "v_head_dim": 6, "attention_value_scale": 0.7, "sliding_window": 4},
    "mistral": {**GROUPED, "sliding_window": 4},
    "mistral4": {**ROUTED_LATENT, "head_dim": 8, "qk_nope_head_dim": 4},
    "mixtral": {**GROUPED, **EXPERTS},
    "modernbert": {**PLAIN, "local_attention": 4, "global_attn_every_n_layers": 2},
    "mpt": {"d_model": 24, "n_layers": 3, "n_heads": 4, "vocab_size": 60, "max_seq_len": 40},
    "olmoe": {**GROUPED, **EXPERTS, "head_dim": 6},
    "openai-gpt": GPT2_SHAPE,
    "opt": {**PLAIN, "ffn_dim": 40, "word_embed_proj_dim": 24},
    "persimmon": {**PLAIN, "hidden_size": 32},
    "phi": {**PLAIN, "hidden_size": 32, "num_key_value_heads": 2},
    "phimoe": {**GROUPED, **EXPERTS},
    "qwen2_moe": {**GROUPED, **EXPERTS, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**GROUPED, **EXPERTS, "moe_intermediate_size": 16},
    "roc_bert": {**PLAIN, "pronunciation_vocab_size": 60, "shape_vocab_size": 60},
    "stablelm": {**PLAIN, "hidden_size": 32, "num_key_value_heads": 2},
    "xglm": {**PLAIN, "d_model": 24, "num_layers": 3, "attention_heads": 4, "ffn_dim": 40},
    "xlm": XLM_SHAPE,
}
# One type, another layout: parallel or not, groups of heads, norms after instead of before.
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in OTHERS},
    "falcon-40b": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-sequential": ("falcon", {"parallel_attn": False, "multi_query": False}),
    "granitemoehybrid-experts": ("granitemoehybrid", {**EXPERTS, "shared_intermediate_size": 20}),
    "gpt_neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "hyperclovax-pre-norm": ("hyperclovax", {"use_post_norm": False}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "opt-350m": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 16}),
    "opt-post-norm": ("opt", {"do_layer_norm_before": False}),
    "stablelm-parallel": ("stablelm", {"use_parallel_residual": True}),
}

# Sizes of which none is another's multiple, where a configuration allows it: an odd width, heads that are no part of
# it, three to a key, uneven FFNs. Some want a width that their heads divide (EVEN), or one that is theirs (WHOLE).
WIDE: dict[str, Any] = {
    "hidden_size": 21,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 37,
    "vocab_size": 61,
}
EVEN: dict[str, Any] = {**WIDE, "hidden_size": 18}
WHOLE: dict[str, Any] = {"hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 61}
WHOLE |= dict.fromkeys(("intermediate_size", "ffn_dim", "dff", "n_inner"), 37)
WHOLE_HEADS: dict[str, Any] = {**WHOLE, "head_dim": 12}
ODD_LATENT: dict[str, Any] = {**WIDE, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 4}
ODD: dict[str, dict[str, Any]] = {
    **{name: WIDE if "head_dim" in shape else WHOLE for name, shape in OTHERS.items()},
    **dict.fromkeys(("arcee", "cwm", "eurobert", "gemma2", "gemma3_text", "granitemoehybrid", "hyperclovax"), EVEN),
    **dict.fromkeys(("jais2", "llama", "ultrabert", "vaultgemma"), EVEN),
    **dict.fromkeys(("aria_text", "helium", "olmoe"), WHOLE_HEADS),
    **dict.fromkeys(("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3", "youtu"), ODD_LATENT),
    "bloom": {**WHOLE, "hidden_size": 21},  # ALiBi has other slopes for heads that are no power of 2
    "codegen": {"n_embd": 40, "n_inner": 37, "vocab_size": 61},  # four heads, or a multiple of it
    "dbrx": {"d_model": 30, "n_heads": 3, "attn_config": {"kv_n_heads": 1, "clip_qkv": 1.0, "rope_theta": 10000.0}},
    "falcon": {**WHOLE, "num_attention_heads": 6},
    "mimo_v2_flash": {"hidden_size": 21, "intermediate_size": 37, "vocab_size": 61},
    "mistral4": {**ODD_LATENT, "head_dim": 8},
    "mpt": {**WHOLE, "d_model": 21, "n_heads": 3},
    "opt": {**WHOLE, "word_embed_proj_dim": 36},
    "stablelm": {**WHOLE, "hidden_size": 24},
}


def odd(layout: str) -> dict[str, Any]:
    """What makes a layout one of odd sizes, beside what makes it that layout."""
    kind, own = LAYOUTS[layout]
    return {name: value for name, value in ODD[kind].items() if name not in own}


# Attention that reads some tokens of a text longer than this: those that an indexer chooses.
INDEX_TOPK = 7
INDEXED: dict[str, Any] = {**ROUTED_LATENT, "index_topk": INDEX_TOPK, "index_n_heads": 2, "index_head_dim": 8}
SPARSE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("deepseek_v32", "dots3_note_text", "glm_moe_dsa"), INDEXED),
    "axk2": {**INDEXED, "n_group": None, "topk_group": None},
    "hy_v4": {**INDEXED, "hc_mult": 2},
    "minimax_m3_vl_text": {
        **GROUPED,
        **EXPERTS,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_block_size": 2,
        "index_topk_blocks": 3,
        "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        "rotary_dim": 4,
    },
    "mistral_large4": {
        "text_config": {**INDEXED, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": 16,
            "intermediate_size": 20,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 8,
            "image_size": 8,
            "patch_size": 4,
        },
    },
}

# The same architecture in another use: Abnar & Zuidema's encoder of GPT-2 blocks.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CONFIGS},
    "gpt2-encoder": ("gpt2", {"is_causal": False}),
    "albert-groups": ("albert", {"num_hidden_groups": 3, "inner_group_num": 1}),
}

HEADS = {
    "classification": transformers.AutoModelForSequenceClassification,
    "masked-lm": transformers.AutoModelForMaskedLM,
    "token-classification": transformers.AutoModelForTokenClassification,
    "question-answering": transformers.AutoModelForQuestionAnswering,
    "causal-lm": transformers.AutoModelForCausalLM,
    "encoder": transformers.AutoModel,
}

WORDS = (
    "the a cat dog film key keys cabinets to of is are was were good bad deep meaning ##ful and not very , . ! didn ' t"
)
LETTERS = [*"abcdefghi", *(f"##{letter}" for letter in "abcdefghi")]


def config(variant: str, **changes: Any) -> Any:
    model_type, more = {**VARIANTS, **LAYOUTS, **{name: (name, {}) for name in SPARSE}}[variant]
    if model_type not in CONFIG_MAPPING:  # flint, gte, kolibri1, ultrabert: younger than our lower bound
        pytest.skip(f"transformers {transformers.__version__} has no type {model_type!r}")
    own = {**CONFIGS, **OTHERS, **SPARSE}[model_type]
    return transformers.AutoConfig.for_model(model_type, **{**own, **more, **changes})


def model(
    variant: str = "bert",
    task: str = "classification",
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    **changes: Any,
) -> PreTrainedModel:
    """A tiny model with every parameter random, loaded with transformers' default attention."""
    if task == "question-answering":
        changes = {"num_labels": 2, **changes}  # the two edges of an answer
    torch.manual_seed(seed)
    chosen = config(variant, **changes)
    head = transformers.AutoModelForImageTextToText if variant == "mistral_large4" else HEADS[task]
    found: PreTrainedModel = head.from_config(chosen)
    if getattr(chosen, "attn_logit_softcapping", None):
        found.set_attn_implementation("eager")  # in some releases of transformers the others leave the soft-cap out
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if not weight.requires_grad:
                continue  # RoFormer's sines, which are no weights
            noise = torch.randn(weight.shape, generator=generator)
            module = name.split(".")[-2]  # the module's own name: a model's prefix may say "norm" too
            norm = "norm" in module.lower() or module.startswith("ln")
            weight.copy_(1 + 0.5 * noise if norm and name.endswith("weight") else 0.3 * noise)
    return found.to(dtype).eval()


def shared(model_type: str) -> PreTrainedModel:
    """A model of a type without a row, opened by the shape that it shares with others, if any."""
    config = transformers.AutoConfig.for_model(model_type, **{**GROUPED, "head_dim": 6})
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config).eval()


def ids(n: int, seed: int = 0, low: int = 5, high: int = 60) -> list[int]:
    """Random token ids that avoid the special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (n,), generator=generator).tolist()


def tokenizer(**kwargs: Any) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer over sixty pieces; unknown words fall apart into letters."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*WORDS.split(), *LETTERS])]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    assert len(vocabulary) <= SHAPE["vocab_size"]
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **{
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            **kwargs,
        },
    )
