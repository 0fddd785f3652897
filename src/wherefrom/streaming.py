"""`explain_stream`: explanations of inputs as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, Literal, overload

from wherefrom.api import explain
from wherefrom.defaults import DEFAULT_METHOD, DEFAULT_MODEL
from wherefrom.errors import InvalidOption
from wherefrom.method import MethodLike, choose
from wherefrom.model import ManyInputs, ModelLike, TokenizerLike, open_model
from wherefrom.options import (
    BatchSize,
    DeviceLike,
    DtypeLike,
    HeadLike,
    Kept,
    Keywords,
    LayerRange,
    LongText,
    OnError,
    Overlap,
    RowsKept,
    Sink,
    TargetLike,
)
from wherefrom.pipeline.auto import is_default
from wherefrom.pipeline.bulk import chunks
from wherefrom.pipeline.resolution import AUTO, refuse_misspelt
from wherefrom.progress import bar
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.typecheck import checks_arguments


# fmt: off
@overload
def explain_stream(  # type: ignore[overload-overlap]
    inputs: ManyInputs, model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    target: Literal["all"], foil: TargetLike = ..., position: TargetLike = ...,
    aggregate: str | None = ..., layers: LayerRange = ..., receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Iterator[Comparison]: ...
@overload
def explain_stream(
    inputs: ManyInputs, model: ModelLike = ..., tokenizer: TokenizerLike = ..., method: MethodLike = ..., *,
    target: TargetLike = ..., foil: TargetLike = ..., position: TargetLike = ...,
    aggregate: str | None = ..., layers: LayerRange = ..., receptive_field: bool = ..., rows: RowsKept = ...,
    head: HeadLike = ..., drop_self: bool = ..., sink: Sink = ..., keep: Kept = ...,
    batch_size: BatchSize = ..., long: LongText = ..., overlap: Overlap = ..., truncate: bool = ...,
    on_error: OnError = ..., progress: bool | None = ...,
    task: str | None = ..., device: DeviceLike = ..., dtype: DtypeLike = ..., prove: bool = ...,
    model_kwargs: Keywords = ..., tokenizer_kwargs: Keywords = ..., **options: object,
) -> Iterator[Explanation]: ...
# fmt: on
@checks_arguments
def explain_stream(
    inputs: ManyInputs,
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    method: MethodLike = DEFAULT_METHOD,
    *,
    target: TargetLike = None,
    foil: TargetLike = None,
    position: TargetLike = None,
    aggregate: str | None = AUTO,
    layers: LayerRange = None,
    receptive_field: bool = False,
    rows: RowsKept = "all",
    head: HeadLike = None,
    drop_self: bool = False,
    sink: Sink = "keep",
    keep: Kept = None,
    batch_size: BatchSize = 16,
    long: LongText = "error",
    overlap: Overlap = None,
    truncate: bool = False,
    on_error: OnError = "raise",
    progress: bool | None = None,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
    tokenizer_kwargs: Keywords = None,
    **options: object,
) -> Iterator[Explanation | Comparison]:
    """Explain inputs as they come: an iterator that gives what `explain` would, in their order, and keeps nothing.

    `inputs` may be endless; a few batches of it are read ahead. Arguments as in `explain`; target, foil and position
    are the same for all.

    >>> [ex.prediction for ex in wherefrom.explain_stream(iter(["a deep film .", "a dull film ."]), keep="scores")]
    ['positive', 'negative']
    """
    if "estimate" in options:
        raise InvalidOption(
            "the length of a stream is not known before it ends; estimate a few of its inputs by explain"
        )
    refuse_misspelt(explain_stream, options)
    for name, value in (("target", target), ("foil", foil), ("position", position)):
        if isinstance(value, list | tuple):
            raise InvalidOption(
                f"{name} is a list; a stream asks the same of every input: leave it out, or use explain"
            )
    if not is_default(method):
        choose(method, options)
    opened = open_model(model, tokenizer, task=task, device=device, dtype=dtype, prove=prove, model_kwargs=model_kwargs)
    asked: dict[str, Any] = {
        "target": target,
        "foil": foil,
        "position": position,
        "aggregate": aggregate,
        "layers": layers,
        "receptive_field": receptive_field,
        "rows": rows,
        "head": head,
        "drop_self": drop_self,
        "sink": sink,
        "keep": keep,
        "batch_size": batch_size,
        "long": long,
        "overlap": overlap,
        "truncate": truncate,
        "on_error": on_error,
        "tokenizer_kwargs": tokenizer_kwargs,
        **options,
    }
    parts = chunks(inputs, batch_size)
    total = len(inputs) if isinstance(inputs, Sized) else None

    def stream() -> Iterator[Explanation | Comparison]:
        with bar(total, progress, worth=total is None or total > batch_size) as advance:
            for part in parts:
                for each in explain(part, opened, None, method, progress=False, **asked):
                    yield each
                    advance(1)

    return stream()
