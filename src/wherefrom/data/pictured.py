"""Pictures of which it is known where that lies which decides their class.

    mosaics:NAME   four pictures of another dataset, two above two, of which one shows the class and no other does
                   (Arias-Duart et al. 2022, who let two show it)
    shapes         a circle, square, triangle or cross, anywhere on a speckled ground

Both are drawn by a seed, so that they are the same everywhere. An example's `region` is white where the class is shown.

Arias-Duart et al. (2022), Focus! Rating XAI Methods and Finding Biases. https://arxiv.org/abs/2109.15035
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wherefrom.data.example import Dataset, Dropped, Example
from wherefrom.errors import InvalidInput, UnknownName
from wherefrom.extras import need
from wherefrom.result.picture import Pixels, decoded, to_png

MOSAICS, SHAPES = "mosaics", "shapes"
ABOUT = {
    f"{MOSAICS}:NAME": "Four pictures of a dataset as one, of which one shows the class; its place is known.",
    SHAPES: "Circles, squares, triangles and crosses on a speckled ground; their places are known.",
}
COUNTS = {"test": 1000, "train": 10_000}
KINDS = ("circle", "square", "triangle", "cross")
SIDE = 32
SMALLEST, LARGEST = 5, 8  # half of a shape's side
Mask = NDArray[np.bool_]


def region_png(inside: Mask) -> bytes:
    """A mask as an example holds it: white inside, black outside."""
    return to_png(np.repeat(inside[..., None], 3, -1).astype(np.uint8) * 255)


# Mosaics --------------------------------------------------------------------------------------------------


def mosaic(pictures: Sequence[Pixels]) -> Pixels:
    """Four pictures of one size as one: the first two above the others."""
    if len(pictures) != 4 or len({each.shape for each in pictures}) != 1:
        raise InvalidInput("a mosaic is made of four pictures of one size")
    found: Pixels = np.concatenate([np.concatenate(pictures[i : i + 2], 1) for i in (0, 2)], 0)
    return found


def mosaics(source: Dataset, count: int = COUNTS["test"], seed: int = 0) -> Dataset:
    """Mosaics of a dataset of pictures with labels.

    >>> from wherefrom.data import read
    >>> example = next(iter(mosaics(read("shapes"), count=1)))
    >>> example.label in ("circle", "square", "triangle", "cross")
    True
    """
    make = partial(_mosaics, source, count, seed)
    return Dataset(f"{MOSAICS}:{source.name}", source.split, make, source.labels, ABOUT[f"{MOSAICS}:NAME"])


def _mosaics(source: Dataset, count: int, seed: int) -> Iterator[Example | Dropped]:
    every = [each for each in source if each.image is not None and each.label is not None]
    labels = [str(each.label) for each in every]
    if len(labels) - max(Counter(labels).values(), default=0) < 3:
        raise InvalidInput(f"{source.name} has too few pictures of other classes; a mosaic shows three beside its own")
    for number in range(1, count + 1):
        draw = random.Random(f"{seed}:{number}")
        shown, place = draw.randrange(len(every)), draw.randrange(4)
        others: list[int] = []
        while len(others) < 3:
            other = draw.randrange(len(every))
            others += [other] if labels[other] != labels[shown] and other not in others else []
        chosen = [*others[:place], shown, *others[place:]]
        pictures = [decoded(every[i].image or b"") for i in chosen]
        whole = mosaic([_as_large(each, pictures[place]) for each in pictures])
        inside = np.zeros(whole.shape[:2], bool)
        row, column = divmod(place, 2)
        height, width = pictures[place].shape[:2]
        inside[row * height :, column * width :][:height, :width] = True
        id = f"{source.split}:{number}"
        yield Example(id, "", every[shown].label, image=to_png(whole), region=region_png(inside))


def _as_large(picture: Pixels, like: Pixels) -> Pixels:
    if picture.shape == like.shape:
        return picture
    pillow = need("PIL.Image", extra="image")
    return np.asarray(pillow.fromarray(picture).resize((like.shape[1], like.shape[0])))


# Shapes ---------------------------------------------------------------------------------------------------


def shapes(split: str | None = None) -> Dataset:
    """Drawn shapes. The two splits share no picture."""
    split = split or "test"
    if split not in COUNTS:
        raise UnknownName(f"{SHAPES} have no split {split!r}; expected {' or '.join(COUNTS)}")
    return Dataset(SHAPES, split, partial(_shapes, split), KINDS, ABOUT[SHAPES])


def _shapes(split: str) -> Iterator[Example | Dropped]:
    for number in range(1, COUNTS[split] + 1):
        kind = KINDS[number % len(KINDS)]
        draw = np.random.default_rng([list(COUNTS).index(split), number])
        half = int(draw.integers(SMALLEST, LARGEST + 1))
        inside = drawn_shape(kind, half, *draw.integers(half, SIDE - half, 2).tolist())
        ground = draw.integers(0, 256, 3)
        colour = (ground + 128 + draw.integers(-40, 41, 3)) % 256  # far from the ground in every channel
        pixels = np.where(inside[..., None], colour, ground) + draw.normal(0, 20, (SIDE, SIDE, 3))
        png = to_png(pixels.clip(0, 255).astype(np.uint8))
        yield Example(f"{split}:{number}", "", kind, image=png, region=region_png(inside))


def drawn_shape(kind: str, half: int, row: int, column: int) -> Mask:
    """Where a shape lies that is `2 half + 1` pixels high and has its centre here."""
    down, right = np.mgrid[:SIDE, :SIDE]
    down, right = down - row, right - column
    within = (abs(down) <= half) & (abs(right) <= half)
    found: Mask = (
        within
        & {
            "circle": down**2 + right**2 <= half**2,
            "square": within,
            "triangle": 2 * abs(right) <= down + half,
            "cross": (abs(down) <= half // 3) | (abs(right) <= half // 3),
        }[kind]
    )
    return found
