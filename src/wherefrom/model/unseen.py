"""Tokens that attention may not see, while everything else about the text stays as it was.

An attention mask would do more: OPT and BLOOM count positions along it, so that hiding a token moves those after it.
Here the key is masked where attention is computed, in every layer; positions are those of the whole text. The hidden
token's own row is computed as any other, and read by nobody.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption
from wherefrom.model.model import Model
from wherefrom.model.sentences import Batch
from wherefrom.model.undo import borrowed, on_leaving, stand_in

ALIBI = "build_alibi_tensor"  # BLOOM's method that counts positions along the mask
_UNSEEN: ContextVar[Tensor | None] = ContextVar("unseen", default=None)


def forward_unseen(opened: Model, batch: Batch) -> Any:
    """The model's output on the batch, without what attention may not see in it."""
    unseen = batch.unseen
    if unseen is None:
        return opened.forward(batch)

    def run() -> Any:
        if opened.family.attention.module or opened.two_streams:
            _keep_positions(opened)
            return opened.forward(replace(batch, attention_mask=batch.attention_mask.masked_fill(unseen, 0)))
        on_leaving(partial(_UNSEEN.set, _UNSEEN.get()))
        _UNSEEN.set(unseen)
        return opened.forward(batch)

    return borrowed(run)


def without_unseen(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """An additive attention mask, [B, 1, n, n], that hides them as well; the same where nothing is to be hidden."""
    unseen = _UNSEEN.get()
    if unseen is None:
        return mask
    n = query.shape[2]
    whole = query.new_zeros(1, 1, n, n) if mask is None else mask
    hidden = unseen.to(query.device)[:, None, None]
    return whole.expand(len(hidden), -1, -1, -1).masked_fill(hidden, torch.finfo(whole.dtype).min)


def _keep_positions(opened: Model) -> None:
    """Where attention is a module's own affair the mask must say it; BLOOM shall not count positions along it."""
    own = getattr(opened.base, ALIBI, None)
    if own is None and getattr(opened.config, "alibi", False):
        raise InvalidOption(
            f"{opened.name} counts positions along its attention mask, so that hiding a token would move the others; "
            f"take tokens away by another way than by='attention'"
        )
    if own is not None:
        stand_in(opened.base, lambda mask, *args, **kwargs: own(torch.ones_like(mask), *args, **kwargs), ALIBI)
