"""The options that calls have in common: one set for Python, the command line and the page.

    LoadOptions        how a model is opened
    ModelOptions       the same, and how its tokenizer is called
    QuestionOptions    which number is explained, and where it is read
    MapOptions         how layer maps become scores, and what is kept of them
    ReadOptions        how texts are read and batched
    BatchOptions       the same, and what happens on the way

Signatures name their options one by one, so that help() and editors show them; tests/core/test_options.py holds every
signature, command and schema to this set. The docstring of `wherefrom.explain` says what each option means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypedDict

from wherefrom.errors import InvalidTarget
from wherefrom.typecheck import least, shown

if TYPE_CHECKING:
    import torch

# As strings where a type belongs to torch, which is not imported for its sake.
DeviceLike: TypeAlias = "str | int | torch.device | None"
DtypeLike: TypeAlias = "str | torch.dtype | None"
TargetLike: TypeAlias = int | str | Iterable[int | str | None] | None  # for all inputs, or one for each of them
LayerRange: TypeAlias = tuple[int | None, int | None] | None
HeadLike: TypeAlias = int | Literal["all"] | None
RowsKept: TypeAlias = Literal["all", "readout"]
Kept: TypeAlias = Literal["maps", "row", "scores"] | None
Sink: TypeAlias = Literal["keep", "drop"]
LongText: TypeAlias = Literal["error", "truncate", "windows"]
OnError: TypeAlias = Literal["raise", "skip"]
BatchSize: TypeAlias = Annotated[int, least(1)]
Overlap: TypeAlias = Annotated[int, least(0)] | None
Keywords: TypeAlias = Mapping[str, object] | None  # for somebody else's function


def similarity(text: str) -> str:
    """As `target` of a sentence embedder: how similar its text is to this one.

    >>> similarity("a deep film")
    'similarity(a deep film)'
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidTarget(f"similarity to {shown(text)}; expected a text")
    return f"similarity({text})"


def other_text(target: object) -> str | None:
    """The text of `similarity(text)`; None of any other target."""
    found = re.fullmatch(r"similarity\((.*\S.*)\)", target, re.DOTALL) if isinstance(target, str) else None
    return None if found is None else found[1]


class LoadOptions(TypedDict, total=False):
    """How a model is opened."""

    task: str | None
    device: DeviceLike
    dtype: DtypeLike
    prove: bool
    model_kwargs: Keywords


class ModelOptions(LoadOptions, total=False):
    """How a model is opened and its tokenizer called."""

    tokenizer_kwargs: Keywords


class QuestionOptions(TypedDict, total=False):
    """Which number is explained, and where it is read."""

    target: TargetLike
    foil: TargetLike
    position: TargetLike


class MapOptions(TypedDict, total=False):
    """How layer maps become scores, and what is kept of them."""

    aggregate: str | None
    layers: LayerRange
    receptive_field: bool
    rows: RowsKept
    head: HeadLike
    drop_self: bool
    sink: Sink
    keep: Kept


class ReadOptions(TypedDict, total=False):
    """How texts are read and batched."""

    batch_size: BatchSize
    long: LongText
    overlap: Overlap
    truncate: bool


class BatchOptions(ReadOptions, total=False):
    """How texts are read and batched, and what happens on the way."""

    on_error: OnError
    progress: bool | None


class ExplainOptions(ModelOptions, QuestionOptions, MapOptions, BatchOptions, total=False):
    """Everything that `explain`, `explain_stream` and `compare` have in common."""


class EstimateOptions(ModelOptions, QuestionOptions, MapOptions, ReadOptions, total=False):
    """What the cost of an explanation depends on."""
