"""Where each architecture keeps its parts: one row per family, nothing else.

A path is relative to the base model (`layers`, `embeddings`) or to one block (all others); `*` stands for
every index of a list. To add an architecture, copy the row that resembles it most, change what differs and
add a tiny configuration to `tests/tiny.py`: the test matrix then checks that each block, put together again
from these parts, gives the model's own hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Family:
    """One architecture: the paths of its parts, the order of its norms, what its classifier reads."""

    name: str
    layers: str  # the blocks, in the order in which they are made (not necessarily run: ALBERT shares them)
    embeddings: str  # the module whose output is the sum of word, position and type embeddings
    query: str  # three projections,
    key: str
    value: str
    output: str  # W_O
    norm1: str  # the norm that belongs to attention
    norm2: str  # the norm that belongs to the FFN
    ffn_in: str
    activation: str
    ffn_out: str
    fused_qkv: bool = False  # query, key and value name one and the same projection, its output in thirds
    norm_first: bool = False  # pre-norm: u = x + A(LN1 x), o = u + F(LN2 u); else u = x + A(x), y = LN1 u, …
    causal: bool = False  # a token sees only those before it, unless config.is_causal says otherwise
    reads: str = "first"  # the token a sequence classifier reads: "first", "last" or "unknown"
    positions_after_pad: bool = False  # position ids start at pad_token_id + 1, so that many are lost

    @property
    def mapped(self) -> bool:
        """Whether the blocks are known."""
        return bool(self.layers)

    def longest(self, config: Any, pad_id: int | None) -> int | None:
        """How many tokens a model of this configuration can read; None where no position embeddings set a bound."""
        positions = getattr(config, "max_position_embeddings", None)
        if positions is None or int(positions) < 1:  # XLNet writes -1: its positions are relative
            return None
        return int(positions) - ((pad_id or 0) + 1 if self.positions_after_pad else 0)


BERT = Family(
    name="bert",
    layers="encoder.layer.*",
    embeddings="embeddings",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    norm1="attention.output.LayerNorm",
    norm2="output.LayerNorm",
    ffn_in="intermediate.dense",
    activation="intermediate.intermediate_act_fn",
    ffn_out="output.dense",
)

ROBERTA = replace(BERT, name="roberta", positions_after_pad=True)

DISTILBERT = Family(
    name="distilbert",
    layers="transformer.layer.*",
    embeddings="embeddings",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    norm1="sa_layer_norm",
    norm2="output_layer_norm",
    ffn_in="ffn.lin1",
    activation="ffn.activation",
    ffn_out="ffn.lin2",
)

ALBERT = Family(
    name="albert",
    layers="encoder.albert_layer_groups.*.albert_layers.*",
    embeddings="embeddings",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    output="attention.dense",
    norm1="attention.LayerNorm",
    norm2="full_layer_layer_norm",
    ffn_in="ffn",
    activation="activation",
    ffn_out="ffn_output",
)

# Causal by default; with config.is_causal = False an encoder, as Abnar & Zuidema (2020) use it.
GPT2 = Family(
    name="gpt2",
    layers="h.*",
    embeddings="drop",
    query="attn.c_attn",
    key="attn.c_attn",
    value="attn.c_attn",
    fused_qkv=True,
    output="attn.c_proj",
    norm1="ln_1",
    norm2="ln_2",
    ffn_in="mlp.c_fc",
    activation="mlp.act",
    ffn_out="mlp.c_proj",
    norm_first=True,
    causal=True,
    reads="last",
)

# Key: config.model_type.
FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "ernie": replace(BERT, name="ernie"),
    "electra": replace(BERT, name="electra"),
    "roberta": ROBERTA,
    "xlm-roberta": replace(ROBERTA, name="xlm-roberta"),
    "camembert": replace(ROBERTA, name="camembert"),
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "gpt2": GPT2,
}


def family_of(model_type: str) -> Family:
    """The row for a `config.model_type`; an empty one for an architecture whose blocks are not known."""
    return FAMILIES.get(model_type) or unmapped(model_type)


def unmapped(name: str) -> Family:
    """No parts are known: the model is embeddings, something, and an output."""
    paths = {field: "" for field in vars(BERT) if isinstance(getattr(BERT, field), str)}
    return Family(**{**paths, "name": name, "reads": "unknown"})  # type: ignore[arg-type]
