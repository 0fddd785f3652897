"""What a batch sends from an accelerator to the host: the maps of all its layers, in one array.

A map goes into memory that the device writes by itself, beside the computation and not after it, and nobody waits for
it before the pass is over. Explanations are parts of that array: nothing is copied for each sentence. They hold the
whole of it, so that they are copied all the same where most of it is padding, or where results already hold as much
memory of that kind as a machine can spare.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import Any, NoReturn, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.model.later import fetched, stream_for

T = TypeVar("T")
PINNED = 4 * 2**30  # bytes that results may hold of the memory that devices write: it is never paged out
SMALL = 2**20  # bytes, which are sent sooner than a second stream is told to
_held = [0]  # bytes of such memory that is in use


@dataclass
class Fetching:
    """What one batch sends to the host, which may be read after `wait`."""

    streams: set[Any] = field(default_factory=set)  # on which something is under way

    def into(self, place: Tensor, t: Tensor) -> None:
        """A copy of `t` in its place on the host."""
        if t.device.type != "cuda":
            place.copy_(t)
            return
        stream = torch.cuda.current_stream(t.device)
        if t.nbytes <= SMALL:
            self.streams.add(stream)
            place.copy_(t, non_blocking=True)
            return
        beside = stream_for("maps", t.device)
        beside.wait_stream(stream)
        t.record_stream(beside)
        self.streams.add(beside)
        with torch.cuda.stream(beside):
            place.copy_(t, non_blocking=True)

    def wait(self) -> None:
        for stream in self.streams:
            stream.synchronize()
        self.streams.clear()


@dataclass
class Stack:
    """The maps of one batch, layer by layer, in one array on the host."""

    lengths: Sequence[int]
    depth: int  # L
    fetching: Fetching
    room: Tensor | None = None  # [L, B, …, n, n]
    count: int = 0  # layers that are there

    def __len__(self) -> int:
        return self.count

    def add(self, maps: Tensor) -> None:
        """One layer more: [B, …, n, n]."""
        if self.room is None:
            self.room = _room((self.depth, *maps.shape), maps)
        self.fetching.into(self.room[self.count], maps)
        self.count += 1

    def add_all(self, maps: Tensor) -> None:
        """All layers of one sentence: [L, n, n]."""
        self.room, self.count = _room(maps.unsqueeze(1).shape, maps), len(maps)
        self.fetching.into(self.room, maps.unsqueeze(1))

    def of(self, sentence: int) -> NDArray[Any] | None:
        """[L, …, n, n]; None if nothing came."""
        if self.room is None:
            return None
        n = self.lengths[sentence]
        found = self._array[: self.count, sentence, ..., :n, :n]
        return found if self._lends else found.copy()

    @cached_property
    def _array(self) -> NDArray[Any]:
        assert self.room is not None
        found: NDArray[Any] = self.room.numpy()
        return found

    @cached_property
    def _lends(self) -> bool:
        """Whether an explanation may be a part of the array, all of which then stays."""
        real = sum(n * n for n in self.lengths)
        return 2 * real > len(self.lengths) * max(self.lengths) ** 2 and _held[0] <= PINNED


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    """Memory on the host, such that the device of `like` writes it by itself."""
    found = torch.empty(shape, dtype=like.dtype, pin_memory=like.is_cuda)
    if like.is_cuda:
        _held[0] += found.nbytes
        weakref.finalize(found, _free, found.nbytes)
    return found


def _free(size: int) -> None:
    _held[0] -= size


def one_ahead(runs: Iterable[Iterator[T]]) -> Iterator[Iterator[T]]:
    """The runs in their order, each begun (its first item made) before the one before it is gone through.

    What a run raises when it is begun is raised when its turn comes.
    """
    last: Iterator[T] | None = None
    for run in runs:
        begun = _begun(run)
        if last is not None:
            yield last
        last = begun
    if last is not None:
        yield last


def _begun(run: Iterator[T]) -> Iterator[T]:
    try:
        return chain(list(islice(run, 1)), run)
    except Exception as error:
        return map(_raise, [error])


def _raise(error: Exception) -> NoReturn:
    raise error


def on_host(output: Any) -> Callable[[], Any]:
    """A model's output with its class scores on the host, under way: each look at a number on a device means to wait
    for it.
    """
    found = {name: getattr(output, name, None) for name in ("logits", "start_logits", "end_logits")}
    few = {name: t.detach() for name, t in found.items() if isinstance(t, Tensor) and t.ndim == 2 and t.is_cuda}
    there = {name: fetched(t) for name, t in few.items()}
    return lambda: type(output)(**{**output, **{name: each() for name, each in there.items()}}) if there else output
