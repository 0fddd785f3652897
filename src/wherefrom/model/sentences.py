"""Sentences as the model reads them, tokenised, and the padded batches that they stand in.

Padding stands on the right, wherever it came in: the answer for a sentence must not depend on where its neighbours were
padded.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from wherefrom.model.later import sent
from wherefrom.model.pictures import painted
from wherefrom.result.picture import Patches
from wherefrom.result.words import Span

T = TypeVar("T")


@dataclass(frozen=True)
class Sentence:
    """One input, tokenised: ids and what is known of where they came from."""

    ids: list[int]
    tokens: list[str]
    special: list[bool]  # a token of the tokenizer's own ([CLS], [SEP], padding) rather than one of the text
    spans: list[Span | None]  # (which text, start, end) of each token; a blank's may be empty
    texts: tuple[str, ...]
    types: list[int] | None = None
    visible: list[int] | None = None  # the caller's own attention mask over these tokens, when it hides some
    word_ids: list[int | None] | None = None  # the caller's own word of each token, when the text came in words
    unknown: list[bool] = field(default_factory=list)  # read as [UNK], whatever the text says
    given: dict[str, Any] | None = None  # the ids, mask and types, or the file, where these came in and not a text
    read_by: Mapping[str, Any] = field(default_factory=dict)  # the arguments of `explain` that read the text so
    may_be_cut: bool = False  # by whoever puts something after it
    embedded: list[int] | None = None  # the ids whose embeddings are read, where others stand in for some of `ids`
    unseen: tuple[int, ...] = ()  # tokens that attention may not see, the others keeping their positions
    said: tuple[int, ...] = ()  # what comes after the prompt, all but its last token also at the end of `ids`
    segments: list[str] = field(default_factory=list)  # the part of the input each token is of, where it has several
    pixels: Tensor | None = field(default=None, compare=False)  # of a picture: what its processor made, [3, H, W],
    picture: Patches | None = field(default=None, compare=False)  # how it is shown and where its patches lie,
    black: tuple[float, ...] | None = None  # and what black is after normalisation
    sound: Tensor | None = field(default=None, compare=False)  # of a recording: its spectrogram, [bins, frames]
    after: dict[str, Any] = field(default_factory=dict, init=False, compare=False)  # what texts become after it

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a picture, that of its pixels: no two of different shapes share a batch."""
        return () if self.pixels is None else tuple(self.pixels.shape)

    def blanked(self, gone: Collection[int], blank: int) -> Sentence:
        """The same sentence with the embedding of another token in these places.

        `ids` stay, because models read more from them: RoBERTa counts positions without padding, and a GPT-2
        classifier reads the last token that is no padding. What stands in may be the padding token.
        """
        before = self.embedded or self.ids
        return replace(self, embedded=[blank if i in gone else token for i, token in enumerate(before)])

    def beginning(self, n: int) -> Sentence:
        """Its first n tokens alone, where the caller lets it be cut."""

        def first(values: list[T] | None) -> list[T] | None:
            return None if values is None else values[:n]

        return replace(
            self,
            ids=self.ids[:n],
            tokens=self.tokens[:n],
            special=self.special[:n],
            spans=self.spans[:n],
            types=first(self.types),
            visible=first(self.visible),
            word_ids=first(self.word_ids),
            unknown=self.unknown[:n],
            read_by={**self.read_by, "long": "truncate"},
            embedded=first(self.embedded),
            segments=self.segments[:n],
        )

    def without(self, gone: Collection[int]) -> Sentence:
        """What the model reads when these tokens are deleted; only what it reads is what is left."""

        def left(values: list[T]) -> list[T]:
            return [value for i, value in enumerate(values) if i not in gone]

        beside = (self.types, self.visible, self.embedded)
        types, visible, embedded = (None if values is None else left(values) for values in beside)
        segments = left(self.segments)
        return replace(self, ids=left(self.ids), types=types, visible=visible, embedded=embedded, segments=segments)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences side by side, right-padded."""

    sentences: list[Sentence]
    ids: Tensor  # [B, n]
    mask: Tensor  # [B, n] bool: real tokens
    attention_mask: Tensor  # [B, n]: the real tokens that attention may see
    types: Tensor | None
    embedded: Tensor | None = None  # [B, n]: the ids whose embeddings are read, where they are not `ids`
    unseen: Tensor | None = None  # [B, n] bool: what attention may not see, the others keeping their positions
    pixels: Tensor | None = None  # [B, 3, H, W], of pictures
    padded: bool | None = None  # whether `attention_mask` hides something, where that is known without a look at it
    _moved: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`ids` and `mask` on a device, sent there once and not in every layer."""
        if device not in self._moved:
            self._moved[device] = sent(self.ids, device), sent(self.mask, device)
        return self._moved[device]

    @cached_property
    def lengths(self) -> list[int]:
        return [len(sentence) for sentence in self.sentences]

    def take(self, rows: Tensor) -> Batch:
        """These rows of the batch, each as often as it is named, at the same padded length."""
        rows = rows.cpu()
        beside = (self.types, self.embedded, self.pixels)
        types, embedded, pixels = (None if each is None else each[rows] for each in beside)
        chosen = [self.sentences[int(row)] for row in rows]
        read = self.ids[rows], self.mask[rows], self.attention_mask[rows]
        return Batch(chosen, *read, types, embedded, pixels=pixels)


def collate(sentences: Sequence[Sentence], pad_id: int | None) -> Batch:
    """Pad sentences on the right into one batch."""
    n = max(len(s) for s in sentences)

    def padded(rows: Iterable[Sequence[int]], fill: int) -> Tensor:
        every = array("q")  # three times as fast as a tensor of lists
        for row in rows:
            every.fromlist([*row, *[fill] * (n - len(row))])
        return torch.frombuffer(every, dtype=torch.long).view(-1, n)

    real = torch.arange(n) < torch.tensor([len(s) for s in sentences])[:, None]
    pictures = all(s.pixels is not None for s in sentences)
    types = embedded = unseen = None
    if any(s.types is not None for s in sentences):
        types = padded([s.types or [0] * len(s) for s in sentences], 0)
    if any(s.embedded is not None for s in sentences) and not pictures:
        embedded = padded([s.embedded or s.ids for s in sentences], pad_id or 0)
    if any(s.unseen for s in sentences):
        unseen = padded([[i in s.unseen for i in range(len(s))] for s in sentences], 0).bool()
    return Batch(
        sentences=list(sentences),
        ids=padded([s.ids for s in sentences], pad_id or 0),
        mask=real,
        attention_mask=padded([s.visible or [1] * len(s) for s in sentences], 0)
        if any(s.visible for s in sentences)
        else real.long(),
        types=types,
        embedded=embedded,
        unseen=unseen,
        pixels=torch.stack([painted(s) for s in sentences]) if pictures else None,
        padded=any(len(s) < n or 0 in (s.visible or ()) for s in sentences) if unseen is None else None,
    )
