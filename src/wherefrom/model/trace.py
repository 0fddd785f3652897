"""What a forward pass did, layer by layer: what capture.py takes down, and what methods read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wherefrom.model.attended import by_head
from wherefrom.model.finite import check_finite, finite
from wherefrom.model.frozen_pass import Switch
from wherefrom.model.kept import once_in
from wherefrom.model.later import Later
from wherefrom.model.linear import HALF
from wherefrom.model.model import Model
from wherefrom.model.parts import Block, promote
from wherefrom.model.sentences import Batch
from wherefrom.model.two_streams import StreamStep

T = TypeVar("T")
Ran = tuple[nn.Module, Tensor, Tensor]  # a module, what it was given and what it made of that


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """What one block did with one batch. `[B, …]`, right-padded; float32 or float64 whatever the model's dtype.

    `raw` holds the model's own tensors (with their graph, when gradients were asked for), keys and values once for the
    heads that share them. Row i is the token being built, column j the token it draws on; columns of padding are 0,
    rows of padding are meaningless.
    """

    index: int
    block: Block
    ids: Tensor  # [B, n]: the tokens' ids
    mask: Tensor  # [B, n] bool: real tokens, whether or not attention may see them
    scaling: float  # the factor on q·k before the softmax
    raw: dict[str, Tensor] = field(repr=False)
    causal: bool = False  # no token sees a later one
    softcap: float | None = None  # c in c·tanh(s / c), where scores are capped before the softmax (Gemma 2)
    step: StreamStep | None = None  # of an encoder with a decoder: what it writes of the axis that both share
    kernels: bool = True  # whether those in Triton are worth compiling
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)
    _later: Later | None = field(default=None, repr=False)
    _lengths: list[int] | None = field(default=None, repr=False)  # where they are known on the host

    def __repr__(self) -> str:
        count, n = self.mask.shape
        return f"<LayerTrace of layer {self.index}: {count} input{'s' * (count > 1)} of up to {n} tokens>"

    @property
    def device(self) -> torch.device:
        return self.mask.device

    @property
    def lengths(self) -> list[int]:
        """How many real tokens each sentence has. Counted where nobody knows: that means to wait for the device."""
        return self.mask.sum(1).tolist() if self._lengths is None else self._lengths

    @property
    def dtype(self) -> torch.dtype:
        """In which formulas are evaluated."""
        own = self.raw["x"].dtype
        return torch.float32 if own in HALF else own

    @cached_property
    def x(self) -> Tensor:
        """The block's input [B, n, d], on the block's own device: it may come from another's."""
        return promote(self.raw["x"]).to(self.device)

    @cached_property
    def query(self) -> Tensor:
        """[B, H, n, d_h], as it enters the dot product."""
        return promote(self.raw["query"])

    @cached_property
    def key(self) -> Tensor:
        return promote(by_head(self.raw["key"], self.heads))

    @cached_property
    def value(self) -> Tensor:
        """v^h_j, bias included: [B, H, n, d_h]."""
        return promote(by_head(self.raw["value"], self.heads))

    @cached_property
    def attention(self) -> Tensor:
        """α^h_ij: [B, H, n, n]."""
        return promote(self.raw["attention"])

    def attention_row(self, tokens: Tensor) -> Tensor:
        """α^h_ij of one token i of each sentence: [B] -> [B, H, n]."""
        raw = self.raw["attention"]
        return promote(raw[torch.arange(len(raw), device=raw.device), :, tokens.to(raw.device)])

    @cached_property
    def weights(self) -> Tensor:
        """α as it weighs what tokens give: divided, where attention has a norm on its branch, by that norm's scale."""
        return self.attention if self.block.after is None else self.attention / self.branch_scale[:, None]

    @cached_property
    def branch_scale(self) -> Tensor:
        """The scale of the norm on attention's branch, at what it is given: [B, n, 1]."""
        assert self.block.after is not None
        return self.block.after.scale(self.block.attended(self.attention, self.value))

    @cached_property
    def mixed(self) -> Tensor:
        """What tokens add to the residual stream, Σ_j Σ_h α f, without what belongs to no token: [B, n, d]."""
        if self.block.after is None and not self.block.scaled and self.raw["mixed"].dtype == self.x.dtype:
            return self.raw["mixed"] - self.block.b_o
        # In half precision the model's own sum is rounded to three digits; ours of the same α and v is not.
        return self.block.merge(self.weights @ self.value)

    @cached_property
    def fed(self) -> Tensor:
        """What the FFN of a parallel block adds to the stream: a token's own part, beside x. [B, n, d]."""
        return self.output - self.u

    @cached_property
    def u(self) -> Tensor:
        """The residual stream after attention, u = x + Σ α f + b_O: [B, n, d]. Few ask, so that it is added up here."""
        return promote(self.block.joined(self.raw["x"], self.raw["added"]))

    @cached_property
    def w(self) -> Tensor:
        """The residual stream after the FFN, before any last norm: [B, n, d]."""
        return promote(self.raw["w"])

    @cached_property
    def output(self) -> Tensor:
        """The block's output [B, n, d]."""
        return promote(self.raw["output"])

    @cached_property
    def f(self) -> Tensor:
        """f^h_j = v^h_j W_C^h: [B, H, n, d]."""
        return self.block.carry(self.value)

    @property
    def heads(self) -> int:
        return self.block.heads

    def afterwards(self, flags: Tensor, then: Callable[[], None]) -> None:
        """Where one of `flags` holds, do something: at once on a CPU; elsewhere, as to look at them means to wait for
        the device, after the pass if that still runs.
        """
        if self._later is None or self._later.over or self.mask.device.type == "cpu":
            if bool(flags.any()):
                then()
        else:
            self._later.checks.append((flags, then))

    def on_axis(self, maps: Tensor) -> Tensor:
        """A map of this trace on the model's token axis, which is another where there are two streams."""
        return maps if self.step is None else self.step.whole(maps)

    def once(self, key: str, make: Callable[[LayerTrace], T]) -> T:
        """`make(self)`, computed once per layer: what several methods on one pass have in common."""
        return once_in(self._shared, key, lambda: make(self))


@dataclass(frozen=True, eq=False)
class Trace:
    """One batch through the whole model: the layers, the embeddings and what the head said."""

    opened: Model
    batch: Batch
    layers: list[LayerTrace] = field(repr=False)
    words: Tensor = field(repr=False)  # the word embeddings alone: [B, n, e]
    embeddings: Tensor = field(repr=False)  # what the embedding module made of them: [B, n, e]
    output: Any = field(repr=False)  # the model's own output object
    tuples: int = 0  # where blocks give their output as the first of a tuple, how long that is
    after: list[Ran] = field(default_factory=list, repr=False)  # what ran after the last block: model/head.py
    switch: Switch | None = None  # of a frozen pass: which shares hold on the way back
    streams: tuple[list[Tensor], list[Tensor]] | None = None  # words and embeddings stream by stream, in the graph
    later: Later = field(default_factory=Later, repr=False)
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def look(self) -> None:
        """Ask the device for what `settle` looks at, while it still has other work to do."""
        self.later.ask()
        once_in(self._shared, "finite", lambda: finite(self.output))

    def settle(self) -> None:
        """Wait for the pass, and look at what it gave."""
        self.look()
        self.later.end()
        check_finite(self.opened, self._shared["finite"])

    def __repr__(self) -> str:
        n = len(self.batch.sentences)
        return f"<Trace of {self.opened.name}: {n} input{'s' * (n > 1)}, {len(self.layers)} layers>"

    @property
    def mask(self) -> Tensor:
        return self.batch.mask

    def once(self, key: str, make: Callable[[Trace], T]) -> T:
        """`make(self)`, computed once per pass: what the explanations of several numbers have in common."""
        return once_in(self._shared, key, lambda: make(self))
