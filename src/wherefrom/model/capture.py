"""One forward pass, taken down: α, q, k, v and the residual stream of every block.

The modeling files of most architectures compute attention in a function, `eager_attention_forward`. For the length of
one pass ours is wrapped around it: the model's own does the arithmetic (windows, soft-caps, sinks, position biases and
all), and ours takes notes. Where attention is no such function, the module that computes it returns its weights.
Temporary hooks on the blocks and their parts note the rest. Afterwards the model is as it was, also after an exception
or an interrupt, and captures wait for one another: wherefrom/model/undo.py says what exactly holds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wherefrom.errors import UnsupportedModel
from wherefrom.model.at_once import at_once
from wherefrom.model.attended import blind_rows, by_head, values_of, weights_among, without_blind_rows
from wherefrom.model.compiling import Compile, follows, worth
from wherefrom.model.double_casts import computing_in_double
from wherefrom.model.finite import check_order
from wherefrom.model.frozen_pass import Freezing, Switch, freeze
from wherefrom.model.head import parts_after_blocks
from wherefrom.model.known_padding import telling
from wherefrom.model.later import Later
from wherefrom.model.model import Model
from wherefrom.model.parts import Block, promote
from wherefrom.model.plain_pass import compare_with_plain_pass
from wherefrom.model.sentences import Batch
from wherefrom.model.trace import LayerTrace, Ran, Trace
from wherefrom.model.two_streams import Streams, step_of, streams_of, taken
from wherefrom.model.undo import (
    attending,
    attending_eagerly,
    borrowed,
    evaluating,
    hook,
    on_leaving,
    outside_inference_mode,
    parts_of,
    routing_eagerly,
)
from wherefrom.model.unseen import without_unseen

T = TypeVar("T")
_RECORDER: ContextVar[_Recorder | None] = ContextVar("wherefrom_recorder", default=None)
_COMPILE: ContextVar[Compile] = ContextVar("wherefrom_compile", default="auto")


@dataclass
class _Recorder:
    """The page on which a running forward pass is taken down, one block at a time."""

    batch: Batch
    on_layer: Callable[[LayerTrace], None]
    causal: bool = False
    streams: Streams | None = None
    encoded: Tensor | None = None  # what the encoder gave
    read: tuple[list[Tensor], list[Tensor]] = field(default_factory=lambda: ([], []))  # words and embeddings of each
    count: int = 0
    page: dict[str, Tensor] | None = None
    scaling: float = 1.0
    softcap: float | None = None
    words: Tensor | None = None
    embeddings: Tensor | None = None
    tuples: int = 0
    after: list[Ran] = field(default_factory=list)
    later: Later = field(default_factory=Later)

    def mine(self) -> bool:
        """Whether the pass that is running is the one that is taken down here."""
        return _RECORDER.get() is self

    def note(self, **tensors: Tensor) -> None:
        if self.page is not None:
            self.page.update(tensors)

    def begin(self, block: Block, x: Tensor) -> None:
        """A block is given its input."""
        self.page = {"x": x}
        if self.embeddings is None:  # no module gives them: they are what the first block is given
            self.embeddings = x
        if self.streams is not None and len(self.read[1]) == int(block.family.causal):  # the first of its stack
            self.read[1].append(x)

    def end(self, block: Block, output: Tensor) -> None:
        """It gives its output: all else is known by then. Some models flatten batch and tokens inside (OPT)."""
        page = self.page
        if page is not None and "mixed" in page:
            added = page.get("added", page["mixed"])  # through the norm on the branch, if any
            page["added"] = added.view(page["x"].shape)
            page["mixed"] = page["mixed"].view(page["x"].shape)
            page["w"] = page.get("w", output).view(output.shape)
        self.note(output=output)
        self.finish(block)

    def finish_whole(self) -> None:
        """A model whose blocks are not known, as one layer that has tokens and nothing else."""
        assert self.words is not None
        ids, mask = self.batch.on(self.words.device)
        self.on_layer(LayerTrace(0, None, ids, mask, 1.0, {"x": self.words.detach()}))  # type: ignore[arg-type]
        self.count = 1

    def finish(self, block: Block) -> None:
        page, self.page = self.page, None
        missing = {"x", "w", "attention", "value", "mixed", "output"} - set(page or ())
        if page is None or missing:
            raise UnsupportedModel(
                f"block {self.count} of the model did not pass through the parts that wherefrom knows "
                f"(missing: {', '.join(sorted(missing))}); use an unmodified transformers model"
            )
        ids, mask = self.batch.on(page["output"].device)
        step, causal = None, self.causal
        if self.streams is not None:
            causal = block.family.causal
            if causal and self.encoded is not None:
                page["read"] = self.encoded  # by the second step of its block
            elif not block.family.crosses and not isinstance(block.reader, Block):
                self.encoded = page["output"] if block.reader is None else block.reader(promote(page["output"]))
            step, page = step_of(block, page, self.streams)
            if not step.crosses:
                ids, mask = taken(ids, step.places), taken(mask, step.places)
        found = self.count, block, ids, mask, self.scaling, page, causal, self.softcap, step
        known = self.batch.lengths if step is None else None
        made = LayerTrace(*found, kernels=worth(_COMPILE.get()), _later=self.later, _lengths=known)
        self.on_layer(made)
        self.count += 1


def attention_forward(
    eager: Callable[..., tuple[Tensor, Tensor]],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """The model's own eager attention, noting what passes."""
    if getattr(module, "reorder_and_upcast_attn", False):  # GPT-2's option for half precision
        query, key = promote(query), promote(key)
    attention_mask = without_unseen(attention_mask, query)
    recorder = _RECORDER.get()
    causal = recorder is not None and recorder.causal and recorder.streams is None  # of a decoder's two one is not
    found = at_once(eager, query, key, value, attention_mask, causal, **more) if worth(_COMPILE.get()) else None
    output, attention = found or eager(module, query, key, value, attention_mask, **more)
    blind = blind_rows(attention_mask)
    if blind is not None:
        # A row that sees nothing (a hidden first token of a causal model) would be spread over its padding as well,
        # or be NaN, which the next block would pass on to every token.
        attention = attention.masked_fill(blind, 0)
        output = (attention @ by_head(value, query.shape[1])).transpose(1, 2).contiguous()
    if recorder is not None:
        scaling = more.get("scaling")
        recorder.scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        recorder.softcap = more.get("softcap")
        recorder.note(query=query, key=key, value=value, attention=attention)
    return output, attention


def stream(
    opened: Model,
    batch: Batch,
    on_layer: Callable[[LayerTrace], None],
    *,
    grad: bool = False,
    frozen: Freezing | None = None,
    wait: bool = True,
    compare: bool = True,
) -> Trace:
    """Run the batch, hand each layer to `on_layer` and forget it: the trace that comes back holds no layers.

    With nothing kept but what `on_layer` keeps, memory does not grow with depth. With `grad` the tensors keep their
    graph, with `frozen` that of a linear map (model/frozen_pass.py). Without `wait` the caller settles the trace,
    without `compare` the output is not held against the model's own (model/plain_pass.py).
    """
    recorder = _Recorder(batch, on_layer, opened.causal, streams_of(batch) if opened.two_streams else None)
    switch = None if frozen is None else Switch()
    follows(*batch.mask.shape)

    def run() -> Any:
        on_leaving(partial(_RECORDER.set, _RECORDER.get()))
        _RECORDER.set(recorder)
        if switch is not None and frozen is not None:
            freeze(opened, switch, frozen)
        _hook(opened, recorder)
        with torch.set_grad_enabled(grad or frozen is not None):
            return opened.forward(batch)

    output = rerunning(opened, run)
    if not opened.family.mapped and recorder.words is not None:
        recorder.finish_whole()
    if recorder.words is None:
        raise UnsupportedModel(
            "the model looks up its tokens in another table than get_input_embeddings() names; wherefrom cannot follow "
            "it (of adapters one within the other: merge them, with peft's merge_and_unload)"
        )
    if recorder.count != opened.depth or recorder.embeddings is None:
        raise UnsupportedModel(
            f"the model ran {recorder.count} blocks where its config names {opened.depth}; wherefrom cannot follow it"
        )
    if compare:
        compare_with_plain_pass(opened, batch, output)
    words, embeddings, read = recorder.words, recorder.embeddings, None
    if recorder.streams is not None:
        read = recorder.read
        if opened.hears:  # sound has no words; what the encoder makes of it stands for them
            read = [read[1][0], *read[0]], read[1]
        words, embeddings = (recorder.streams.joint(*(t.detach() for t in each)) for each in read)
    ran = recorder.tuples, recorder.after, switch, read, recorder.later
    trace = Trace(opened, batch, [], words, embeddings, output, *ran)
    if wait:
        trace.settle()
    return trace


def capture(
    opened: Model, batch: Batch, *, grad: bool = False, frozen: Freezing | None = None, compare: bool = True
) -> Trace:
    """Run the batch and keep every layer."""
    layers: list[LayerTrace] = []
    found = stream(opened, batch, layers.append, grad=grad, frozen=frozen, compare=compare)
    return replace(found, layers=layers)


def rerunning(opened: Model, body: Callable[[], T], *, own_attention: bool = False) -> T:
    """What `body` returns; in it the model runs as it does under capture (same attention, eval mode), unrecorded.

    What is measured against a captured pass must be the same function of the input, to the last bit. With
    `own_attention` the model keeps its own implementation, which may be faster and agrees up to rounding; except
    GPT-2 blocks used without their causal mask, which transformers' SDPA would put back.
    """
    encoder_of_decoders = opened.family.causal and not opened.causal

    def run() -> T:
        on_leaving(partial(_COMPILE.set, _COMPILE.get()))
        _COMPILE.set(opened.compile)
        parts = parts_of(opened.model)
        evaluating(opened.model, parts)
        if opened.pretrained.dtype == torch.float64:
            computing_in_double(opened.model)
        if opened.family.mapped and opened.family.ffn.module:
            routing_eagerly(opened.model)
        if opened.family.mapped and (not own_attention or encoder_of_decoders):
            if opened.family.attention.module:
                attending_eagerly(opened.model)
            else:
                telling()
                attending(opened.model, attention_forward, parts)
        return outside_inference_mode(body)

    return borrowed(run)


def _hook(opened: Model, recorder: _Recorder) -> None:
    """Temporary hooks on the embeddings, the blocks and their parts.

    Hooks sit on the module, for all threads; the recorder belongs to one. A pass of the same model in another
    thread must leave no trace here.
    """

    def worded(_module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if not recorder.mine():
            return None
        if recorder.words is not None and len(recorder.read[0]) != 1:
            if not torch.equal(args[0].cpu(), recorder.batch.ids.cpu()):
                return None  # GPT-2 embeds its token types by the table of its words
            raise UnsupportedModel("the model embeds its input more than once in a pass; wherefrom cannot follow it")
        if torch.is_grad_enabled() and recorder.streams is None:
            check_order(opened, recorder.batch, output)
        # A leaf, so that gradients reach it and stop there, also when all parameters are frozen.
        recorder.words = output.detach().requires_grad_(torch.is_grad_enabled())
        if recorder.streams is not None:
            recorder.read[0].append(recorder.words)
        return recorder.words.clone()  # CTRL multiplies it in place

    def embedded(_module: nn.Module, _args: Any, output: Tensor) -> None:
        if not isinstance(output, Tensor):  # LiLT: positions beside them, for a second stream of layouts
            raise UnsupportedModel("the model's embeddings are more than one tensor; wherefrom cannot follow all")
        if recorder.mine():
            recorder.embeddings = output

    for module in opened.embedders:
        hook(module, worded)
    if opened.family.embeddings:
        hook(opened.embeddings, embedded)
    elif not opened.family.mapped:
        for module in opened.embedders:
            hook(module, embedded)
    for before, block in zip([None, *opened.blocks], opened.blocks, strict=False):
        _hook_block(block, recorder, before)
    _hook_head(opened, recorder)


def _hook_head(opened: Model, recorder: _Recorder) -> None:
    def passes(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if recorder.mine() and recorder.count == opened.depth:
            recorder.after.append((module, args[0], output))

    closing = opened.part(opened.family.closing) if opened.family.closing else None
    for part in parts_after_blocks(opened.model, opened.blocks, closing) if opened.blocks else ():
        hook(part, passes)


def _hook_block(block: Block, recorder: _Recorder, before: Block | None) -> None:
    attention, ffn, crosses = block.family.attention, block.family.ffn, block.family.crosses

    def begins(_module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        if recorder.mine():
            x = args[0] if args else kwargs["hidden_states"]
            if crosses and before is not None:
                recorder.end(before, x)  # which is the first step of the same module
            recorder.begin(block, x)

    def ends(_module: nn.Module, _args: Any, output: Any) -> None:
        if recorder.mine():
            recorder.tuples = len(output) if isinstance(output, tuple | list) else 0  # a list in the first GPT
            recorder.end(block, output[0] if recorder.tuples else output)

    def enters_last_norm(_module: nn.Module, args: tuple[Tensor, ...], _kwargs: Any) -> None:
        if recorder.mine() and recorder.page is not None:
            # With config.chunk_size_feed_forward the tokens come in pieces.
            before = [recorder.page["w"]] if "w" in recorder.page else []
            recorder.note(w=torch.cat([*before, args[0]], 1) if before else args[0])

    def leaves(name: str) -> Callable[..., None]:
        def note(_module: nn.Module, _args: Any, output: Tensor) -> None:
            if recorder.mine():
                recorder.note(**{name: output})

        return note

    def returns(_module: nn.Module, _args: Any, output: Any) -> None:
        if recorder.mine() and recorder.page is not None:
            value = values_of(block, recorder.page.pop("projected"))
            recorder.note(attention=without_blind_rows(weights_among(output)), value=value)

    def reads(_module: nn.Module, args: tuple[Tensor, ...], _kwargs: Any) -> None:
        if recorder.mine():
            recorder.note(read=args[0])

    hook(block.first, begins, before=True)
    if block.feeds:
        hook(block.last, ends)
    if crosses:
        hook(block.part(attention.value), reads, before=True)
    hook(block.part(attention.output), leaves("mixed"))
    if attention.after:
        hook(block.part(attention.after), leaves("added"))
    if ffn.post:
        hook(block.part(ffn.post), enters_last_norm, before=True)
    if attention.module:
        hook(block.part(attention.value), leaves("projected"))
        hook(block.part(attention.module), returns)
