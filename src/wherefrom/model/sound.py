"""Sound as the source of a decoder (Whisper): frames of the encoder in the place of tokens.

An encoding with `input_features` [bins, 2 S], as the model's own feature extractor makes it of 30 seconds, is a source
of S tokens, each named by the second at which it begins. Whisper masks nothing, so the silence after a short recording
is a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidInput
from wherefrom.model.two_streams import SOURCE

if TYPE_CHECKING:
    from wherefrom.model.sentences import Sentence

FEATURES = "input_features"
SECONDS = 0.02  # between two frames of the encoder
STRIDE = 2  # frames of the spectrogram in one of the encoder's


def heard(encoding: Mapping[str, Any]) -> tuple[list[Sentence], bool]:
    """The sources of an encoding, and whether it is one."""
    features = torch.as_tensor(encoding[FEATURES])
    if features.ndim not in (2, 3):
        raise InvalidInput(f"{FEATURES} has {features.ndim} axes; expected [bins, frames], or one more for a batch")
    single = features.ndim == 2
    return [recording(each) for each in (features[None] if single else features)], single


def recording(features: Tensor) -> Sentence:
    """One recording, from its spectrogram [bins, frames]."""
    from wherefrom.model.sentences import Sentence

    s = features.shape[-1] // STRIDE
    names = [f"{i * SECONDS:.2f}s" for i in range(s)]
    no = [False] * s
    return Sentence([0] * s, names, no, [None] * s, (), unknown=no, segments=[SOURCE] * s, sound=features)


def features_of(sentences: Sequence[Sentence]) -> Tensor:
    """The spectrograms of a batch: [B, bins, frames]."""
    found = [each.sound for each in sentences if each.sound is not None]
    if len(found) < len(sentences):
        raise InvalidInput(f"the model hears sound and was given none; expected an encoding with {FEATURES}")
    return torch.stack(found)
