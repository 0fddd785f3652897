r"""Several numbers of one pass, taken back side by side: ∂y_k/∂· for k = 1 … K.

A pass leaves one graph, and the last block's output h parts it in two.

    above h    Heads of language models take tokens one by one. So where the numbers are read at different tokens t_k,
               row t_k of ∂(Σ_k y_k)/∂h is ∂y_k/∂h: one way back through the vocabulary serves all. Other heads are
               small, and each number goes back by itself.
    below h    K vectors go back through every operation at once, stacked on an axis of their own.

The numbers are those of one way back after the other. Where a graph is not parted so, or some operation of it does not
take a stack, that is what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wherefrom.model.trace import Trace
from wherefrom.model.two_streams import last_state, leaves, rows_of_last

# Bytes of the largest tensor of a stack, and of all that is kept of one. Beyond the first, a CPU's allocator asks the
# system for every tensor anew: 16 at once of a Llama of 135 M on 255 tokens take 1.7 times as long as twice 8.
LARGEST = {"cpu": 24 * 2**20}
ELSEWHERE = 256 * 2**20
KEPT = 2**30


def at_once(trace: Trace) -> int:
    """How many numbers go back together."""
    if not trace.layers:
        return 1
    states, attention = (trace.layers[-1].raw[name] for name in ("output", "attention"))
    size = states.element_size()
    largest = size * max(attention.numel(), 4 * states.numel())
    kept = size * states.numel() * (len(trace.layers) + 2)
    return max(1, min(LARGEST.get(states.device.type, ELSEWHERE) // largest, KEPT // kept))


def by_row(output: Any) -> Any:
    """The same output, its logits [B, n, C] taken apart into rows once.

    A row that is read by indexing is on its way back a tensor of zeros as large as all of them, for every number again.
    """
    logits = getattr(output, "logits", None)
    if logits is None or logits.dim() != 3:
        return output
    return SimpleNamespace(**{**output, "logits": [sentence.unbind(0) for sentence in logits.unbind(0)]})


class Ways(NamedTuple):
    """Several numbers of a pass, [B] each, and their gradients at the last block's output, if that parts the graph."""

    numbers: list[Tensor]
    starts: list[Tensor] | None = None


def ways(trace: Trace, numbers: list[Tensor], places: Sequence[Sequence[int | None]]) -> Ways:
    """`places` has, number by number, the token of each sentence that it is read at, None where that is not one."""
    if len(numbers) == 1 or not trace.layers or not _parted(numbers, last := last_state(trace), leaves(trace)[0]):
        return Ways(numbers)
    rows = [rows_of_last(trace, each) for each in places]
    return Ways(numbers, _at_last([number.sum() for number in numbers], last, rows))


def taken_back(trace: Trace, given: Ways, which: Sequence[int], wanted: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """The gradients of some of the numbers with respect to the `wanted` tensors.

    Sentences do not see each other, so the gradient of the sum over a batch is each one's own.
    """
    if given.starts is None:
        return [torch.autograd.grad(given.numbers[i].sum(), wanted, retain_graph=True) for i in which]
    last, starts = last_state(trace), [given.starts[i] for i in which]
    if len(starts) > 1:
        try:
            found = torch.autograd.grad(last, wanted, torch.stack(starts), retain_graph=True, is_grads_batched=True)
            return list(zip(*(each.unbind(0) for each in found), strict=True))
        except RuntimeError:  # an operation that takes no stack, or too little memory for it
            pass
    return [torch.autograd.grad(last, wanted, start, retain_graph=True) for start in starts]


def _parted(numbers: Sequence[Tensor], last: Tensor, words: Tensor) -> bool:
    """Whether every way from the numbers back to the words leads through the last block's output."""
    end, seen, todo = last.grad_fn, set[Any](), [number.grad_fn for number in numbers]
    while todo:
        node = todo.pop()
        if node is None or node is end or node in seen:
            continue
        if getattr(node, "variable", None) is words:
            return False
        seen.add(node)
        todo += [each for each, _ in node.next_functions]
    return True


def _at_last(numbers: Sequence[Tensor], last: Tensor, places: Sequence[Sequence[int | None]]) -> list[Tensor]:
    """The gradient of each number at the last block's output: K times [B, n, d]."""
    if not all(None not in rows and len(set(rows)) == len(rows) for rows in zip(*places, strict=True)):
        return [torch.autograd.grad(number, last, retain_graph=True)[0] for number in numbers]
    (both,) = torch.autograd.grad(torch.stack(list(numbers)).sum(), last, retain_graph=True)
    own = torch.zeros(len(numbers), *both.shape[:2], dtype=torch.bool, device=both.device)
    for number, rows in enumerate(places):
        own[number, range(len(rows)), rows] = True
    if bool((both != 0).any(-1)[~own.any(0)].any()):  # a head that mixes tokens
        return [torch.autograd.grad(number, last, retain_graph=True)[0] for number in numbers]
    return [both * each[..., None] for each in own]
