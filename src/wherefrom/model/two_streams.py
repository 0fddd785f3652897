r"""An encoder and the decoder that reads it, on one token axis: the source, and after it the target.

A forward pass is a row of steps, each of which writes some rows of the axis and leaves the others as they are:

    encoder block          [[M_ee, 0], [0, I]]
    decoder, to itself     [[I, 0], [0, M_dd]]
    decoder, to the source [[I, 0], [M_de, D]]       D is diagonal: what stays of the token itself

A trace of one of the first two is on its own stream, as that of any block is. The third is on the whole axis: α has the
rows of the target and the columns of the source, the values are the source's, and the stream x_i that attention is
added to is the token's own. So what token j gives to token i is what it is in any block, t_ij = Σ_h α^h_ij f^h_j +
1[i=j] x_i, and rollout and flow take the maps as they take all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidTarget

if TYPE_CHECKING:
    from wherefrom.model.parts import Block
    from wherefrom.model.sentences import Batch, Sentence
    from wherefrom.model.trace import Trace

SOURCE, TARGET = "source", "target"


@dataclass(frozen=True, eq=False)
class Streams:
    """Where the tokens of a batch stand on the axis that both streams share.

    Each stream is padded on the right by itself when the model reads it, and both together on the axis.
    """

    source: Tensor  # [B, S]: the place of each token; n for padding
    target: Tensor  # [B, T]
    seen: Tensor  # [B, S] bool: what of the source attention may see
    n: int

    def to(self, device: torch.device) -> Streams:
        return Streams(self.source.to(device), self.target.to(device), self.seen.to(device), self.n)

    def joint(self, source: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """Streams on the axis, zeros in the place of one that is not given: [B, S, …] and [B, T, …] -> [B, n, …]."""
        streams = [(self.source, source), (self.target, target)]
        given = [(places, t) for places, t in streams if t is not None]
        like = given[-1][1]
        found = like.new_zeros(len(like), self.n + 1, *like.shape[2:])
        rows = torch.arange(len(like), device=like.device)[:, None]
        for places, t in given:
            found[rows, places.to(like.device)] = t.to(found)
        return found[:, : self.n]

    def joint_map(self, ee: Tensor, dd: Tensor, de: Tensor) -> Tensor:
        """[[ee, 0], [de, dd]] on the axis: [B, S, S], [B, T, T] and [B, T, S] -> [B, n, n]."""
        source = self.joint(source=ee.mT)  # columns first: [B, n, S]
        target = self.joint(de.mT, dd.mT)  # [B, n, T]
        return self.joint(source.mT, target.mT)


def streams_of(batch: Batch) -> Streams:
    """The streams of a batch, by the segments of its sentences."""
    n = batch.ids.shape[1]

    def places(name: str) -> Tensor:
        rows = [[i for i, segment in enumerate(each.segments) if segment == name] for each in batch.sentences]
        longest = max(len(row) for row in rows)
        if not all(rows):
            raise InvalidTarget(
                f"an encoder with a decoder was given no {name}; give it both: an encoding with input_ids and "
                f"decoder_input_ids, or a text with target= where that is an argument"
            )
        return torch.tensor([[*row, *[n] * (longest - len(row))] for row in rows], dtype=torch.long)

    target, source = places(TARGET), places(SOURCE)
    return Streams(source, target, taken(batch.attention_mask, source).bool(), n)


def prefixed(source: Sentence, ids: Sequence[int], names: Sequence[str], special: Sequence[bool]) -> Sentence:
    """A source and what its decoder reads, as one sentence."""
    more, words, given = len(ids), source.word_ids, source.given
    return replace(
        source,
        ids=[*source.ids, *ids],
        tokens=[*source.tokens, *names],
        special=[*source.special, *special],
        spans=[*source.spans, *[None] * more],
        types=None,
        visible=None if source.visible is None else [*source.visible, *[1] * more],
        word_ids=None if words is None else [*words, *[None] * more],
        unknown=[*source.unknown, *[False] * more],
        segments=[*[SOURCE] * len(source), *[TARGET] * more],
        given=None if given is None else {**given, "decoder_input_ids": list(ids)},
    )


def taken(t: Tensor, places: Tensor, fill: Any = 0) -> Tensor:
    """One stream of what stands on the axis: [B, n, …] -> [B, S, …]; `fill` in the place of padding."""
    longer = torch.cat([t, torch.full_like(t[:, :1], fill)], 1)
    return longer[torch.arange(len(t), device=t.device)[:, None], places.to(t.device)]


@dataclass(frozen=True, eq=False)
class StreamStep:
    """What one step of a pass writes, and its tensors as the pass has them: those of its trace, or for attention to the
    source the rows of the target and the columns of the source.
    """

    streams: Streams
    crosses: bool
    places: Tensor  # of the rows it writes: [B, m]
    own: dict[str, Tensor] = field(repr=False)

    def whole(self, maps: Tensor) -> Tensor:
        """A map of the trace as one of the axis, where the rows it does not write are the identity: [B, …, n, n]."""
        if maps.ndim == 4:  # by head
            return torch.stack([self.whole(each) for each in maps.unbind(1)], 1)
        n, rows = self.streams.n, torch.arange(len(maps), device=maps.device)[:, None]
        identity = torch.eye(n + 1, dtype=maps.dtype, device=maps.device)
        if self.crosses:
            written = torch.zeros(len(maps), n + 1, dtype=torch.bool, device=maps.device)
            written[rows, self.places] = True
            return torch.where(written[:, :n, None], maps, identity[:n, :n])
        found = identity.repeat(len(maps), 1, 1)
        found[rows[..., None], self.places[:, :, None], self.places[:, None]] = maps
        return found[:, :n, :n]

    def stays(self, n: int) -> Tensor:
        """Which of the trace's tokens it leaves as they are: [B, n] bool."""
        found = torch.full((len(self.places), n + 1), self.crosses, device=self.places.device)
        if self.crosses:
            found[torch.arange(len(found), device=found.device)[:, None], self.places] = False
        return found[:, :n]


def step_of(block: Block, page: dict[str, Tensor], streams: Streams) -> tuple[StreamStep, dict[str, Tensor]]:
    """A step, and the tensors of its trace."""
    streams = streams.to(page["output"].device)
    if not block.family.crosses:
        places = streams.target if block.family.causal else streams.source
        return StreamStep(streams, False, places, page), page
    return StreamStep(streams, True, streams.target, page), _on_axis(page, streams)


def _on_axis(page: dict[str, Tensor], streams: Streams) -> dict[str, Tensor]:
    """What attention to the source did, on the whole axis. A source token stays as it is: α is 0, and u = x."""
    stays = {name: streams.joint(page["read"], page[name]) for name in ("x", "w", "output")}
    heads = {
        "query": streams.joint(target=page["query"].transpose(1, 2)),
        "key": streams.joint(source=page["key"].transpose(1, 2)),
        "value": streams.joint(source=page["value"].transpose(1, 2)),
        # Columns first, and then rows.
        "attention": streams.joint(
            target=streams.joint(source=page["attention"].permute(0, 3, 1, 2)).permute(0, 3, 2, 1)
        ),
    }
    by_head = {name: t.transpose(1, 2) for name, t in heads.items()}
    given = {name: streams.joint(target=page[name]) for name in ("mixed", "added")}
    return {**stays, **given, **by_head}


# Gradients ------------------------------------------------------------------------------------------------


def leaves(trace: Trace) -> list[Tensor]:
    """What gradients reach: the words, and what the embedding module made of them; of two streams one after another."""
    return [trace.words, trace.embeddings] if trace.streams is None else [t for both in trace.streams for t in both]


def gathered(trace: Trace, found: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The gradients at the words and at the embeddings, on the axis; and the others."""
    if trace.streams is None:
        return found[0], found[1], list(found[2:])
    streams = streams_of(trace.batch)
    return streams.joint(*found[:2]), streams.joint(*found[2:4]), list(found[4:])


def last_state(trace: Trace) -> Tensor:
    """The last block's output, in the graph."""
    layer = trace.layers[-1]
    return layer.raw["output"] if layer.step is None else layer.step.own["output"]


def rows_of_last(trace: Trace, places: Sequence[int | None]) -> list[int | None]:
    """Which row of it each sentence's place on the axis is: the decoder's output begins at the target."""
    if trace.streams is None:
        return list(places)
    before = [each.segments.count(SOURCE) for each in trace.batch.sentences]
    return [None if place is None else place - s for place, s in zip(places, before, strict=True)]
