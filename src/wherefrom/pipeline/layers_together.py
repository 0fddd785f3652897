"""The layer maps of a short sentence, all at once after the pass and not one by one in it, on an accelerator.

It takes longer to tell an accelerator what to do in one layer of such a sentence than to do it in all of them
(wherefrom/model/side_by_side.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from wherefrom.method.returned import layer_map
from wherefrom.model import LayerTrace, Model, Sentence
from wherefrom.model.parts import Block
from wherefrom.model.side_by_side import one_layer
from wherefrom.pipeline.shelf import Shelf

FEW = 2**24  # numbers in what all tokens give in all layers: with more, a device is busy with one layer


def blocks_together(opened: Model, sentences: Sequence[Sentence]) -> Block | None:
    """All blocks as one; None where each layer has its turn."""
    if len(sentences) > 1 or not _accelerated(opened) or not opened.family.mapped or opened.two_streams:
        return None
    numbers = opened.depth * len(sentences[0]) * opened.heads * opened.width
    return opened.side_by_side if numbers <= FEW else None


def waits(shelf: Shelf, depth: int) -> bool:
    """Whether a job may wait for all layers: they are all wanted, and whole."""
    job, reach = shelf.job, shelf.job.reach
    usual = job.head is None and shelf.rows is None and not reach.drop_sink and (reach.start, reach.end) == (0, depth)
    return job.method.side_by_side and usual and shelf.error is None


def work(shelf: Shelf, layers: Sequence[LayerTrace], block: Block) -> None:
    """The maps of all layers."""
    method, every = shelf.job.method, one_layer(layers, block)
    maps = layer_map(method, method.run(every, **shelf.job.options), every)
    shelf.maps.add_all(maps)
    if shelf.joint is not None:
        shelf.joint.add_all(maps)


def _accelerated(opened: Model) -> bool:
    return opened.device.type == "cuda"
