"""Outputs that are no numbers are explained to nobody, nor embeddings that stand in another order than the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wherefrom.errors import NotDefined, UnsupportedModel
from wherefrom.model.later import fetched
from wherefrom.model.model import Model
from wherefrom.model.sentences import Batch


def finite(output: Any) -> Callable[[], bool]:
    """Whether all numbers of an output are finite, under way."""
    tensors = [t for t in output.values() if isinstance(t, Tensor) and t.is_floating_point()]
    every = [fetched(torch.stack(torch.aminmax(t)).isfinite().all()) for t in tensors]  # copies nothing large
    return lambda: all(bool(each()) for each in every)


def check_finite(opened: Model, fine: Callable[[], bool]) -> None:
    """Refuse NaN and infinite numbers, and say whether weights or the input are to blame."""
    if fine():
        return
    weights = {name: weight for name, weight in opened.model.named_parameters() if not weight.is_meta}
    broken = [name for name, weight in weights.items() if not bool(weight.isfinite().all())]
    if broken:
        shown = ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
        raise UnsupportedModel(
            f"the model's weights contain NaN or infinite values ({shown}); an explanation of such a model "
            f"would be meaningless. Load an intact checkpoint"
        )
    finer = {"float32": "float64", "float64": None}.get(opened.dtype, "float32")
    raise NotDefined(
        f"the model's output is NaN or infinite on this input although its weights are finite (dtype {opened.dtype}); "
        + (f"try dtype='{finer}'" if finer else "explain another input")
    )


def check_order(opened: Model, batch: Batch, embedded: Tensor) -> None:
    """Refuse embeddings that do not stand as the batch does: whose gradient is whose would not be known."""
    if embedded.shape[:2] != batch.ids.shape:
        raise UnsupportedModel(
            f"{opened.name} ('{opened.family.name}') embeds its tokens in another order than one text after another "
            f"({list(embedded.shape[:2])} where {list(batch.ids.shape)} is expected), so that wherefrom takes no "
            f"gradients of it; use a method without gradients: ablation, ablation-pairs"
        )
