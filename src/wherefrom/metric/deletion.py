r"""Erasure by deletion from many texts at once, in arrays from the scores to the probabilities.

erasure.py takes one variant of a text after another. A classifier that reads plain texts needs none of that: with r the
place of a token in the order of its scores, the tokens left at step k are those with r ≥ k; all of them, of all
texts, methods and steps, are one comparison. What is left is pushed together, equal variants are read once, and
batches are cut from the one array that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.model import Model, Sentence
from wherefrom.model.later import aside, sent
from wherefrom.model.output import one_class_each
from wherefrom.model.parts import promote
from wherefrom.model.rerun import begun_readings
from wherefrom.model.sentences import Batch
from wherefrom.result.explanation import Explanation

if TYPE_CHECKING:
    from wherefrom.metric.erasure import Way

Ints = NDArray[np.int32]


class Steps(NamedTuple):
    """One curve: how many tokens are gone (or kept) at each step; and the probability and the prediction there."""

    taken: NDArray[np.int64]
    readings: NDArray[np.float64]  # [steps, 2]


def without_each(
    opened: Model, asked: Sequence[tuple[Sentence, Explanation, Way]], tokens: int, slack: float
) -> Callable[[], list[Steps]] | None:
    """A curve for each, under way, for which the function waits; None where one of them asks for more than a class of a
    plain text, token by token.
    """
    if not opened.pads or not one_class_each(opened, [each.measured for _, each, _ in asked]):
        return None
    if not all(_plain(*each) for each in asked):
        return None
    by_way: dict[int, list[int]] = {}  # the same way is one object: to hash eleven shares takes longer than the rest
    for place, (_, _, way) in enumerate(asked):
        by_way.setdefault(id(way), []).append(place)
    groups = list(by_way.values())
    parts = [_Variants.of([asked[i] for i in places], asked[places[0]][2]) for places in groups]
    made = [part for part in parts if part is not None]
    if len(made) < len(parts):
        return None
    with aside(opened.device):
        there = _read(opened, made, tokens, slack)

    def wait() -> list[Steps]:
        found: dict[int, Steps] = {}
        for places, part, readings in zip(groups, made, there(), strict=True):
            found |= {place: Steps(*each) for place, *each in zip(places, part.taken, readings, strict=True)}
        return [found[place] for place in range(len(asked))]

    return wait


def _plain(sentence: Sentence, explanation: Explanation, way: Way) -> bool:
    bare = sentence.visible is None and sentence.embedded is None and sentence.pixels is None and sentence.sound is None
    whole = not (sentence.unseen or sentence.said or sentence.segments)
    usual = way.by in ("auto", "delete") and way.protocol == "text"
    same = explanation.tokens is sentence.tokens or explanation.tokens == sentence.tokens
    return bare and whole and usual and same


class _Variants(NamedTuple):
    """All that is left at each step of each curve of one way: [curves, steps, n], what is gone pushed out."""

    ids: Ints
    types: Ints | None
    lengths: NDArray[np.int64]  # [curves, steps]
    targets: Ints  # [curves]
    taken: NDArray[np.int64]  # [curves, steps]

    @classmethod
    def of(cls, asked: Sequence[tuple[Sentence, Explanation, Way]], way: Way) -> _Variants | None:
        """None where a text has no token that may go, or none that may not."""
        texts = {id(sentence): (sentence, each.special) for sentence, each, _ in asked}  # each once for all methods
        places = {key: place for place, key in enumerate(texts)}
        text = np.array([places[id(sentence)] for sentence, _, _ in asked])
        n = max(len(sentence) for sentence, _ in texts.values())
        real = np.arange(n) < np.array([len(sentence) for sentence, _ in texts.values()])[:, None]
        ids, special, types = (
            _padded(rows, n)
            for rows in zip(*((s.ids, added, s.types or ()) for s, added in texts.values()), strict=True)
        )
        free = real & (special == 0)
        own = free.sum(1)
        if not own.all() or (own == real.sum(1)).any():
            return None
        scores = np.zeros((len(asked), n))
        for row, (_, explanation, _) in enumerate(asked):
            scores[row, : len(explanation.scores)] = explanation.scores
        order = np.argsort(np.where(free[text], -scores, np.inf), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(n), order.shape), 1)
        taken = _counts(own[text], way)
        before = rank[:, None] < taken[..., None]  # [curves, steps, n]
        gone = free[text][:, None] & (~before if way.keep else before)
        gone[:, 0] = False
        left = real[text][:, None] & ~gone
        targets = np.array([each.measured.index for _, each, _ in asked], dtype=np.int32)
        typed = any(sentence.types is not None for sentence, _ in texts.values())
        lengths = np.count_nonzero(left, -1)
        kinds = _pushed(left, lengths, types[text]) if types.any() else np.zeros(left.shape, np.int32)
        return cls(_pushed(left, lengths, ids[text]), kinds if typed else None, lengths, targets, taken)


def _padded(rows: Sequence[Sequence[int]], n: int) -> Ints:
    found = np.zeros((len(rows), n), dtype=np.int32)
    for row, numbers in enumerate(rows):
        found[row, : len(numbers)] = numbers
    return found


def _counts(own: NDArray[np.int64], way: Way) -> NDArray[np.int64]:
    """How many of the tokens that may go are gone (or kept) at each step; the first is the whole text."""
    shares = np.array(way.shares)
    counts = np.minimum(own[:, None], np.maximum(np.rint(shares * own[:, None]), shares > 0)).astype(np.int64)
    return counts if way.shares[0] == 0 else np.concatenate([np.zeros_like(counts[:, :1]), counts], 1)


def _pushed(left: NDArray[np.bool_], lengths: NDArray[np.int64], rows: Ints) -> Ints:
    """The numbers that are left of each row, from the first place on, and 0 after them: [curves, steps, n]."""
    found = np.zeros(left.shape, dtype=np.int32)
    found[np.arange(left.shape[-1]) < lengths[..., None]] = np.broadcast_to(rows[:, None], left.shape)[left]
    return found


def _read(
    opened: Model, parts: Sequence[_Variants], tokens: int, slack: float
) -> Callable[[], list[NDArray[np.float64]]]:
    """Probability and prediction of every variant, [curves, steps, 2] of each part; equal ones are read once."""
    n = max(part.ids.shape[-1] for part in parts)
    ids = np.concatenate([_flat(part.ids, n) for part in parts])
    typed = [_flat(part.types, n) for part in parts if part.types is not None]
    types = np.concatenate(typed) if typed and any(each.any() for each in typed) else None
    lengths = np.concatenate([part.lengths.ravel() for part in parts])
    targets = np.concatenate([np.repeat(part.targets, part.taken.shape[1]) for part in parts])
    beside = [lengths[:, None].astype(np.int32), targets[:, None], *([] if types is None else [types])]
    first, which = _different(np.concatenate([ids, *beside], 1))
    order = np.argsort(lengths[first], kind="stable")  # as batches are cut, so that each is a piece of what is held
    first, place = first[order], np.argsort(order)
    lengths = lengths[first]
    real = np.arange(n) < lengths[:, None]
    held, long, wanted, *kinds = (
        sent(torch.from_numpy(each), opened.device)
        for each in (
            np.where(real, ids.take(first, 0), np.int32(opened.pad_id or 0)),
            lengths,
            targets[first].astype(np.int64),
            *([] if types is None else [types.take(first, 0)]),
        )
    )

    def batch_of(members: Sequence[int]) -> Batch:
        piece, size = slice(members[0], members[-1] + 1), int(lengths[members[-1]])
        mask = torch.arange(size, device=long.device) < long[piece, None]
        read = held[piece, :size].long()
        segments = kinds[0][piece, :size].long() if kinds else torch.zeros_like(read)
        padded = bool(lengths[members[0]] < size)
        return Batch([], read, mask, mask.long(), segments if typed else None, padded=padded)

    def read(output: Any, members: Sequence[int]) -> Tensor:
        logits = promote(output.logits)
        asked = wanted[members[0] : members[-1] + 1, None].to(logits.device)
        return torch.cat([logits.softmax(-1).gather(1, asked), logits.argmax(-1, keepdim=True).to(logits)], 1)

    how: dict[str, Any] = {"tokens": tokens, "slack": slack, "own_attention": True}
    there, wanted_by = begun_readings(opened, lengths.tolist(), batch_of, read, 2, **how), place[which]

    def wait() -> list[NDArray[np.float64]]:
        each = np.split(there().numpy().take(wanted_by, 0), np.cumsum([part.lengths.size for part in parts])[:-1])
        return [found.reshape(*part.taken.shape, 2) for part, found in zip(parts, each, strict=True)]

    return wait


def _flat(numbers: Ints, n: int) -> Ints:
    rows = numbers.reshape(-1, numbers.shape[-1])
    return rows if rows.shape[1] == n else np.pad(rows, ((0, 0), (0, n - rows.shape[1])))


def _different(rows: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first of each kind of row, in their order, and for every row which of them it is.

    Rows are told apart by a hash, a sum of their numbers each times another; that it tells all of them apart is seen.
    """
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64)
    _, first, which = np.unique(rows.astype(np.uint64) @ factors, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, which = first[order], place[which.reshape(-1)]
    if not np.array_equal(rows.take(first, 0).take(which, 0), rows):  # two kinds with one hash
        return _different_by_content(rows)
    return first, which


def _different_by_content(rows: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same, every number of every row looked at."""
    kinds = [row.tobytes() for row in rows]
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    which = np.array([places[kind] for kind in kinds])
    return np.unique(which, return_index=True)[1], which
