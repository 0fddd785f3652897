"""Pictures as inputs: a file, a Pillow image or an array becomes patches in a row, and patches can be taken away.

A picture's tokens are its patches, row by row, after the model's own special tokens ("[CLS]", "[DIST]", "[REG0]", …).
The model's image processor prepares it, and what it made is what is read, shown and perturbed. A patch that is taken
away is painted over:

    mean     the mean colour of the picture
    black    black, before the processor normalised it (Chefer et al. 2021)
    blur     the picture blurred, by a Gaussian as wide as a patch

In `Sentence.embedded` these three stand as negative numbers in the places of the patches that are painted over.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.utils import ModelOutput

from wherefrom.errors import InvalidInput, InvalidOption, TooLong, WherefromError
from wherefrom.extras import need
from wherefrom.model.containers import several
from wherefrom.model.unread_inputs import refuse_unread
from wherefrom.result.answer import Readout
from wherefrom.result.picture import BLACK, WHITE, Patches, Pixels, colours, decoded, laid, size_of
from wherefrom.typecheck import kind_of, shown

if TYPE_CHECKING:
    from wherefrom.model.model import Model
    from wherefrom.model.sentences import Sentence

PAINTS = {"mean": -1, "black": -2, "blur": -3}
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
EXPECTED = "an image file's path or bytes, a Pillow image, an array [height, width, 3], or {'pixel_values': …}"
POOLED = "class token; the head reads the mean of the patches beside it"


@dataclass(frozen=True)
class Preparing:
    """How a model's pictures are prepared: by its image processor, into patches of so many pixels."""

    model: str
    processor: Any | None
    patch: tuple[int, int]  # height and width in pixels
    special: tuple[str, ...]  # the tokens before the first patch
    beside_texts: bool = False  # whether a text can be its target

    def read_each(self, inputs: Any, first: int = 0) -> tuple[list[Sentence | WherefromError], bool]:
        """The pictures, and whether the caller handed in just one; where one of several cannot be read, why."""
        from wherefrom.model.sentences import Sentence

        if isinstance(inputs, Sentence):
            return [inputs], True
        if (one := self._one(inputs)) is not None:
            return [one], True
        items = _batch(inputs)
        if not items:
            raise InvalidInput(f"nothing to explain: the list of inputs is empty; expected {EXPECTED}")
        return [self._item(item, row) for row, item in enumerate(items, first)], False

    def _opened(self, path: str | Path) -> Pixels:
        """The pixels of a file."""
        file = Path(path)
        if os.path.isfile(file):  # as pathlib asks, but a text that is too long for a name is none
            return decoded(file)
        no_text = hint = ""
        if file.suffix.lower() not in ENDINGS and self.beside_texts:
            hint = "; a text goes beside it as target=wherefrom.similarity('a photo of a cat')"
        elif file.suffix.lower() not in ENDINGS:
            no_text = ", and no text"
        raise InvalidInput(
            f"{self.model} reads images{no_text}: there is no file {shown(str(path))}; expected {EXPECTED}{hint}"
        )

    def _item(self, item: Any, row: int) -> Sentence | WherefromError:
        try:
            found, single = self.read_each(item)
            if not single:
                raise InvalidInput(f"it is itself a list of inputs; expected {EXPECTED}")
        except WherefromError as error:
            return type(error)(f"input {row}: {error}")
        return found[0]

    def _one(self, given: Any) -> Sentence | None:
        """A single picture; None of what may be several."""
        if isinstance(given, Mapping):
            if "pixel_values" in given:
                refuse_unread(given, ("pixel_values",), None, row=False)
                values = torch.as_tensor(given["pixel_values"])
                return self.sentence(values) if values.ndim == 3 else None
            if "image" not in given:
                raise InvalidInput(
                    f"{self.model} reads images, and what was given has {', '.join(map(str, given)) or 'nothing'}; "
                    f"expected {EXPECTED}"
                )
            return self._one(given["image"])
        if isinstance(given, str | Path):
            return replace(self.sentence(self.prepared(self._opened(given))), given={"image": str(given)})
        if isinstance(given, Tensor | np.ndarray) and given.ndim == 4:
            return None
        pixels = decoded(given) if isinstance(given, bytes) else pixels_of(given)
        return None if pixels is None else self.sentence(self.prepared(pixels))

    def region(self, mask: bytes, image: bytes | str) -> NDArray[np.bool_]:
        """Where a mask of the same size as an image is not black, in the pixels that the model reads of that."""
        white = (decoded(mask, ground=BLACK) > 127).any(-1, keepdims=True)
        if white.shape[:2] != (size := size_of(image)):
            raise InvalidInput(
                f"a region of {list(white.shape[:2])} pixels in a picture of {list(size)}; expected the same height "
                f"and width"
            )
        found: NDArray[np.bool_] = self.shown(self.prepared(white.repeat(3, -1).astype(np.uint8) * 255))[..., 0] > 127
        return found

    def prepared(self, pixels: Pixels) -> Tensor:
        """What the processor makes of a picture: [3, height, width]."""
        if self.processor is None:
            raise InvalidOption(
                f"{self.model} came without an image processor, which says how large its pictures are and how they are "
                f"normalised; give one as tokenizer= (transformers.AutoImageProcessor.from_pretrained(…), "
                f"AutoProcessor where texts stand beside pictures), or give {{'pixel_values': …}}"
            )
        need("PIL.Image", extra="image")
        # Said, since of a picture 1 or 3 pixels high a processor guesses that its colours come first.
        ordered = {"input_data_format": "channels_last"}
        found: Tensor = self.processor(images=pixels, return_tensors="pt", **ordered)["pixel_values"][0]
        return found

    def sentence(self, values: Tensor) -> Sentence:
        """A prepared picture as the row of its tokens."""
        from wherefrom.model.sentences import Sentence

        if values.ndim != 3 or not values.is_floating_point() or not bool(values.isfinite().all()):
            raise InvalidInput(
                f"pixel_values of shape {list(values.shape)} and type {values.dtype}; expected finite floats, "
                f"[channels, height, width]"
            )
        rows, columns = (size // patch for size, patch in zip(values.shape[1:], self.patch, strict=True))
        if not rows * columns:
            raise InvalidInput(f"a picture of {list(values.shape)} is smaller than one patch of {list(self.patch)}")
        names = [*self.special, *(f"{row},{column}" for row in range(rows) for column in range(columns))]
        special = [place < len(self.special) for place in range(len(names))]
        return Sentence(
            _ids(values, len(names)),
            names,
            special,
            [None] * len(names),
            (),
            pixels=values,
            picture=Patches(self.shown(values), (rows, columns), len(self.special)),
            black=self.black,
        )

    @property
    def black(self) -> tuple[float, ...] | None:
        """What the processor makes of black, by channel; None where that is not known."""
        return None if self.processor is None else tuple(-m / s for m, s in zip(*self._normal, strict=True))

    @property
    def _normal(self) -> tuple[Sequence[float], Sequence[float]]:
        """The mean and the deviation by which it normalises colours from 0 to 1."""
        processor = self.processor
        normal = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
        if normal[0] is None or normal[1] is None or not getattr(processor, "do_normalize", True):
            return (0.0,) * 3, (1.0,) * 3
        return normal[0], normal[1]

    def shown(self, values: Tensor) -> Pixels:
        """The picture as the model reads it, in colours: the normalisation undone, or from darkest to brightest."""
        values = values.detach().cpu().double()
        if self.processor is None:
            low, high = values.min(), values.max()
            colours = (values - low) / (high - low).clamp(min=1e-12)
        else:
            mean, std = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in self._normal)
            colours = values * std + mean
        found = (colours.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        return found if found.shape[-1] == 3 else np.repeat(found[..., :1], 3, -1)


def _ids(values: Tensor, n: int) -> list[int]:
    """A number for each token that another picture has not: what random scores are drawn by."""
    start = zlib.crc32(values.detach().cpu().contiguous().numpy().tobytes())
    return [start + place for place in range(n)]


def is_picture(given: Any) -> bool:
    """Whether an input is meant for a model of pictures, whatever it holds."""
    if isinstance(given, Mapping):
        return "pixel_values" in given or ("image" in given and "text" not in given)
    if isinstance(given, Tensor | np.ndarray):
        return given.ndim in (3, 4)
    if isinstance(given, Path):
        return given.suffix.lower() in ENDINGS
    return _is_pillow(given)


def _is_pillow(given: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == "PIL" for cls in type(given).__mro__)


def _batch(inputs: Any) -> list[Any]:
    if isinstance(inputs, Mapping):
        refuse_unread(inputs, ("pixel_values",), None, row=False)
        values = torch.as_tensor(inputs["pixel_values"])
        if values.ndim != 4:
            raise InvalidInput(f"pixel_values have {values.ndim} axes; expected [channels, height, width], or a batch")
        return [{"pixel_values": each} for each in values]
    if isinstance(inputs, Tensor | np.ndarray):
        return list(inputs)
    found = several(inputs)
    if found is None:
        raise InvalidInput(f"{kind_of(inputs)} was given to a model of images; expected {EXPECTED}")
    return list(found)


def pixels_of(given: Any, ground: int = WHITE) -> Pixels | None:
    """A Pillow image or an array as [height, width, 3] from 0 to 255; None of anything else."""
    if _is_pillow(given):
        given = colours(given, ground)
    if not isinstance(given, Tensor | np.ndarray):
        return None
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
    if not array.size:
        raise InvalidInput(
            f"an image of shape {list(array.shape)} has no pixels; expected [height, width, 3], none of them 0"
        )
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)  # torch's order
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[-1] not in (1, 3, 4):
        raise InvalidInput(f"an array of shape {list(array.shape)} is no image; expected [height, width, 3]")
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise InvalidInput(
                "an image of floats outside of 0 to 1; expected colours from 0 to 1, whole numbers from 0 to 255 "
                "(uint8), or, if it is normalised already, {'pixel_values': …}"
            )
        array = (array * 255).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise InvalidInput(f"an image of {array.dtype}; expected uint8 (0 to 255) or floats from 0 to 1")
    if array.shape[-1] == 4:
        return laid(array, ground)
    return np.ascontiguousarray(np.repeat(array, 3, -1) if array.shape[-1] == 1 else array)


# Patches that are taken away ------------------------------------------------------------------------------


def painted(sentence: Sentence) -> Tensor:
    """What the model reads of a picture: its pixels, with the patches painted over that are to be gone."""
    pixels, picture = _parts(sentence)
    gone = {number for number in sentence.embedded or () if number < 0}
    for name, number in PAINTS.items():
        if number in gone:
            places = torch.tensor([each == number for each in sentence.embedded or ()])[picture.tokens]
            pixels = torch.where(_mask(places, sentence), _paint(name, sentence), pixels)
    return pixels


def _mask(places: Tensor, sentence: Sentence) -> Tensor:
    """Which pixels belong to these patches: [height, width]."""
    pixels, picture = _parts(sentence)
    patch = _patch(sentence)
    mask = places.view(picture.grid).repeat_interleave(patch[0], 0).repeat_interleave(patch[1], 1)
    height, width = pixels.shape[1:]
    return nn.functional.pad(mask, (0, width - mask.shape[1], 0, height - mask.shape[0]))


def _parts(sentence: Sentence) -> tuple[Tensor, Patches]:
    assert sentence.pixels is not None
    assert sentence.picture is not None
    return sentence.pixels, sentence.picture


def _patch(sentence: Sentence) -> tuple[int, int]:
    """A patch's height and width in pixels."""
    pixels, picture = _parts(sentence)
    return pixels.shape[1] // picture.grid[0], pixels.shape[2] // picture.grid[1]


def _paint(name: str, sentence: Sentence) -> Tensor:
    pixels, _ = _parts(sentence)
    if name == "mean":
        return pixels.mean((1, 2), keepdim=True)
    if name == "blur":
        return _blurred(pixels, max(_patch(sentence)))
    if sentence.black is None:
        raise InvalidOption(
            "what black is after normalisation is known to the model's image processor alone, and none was given; give "
            "it as tokenizer=, or choose 'mean' or 'blur'"
        )
    return pixels.new_tensor(sentence.black)[:, None, None]


def _blurred(pixels: Tensor, sigma: float) -> Tensor:
    """By a Gaussian, rows and columns in turn; at the edges by what of it lies inside."""
    found = pixels.double()
    for axis in (1, 2):
        size = pixels.shape[axis]
        distance = torch.arange(size, dtype=torch.float64)[:, None] - torch.arange(size, dtype=torch.float64)
        weight = torch.exp(-0.5 * (distance / sigma).square())
        weight = weight / weight.sum(-1, keepdim=True)
        found = torch.movedim(torch.tensordot(weight, found, ([1], [axis])), 0, axis)
    return found.to(pixels.dtype)


# What heads read ------------------------------------------------------------------------------------------


def reads(opened: Model) -> str:
    """What the head of a model of pictures reads: tokens by the names of `readout`."""
    if opened.task == "classification" and type(opened.pretrained).__name__.endswith("WithTeacher"):
        return "both"
    if getattr(opened.config, "use_mean_pooling", False):  # BEiT
        return "patches"
    return opened.family.reads if opened.task == "classification" or opened.family.reads == "mean" else "first"


def readout(name: str, sentence: Sentence) -> Readout | None:
    """Where that is; None for the names that texts have too."""
    if name == "class-and-patches":
        return Readout(0, POOLED)
    if name == "both":
        return Readout(None, "class token and distillation token", (0, 1))
    if name == "patches" and sentence.picture is not None:
        return Readout(None, "mean of the patches", tuple(range(len(sentence))[sentence.picture.tokens]))
    return None


class ImageSide(nn.Module):
    """The image side of a model of images and texts (CLIP, SigLIP): last hidden states, and the image's embedding."""

    def __init__(self, vision_model: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.vision_model, self.projection = vision_model, projection

    def forward(self, pixel_values: Tensor, **more: Any) -> ModelOutput:
        found = self.vision_model(pixel_values=pixel_values, **more)
        embedded = self.projection(found.pooler_output)
        return ModelOutput(last_hidden_state=found.last_hidden_state, image_embeds=embedded)


def image_side(model: nn.Module) -> ImageSide | None:
    """That of a model which has one beside a side for texts; None of any other."""
    sides = [getattr(model, name, None) for name in ("vision_model", "text_model")]
    if not all(isinstance(side, nn.Module) for side in sides) or not hasattr(model, "get_image_features"):
        return None
    projection = getattr(model, "visual_projection", None)
    return ImageSide(sides[0], nn.Identity() if projection is None else projection)  # type: ignore[arg-type]


@torch.no_grad()
def text_direction(opened: Model, text: str | Sequence[int]) -> Tensor:
    """The embedding of a text beside a picture, its length the factor by which the model multiplies their cosine."""
    both = opened.both
    assert both is not None
    longest, padded = both.config.text_config.max_position_embeddings, both.config.model_type.startswith("siglip")
    if isinstance(text, str):
        if opened.tokenizer is None:
            raise InvalidOption("a text was given but no tokenizer; give the processor of both as tokenizer=")
        # SigLIP was trained on texts padded to its full length without a mask, and its processor pads them so.
        how = {"padding": "max_length", "max_length": longest} if padded else {}
        ids = opened.tokenizer(text, return_tensors="pt", verbose=False, **how)["input_ids"]
    else:
        ids = torch.tensor([list(text)])
    if ids.shape[1] > longest:
        raise TooLong(
            f"the text beside the picture has {ids.shape[1]} tokens but the model reads at most {longest}; shorten it"
        )
    found = both.get_text_features(input_ids=ids.to(opened.device))
    vector: Tensor = (found if isinstance(found, Tensor) else found.pooler_output)[0]
    scale = both.logit_scale.exp()
    direction: Tensor = vector / vector.norm() * scale
    return direction
