"""Texts that begin alike, read from where they part.

No token of a causal model sees a later one. So what stands before the first token in which a text differs from another
was computed with that other, and is taken from its keys and values, as in generating; and of the vocabulary's logits
only the rows that are read are computed. For every token of a text replaced in turn that is half of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from wherefrom.model.capture import rerunning
from wherefrom.model.forward import taken_by
from wherefrom.model.model import Model
from wherefrom.model.sentences import Sentence
from wherefrom.model.undo import borrowed, hook, keeping_written
from wherefrom.result.answer import Answer

# The numbers of these places among the answers, from an output on several texts: [B, len(places)]
Read = Callable[[Any, int, Sequence[int]], Tensor]
ROW = 4  # how many tokens a row of the vocabulary's logits counts for, lest they take all memory
SAME = 1e-3  # how far apart a number may be that is read from the start and from the middle


def numbers_alike(
    opened: Model, sentences: Sequence[Sentence], answers: Sequence[Answer], read: Read, tokens: int
) -> Tensor | None:
    """The numbers of a text and of others that are as long, [len(sentences), len(answers)], float64 on the CPU.

    `answers` are what is read of each, `tokens` about how many tokens are run at once. None where a model, or what is
    asked of it, does not go this way.
    """
    ours = opened.task == "causal-lm" and opened.causal and opened.model is opened.pretrained
    head = opened.pretrained.get_output_embeddings() if ours else None
    keeps = "past_key_values" in taken_by(opened.model.forward)
    if not isinstance(head, nn.Linear) or not keeps or not all(map(_plain, answers)) or not _alike(sentences):
        return None
    reading = _Reading(opened, head, [int(each.readout.position or 0) for each in answers], read)
    ids = torch.tensor([each.embedded or each.ids for each in sentences], device=opened.device)
    return rerunning(opened, lambda: reading.numbers(ids, tokens), own_attention=True)


def _plain(answer: Answer) -> bool:
    return answer.target.kind == "token" and answer.readout.position is not None


def _alike(sentences: Sequence[Sentence]) -> bool:
    """Whether they differ in the tokens that are embedded and in nothing else."""
    n = len(sentences[0])
    return all(len(each) == n and each.visible is each.types is None and not each.unseen for each in sentences)


@dataclass(frozen=True)
class _Reading:
    """A model, and the numbers that are read of it."""

    opened: Model
    head: nn.Linear
    places: list[int]  # of the tokens that they are read at
    read: Read

    @torch.no_grad()
    def numbers(self, ids: Tensor, tokens: int) -> Tensor | None:
        """Of the texts `ids` [texts, n], which are compared with the first."""
        n, some = ids.shape[1], max(self.places)
        known, kept = self.run(ids[:1], None, 0)
        if kept is None:
            return None
        middle = min(n // 2, some)
        again, _ = self.run(ids[:1, middle:], kept, middle)
        after = [place >= middle for place in self.places]
        if bool(((again - known)[:, after].abs() > SAME * (1 + known[:, after].abs())).any()):
            return None
        found = known.repeat(len(ids), 1)
        differ = (ids != ids[0]).cpu()
        parts = torch.where(differ.any(-1), differ.int().argmax(-1), n).tolist()
        sizes = {part: max(n - part, ROW * len({p for p in self.places if p >= part})) for part in set(parts)}
        for members, part in _neighbours(parts, n, sizes, tokens):
            later = [number for number, place in enumerate(self.places) if place >= part]
            if later:
                read, _ = self.run(ids[members, part:], kept, part)
                found[torch.tensor(members)[:, None], later] = read[:, later]
        return found

    def run(self, ids: Tensor, kept: list[tuple[Tensor, Tensor]] | None, part: int) -> tuple[Tensor, Any]:
        """All numbers, 0 where they are read before token `part`, and keys and values of a whole text."""
        count, n = len(ids), ids.shape[1]
        later = [number for number, place in enumerate(self.places) if place >= part]
        rows = sorted({self.places[number] for number in later})
        mask = ids.new_ones(count, part + n)
        cache = None if kept is None else _copied(kept, part, count)
        output = self.only(
            [row - part for row in rows],
            lambda: self.opened.model(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, return_dict=True
            ),
        )
        found = torch.zeros(count, len(self.places), dtype=torch.float64)
        by_place = SimpleNamespace(logits=[dict(zip(rows, each, strict=True)) for each in output.logits])
        found[:, later] = self.read(by_place, count, later).double().cpu()
        return found, _kept(output.past_key_values) if kept is None else None

    def only(self, rows: list[int], run: Callable[[], Any]) -> Any:
        """What `run` returns; the head has only these rows to compute."""

        def fewer(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return (args[0][:, rows], *args[1:]), kwargs

        def body() -> Any:
            keeping_written(self.opened.written_on)
            hook(self.head, fewer, before=True)
            return run()

        return borrowed(body)


def _neighbours(parts: Sequence[int], n: int, sizes: Mapping[int, int], tokens: int) -> Iterator[tuple[list[int], int]]:
    """Texts that part from the first at about the same place, and where the first of them does; n: nowhere.

    `sizes` is by this place what one of them counts of `tokens`.
    """
    members: list[int] = []
    for text in sorted((i for i, part in enumerate(parts) if part < n), key=parts.__getitem__):
        if members and (len(members) + 1) * sizes[parts[members[0]]] > tokens:
            yield members, parts[members[0]]
            members = []
        members.append(text)
    if members:
        yield members, parts[members[0]]


def _kept(cache: Any) -> list[tuple[Tensor, Tensor]] | None:
    """The keys and values of every layer, where that is all that a model keeps of a text."""
    layers = getattr(cache, "layers", None)
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return None
    return [(layer.keys, layer.values) for layer in layers]


def _copied(kept: list[tuple[Tensor, Tensor]], part: int, count: int) -> Any:
    """The same of the first `part` tokens, for so many texts."""
    cache = DynamicCache()
    for index, sides in enumerate(kept):
        key, value = (side[:, :, :part].expand(count, -1, -1, -1) for side in sides)
        cache.update(key, value, index)
    return cache
