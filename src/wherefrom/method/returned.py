"""What a function returned, where it enters the pipeline: what its method's kind says, or it is refused.

Results are cut to each sentence's length, so that a wrong shape could pass for a map and give wrong numbers. Only
types and shapes are looked at, which the host knows: no device is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption
from wherefrom.method.base import Method, Scores
from wherefrom.model import LayerTrace
from wherefrom.typecheck import kind_of

NUMBERS = (torch.float32, torch.float64)


def layer_map(method: Method, found: Any, layer: LayerTrace) -> Tensor:
    """One layer's map, on that layer's own tokens: [B, n, n]."""
    count, n = layer.mask.shape
    return _tensor(method, " for a layer", found, (count, n, n), "[B, n, n], row i what token i is made of")


def layer_heads(method: Method, found: Any, layer: LayerTrace) -> Tensor:
    """The same for every head: [B, H, n, n]."""
    count, n = layer.mask.shape
    return _tensor(method, " by heads=, for a layer", found, (count, layer.heads, n, n), "[B, heads, n, n]")


def layer_row(method: Method, found: Any, layer: LayerTrace) -> Tensor:
    """One row of each sentence's map: [B, n]."""
    return _tensor(method, " by row=, for a layer", found, tuple(layer.mask.shape), "[B, n]")


def scores_of(method: Method, found: Any, count: int, n: int) -> Scores:
    """A number for each token of `count` sentences of up to n."""
    if not isinstance(found, Scores):
        raise _refused(method, "", found, f"wherefrom.method.Scores(scores) with scores of [B, n] = {[count, n]}")
    _tensor(method, " as scores", found.scores, (count, n), "[B, n]")
    if found.layers is not None:
        depth = len(found.layers) if isinstance(found.layers, Tensor) and found.layers.ndim else 1
        _tensor(method, " as layers", found.layers, (depth, count, n), "[L, B, n]")
    for name in ("delta", "arrived"):
        if (each := getattr(found, name)) is not None:
            _tensor(method, f" as {name}", each, (count,), "[B]")
    return found


def maps_of(method: Method, found: Any, depth: int, count: int, n: int) -> Sequence[Tensor]:
    """The maps of all layers, [B, n, n] each; or one, of a method that does not part them by layer."""
    if isinstance(found, Tensor) and found.ndim == 4:
        found = list(found)
    if not isinstance(found, list | tuple):
        raise _refused(method, "", found, f"a list of {depth} maps, one a layer, of [B, n, n] = {[count, n, n]}")
    if len(found) not in (1, depth):
        raise InvalidOption(
            f"the method '{method.name}' returned {len(found)} maps; "
            f"expected {depth}, one for each layer, or a single one"
        )
    for number, each in enumerate(found):
        _tensor(method, f" for layer {number}", each, (count, n, n), "[B, n, n]")
    return found


def _tensor(method: Method, where: str, found: Any, shape: tuple[int, ...], meaning: str) -> Tensor:
    if isinstance(found, Tensor) and found.shape == shape and found.dtype in NUMBERS:
        return found
    raise _refused(method, where, found, f"a float32 or float64 tensor of shape {list(shape)} ({meaning})")


def _refused(method: Method, where: str, found: Any, expected: str) -> InvalidOption:
    return InvalidOption(f"the method '{method.name}' returned {_described(found)}{where}; expected {expected}")


def _described(found: Any) -> str:
    if found is None:
        return "nothing (a function without `return` gives None)"
    if isinstance(found, Tensor):
        return f"a {str(found.dtype).removeprefix('torch.')} tensor of shape {list(found.shape)}"
    shape = getattr(found, "shape", None)  # an array of numpy's
    return f"{kind_of(found)} of shape {list(shape)}" if isinstance(shape, tuple) else kind_of(found)
