"""The method that CONTRIBUTING.md shows can be typed as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from wherefrom.method import base, citations

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.mark.skipif(not PAGE.exists(), reason="CONTRIBUTING.md is not beside the tests")
def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(citations, "AUTHOR_2030", citations.ABNAR_2020, raising=False)
    for name in ("_entries", "_names"):
        monkeypatch.setattr(base.METHODS, name, dict(getattr(base.METHODS, name)))
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks[:2]:
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    assert len(names["maps"]) == 10
    assert all(bool((layer >= 0).all()) and layer.dim() == 3 for layer in names["maps"])
    assert isinstance(names["maps"][0], torch.Tensor)
    assert base.lookup("VN")[0].options == {"power": 2.0}
