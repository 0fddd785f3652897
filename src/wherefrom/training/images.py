"""A small vision transformer for pictures with labels, from scratch.

A picture is changed each time it is read: shifted and mirrored, half of them also turned, sheared and scaled, their
colours varied, a square hidden, and in half of them a square replaced by that of another picture (CutMix, Yun et al.
2019), whose label then counts by its area. All of it follows from the seed and the number of the row, so that a resumed
run goes on as it would have gone.

    loss  =  a CE(logits, label) + (1 − a) CE(logits, label of the square),        a = 1 without one

CE smooths the labels by 0.1. With a teacher, its answers count beside the labels (training/teacher.py).

A row is a table's: `image` holds the bytes of a PNG or JPEG file, `label` a number or a name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    AttentionInterface,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from wherefrom.data.tables import BadRow, Problems, cell, label_names, label_text, rows
from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.extras import need
from wherefrom.result.picture import decoded
from wherefrom.training import checkpoints, loop, replay, teacher
from wherefrom.training.accuracy import Score
from wherefrom.training.labelled import refuse_foreign
from wherefrom.training.teacher import distilled

Array = npt.NDArray[np.uint8]
Classifier = Callable[[Tensor], Tensor]  # from pictures to logits
UNMASKED = "unmasked"  # as "sdpa"; but for that name transformers 5.17 makes a mask, of ones, while a step is recorded
AttentionInterface.register(UNMASKED, sdpa_attention_forward)
SMOOTHING = 0.1
SHIFT = 1 / 8  # of the side, in either direction
TURN, SHEAR, SCALE = 0.26, 0.15, 0.15  # of half of the pictures, at most: radians, and shares
COLOUR = 0.4  # how far brightness and contrast go from 1
HOLE = 1 / 4  # the side of the square that is hidden, as a share of the picture's
DRAWN = 16  # numbers from 0 to 1 that say how a picture is changed


@dataclass(frozen=True)
class VisionShape:
    """A new ViT's size."""

    layers: int = 7
    width: int = 192
    heads: int = 6
    patch: int = 4


@dataclass(frozen=True)
class ImageColumns:
    """Which columns of a table hold what, and how labels are named (`{"0": "airplane"}`)."""

    image: str = "image"
    label: str = "label"
    names: dict[str, str] | None = None


@dataclass(frozen=True)
class Labelled:
    """Pictures of one size, and the number of each one's label."""

    pixels: Array  # [N, side, side, 3]
    labels: npt.NDArray[np.int64]
    names: list[str]

    def take(self, places: npt.NDArray[np.int64]) -> Labelled:
        return Labelled(self.pixels[places], self.labels[places], self.names)


def train(
    data: Sequence[Path],
    run: loop.Schedule,
    columns: ImageColumns | None = None,
    shape: VisionShape | None = None,
    valid: Path | None = None,
    held_out: float = 0.02,
    fresh: bool = False,
    taught: int = 0,
) -> loop.Trained:
    """Train a new ViT on the labelled pictures of `data`; without `valid`, some of them are held out. A teacher learns
    for `taught` epochs before."""
    started = time.monotonic()
    columns, shape = columns or ImageColumns(), shape or VisionShape()
    settings = {
        "task": "image",
        "train": [str(path) for path in data],
        "valid": None if valid is None else str(valid),
        "held_out": None if valid else held_out,
        "columns": asdict(columns),
        "shape": asdict(shape),
        "taught": taught,
        "run": run.settings,
    }
    with loop.running(run, settings, fresh):
        seen, checked = _split(data, columns, valid, held_out, run.seed)
        prepared = processor(seen)
        device = "cuda" if loop.on_cuda(run) else "cpu"
        learnt, held = (Shown.of(each, prepared, device) for each in (seen, checked))
        counts: dict[str, Any] = {"train_rows": len(seen.labels), "valid_rows": len(checked.labels)}
        asked = None
        if taught:
            asked, counts["teacher"] = _teacher(learnt, held, len(seen.names), run, taught)
        set_seed(run.seed)
        network = new(vit(shape, seen))
        if device == "cuda":
            loop.compile_blocks(network)
        answers = partial(_logits, network)
        task = replay.Replayed(
            network,
            batches=partial(drawn_batches, len(seen.labels), run.batch, run.seed),
            loss=partial(mixed_loss, answers, learnt, teacher=asked),
            accuracy=partial(accuracy, answers, held, 4 * run.batch),
        )
        counts["parameters"] = network.num_parameters()
        return replay.fit(task, prepared, run, *loop.schedule(run, len(seen.labels)), {**settings, **counts}, started)


def _split(
    data: Sequence[Path], columns: ImageColumns, valid: Path | None, held_out: float, seed: int
) -> tuple[Labelled, Labelled]:
    """What is learnt from, and what is held out."""
    seen = read(data, columns)
    occurring = np.unique(seen.labels)
    if len(occurring) < 2:
        only = seen.names[occurring[0]]
        raise InvalidInput(f"only one label, {only!r}, occurs in the training rows; there must be two at least")
    if valid is not None:
        return seen, read([valid], columns, seen.names, seen.pixels.shape[1])
    drawn = np.random.default_rng(seed).permutation(len(seen.labels))
    size = max(1, round(held_out * len(drawn)))
    return seen.take(drawn[size:]), seen.take(drawn[:size])


def _teacher(
    seen: Shown, held: Shown, classes: int, run: loop.Schedule, epochs: int
) -> tuple[Classifier, dict[str, float]]:
    """A network of convolutions that has learnt the same pictures, changed in the same ways, and how good it is."""
    set_seed(run.seed)
    made = teacher.network(classes)
    metrics = teacher.learnt(
        made,
        run,
        epochs,
        len(seen.labels),
        batches=partial(drawn_batches, len(seen.labels)),
        loss=partial(mixed_loss, made, seen, smoothing=0.0),  # smoothed answers would teach less
        accuracy=partial(accuracy, made, held, 1024),
    )
    return made, metrics


def _logits(network: Any, pixels: Tensor) -> Tensor:
    found: Tensor = network(pixel_values=pixels).logits
    return found


def new(config: ViTConfig) -> ViTForImageClassification:
    """A network of random weights that can be recorded."""
    network = ViTForImageClassification(config)
    network.set_attn_implementation(UNMASKED)
    return network


def vit(shape: VisionShape, seen: Labelled) -> ViTConfig:
    side = seen.pixels.shape[1]
    if side % shape.patch or shape.width % shape.heads:
        raise InvalidOption(
            f"pictures of {side} pixels in patches of {shape.patch}, a width of {shape.width} for {shape.heads} heads: "
            f"expected a side that the patches divide, and a width that the heads divide"
        )
    named = dict(enumerate(seen.names))
    return ViTConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        image_size=side,
        patch_size=shape.patch,
        layer_norm_eps=1e-6,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=named,
        label2id={name: index for index, name in named.items()},
    )


def processor(seen: Labelled) -> Any:
    """What prepares pictures as these were: their size, and the mean and deviation of their colours."""
    from transformers import ViTImageProcessorPil

    need("PIL.Image", extra="image")
    side, some = seen.pixels.shape[1], seen.pixels[:10_000] / 255.0
    mean, std = ([round(float(each), 4) for each in of((0, 1, 2))] for of in (some.mean, some.std))
    return ViTImageProcessorPil(size={"height": side, "width": side}, image_mean=mean, image_std=std)


# Reading --------------------------------------------------------------------------------------------------


def read(
    paths: Sequence[Path], columns: ImageColumns, names: Sequence[str] | None = None, side: int | None = None
) -> Labelled:
    """The pictures of tables, as large as the first one's shorter side; the labels by `names`, or those that occur."""
    pictures: list[Array] = []
    labels: list[str] = []
    for path in paths:
        problems = Problems(path)
        for number, row in rows(path):
            try:
                label = label_text(cell(row, columns.label, path), columns.label)
                image = _decoded(cell(row, columns.image, path), columns.image)
            except BadRow as bad:
                problems.add(number, str(bad))
                continue
            side = side or min(image.size)
            pictures.append(np.asarray(image if image.size == (side, side) else image.resize((side, side))))
            labels.append(label)
        problems.check()
    if not pictures:
        raise InvalidInput(f"{', '.join(map(str, paths))}: no rows to read")
    renamed = columns.names or {str(number): name for number, name in enumerate(label_names(paths[0]))}
    labels = [renamed.get(label, label) for label in labels]
    known = list(names or dict.fromkeys(renamed.values()) or sorted(set(labels)))
    refuse_foreign(labels, known, paths[0])
    numbers = {name: index for index, name in enumerate(known)}
    return Labelled(np.stack(pictures), np.array([numbers[label] for label in labels]), known)


def _decoded(value: object, column: str) -> Any:
    """A Pillow image out of the bytes of a file, as tables hold them: bare, or as `datasets` writes them."""
    pillow = need("PIL.Image", extra="image")
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise BadRow(f"'{column}' is no image: expected the bytes of a PNG or JPEG file")
    try:
        return pillow.fromarray(decoded(data))
    except InvalidInput as error:
        raise BadRow(f"'{column}': {error}") from None


# Changing -------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """Pictures where they are learnt from: on a GPU if there is one, as bytes."""

    pixels: Tensor  # [N, 3, side, side], uint8
    labels: Tensor
    normal: Tensor  # [2, 3, 1, 1]: the mean and the deviation of colours from 0 to 1

    @classmethod
    def of(cls, rows: Labelled, prepared: Any, device: str) -> Shown:
        pixels = torch.from_numpy(rows.pixels).permute(0, 3, 1, 2).contiguous()
        normal = torch.tensor([prepared.image_mean, prepared.image_std])[..., None, None]
        return cls(pixels.to(device), torch.from_numpy(rows.labels).to(device), normal.to(device))

    def normalised(self, pixels: Tensor) -> Tensor:
        return (pixels - self.normal[0]) / self.normal[1]

    def plain(self, places: Tensor | slice) -> Tensor:
        """Pictures as they are, as the model reads them."""
        return self.normalised(self.pixels[places].float() / 255)

    @torch.no_grad()
    def changed(self, places: Tensor, drawn: Tensor) -> ChangedBatch:
        """Pictures changed by numbers from 0 to 1, [B, DRAWN]."""
        move, colour, hide, mix = torch.split(drawn, [7, 3, 2, 4], 1)
        with torch.autocast(drawn.device.type, enabled=False):  # bfloat16 cannot tell the places of pixels apart
            pixels = self.normalised(coloured(moved(self.pixels[places].float() / 255, move), colour))
            return mixed(hidden(pixels, hide), self.labels[places], mix)


def drawn_batches(n: int, size: int, seed: int, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Of the steps from one to another, the rows that each reads, shuffled anew in every epoch, and how they are
    changed: [steps, B] and [steps, B, DRAWN]."""
    rows, drawn = [], []
    for step in range(start, end):
        places = np.arange(step * size, (step + 1) * size)
        epochs = range(places[0] // n, places[-1] // n + 1)
        rows.append(np.concatenate([order(seed, each, n)[places[places // n == each] % n] for each in epochs]))
        drawn.append(torch.rand(size, DRAWN, generator=torch.Generator().manual_seed(hash((seed, step)) % 2**31)))
    return torch.from_numpy(np.stack(rows)), torch.stack(drawn)


@lru_cache(maxsize=2)  # a batch may lie across the border of two epochs
def order(seed: int, epoch: int, n: int) -> npt.NDArray[np.int64]:
    """In which order the rows are read in one epoch."""
    return np.random.default_rng((seed, epoch)).permutation(n)


class ChangedBatch(NamedTuple):
    """Pictures for the model, and their two labels: the first counts by `share`, the other by the rest."""

    pixels: Tensor
    labels: Tensor
    others: Tensor
    share: Tensor


def moved(pixels: Tensor, drawn: Tensor) -> Tensor:
    """Shifted by whole pixels and mirrored; half of them also turned, sheared and scaled. `drawn`: [B, 7]."""
    side = pixels.shape[-1]
    even = 2 * drawn - 1
    bent = (drawn[:, 0] < 0.5).float()
    turn, shear, scale = (even[:, 1 + i] * bent * most for i, most in enumerate((TURN, SHEAR, SCALE)))
    mirror = 1 - 2 * (drawn[:, 4] < 0.5).float()
    shift = (even[:, 5:7] * SHIFT * side).round() * 2 / side
    cos, sin = torch.cos(turn) * (1 + scale), torch.sin(turn) * (1 + scale)
    rows = torch.stack([cos * mirror, -sin + shear * cos, sin * mirror, cos + shear * sin], 1).view(-1, 2, 2)
    grid = functional.affine_grid(torch.cat([rows, shift[..., None]], 2), list(pixels.shape), align_corners=False)
    return functional.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)


def coloured(pixels: Tensor, drawn: Tensor) -> Tensor:
    """Brightness, contrast and saturation varied. `drawn`: [B, 3]."""
    light, contrast, colour = (1 + (2 * drawn - 1) * COLOUR).T[..., None, None, None]
    pixels = pixels * light
    grey = pixels.mean(1, keepdim=True)
    pixels = grey + (pixels - grey) * colour
    middle = grey.mean((2, 3), keepdim=True)
    varied: Tensor = middle + (pixels - middle) * contrast
    return varied.clamp(0, 1)


def hidden(pixels: Tensor, drawn: Tensor) -> Tensor:
    """A square of each set to the mean colour, also where it lies partly outside. `drawn`: [B, 2]."""
    side = pixels.shape[-1]
    size = max(1, round(HOLE * side))
    corner = (drawn * (side + size - 1)).floor() + 1 - size
    return pixels.masked_fill(_box(corner, drawn.new_full((len(drawn),), size), side), 0)


def mixed(pixels: Tensor, labels: Tensor, drawn: Tensor) -> ChangedBatch:
    """In half of the pictures a square replaced by that of the one before, whose label counts by the area.
    `drawn`: [B, 4]."""
    side = pixels.shape[-1]
    cut = (side * drawn[:, 1].sqrt()).round() * (drawn[:, 0] < 0.5)  # areas drawn evenly
    corner = (drawn[:, 2:] * (side - cut[:, None] + 1)).floor()
    pixels = torch.where(_box(corner, cut, side), pixels.roll(1, 0), pixels)
    return ChangedBatch(pixels, labels, labels.roll(1, 0), 1 - cut**2 / side**2)


def _box(corner: Tensor, size: Tensor, side: int) -> Tensor:
    """Which pixels lie in the square of each picture: [B, 1, side, side] of corners [B, 2] and sizes [B]."""
    place = torch.arange(side, device=corner.device)
    inside = (place >= corner[..., None]) & (place < (corner + size[:, None])[..., None])  # [B, 2, side]
    return (inside[:, 0, :, None] & inside[:, 1, None, :])[:, None]


def mixed_loss(
    answers: Classifier,
    shown: Shown,
    places: Tensor,
    drawn: Tensor,
    smoothing: float = SMOOTHING,
    teacher: Classifier | None = None,
) -> Tensor:
    """Of a batch of pictures, each with two labels."""
    read = shown.changed(places, drawn)
    logits = answers(read.pixels)
    own, other = (
        functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        for labels in (read.labels, read.others)
    )
    loss: Tensor = (read.share * own + (1 - read.share) * other).mean()
    return loss if teacher is None else distilled(loss, logits, teacher(read.pixels))


# Measuring ------------------------------------------------------------------------------------------------


def accuracy(answers: Classifier, shown: Shown, batch: int) -> dict[str, float]:
    """How often a classifier of pictures is right, and its loss."""
    right = loss = 0.0
    for start in range(0, len(shown.labels), batch):
        some = slice(start, start + batch)
        logits = answers(shown.plain(some))
        right += float((logits.argmax(-1) == shown.labels[some]).sum())
        loss += float(functional.cross_entropy(logits.float(), shown.labels[some], reduction="sum"))
    return {"loss": loss / len(shown.labels), "accuracy": right / len(shown.labels)}


@torch.inference_mode()
def measure(model: str, data: Path, columns: ImageColumns, device: str = "cpu", batch: int = 256) -> Score:
    """How often a classifier of pictures is right."""
    network = checkpoints.measured(model, checkpoints.OF_PICTURES, device)
    from transformers import AutoImageProcessor

    names = [network.config.id2label[index] for index in range(network.config.num_labels)]
    seen = read([data], columns, names, network.config.image_size)
    shown = Shown.of(seen, AutoImageProcessor.from_pretrained(checkpoints.locate(model)), device)
    right = accuracy(partial(_logits, network), shown, batch)["accuracy"]
    return Score("all", round(right * len(seen.labels)), len(seen.labels))
