"""Refuse what is given beside a text and no pass would read: images, sounds, tensors of other names, placeholders."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from wherefrom.errors import InvalidInput
from wherefrom.model.undo import configs

# What tokenizers and datasets have beside a model's inputs, and what changes its loss alone; mm_token_type_ids mark
# placeholders, which are refused by themselves.
IGNORED = {
    *("label", "labels", "label_ids", "start_positions", "end_positions", "next_sentence_label", "id", "idx", "length"),
    *("special_tokens_mask", "offset_mapping", "overflow_to_sample_mapping", "overflowing_tokens", "word_ids"),
    *("num_truncated_tokens", "mm_token_type_ids"),
}
MEDIA = re.compile("pixel|image|video|input_features|input_audio|audio|speech|sound")
PLACEHOLDER = re.compile("(image|video|audio|speech)_token_(id|index)")
WORKS = (
    "wherefrom explains images of classifiers and encoders (ViT, CLIP, …), sounds of Whisper, and of other models the "
    "text alone (docs/models.md)"
)


class OtherInputs(NamedTuple):
    """What a model takes beside the ids of a text."""

    name: str
    parameters: frozenset[str]
    placeholders: Mapping[int, str]  # by token id: "image", "audio", …

    @property
    def media(self) -> list[str]:
        """The names of its images and sounds."""
        return sorted(each for each in self.parameters if MEDIA.match(each))


def other_inputs(model: PreTrainedModel, parameters: frozenset[str]) -> OtherInputs:
    """What a model takes beside the ids of a text, its forward pass having these parameters."""
    placeholders = {
        value: found[1]
        for config in configs(model)
        for name, value in vars(config).items()
        if (found := PLACEHOLDER.fullmatch(name)) and isinstance(value, int)
    }
    taken = OtherInputs(type(model).__name__, parameters, placeholders)
    return taken if taken.media else taken._replace(placeholders={})


def refuse_unread(given: Mapping[str, Any], read: Collection[str], taken: OtherInputs | None, *, row: bool) -> None:
    """Refuse tensors of an encoding that the pass does not read; of a `row` with a text, those that the model takes."""
    parameters = frozenset[str]() if taken is None else taken.parameters
    media = taken is not None and bool(taken.media)
    unread = [
        name
        for name, value in given.items()
        if value is not None
        and name not in read
        and name not in IGNORED
        and (
            (_is_array(value) and not row)
            or (name in parameters and (_is_array(value) or isinstance(value, list | tuple)))
            or (media and bool(MEDIA.match(str(name))))
        )
    ]
    if not unread:
        return
    names = ", ".join(unread)
    if taken is not None and any(MEDIA.match(each) for each in unread):
        raise InvalidInput(
            f"{names} cannot be explained with a text: {WORKS}; leave {names} out, and its placeholder in the text"
        )
    raise InvalidInput(
        f"the encoding holds {names}, which the explained pass would not read; expected "
        f"{', '.join(read)} alone: leave out what the output does not depend on"
    )


def refuse_placeholders(ids: Collection[int], taken: OtherInputs | None) -> None:
    """Refuse ids that stand for an image or a sound, which no text has."""
    if taken is None or not taken.placeholders:
        return
    if found := sorted({taken.placeholders[each] for each in ids if each in taken.placeholders}):
        numbers = ", ".join(str(each) for each in dict.fromkeys(ids) if each in taken.placeholders)
        raise InvalidInput(
            f"the text holds a placeholder for {' and '.join(found)} (token id {numbers}), and nothing stands there: "
            f"{WORKS}; leave the placeholder out"
        )


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim > 0
