"""What stands in for tokens taken away: the unknown token, the mask, padding, any by its id; of pictures, a paint."""

from __future__ import annotations

from typing import Annotated, Literal

from wherefrom.model.model import Model
from wherefrom.model.pictures import PAINTS
from wherefrom.typecheck import only

Painted = Annotated[Literal["mean", "black", "blur"], only("of a picture")]  # pictures.py
# How a token is taken away, or a token's id. "auto" is what suits the method or metric.
By = Literal["auto", "unknown", "mask", "pad", "delete", "attention"] | Painted | int
PAINT: Literal["mean"] = "mean"  # what "auto" is of pictures
UNSEEN = "attention"  # no token stands in, and none is deleted
NAMES = {"unknown": "unk_token_id", "mask": "mask_token_id", "pad": "pad_token_id"}


def stand_in_for(opened: Model, *ways: str | int) -> int | None:
    """The id of the first of these tokens that the model has; each a name above or an id. None if it has none."""
    if opened.images:
        return next((PAINTS[way] for way in ways if isinstance(way, str) and way in PAINTS), None)
    for way in ways:
        token = way if isinstance(way, int) else getattr(opened.tokenizer, NAMES.get(way, way), None)
        if token is not None and 0 <= token < opened.vocabulary_size:
            return int(token)
    return None


def ways(opened: Model) -> list[str]:
    """How tokens of this model can be taken away so that the others keep their places, the likeliest way first."""
    names = (*PAINTS, UNSEEN) if opened.images else ("mask", "unknown", UNSEEN, "pad")
    return [way for way in names if (opened.family.mapped if way == UNSEEN else stand_in_for(opened, way) is not None)]


def left_out(opened: Model, by: str | int) -> str | int:
    """How what is left out goes: "auto" deletes it from a text, and paints it over in a picture, where nothing can be
    deleted; so does "mask", as no mask token is there."""
    if opened.images:
        return PAINT if by in ("auto", "mask") else by
    return "delete" if by == "auto" else by


def suggested(opened: Model) -> str:
    """The end of a message: what `by` may be instead."""
    return " or ".join([*(f"by={way!r}" for way in ways(opened)), *([] if opened.images else ["a token id"])])


def untokenized(opened: Model) -> str:
    """What a message adds where the tokens have no names because nobody gave a tokenizer; a pad_token_id in the
    model's configuration is often a mere default, and is not read."""
    if opened.images:
        return f": it reads pictures, whose patches are painted over ({', '.join(PAINTS)})"
    return ", as no tokenizer was given to name it" if opened.tokenizer is None else ""
