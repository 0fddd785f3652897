"""The mean of several fine-tuned models' weights (model soups, Wortsman et al. 2022).

Runs that start from the same weights and differ in their seed end near each other; their mean is one model that is
usually a little better than each of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from wherefrom.errors import InvalidInput, InvalidOption, RunConflict, UnknownName
from wherefrom.model.loading import refuse_unfinished

WEIGHTS = "model.safetensors"


def average(folders: Sequence[Path], out: Path) -> None:
    """Write the mean of the folders' weights to `out`, with the first folder's config and tokenizer."""
    if len(folders) < 2:
        raise InvalidOption("an average needs two models at least")
    for folder in folders:
        refuse_unfinished(str(folder), str(folder))
        if not (folder / WEIGHTS).is_file():
            raise UnknownName(f"{folder}: no {WEIGHTS} there; name folders that `wherefrom train` wrote")
    if (out / WEIGHTS).exists():
        raise RunConflict(f"{out} holds a model already; choose another folder for the average")
    first = load_file(folders[0] / WEIGHTS)
    total = {name: tensor.to(torch.float64) for name, tensor in first.items()}
    labels = _labels(folders[0])
    for folder in folders[1:]:
        other = load_file(folder / WEIGHTS)
        differing = [
            n
            for n in total.keys() | other.keys()
            if n not in other or n not in total or other[n].shape != total[n].shape
        ]
        if differing or _labels(folder) != labels:
            what = differing[0] if differing else "the labels"
            raise InvalidInput(f"{folder} is another kind of model than {folders[0]}: {what} differ")
        for name, tensor in other.items():
            total[name] += tensor
    mean = {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}
    out.mkdir(parents=True, exist_ok=True)
    for file in folders[0].iterdir():
        if file.suffix in (".json", ".txt") and file.name != "training.json":
            shutil.copyfile(file, out / file.name)
    save_file(mean, out / WEIGHTS, metadata={"format": "pt"})


def _labels(folder: Path) -> object:
    return json.loads((folder / "config.json").read_text()).get("id2label")
