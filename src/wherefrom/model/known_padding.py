"""Whether a batch is padded, told to transformers' attention mask, which would ask the device and wait for it.

Attention needs no mask where nothing is hidden, and transformers looks at every mask for that: `padding_mask.all()`. On
a GPU this waits, in every pass, for all that was begun before. Who made the batch knows it without a look. The mask is
the one that transformers makes after looking: none where there is no padding, and a whole one where there is some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from transformers import AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

from wherefrom.model.undo import on_leaving

LOOKING = ("sdpa", "eager")  # the implementations of attention that look at their mask
_PADDED: ContextVar[bool | None] = ContextVar("padded", default=None)


def telling() -> None:
    """Inside of `borrowed`: from here on masks are made by what is known of the batch."""
    registry = AttentionMaskInterface._global_mapping
    own = {name: registry[name] for name in LOOKING if name in registry}

    def undo() -> None:
        registry.update(own)

    on_leaving(undo)
    registry.update({name: knowing(each) for name, each in own.items()})


def knowing(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function of transformers' that makes masks, by what is known of the batch."""
    return partial(_mask, own)


@contextmanager
def known(padded: bool | None) -> Iterator[None]:
    """In a pass of this thread: whether its mask hides something; None where that is not known."""
    before = _PADDED.get()
    try:
        _PADDED.set(padded)
        yield
    finally:
        _PADDED.set(before)


def _mask(own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    padded = _PADDED.get()
    if padded is None:
        return own(*args, **kwargs)
    own = _additive if own is eager_mask else own
    if not padded:
        return own(*args, **{**kwargs, "attention_mask": None})
    return own(*args, **{**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


def _additive(*args: Any, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Any:
    """transformers' `eager_mask`, whose zero version 5.17 sends from the host: that, too, waits."""
    mask = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
    if mask is None:
        return None
    return torch.where(mask, torch.zeros((), device=mask.device, dtype=dtype), torch.finfo(dtype).min)
