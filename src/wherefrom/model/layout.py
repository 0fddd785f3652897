"""The grammar of blocks: what a row of families.py may say.

A block is two sublayers over one residual stream r, attention and then the FFN. Each does

    h = norm(r)        the norm before the branch; absent: it reads the stream as it is
    d = branch(h)      attention, or the FFN
    d = after(d)       a norm on the branch (Gemma 2 and 3, OLMo 2)
    r = r + d
    r = post(r)        a norm on the stream (BERT)

and each of the three norms may be absent. In a `parallel` block both branches read the same r (GPT-NeoX, Phi, Cohere).
A path is relative to the base model (`layers`, `embeddings`, `closing`) or to one block (all others); `*` stands for
every index of a list. An empty path says that there is no such part. Where blocks are no modules, `layers` names
several lists: a block is one of each, its parts by their number ("0.q_lin"), the last giving its output (XLM).

Of an encoder with a decoder (BART, T5), the row is the encoder's and has two more in `decoder`: a decoder's block is
two steps over its stream, attention to itself, without an FFN, and attention to the encoder with the FFN after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Packed = Literal["", "in-turn", "by-head", "by-group", "by-quarter"]


@dataclass(frozen=True)
class Attention:
    """The attention sublayer: its projections and norms."""

    # Without paths, queries, keys and values are no linear maps of what attention reads (DeepSeek's latent attention).
    query: str
    key: str
    value: str
    output: str  # W_O
    norm: str = ""
    after: str = ""
    post: str = ""
    # One projection for all three: q, k, v in turn; (q, k, v) of head 0, of head 1, …; (all q, k, v) of each group; or
    # q, v, k of the first quarter of the heads, of the second, … (CodeGen).
    packed: Packed = ""
    value_bias: str = ""  # a bias of the values that is no part of their projection (DeBERTa)
    module: str = ""  # where attention does not go through transformers' interface: the module that returns its weights
    scale: str = ""  # the vector, a part of the block, that the branch is multiplied by (DINOv2)
    biased: bool = False  # there, the scores have a part that relative positions alone decide (ALiBi, MPNet's buckets)


@dataclass(frozen=True)
class FFN:
    """The feed-forward sublayer: a module that works token by token, and its matrices where it is made of them."""

    up: str = ""
    down: str = ""
    activation: str = ""  # a part, or "PART:NAME", a function of the modeling file in which that part's class stands
    gate: str = ""  # φ(gate h) ⊙ (up h)
    packed: Literal["", "gate-up", "up-gate"] = ""  # `up` holds both; φ acts on the gate
    module: str = ""  # the whole, where it is not made of matrices (experts); "A + B" where two modules add up
    norm: str = ""
    after: str = ""
    post: str = ""
    scale: str = ""


@dataclass(frozen=True)
class Family:
    """One architecture: the paths of its parts, the order of its norms, what its classifier reads."""

    name: str
    layers: str  # the blocks, in the order in which they are made (not necessarily run: ALBERT shares them)
    embeddings: str  # the module whose output is the sum of word, position and type embeddings
    attention: Attention
    ffn: FFN
    parallel: bool = False  # both branches read the block's input
    multiplier: str = ""  # the attribute of the block that multiplies both branches (Granite)
    causal: bool = False  # a token sees only those before it, unless config.is_causal says otherwise
    reads: str = "first"  # the token a classifier reads: "first", "last", "unknown"; for pictures see pictures.py
    positions_after_pad: bool = False  # position ids start at pad_token_id + 1, so that many are lost
    closing: str = ""  # the norm after the last block
    decoder: tuple[Family, Family] | None = None  # of an encoder: the two steps of the blocks that read it
    # The module that reads the stream first, where that is not the block: in a block's second step.
    begins: str = ""
    images: bool = False  # it reads pictures:
    special: tuple[str, ...] = ()  # the tokens before the first patch,
    registers: str = ""  # and the number in the configuration that says how many more of them there are

    @property
    def crosses(self) -> bool:
        """Whether it is the step of a decoder's blocks that reads the encoder."""
        return bool(self.begins)

    @property
    def mapped(self) -> bool:
        """Whether the blocks are known."""
        return bool(self.layers)

    def longest(self, config: Any, pad_id: int | None) -> int | None:
        """How many tokens a model of this configuration can read; None where no position embeddings set a bound."""
        positions = getattr(config, "max_position_embeddings", getattr(config, "max_target_positions", None))
        if positions is None or int(positions) < 1:  # XLNet writes -1: its positions are relative
            return None
        return int(positions) - ((pad_id or 0) + 1 if self.positions_after_pad else 0)

    def but(
        self, name: str, *, attention: dict[str, Any] | None = None, ffn: dict[str, Any] | None = None, **more: Any
    ) -> Family:
        """The same with changes."""
        return replace(
            self,
            name=name,
            attention=replace(self.attention, **(attention or {})),
            ffn=replace(self.ffn, **(ffn or {})),
            **more,
        )
