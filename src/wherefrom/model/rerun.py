"""The model run again on something slightly different: other tokens, other embeddings, other hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wherefrom.model.alike import numbers_alike
from wherefrom.model.batching import by_length
from wherefrom.model.capture import rerunning
from wherefrom.model.finite import check_order
from wherefrom.model.known_padding import telling
from wherefrom.model.later import fetched
from wherefrom.model.model import Model
from wherefrom.model.output import explained
from wherefrom.model.sentences import Batch, Sentence, collate
from wherefrom.model.two_streams import Streams, streams_of, taken
from wherefrom.model.undo import borrowed, hook, stand_in
from wherefrom.model.unseen import forward_unseen
from wherefrom.progress import wanted_by
from wherefrom.result.answer import Answer

T = TypeVar("T")
TOKENS = 4096  # tokens in one batch of reruns
FEW = 4  # sentences of which it does not pay to ask how they begin


def numbers(
    opened: Model,
    sentences: Sequence[Sentence],
    answers: Sequence[Answer],
    of: str,
    *,
    tokens: int = TOKENS,
    slack: float = 0.0,
    own_attention: bool = False,
) -> Tensor:
    """The explained number of each sentence, in order: [len(sentences)], on the CPU. The rest as in `readings`."""

    def read(output: Any, members: Sequence[int], lengths: Sequence[int]) -> Tensor:
        return explained(opened, output, [answers[i] for i in members], lengths, of)[:, None]

    return readings(opened, sentences, read, 1, tokens=tokens, slack=slack, own_attention=own_attention)[:, 0]


def several_numbers(
    opened: Model,
    sentences: Sequence[Sentence],
    answers: Sequence[Sequence[Answer]],
    of: Sequence[Sequence[str]],
    *,
    own_attention: bool = False,
) -> Tensor:
    """The same of several numbers of each sentence, as many of one as of another: [len(sentences), numbers]."""
    count = len(answers[0])

    def read(output: Any, members: Sequence[int], lengths: Sequence[int]) -> Tensor:
        each = [([answers[i][which] for i in members], [of[i][which] for i in members]) for which in range(count)]
        return torch.stack([explained(opened, output, asked, lengths, meant) for asked, meant in each], -1)

    if own_attention and (found := _alike(opened, sentences, answers, of)) is not None:
        return found
    return readings(opened, sentences, read, count, own_attention=own_attention)


def _alike(
    opened: Model, sentences: Sequence[Sentence], answers: Sequence[Sequence[Answer]], of: Sequence[Sequence[str]]
) -> Tensor | None:
    """The same where the sentences are changes of the first, of all of which the same is read."""
    if len(sentences) < FEW or any(each != answers[0] for each in answers):
        return None

    def read(output: Any, texts: int, which: Sequence[int]) -> Tensor:
        n = len(sentences[0])
        each = [explained(opened, output, [answers[0][i]] * texts, [n] * texts, of[0][i]) for i in which]
        return torch.stack(each, -1)

    return numbers_alike(opened, sentences, answers[0], read, TOKENS)


def readings(
    opened: Model,
    sentences: Sequence[Sentence],
    read: Callable[[Any, Sequence[int], Sequence[int]], Tensor],
    count: int,
    *,
    tokens: int = TOKENS,
    slack: float = 0.0,
    own_attention: bool = False,
) -> Tensor:
    """`count` numbers of each sentence, in order: [len(sentences), count], float64 on the CPU.

    `read` takes them from the output of a batch, given which sentences those are and how long: [B, count]. Sentences
    of one length share a batch of about `tokens` tokens, so that nothing is padded; with `slack`, also those that are
    longer by this share. `own_attention` as in `rerunning`.
    """
    lengths, shapes = [len(each) for each in sentences], [each.shape for each in sentences]

    def batch_of(members: Sequence[int]) -> Batch:
        return collate([sentences[i] for i in members], opened.pad_id)

    def read_of(output: Any, members: Sequence[int]) -> Tensor:
        return read(output, members, [lengths[i] for i in members])

    how: dict[str, Any] = {"tokens": tokens, "slack": slack, "own_attention": own_attention, "shapes": shapes}
    return begun_readings(opened, lengths, batch_of, read_of, count, **how)()


def begun_readings(
    opened: Model,
    lengths: Sequence[int],
    batch_of: Callable[[Sequence[int]], Batch],
    read: Callable[[Any, Sequence[int]], Tensor],
    count: int,
    *,
    tokens: int,
    slack: float,
    own_attention: bool,
    shapes: Sequence[tuple[int, ...]] = (),
) -> Callable[[], Tensor]:
    """The same of texts of these lengths, of which `batch_of` makes a batch, under way; the function waits for it. An
    accelerator is waited for nowhere else.
    """
    slack = slack if opened.pads else 0.0
    most = inf if opened.stacks else 1
    order: list[int] = []
    found: list[Tensor] = []

    @torch.no_grad()
    def run() -> None:
        if opened.family.mapped:  # others may pad by themselves (Longformer does)
            telling()
        kinds = opened.kinds(lengths, shapes)
        for members in by_length(lengths, most, tokens=tokens, slack=slack, shapes=kinds):
            output = forward_unseen(opened, batch_of(members))
            order.extend(members)
            found.append(read(output, members).double())

    rerunning(opened, run, own_attention=own_attention)
    there = fetched(torch.cat(found) if found else torch.zeros(0, count, dtype=torch.float64))

    def wait() -> Tensor:
        result = torch.zeros(len(lengths), count, dtype=torch.float64)
        result[torch.tensor(order, dtype=torch.long)] = there()
        return result

    return wait


def watched(opened: Model, run: Callable[[], T], look: Callable[[], object]) -> T:
    """What `run` returns; before every block of every pass that it makes, and now and then in long work beside these,
    comes a call of `look`, which may raise.
    """

    def called(*_: Any) -> None:
        look()

    def body() -> T:
        for block in opened.blocks:
            hook(block.first, called, before=True)
        with wanted_by(look):
            return run()

    return borrowed(body)


class _Enough(Exception):
    """Ends a pass whose rest nobody wants."""


def states_at(opened: Model, batch: Batch, layer: int | None) -> Tensor:
    """The input of block `layer` (None: the embedding module's output), the pass ending there.

    Of two streams with None: what the first block of each is given, on their axis.
    """
    if opened.two_streams:
        return _entering(opened, batch)
    found: list[Tensor] = []
    seen = 0

    def embedded(_module: nn.Module, _args: Any, output: Tensor) -> None:
        check_order(opened, batch, output)
        found.append(output)
        raise _Enough

    def enters(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen - 1 == layer:
            found.append(args[0] if args else kwargs["hidden_states"])
            raise _Enough

    @torch.no_grad()
    def run() -> None:
        if layer is None:
            hook(opened.embeddings, embedded)
        else:
            for block in opened.blocks:
                hook(block.first, enters, before=True)
        opened.forward(batch)

    with suppress(_Enough):
        rerunning(opened, run)
    return found[0]


def from_layer(
    opened: Model, batch: Batch, layer: int | None, states: Tensor, *, tuples: int, own_attention: bool = False
) -> Any:
    """The output when `states` stand in place of the input of block `layer`; the blocks below are not run.

    None means the embedding module's output, and the number of blocks the last block's output. Gradients flow back into
    `states`. `tuples` is the captured pass's, `own_attention` as in `rerunning`.
    """

    def run() -> Any:
        if opened.two_streams:
            _enter(opened, streams_of(batch), states)
        elif layer is None:
            hook(opened.embeddings, lambda *_: states.clone())  # some models go on in place
        else:
            _start_at(opened, layer, states, tuples)
        return opened.forward(batch)

    return rerunning(opened, run, own_attention=own_attention)


def _start_at(opened: Model, layer: int, states: Tensor, tuples: int) -> None:
    if isinstance(opened.blocks[0].module, nn.ModuleList):  # no module that could be left out: all of them run
        before = opened.blocks[layer - 1].last if layer else opened.embeddings
        hook(before, lambda *_: states.clone())  # likewise
        return
    seen = 0  # blocks may be shared between layers: count the calls, not the modules

    def late(own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen <= layer:
                return (states, *[None] * (tuples - 1)) if tuples else states
            return own(states if seen == 1 else hidden_states, *args, **kwargs)

        return forward

    for block in opened.blocks:
        stand_in(block.module, late(block.module.forward))


# Two streams ----------------------------------------------------------------------------------------------


def _firsts(opened: Model) -> list[nn.Module]:
    """The first block of the encoder and of the decoder."""
    return [opened.blocks[0].module, next(block for block in opened.blocks if block.family.causal).module]


def _entering(opened: Model, batch: Batch) -> Tensor:
    found: list[Tensor] = []

    def enters(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append(args[0] if args else kwargs["hidden_states"])
        if len(found) == 2:
            raise _Enough

    @torch.no_grad()
    def run() -> None:
        for module in _firsts(opened):
            hook(module, enters, before=True)
        opened.forward(batch)

    with suppress(_Enough):
        rerunning(opened, run)
    return streams_of(batch).joint(*found)


def _enter(opened: Model, streams: Streams, states: Tensor) -> None:
    """Inside of `borrowed`: these states stand in place of what the first blocks are given."""

    def instead(own: Tensor, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return ((own, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": own})

    for module, places in zip(_firsts(opened), (streams.source, streams.target), strict=True):
        hook(module, partial(instead, taken(states, places)), before=True)
