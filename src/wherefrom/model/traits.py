"""What the blocks of a model are like, found once: what methods are held against, and what `doctor` prints.

Most of it stands in the row and the weights. What queries, keys and attention weights are made of is seen on the probe
of the proof (proof.py), which runs for it where the model was opened without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from wherefrom.model.frozen_pass import freezable
from wherefrom.model.linear import sizes
from wherefrom.model.proof import embeds_otherwise, follows_head, refuses_gradients

if TYPE_CHECKING:
    from wherefrom.model.model import Model
    from wherefrom.model.parts import Block, Norm


ACTIVATIONS = ("torch.nn.modules.activation", "transformers.activations")  # where their modules are made


@dataclass(frozen=True, eq=False)
class Traits:
    """Of all blocks of a model: each is true where it is true of any of them."""

    opened: Model

    @property
    def blocks(self) -> list[Block]:
        return self.opened.blocks

    @property
    def mapped(self) -> bool:
        """Whether the blocks are known at all."""
        return self.opened.family.mapped

    @cached_property
    def embeds_otherwise(self) -> bool:
        """Whether an embedding is not known by its place in the batch: whose gradient is whose is not known then."""
        return not self.mapped and not self.opened.images and embeds_otherwise(self.opened)

    @cached_property
    def refuses_gradients(self) -> bool:
        """Whether the own code of a model whose blocks are not known cannot be gone back through."""
        return not self.mapped and not self.opened.images and refuses_gradients(self.opened)

    @property
    def width(self) -> int:
        """Of the residual stream."""
        block = self.blocks[0]
        return sizes(block.part(block.family.attention.output))[1]

    # The FFN ------------------------------------------------------------------------------------------------

    @property
    def experts(self) -> bool:
        """Whether the FFN is a module and no matrices."""
        return any(block.opaque for block in self.blocks)

    @property
    def gated(self) -> bool:
        return any(block.gated for block in self.blocks)

    @property
    def loose_activation(self) -> bool:
        """Whether the activation is a function of the model's own code, which nobody can follow."""
        return not all(freezable(block) for block in self.blocks)

    @property
    def parallel(self) -> bool:
        """Whether the FFN reads the block's input, beside attention."""
        return any(block.parallel for block in self.blocks)

    @cached_property
    def scaled(self) -> bool:
        """Whether the branches are multiplied by something."""
        return any(block.scaled for block in self.blocks)

    # The norms ----------------------------------------------------------------------------------------------

    @cached_property
    def stream_norms(self) -> list[list[Norm]]:
        """For each block those before its branches and those on the stream after them."""
        return [_there(b.before, b.post, b.ffn_before, b.ffn_post) for b in self.blocks]

    @cached_property
    def branch_norms(self) -> list[Norm]:
        """Those on the branches."""
        return [norm for b in self.blocks for norm in _there(b.after, b.ffn_after)]

    @property
    def normed_stream(self) -> bool:
        """Whether a norm stands on the stream itself, as in BERT."""
        return any(b.post is not None or b.ffn_post is not None for b in self.blocks)

    @cached_property
    def bent_head(self) -> bool:
        """Whether the head has more than a norm and a linear layer: those of encoders have an activation, and
        ModernBERT's decoder has.
        """
        if self.opened.task == "encoder" or self.opened.images:
            return False
        if not self.opened.family.causal:
            return True
        whole = self.opened.pretrained
        inside = {id(part) for block in self.blocks for part in block.module.modules()}
        beside = {*map(id, whole.base_model.modules())} - {*map(id, self.opened.base.modules())}  # a side for pictures
        after = (part for part in whole.modules() if id(part) not in inside | beside)
        return any(type(part).__module__ in ACTIVATIONS for part in after)

    @cached_property
    def odd_head(self) -> bool:
        """Whether a decomposition cannot follow what stands between the last block and the output."""
        return not follows_head(self.opened)

    @cached_property
    def norms(self) -> list[Norm]:
        return [*(norm for norms in self.stream_norms for norm in norms), *self.branch_norms]

    @property
    def norm_places(self) -> list[str]:
        """Where they stand: before a branch, on it, on the stream after it."""
        places = {
            "before": [norm for b in self.blocks for norm in _there(b.before, b.ffn_before)],
            "on": self.branch_norms,
            "after": [norm for b in self.blocks for norm in _there(b.post, b.ffn_post)],
        }
        return [name for name, norms in places.items() if norms]

    @property
    def rms(self) -> bool:
        """Whether there are norms that take no mean off."""
        return not all(norm.centres for norm in self.norms)

    @property
    def odd_norms(self) -> bool:
        """Whether a branch has no norm of its own, or more than one."""
        return any(len(norms) != 2 for norms in self.stream_norms)

    # Attention ----------------------------------------------------------------------------------------------

    @cached_property
    def grouped(self) -> bool:
        """Whether heads share keys and values."""
        return any(block.groups != block.heads for block in self.blocks)

    @property
    def latent(self) -> bool:
        """Whether values are no linear map of what attention reads."""
        return any(block.latent for block in self.blocks)

    @property
    def key_heads(self) -> int:
        """Heads of keys and values; where blocks differ, of the fewest."""
        return min(block.groups for block in self.blocks)

    @property
    def hidden_scores(self) -> bool:
        """Whether attention shows its weights and no queries and keys: it does not go through the interface."""
        return bool(self.opened.family.attention.module)

    @cached_property
    def windows(self) -> list[int | None]:
        """For each layer how far a token sees; None: as far as the text goes."""
        config, depth = self.opened.sizes, self.opened.depth
        size = getattr(config, "sliding_window", None) or getattr(config, "window_size", None)
        kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
        if kinds is None:
            return [size if isinstance(size, int) else None] * depth
        return [size if kind in ("sliding_attention", "local") else None for kind in kinds]

    @property
    def softcap(self) -> float | None:
        """What bounds the scores before the softmax."""
        found = getattr(self.opened.sizes, "attn_logit_softcapping", None)
        return None if found is None else float(found)

    @property
    def unknown_scores(self) -> bool:
        """Whether attention's scores do not come of what it reads by projections, norms and rotary positions alone."""
        return not self.opened.proof.known_scores

    @property
    def bent_keys(self) -> bool:
        """Whether queries or keys are no linear maps of what attention reads (rotary positions, norms or factors)."""
        return not self.opened.proof.linear_keys

    @property
    def bent_softmax(self) -> bool:
        """Whether attention weights are no softmax of q·k alone (sinks, a soft-cap, a bias by position)."""
        return not self.opened.proof.plain_softmax

    @property
    def sinks(self) -> bool:
        """Whether a part of the attention goes to no token."""
        return self.opened.proof.sinks

    # The head -----------------------------------------------------------------------------------------------

    @property
    def pooled(self) -> bool:
        """Whether a classifier reads more than one token."""
        return self.opened.task == "classification" and self.opened.reads not in ("first", "last", "unknown")


def _there(*norms: Norm | None) -> list[Norm]:
    return [norm for norm in norms if norm is not None]
