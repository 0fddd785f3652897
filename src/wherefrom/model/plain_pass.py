"""Comparison of captured passes with the model's own pass on the user's input.

The proof (proof.py) rebuilds blocks on a short probe. What a model does in longer texts only, such as sparse attention,
shows on the input itself: its outputs, captured and not, are compared at the first use of each model object, and again
for an input more than `GROWTH` times as long as any compared before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from wherefrom.errors import UnsupportedModel
from wherefrom.model.linear import HALF, promote
from wherefrom.model.sentences import Batch
from wherefrom.model.stock import attention_of
from wherefrom.model.undo import attending, computing_attention_by, without_gradients

if TYPE_CHECKING:
    from wherefrom.model.model import Model

EDGES = ("start_logits", "end_logits")
OUTPUTS = ("logits", "last_hidden_state", *EDGES)
# The largest gap between the two passes, as a share of the largest number of the output.
OUTPUT_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
ROUNDING_FACTOR = 3  # in half precision: how many times the gap between the model's own eager and SDPA passes
GROWTH = 2
CHUNK_ROWS = 256  # compared at once: the logits of a long text are large
_COMPARED_LENGTHS: WeakKeyDictionary[nn.Module, dict[Hashable, int]] = WeakKeyDictionary()


def compare_with_plain_pass(opened: Model, batch: Batch, output: Any) -> None:
    """Refuse a model whose output changes while it is captured; no pass is run for a length that is covered."""
    if not opened.prove:
        return
    lengths, length = _COMPARED_LENGTHS.setdefault(opened.model, {}), max(batch.lengths)
    key = opened.dtype, attention_of(opened.config)
    if length <= GROWTH * lengths.get(key, 0):
        return
    plain, tolerance = plain_output(opened, batch), _tolerance(opened)
    gap = output_gap(opened, batch, output, plain)
    if gap > tolerance and opened.pretrained.dtype in HALF:
        rounding, largest = _probe_rounding(opened)
        tolerance = max(tolerance, ROUNDING_FACTOR * rounding)
        gap = output_gap(opened, batch, output, plain, largest)
    if gap > tolerance:
        eager = attention_of(opened.config) == "eager"
        advice = "use an unmodified transformers model" if eager else "load it with attn_implementation='eager'"
        raise UnsupportedModel(
            f"{type(opened.pretrained).__name__}: on this input of {length} tokens the captured pass does not give the "
            f"model's own output; they differ by {gap:.1e} of its largest number (allowed: {tolerance:.0e}). wherefrom "
            f"captures eager attention: {advice}"
        )
    lengths[key] = length


def plain_output(opened: Model, batch: Batch) -> Any:
    """The model's own output on the batch, with its own attention and without hooks or gradients."""
    from wherefrom.model.capture import rerunning

    return without_gradients(lambda: rerunning(opened, partial(opened.forward, batch), own_attention=True))


def output_gap(opened: Model, batch: Batch, captured: Any, plain: Any, largest: float = 0.0) -> float:
    """The largest gap between two outputs at the tokens of a batch, as a share of the largest number of `plain`.

    `largest` is another number that this is a share of, if it is larger: logits of a text may all be close to 0.

    In half precision a router may send a token to another expert when its input is rounded otherwise: of a mixture of
    experts the gap is then that of the median token.
    """
    routed = bool(opened.family.ffn.module) and opened.pretrained.dtype in HALF
    seen = batch.mask & batch.attention_mask.bool()
    names = [name for name in OUTPUTS if plain.get(name) is not None]
    pairs = [(captured[name], plain[name]) for name in names]
    if any(ours.shape != own.shape for ours, own in pairs):
        return float("inf")
    found = (_gap(*pair, seen, routed, name in EDGES, largest) for name, pair in zip(names, pairs, strict=True))
    return max(found, default=0.0)


def _gap(captured: Tensor, plain: Tensor, mask: Tensor, routed: bool, edges: bool, largest: float) -> float:
    if edges:  # a number for each token
        captured, plain = captured.unsqueeze(-1), plain.unsqueeze(-1)
    differences, sizes = zip(*_by_row(captured.detach(), plain), strict=True)
    difference, size = torch.cat(differences), torch.cat(sizes)
    if plain.ndim > 2 and plain.shape[:2] == mask.shape:
        tokens = mask.flatten().to(size.device)
        difference, size = difference[tokens], size[tokens]
    if not bool(difference.isfinite().all()):  # model/finite.py refuses numbers that are not finite
        return 0.0
    return float((difference.median() if routed else difference.max()) / size.max().clamp(min=max(largest, 1e-30)))


def _by_row(captured: Tensor, plain: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Of some rows at a time, each a token or a text: the largest difference and the largest number."""
    rows = (t.reshape(-1, t.shape[-1]) for t in (captured, plain))
    for ours, own in zip(*(t.split(CHUNK_ROWS) for t in rows), strict=True):  # type: ignore[no-untyped-call]
        own = promote(own)
        yield (promote(ours) - own).abs().amax(-1), own.abs().amax(-1)


def _tolerance(opened: Model) -> float:
    return OUTPUT_TOLERANCE.get(opened.pretrained.dtype, OUTPUT_TOLERANCE[torch.bfloat16])


def _probe_rounding(opened: Model) -> tuple[float, float]:
    """The gap between the model's own eager and SDPA passes on the probe (0 where it has no SDPA), and the probe's
    largest number.
    """
    from wherefrom.model.capture import rerunning
    from wherefrom.model.proof import probe_of

    probe, model = probe_of(opened), opened.model

    def output_after(change: Callable[[], None]) -> Any:
        def run() -> Any:
            change()
            return opened.forward(probe)

        return without_gradients(lambda: rerunning(opened, run, own_attention=True))

    def call(eager: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return eager(*args, **more)

    eager = output_after(lambda: attending(model, call))  # which leaves other threads their attention
    largest = max(float(promote(eager[name]).abs().max()) for name in OUTPUTS if eager.get(name) is not None)
    try:
        return output_gap(opened, probe, output_after(lambda: computing_attention_by(model, "sdpa")), eager), largest
    except Exception:  # whatever a model without SDPA raises
        return 0.0, largest
