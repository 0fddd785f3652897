"""Rows for encoders with a decoder: as families.py for other architectures, a row of three (layout.py)."""

from __future__ import annotations

from dataclasses import replace

from wherefrom.model.layout import FFN, Attention, Family


def _bart(*, norm_first: bool) -> Family:
    """Post-norm with no norm after the last block, or pre-norm with one."""

    def attention(name: str) -> Attention:
        q, k, v, o = (f"{name}.{part}" for part in ("q_proj", "k_proj", "v_proj", "out_proj"))
        norm = f"{name}_layer_norm"
        return Attention(q, k, v, o, norm=norm if norm_first else "", post="" if norm_first else norm)

    ffn = FFN(up="fc1", down="fc2", activation="activation_fn")
    ffn = replace(ffn, norm="final_layer_norm") if norm_first else replace(ffn, post="final_layer_norm")
    encoder = Family("", "encoder.layers.*", "", attention("self_attn"), ffn)
    itself = Family("", "decoder.layers.*", "", attention("self_attn"), FFN(), causal=True)
    begins = "encoder_attn_layer_norm" if norm_first else "encoder_attn"
    cross = Family("", "decoder.layers.*", "", attention("encoder_attn"), ffn, begins=begins)
    if norm_first:
        encoder, cross = replace(encoder, closing="encoder.layer_norm"), replace(cross, closing="decoder.layer_norm")
    return replace(encoder, decoder=(itself, cross))


def _t5(*, gated: bool) -> Family:
    def attention(place: int, name: str) -> Attention:
        q, k, v, o = (f"layer.{place}.{name}.{part}" for part in "qkvo")
        return Attention(q, k, v, o, norm=f"layer.{place}.layer_norm")

    def ffn(place: int) -> FFN:
        inside = f"layer.{place}.DenseReluDense"
        up, gate = (f"{inside}.wi_1", f"{inside}.wi_0") if gated else (f"{inside}.wi", "")
        return FFN(up, f"{inside}.wo", f"{inside}.act", gate, norm=f"layer.{place}.layer_norm")

    closing = "final_layer_norm"
    itself = Family("", "decoder.block.*", "", attention(0, "SelfAttention"), FFN(), causal=True)
    cross = Family("", "decoder.block.*", "", attention(1, "EncDecAttention"), ffn(2), begins="layer.1")
    return Family(
        "",
        "encoder.block.*",
        "",
        attention(0, "SelfAttention"),
        ffn(1),
        closing=f"encoder.{closing}",
        decoder=(itself, replace(cross, closing=f"decoder.{closing}")),
    )


POST, PRE = _bart(norm_first=False), _bart(norm_first=True)
T5 = (_t5(gated=False), _t5(gated=True))

# Key: config.model_type.
PAIRS: dict[str, tuple[Family, ...]] = {
    name: tuple(replace(row, name=name) for row in rows)
    for name, rows in {
        "bart": (POST,),
        "blenderbot": (PRE,),
        "blenderbot-small": (POST,),
        "m2m_100": (PRE,),
        "marian": (POST,),
        "mbart": (PRE,),
        "mt5": T5,
        "pegasus": (PRE,),
        "t5": T5,
        "umt5": T5,
        "whisper": (PRE,),
    }.items()
}
