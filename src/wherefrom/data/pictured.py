"""Pictures of which it is known where that lies which decides their class.

    mosaics:NAME   four pictures of another dataset, two above two, of which one shows the class and no other does
                   (Arias-Duart et al. 2022, who let two show it)
    drawn          an airplane, automobile, horse or ship of a few polygons, in some size and somewhere in the picture

Both are drawn by a seed, so that they are the same everywhere. An example's `region` is white where the class is shown.

Arias-Duart et al. (2022), Focus! Rating XAI Methods and Finding Biases. https://arxiv.org/abs/2109.15035
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wherefrom.data.example import Dataset, Dropped, Example
from wherefrom.errors import InvalidInput, UnknownName
from wherefrom.extras import need
from wherefrom.result.picture import Pixels, decoded, to_png

MOSAICS, DRAWN = "mosaics", "drawn"
ABOUT = {
    f"{MOSAICS}:NAME": "Four pictures of a dataset as one, of which one shows the class; its place is known.",
    DRAWN: "Drawn airplanes, automobiles, horses and ships; their places are known.",
}
COUNTS = {"test": 1000, "train": 10_000}
SIDE, CANVAS = 32, 512  # pixels: of a drawn picture, and of what it is drawn on
Mask = NDArray[np.bool_]
Colour = tuple[int, int, int]


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
    >>> example = next(iter(mosaics(read("drawn"), count=1)))
    >>> example.label in ("airplane", "automobile", "horse", "ship")
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


# Drawn things ---------------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """A thing made of parts, each a form, its corners (x, y, …) and its colour, before two colours and a horizon."""

    above: Colour
    below: Colour
    horizon: int
    parts: tuple[tuple[str, tuple[int, ...], Colour], ...]


def _wheel(x: int, y: int) -> tuple[tuple[str, tuple[int, ...], Colour], ...]:
    sizes = ((43, 25), (19, 155))
    return tuple(("ellipse", (x - r, y - r, x + r, y + r), (shade, shade, shade)) for r, shade in sizes)


BROWN, GLASS = (110, 65, 35), (70, 85, 100)
SCENES = {
    "airplane": Scene(
        (120, 170, 235),
        (0, 0, 0),
        CANVAS,
        (
            ("ellipse", (70, 225, 450, 290), (235, 235, 240)),
            ("polygon", (230, 260, 320, 260, 220, 400, 170, 400), (170, 175, 185)),
            ("polygon", (230, 250, 290, 250, 230, 150, 200, 150), (185, 190, 200)),
            ("polygon", (80, 250, 140, 240, 90, 150, 60, 150), (200, 60, 50)),
        ),
    ),
    "automobile": Scene(
        (180, 190, 195),
        (105, 105, 105),
        370,
        (
            ("polygon", (40, 290, 120, 280, 180, 200, 340, 200, 400, 280, 475, 295, 475, 370, 40, 370), (200, 30, 30)),
            ("polygon", (145, 275, 192, 215, 255, 215, 255, 275), GLASS),
            ("polygon", (268, 275, 268, 215, 332, 215, 378, 275), GLASS),
            *_wheel(130, 370),
            *_wheel(385, 370),
        ),
    ),
    "horse": Scene(
        (150, 180, 210),
        (85, 135, 55),
        330,
        (
            ("ellipse", (130, 200, 370, 320), BROWN),
            ("polygon", (320, 250, 380, 110, 430, 130, 380, 280), BROWN),
            ("ellipse", (370, 95, 470, 160), BROWN),
            *(("rectangle", (x, 290, x + 22, 430), BROWN) for x in (165, 205, 310, 345)),
            ("polygon", (140, 220, 90, 330, 120, 330, 155, 250), (60, 35, 20)),
        ),
    ),
    "ship": Scene(
        (150, 185, 225),
        (40, 80, 120),
        330,
        (
            ("polygon", (60, 290, 450, 290, 400, 370, 110, 370), (70, 30, 30)),
            ("rectangle", (150, 230, 330, 290), (235, 235, 230)),
            ("rectangle", (190, 190, 280, 230), (220, 220, 215)),
            ("rectangle", (220, 120, 255, 190), (180, 50, 40)),
            ("rectangle", (376, 130, 384, 290), (60, 60, 60)),
        ),
    ),
}


def drawn_things(split: str | None = None) -> Dataset:
    """Drawn airplanes, automobiles, horses and ships; the two splits share no picture."""
    split = split or "test"
    if split not in COUNTS:
        raise UnknownName(f"{DRAWN} has no split {split!r}; expected {' or '.join(COUNTS)}")
    return Dataset(DRAWN, split, partial(_drawn, split), tuple(SCENES), ABOUT[DRAWN])


def _drawn(split: str) -> Iterator[Example | Dropped]:
    for number in range(1, COUNTS[split] + 1):
        kind = list(SCENES)[number % len(SCENES)]
        draw = np.random.default_rng([list(COUNTS).index(split), number])
        scale = float(draw.uniform(0.5, 0.9))
        left, top = (float(each) for each in draw.uniform(0, 1 - scale, 2) * CANVAS)
        pixels, inside = drawn_scene(SCENES[kind], SIDE, scale, (left, top), draw.integers(-25, 26, 3))
        speckled = pixels + draw.normal(0, 4, pixels.shape)
        png = to_png(speckled.clip(0, 255).astype(np.uint8))
        yield Example(f"{split}:{number}", "", kind, image=png, region=region_png(inside))


def drawn_scene(
    scene: Scene,
    side: int = SIDE,
    scale: float = 1.0,
    corner: tuple[float, float] = (0.0, 0.0),
    tint: NDArray[np.int64] | None = None,
) -> tuple[Pixels, Mask]:
    """A scene as pixels, and where its thing lies: made smaller, from a corner on, its colours moved by `tint`."""
    pillow, pencil = need("PIL.Image", extra="image"), need("PIL.ImageDraw", extra="image")
    horizon = min(CANVAS, int(corner[1] + scale * scene.horizon)) if scene.horizon < CANVAS else CANVAS
    rows = np.arange(CANVAS)
    ground = (
        np.where((rows < horizon)[:, None], scene.above, scene.below)
        + (rows - (rows >= horizon) * horizon)[:, None] // 8
    )
    image = pillow.fromarray(np.repeat(ground.clip(0, 255).astype(np.uint8)[:, None], CANVAS, 1))
    mask = pillow.new("L", (CANVAS, CANVAS))
    for form, places, colour in scene.parts:
        moved = [place * scale + corner[i % 2] for i, place in enumerate(places)]
        getattr(pencil.Draw(image), form)(moved, fill=colour)
        getattr(pencil.Draw(mask), form)(moved, fill=255)
    small, inside = (np.asarray(each.resize((side, side), pillow.Resampling.BOX)) for each in (image, mask))
    tinted = small + (0 if tint is None else tint)
    return tinted.clip(0, 255).astype(np.uint8), inside > 127
