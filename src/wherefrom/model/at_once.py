"""Attention and its weights at once, on a GPU, where a model's own eager attention is the plain one.

The eager function of Llama is that of 150 others, to the letter: scores, mask, softmax, dropout, values, each written
to memory before the next reads it. Where a model's function is this one, a kernel does the same (attention_kernel.py),
without gradients and without dropout. That of BERT and 70 others differs in half precision alone, in which it takes its
softmax: there it runs as it is, as does any other: it may do more (soft-caps, sinks, position biases).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from wherefrom.model.undo import eager_inside

KINDS = (torch.float32, torch.bfloat16, torch.float16)
WIDTHS = (16, 32, 64, 128)  # of a head
CAPABLE = 8  # of CUDA's generations those from Ampere on, whose tensor cores Triton uses
CODE = ("co_code", "co_consts", "co_names")
Given = tuple[Tensor, Tensor]  # attention's output, [B, n, H, d_h], and its weights, [B, H, n, n]


def at_once(
    own: Callable[..., Given],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_unread: Any,  # by the plain function too
) -> Given | None:
    """What a model's `own` attention gives; None where it must be asked itself. Causal: no token sees a later one."""
    if not query.is_cuda or query.dtype not in KINDS or torch.is_grad_enabled() or dropout or scaling is None:
        return None
    same = query.shape[2:] == key.shape[2:] == value.shape[2:] and query.shape[-1] in WIDTHS
    added = mask is None or (mask.is_floating_point() and mask.ndim == 4 and mask.stride(-1) == 1)
    kernel = _kernel(query.device) if same and added and is_plain(own, query.dtype) else None
    return None if kernel is None else kernel(query, key, value, mask, scaling, causal)


@cache
def is_plain(function: Callable[..., Any], dtype: torch.dtype) -> bool:
    """Whether a function, with the one beside it that repeats keys and values, is what stands in Llama's file; or in
    BERT's, where nothing is repeated.
    """
    from transformers.models.bert.modeling_bert import eager_attention_forward as short
    from transformers.models.llama import modeling_llama as llama

    beside = getattr(sys.modules[function.__module__], "repeat_kv", None)
    pairs = [(function, eager_inside(llama.eager_attention_forward)), (beside, llama.repeat_kv)]
    same = dtype == torch.float32 and _code(function) == _code(eager_inside(short))
    return same or all(_code(one) == _code(other) for one, other in pairs)


def _code(function: Any) -> list[Any]:
    code = getattr(function, "__code__", None)
    return [getattr(code, name, None) for name in CODE]


@cache
def _kernel(device: torch.device) -> Callable[..., Given] | None:
    if torch.cuda.get_device_capability(device)[0] < CAPABLE:
        return None
    try:
        from wherefrom.model.attention_kernel import attend
    except ImportError:
        return None
    return attend
