"""The method, the metric and the checks that CONTRIBUTING.md shows can be typed as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from wherefrom.method import base
from wherefrom.metric.base import METRICS
from wherefrom.metric.names import metrics

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="CONTRIBUTING.md is not beside the tests")


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics()  # all are registered before the registry is copied, and so come back with it
    for registry in (base.METHODS, METRICS):
        for part in ("_entries", "_names"):
            monkeypatch.setattr(registry, part, dict(getattr(registry, part)))
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    assert len(names["maps"]) == 10
    assert all(bool((layer >= 0).all()) and layer.dim() == 3 for layer in names["maps"])
    assert isinstance(names["maps"][0], torch.Tensor)
    assert base.lookup("VN")[0].options == {"power": 2.0}
    assert 0 < names["run"].mean("alti", "concentration(power=2)") < 1


def test_every_identity_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"- `{word}`: {said}\n" in page for word, said in base.CHECKS.items())
