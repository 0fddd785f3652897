"""What every test shares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tests import tiny, golden and oracles by name
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for the network
os.environ.pop("COLORFGBG", None)  # what is shown must not depend on whose terminal it is

settings.register_profile("whence", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("whence")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tiny tensors lose more to a second thread than they gain, above all when tests run side by side."""
    torch.set_num_threads(1)
