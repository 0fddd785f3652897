"""A picture that was cut into patches, and where each token of it lies. Needs numpy alone.

Files and pages hold the picture as a PNG, written here without any library for images; image files of other makers are
read by Pillow.
"""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wherefrom.errors import DamagedFile, InvalidInput, OverLimit
from wherefrom.extras import need

Pixels = NDArray[np.uint8]
Number = TypeVar("Number", bound=np.generic)
SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB = 2  # PNG's number for colours without transparency
WHITE, BLACK = 255, 0
ALIKE = 16  # of 255, on average: how far the pixels of one picture may lie apart
ORIENTATION = 0x0112  # EXIF's number for how a camera was held, and what sets that right:
UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
LYING = (5, 6, 7, 8)  # those of them that change height and width


@dataclass(frozen=True, eq=False)
class Patches:
    """What the model saw of a picture, and its patches: rows × columns, the first of them token number `first`."""

    pixels: Pixels  # [height, width, 3], from 0 to 255
    grid: tuple[int, int]
    first: int = 1  # how many tokens before it are no patches (the class token, registers)

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[-1] != 3 or self.pixels.dtype != np.uint8:
            raise InvalidInput(
                f"a picture of shape {self.pixels.shape} and type {self.pixels.dtype}; expected whole numbers from 0 "
                f"to 255 (uint8), [height, width, 3]"
            )

    @property
    def tokens(self) -> slice:
        """Which tokens are patches."""
        return slice(self.first, self.first + self.grid[0] * self.grid[1])

    def on_grid(self, scores: NDArray[Number]) -> NDArray[Number]:
        """The scores of the patches where they lie: [..., n] -> [..., rows, columns]."""
        scores = np.asarray(scores)
        if not scores.ndim or scores.shape[-1] < self.tokens.stop:
            raise InvalidInput(f"scores of shape {scores.shape}; expected one for each of the picture's tokens")
        return scores[..., self.tokens].reshape(*scores.shape[:-1], *self.grid)

    def on_pixels(self, scores: NDArray[Any], *, smooth: bool = True) -> NDArray[np.float64]:
        """The scores of the patches for every pixel that they cover: [n] -> [height, width].

        `smooth`: in between those of the nearest patches (bilinear); else the patch's own.
        """
        shape = [size // count * count for size, count in zip(self.pixels.shape, self.grid, strict=False)]
        return spread(self.on_grid(np.asarray(scores, np.float64)), (shape[0], shape[1]), smooth)

    def resembles(self, other: Patches) -> bool:
        """Whether the two may show the same picture: two image processors do not make the same pixels of one."""
        if self.pixels.shape != other.pixels.shape:
            return True  # nobody can tell
        return float(np.abs(self.pixels.astype(float) - other.pixels).mean()) <= ALIKE

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        png = base64.b64encode(to_png(self.pixels)).decode("ascii")
        return {"png": png, "grid": list(self.grid), "first": self.first}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Patches:
        """The inverse of `to_dict`."""
        rows, columns = data["grid"]
        return cls(from_png(base64.b64decode(data["png"])), (int(rows), int(columns)), int(data["first"]))


def spread(values: NDArray[np.float64], shape: tuple[int, int], smooth: bool) -> NDArray[np.float64]:
    """A number for each pixel: that of its patch, or between those of the four nearest centres."""
    rows, columns = (size // count for size, count in zip(shape, values.shape, strict=True))
    if not smooth:
        return values.repeat(rows, 0).repeat(columns, 1)
    for axis, size in enumerate(shape):
        count = values.shape[axis]
        place = np.clip((np.arange(size) + 0.5) / size * count - 0.5, 0, count - 1)
        lower = np.minimum(place.astype(int), max(count - 2, 0))
        part = np.expand_dims(place - lower, 1 - axis)
        upper = np.minimum(lower + 1, count - 1)
        values = values.take(lower, axis) * (1 - part) + values.take(upper, axis) * part
    return values


def decoded(image: bytes | str | Path, most: int | None = None, ground: int = WHITE) -> Pixels:
    """The pixels of an image file, given by its path or its bytes; of a larger one than `most` pixels an error."""
    pillow = need("PIL.Image", extra="image")
    try:
        with pillow.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            if most is not None and opened.width * opened.height > most:
                size = f"{opened.width} × {opened.height}"
                raise OverLimit(f"an image of {size} pixels; at most {most:,} are read here: make it smaller")
            return colours(opened, ground)
    except (OverLimit, InvalidInput):
        raise
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:  # what Pillow raises of damage
        why = "its kind is not known" if isinstance(error, pillow.UnidentifiedImageError) else error
        name = f"what was given ({len(image):,} bytes)" if isinstance(image, bytes) else f"'{Path(image).name}'"
        raise InvalidInput(f"{name} is no image that Pillow can read: {why}") from error


def size_of(image: bytes | str | Path) -> tuple[int, int]:
    """Height and width of the pixels of an image file, of which only the beginning is read."""
    with need("PIL.Image", extra="image").open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
        lies = opened.getexif().get(ORIENTATION, 1) in LYING
        return (opened.width, opened.height) if lies else (opened.height, opened.width)


def colours(image: Any, ground: int = WHITE) -> Pixels:
    """A Pillow image as programs show it: upright, on a ground where it is transparent, and 16 bits as 8."""
    turned = UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    upright = image.transpose(getattr(need("PIL.Image", extra="image").Transpose, turned)) if turned else image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        gray = (np.asarray(upright) / 257).round().astype(np.uint8)
        return np.repeat(gray[..., None], 3, -1)
    if image.mode in ("I", "F"):  # Pillow would cut them off at 255
        raise InvalidInput(
            f"an image of mode {image.mode!r}, whose numbers have no largest; expected 8 or 16 bits for each colour: "
            f"give an array of uint8 (0 to 255) or floats from 0 to 1"
        )
    if "A" in image.getbands() or "transparency" in image.info:
        return laid(np.asarray(upright.convert("RGBA")), ground)
    return np.array(upright.convert("RGB"))  # writable, as torch wants it


def laid(pixels: Pixels, ground: int = WHITE) -> Pixels:
    """[height, width, 4], the last of which is how opaque a pixel is, on a ground of one brightness."""
    opaque = pixels[..., 3:] / 255
    return (pixels[..., :3] * opaque + ground * (1 - opaque)).round().astype(np.uint8)


def to_png(pixels: Pixels) -> bytes:
    """[height, width, 3] as a PNG file, its rows as they are (filter 0)."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, RGB, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )


def from_png(png: bytes) -> Pixels:
    """What `to_png` wrote; any other PNG is refused."""
    try:
        width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
        (size,) = struct.unpack(">I", png[33:37])
        rows = np.frombuffer(zlib.decompress(png[41 : 41 + size]), np.uint8).reshape(height, 1 + 3 * width)
    except (struct.error, ValueError, zlib.error) as error:
        raise DamagedFile(f"the picture is damaged: {error}") from error
    if (depth, kind) != (8, RGB) or rows[:, 0].any():
        raise DamagedFile("the picture was not written by wherefrom; expected what Patches.to_dict gives")
    return rows[:, 1:].reshape(height, width, 3).copy()
