"""Access to the golden numbers: the whole set beside the checkout if it is there, else the trimmed fixtures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures" / "golden"
SHARED = HERE.parent.parent / "shared" / "golden"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Golden:
    """One case: a model and the numbers of each method, `case["globenc", "sent1_W"]`."""

    name: str
    folder: Path
    model_folder: Path

    @cached_property
    def _arrays(self) -> dict[tuple[str, str], Array]:
        found: dict[tuple[str, str], Array] = {}
        for file in sorted(self.folder.glob("*.npz")):
            with np.load(file) as archive:
                for key in archive:
                    method, _, rest = key.rpartition("/")
                    found[method or file.stem, rest] = archive[key]
        return found

    def __getitem__(self, key: tuple[str, str]) -> Array:
        return self._arrays[key]

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._arrays

    def keys(self, method: str) -> list[str]:
        """The keys of one method, e.g. `sent0_W`."""
        return [key for name, key in self._arrays if name == method]

    def sentences(self, method: str) -> list[str]:
        """The sentences (`sent0`, …) that a method has numbers for."""
        return sorted({key.split("_")[0] for key in self.keys(method) if key.startswith("sent")})

    def ids(self, sentence: str) -> list[int]:
        ids: list[int] = self["inputs", f"{sentence}_input_ids"].tolist()
        return ids

    def model(self, dtype: torch.dtype = torch.float64) -> transformers.PreTrainedModel:
        """A fresh copy of the model, so that no test sees what another did to it."""
        config = transformers.AutoConfig.from_pretrained(self.model_folder)
        cls = getattr(transformers, config.architectures[0])
        model: transformers.PreTrainedModel = cls(config)
        missing = model.load_state_dict(load_file(self.model_folder / "model.safetensors"), strict=False)
        assert not missing.unexpected_keys
        model.tie_weights()
        return model.to(dtype).eval()


@cache
def cases() -> dict[str, Golden]:
    """Every case by name; the whole set takes precedence over the fixtures."""
    found = {folder.name: Golden(folder.name, folder, folder) for folder in FIXTURES.iterdir() if folder.is_dir()}
    if SHARED.is_dir():
        for folder in SHARED.iterdir():
            if (folder / "model").is_dir():
                found[folder.name] = Golden(folder.name, folder, folder / "model")
    return dict(sorted(found.items()))


def having(method: str) -> list[Golden]:
    """The cases that hold numbers of a method."""
    return [case for case in cases().values() if case.keys(method)]
