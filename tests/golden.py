"""Golden numbers: the full set in `../shared` if it is beside the checkout, else the trimmed one in tests/fixtures.

Both have the layout GROUP/CASE/FILE.npz, with the model of a case in GROUP/CASE/model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
SHARED = HERE.parent.parent / "shared"
ENCODERS, DECODERS, BEYOND = "golden", "golden-2/decoders", "golden-2/beyond"

Array = np.ndarray[Any, Any]


@cache
def case_folders(group: str) -> dict[str, Path]:
    """List the folders of a group's cases by name; one in `../shared` takes precedence over its trimmed copy."""
    groups = [root / group for root in (FIXTURES, SHARED) if (root / group).is_dir()]
    folders = {folder.name: folder for path in groups for folder in path.iterdir() if folder.is_dir()}
    return dict(sorted(folders.items()))


def case_folder(group: str, case: str) -> Path:
    """Find the folder of a case, or skip the test that asks for it where neither set has it."""
    if case not in case_folders(group):
        pytest.skip(f"{group}/{case} is in neither ../shared nor tests/fixtures")
    return case_folders(group)[case]


def load_arrays(group: str, case: str, file: str) -> Any:
    """Open one file of arrays, which are read when they are looked up."""
    return np.load(case_folder(group, case) / f"{file}.npz")


@dataclass(frozen=True)
class Golden:
    """An encoder and the numbers of each method, `case["globenc", "sent1_W"]`."""

    name: str
    folder: Path

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
        config = transformers.AutoConfig.from_pretrained(self.folder / "model")
        cls = getattr(transformers, config.architectures[0])
        model: transformers.PreTrainedModel = cls(config)
        missing = model.load_state_dict(load_file(self.folder / "model" / "model.safetensors"), strict=False)
        assert not missing.unexpected_keys
        model.tie_weights()
        return model.to(dtype).eval()


@cache
def cases() -> dict[str, Golden]:
    """List the encoders by name."""
    folders = case_folders(ENCODERS)
    return {name: Golden(name, folder) for name, folder in folders.items() if (folder / "model").is_dir()}


def having(method: str) -> list[Golden]:
    """List the encoders that have numbers of a method."""
    return [case for case in cases().values() if case.keys(method)]
